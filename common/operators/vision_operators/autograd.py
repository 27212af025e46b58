"""The operators with gradients, on torch tensors (on a GPU in place, on the CPU by the virtual
GPU).

The kernels of attention and linear layers take float16. With cast=True other floating types are
rounded to it on the way in and results come back in the caller's type; gradients are multiplied by
a power of two first, so that float16 holds the small ones, and divided by it behind. Without it a
tensor of another type is refused.
"""
import math

import torch

from . import functions
from .library import BadArgument


class _Underivable(torch.autograd.Function):
    """A gradient as it is, whose own gradient is refused."""

    @staticmethod
    def forward(ctx, gradient):
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx, _):
        raise RuntimeError("the operators of vision_operators have no second derivatives")


def _once(backward):
    """Without a graph behind the gradients. Where a graph is wanted (create_graph=True) a later use
    of it is refused; torch's once_differentiable would leave it out where the arriving gradient is
    a constant."""
    def run(ctx, *arrived):
        with torch.no_grad():
            gradients = backward(ctx, *arrived)
        if not torch.is_grad_enabled():
            return gradients
        return tuple(None if g is None else _Underivable.apply(g.detach().requires_grad_())
                     for g in gradients)
    return run


def _half(name, tensor, cast):
    if not isinstance(tensor, torch.Tensor):
        raise BadArgument(f"{name} is a {type(tensor).__name__}, must be a torch tensor")
    if tensor.dtype == torch.float16:
        return tensor
    if not cast:
        raise BadArgument(f"{name} has type {str(tensor.dtype).removeprefix('torch.')}, must be "
                          f"float16 "
                          "(cast=True rounds it)")
    if not tensor.dtype.is_floating_point:
        raise BadArgument(f"{name} has type {str(tensor.dtype).removeprefix('torch.')}, must be a "
                          f"floating type")
    half = tensor.half()
    # On a GPU nothing waits for a look at the numbers.
    if tensor.device.type == "cpu" and bool((half.isinf() & tensor.isfinite()).any()):
        largest = float(tensor[tensor.isfinite()].abs().max())
        raise BadArgument(f"{name} has an element of size {largest:g}, must be at most 65504, "
                          f"which float16 holds")
    return half


def _scaled_half(gradient, exact, added=1):
    """A gradient in float16, and what it was multiplied by: the power of two that brings the
    largest element to 8 .. 16, or less, so that float16 holds a sum of `added` of them. exact:
    nothing is multiplied, since the caller has float16 itself."""
    if exact:
        return gradient.contiguous(), None
    largest = gradient.detach().abs().amax().float().clamp(min=2.0 ** -100, max=2.0 ** 127)
    exponent = min(3, 14 - (added - 1).bit_length())
    factor = torch.exp2(exponent - torch.floor(torch.log2(largest)))
    return (gradient.float() * factor).half().contiguous(), factor


def _unscaled(gradient, factor, dtype):
    if gradient is None:
        return None
    return gradient.to(dtype) if factor is None else (gradient.float() / factor).to(dtype)


def _rows(name, tensor):
    """[..., columns] as [rows, columns], the same memory."""
    if not isinstance(tensor, torch.Tensor):
        raise BadArgument(f"{name} is a {type(tensor).__name__}, must be a torch tensor")
    if tensor.dim() < 1:
        raise BadArgument(f"{name} has shape [], must be [..., columns]")
    if not tensor.is_contiguous():
        raise BadArgument(f"{name} has strides {list(tensor.stride())}, must be contiguous: "
                          f"{name}.contiguous()")
    return tensor.view(-1, tensor.shape[-1])


# ---- Attention -----------------------------------------------------------------------------------

class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, scale, deterministic, cast):
        halves = [_half("attention: " + name, x, cast) for name,
                  x in (("q", q), ("k", k), ("v", v))]
        o, log_sum_exp = functions.attention_forward(*halves, scale, any(ctx.needs_input_grad[:3]))
        ctx.scale, ctx.deterministic, ctx.types = scale, deterministic, (q.dtype, k.dtype, v.dtype)
        if log_sum_exp is not None:
            ctx.save_for_backward(*halves, o, log_sum_exp)
        return o.to(q.dtype)

    @staticmethod
    @_once
    def backward(ctx, d_o):
        q, k, v, o, log_sum_exp = ctx.saved_tensors
        d_o, factor = _scaled_half(d_o, ctx.types[0] == torch.float16, added=q.shape[2])
        gradients = functions.attention_backward(q, k, v, o, log_sum_exp, d_o, ctx.scale,
                                                 ctx.deterministic)
        return (*(_unscaled(g, factor, t) for g, t in zip(gradients, ctx.types)), None, None, None)


def attention(q, k, v, scale=None, deterministic=True, cast=False):
    """softmax(scale q kT) v, [batch, heads, tokens, head_dim] with head_dim 32, 64 or 128, as many
    keys as queries, contiguous. deterministic: gradients with the same bits twice."""
    return Attention.apply(q, k, v, functions.default_scale(q, scale), deterministic, cast)


# What a key that is not there adds to a score before scale: exp of it is 0 for every scale from
# 1/256 on.
_MASK = 256.0


def cross_attention(q, k, v, scale=None, deterministic=True, cast=False):
    """The same with another number of keys than queries: q [batch, heads, queries, head_dim], k and
    v [batch, heads, keys, head_dim], head_dim at most 127.

    The kernels know one number of tokens, so the shorter side is filled up, and head_dim grows to
    the next of 32, 64 and 128 that has room for one more: there each query has 256, a key that was
    added -256, the others 0. Added keys have weight exp(-65536 scale), which is 0 in fp32. It costs
    what attention of the longer side costs with that head_dim."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.dim() != 4:
            raise BadArgument(f"cross_attention: {name} has shape {list(x.shape)}, must be [batch, "
                              f"heads, tokens, "
                              "head_dim]")
    queries, keys, head_dim = q.shape[2], k.shape[2], q.shape[3]
    if k.shape != v.shape or k.shape[:2] != q.shape[:2] or k.shape[3] != head_dim or \
            not 1 <= head_dim <= 127:
        raise BadArgument(f"cross_attention: q has shape {list(q.shape)}, k {list(k.shape)}, v "
                          f"{list(v.shape)}: must "
                          "be [batch, heads, queries, head_dim] and twice [batch, heads, keys, "
                          "head_dim], "
                          "head_dim at most 127")
    scale = functions.default_scale(q, scale)
    if scale < 1 / 256:
        raise BadArgument(f"cross_attention: scale is {scale}, must be at least 1/256: keys that "
                          f"are filled in would "
                          "count")
    wide = next(d for d in (32, 64, 128) if d > head_dim)
    tokens = max(queries, keys)

    def filled(x):
        return torch.nn.functional.pad(x, (0, wide - head_dim, 0, tokens - x.shape[2]))

    q_mask = torch.zeros(wide, dtype=q.dtype, device=q.device)
    q_mask[head_dim] = _MASK
    k_mask = torch.zeros(tokens, wide, dtype=k.dtype, device=k.device)
    k_mask[keys:, head_dim] = -_MASK
    o = attention((filled(q) + q_mask).contiguous(), (filled(k) + k_mask).contiguous(),
                  filled(v).contiguous(),
                  scale, deterministic, cast)
    return o[:, :, :queries, :head_dim]


# ---- Deformable attention ------------------------------------------------------------------------

class DeformableAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value, locations, weights, level_sizes, deterministic, cast):
        arrays = [_half("deformable_attention: " + name, x, cast)
                  for name, x in (("value", value), ("locations", locations), ("weights", weights))]
        ctx.level_sizes, ctx.deterministic = level_sizes, deterministic
        ctx.types = (value.dtype, locations.dtype, weights.dtype)
        ctx.save_for_backward(*arrays)
        return functions.deformable_attention_forward(arrays[0], level_sizes,
                                                      *arrays[1:]).to(value.dtype)

    @staticmethod
    @_once
    def backward(ctx, d_out):
        value, locations, weights = ctx.saved_tensors
        d_out, factor = _scaled_half(d_out, ctx.types[0] == torch.float16)
        gradients = functions.deformable_attention_backward(value, ctx.level_sizes, locations,
                                                            weights, d_out,
                                                            ctx.deterministic)
        return (*(_unscaled(g, factor, t) for g, t in zip(gradients, ctx.types)), None, None, None)


def deformable_attention(value, level_sizes, locations, weights, deterministic=True, cast=False):
    """Multi-scale deformable attention, [batch, queries, heads * channels]; arguments in the order
    and the form of other implementations: value [batch, pixels, heads, channels], level_sizes
    [(height, width), ...] or a tensor [levels, 2], locations [batch, queries, heads, levels,
    points, (x, y)], weights the same without (x, y)."""
    if isinstance(level_sizes, torch.Tensor):
        level_sizes = level_sizes.tolist()
    return DeformableAttention.apply(value, locations, weights, level_sizes, deterministic, cast)


# ---- LayerNorm -----------------------------------------------------------------------------------

class LayerNorm(torch.autograd.Function):
    """(x, residual or None) to (y, sum): sum is x where there is no residual."""

    @staticmethod
    def forward(ctx, x, residual, scale, bias, epsilon):
        rows = _rows("layer_norm: x", x)
        added = None if residual is None else _rows("layer_norm: residual", residual)
        y, total = functions.layer_norm_forward(rows, scale, bias, added, epsilon)
        ctx.epsilon = epsilon
        ctx.residual_shape = None if residual is None else residual.shape
        ctx.save_for_backward(rows if total is None else total, scale)
        if total is None:
            return y.view(x.shape), None
        return y.view(x.shape), total.view(x.shape)

    @staticmethod
    @_once
    def backward(ctx, dy, d_sum):
        normalized, scale = ctx.saved_tensors
        dx, d_scale, d_bias = functions.layer_norm_backward(_rows("dy", dy.contiguous()),
                                                            normalized, scale,
                                                            ctx.epsilon)
        dx = dx.view(dy.shape)
        if d_sum is not None:
            dx = dx + d_sum
        d_residual = None if ctx.residual_shape is None else dx.view(ctx.residual_shape)
        return dx, d_residual, d_scale.to(scale.dtype), d_bias.to(scale.dtype), None


def layer_norm(x, scale, bias, epsilon=1e-5):
    """LayerNorm over the last dimension, 64 to 4096 long; all float16 or all float32."""
    return LayerNorm.apply(x, None, scale, bias, epsilon)[0]


def layer_norm_residual(x, residual, scale, bias, epsilon=1e-5):
    """(LayerNorm of x + residual, x + residual)."""
    return LayerNorm.apply(x, residual, scale, bias, epsilon)


# ---- Linear layers -------------------------------------------------------------------------------

def _in_eights(x):
    """Zeros behind each row up to a multiple of 8: what a product adds up over comes in pieces of
    16 bytes."""
    return torch.nn.functional.pad(x, (0, -x.shape[-1] % 8)).contiguous()


def _product(x, weight, gelu=False, bias=None, residual=None):
    """act(x weightT + bias) + residual, [rows, in] and [out, in] with any `in`."""
    return functions.linear_forward(_in_eights(x), _in_eights(weight), bias, residual, gelu)


def _gelu_slope(v):
    """The derivative of v Phi(v) in float32."""
    v = v.float()
    density = torch.exp(-0.5 * v * v) * math.sqrt(0.5 / math.pi)
    return 0.5 * (1 + torch.erf(v * math.sqrt(0.5))) + v * density


def _wide_product(x, weight):
    """x weightT in float32. Both are made smaller by powers of two first, where a sum could become
    larger than float16 holds."""
    bound = x.shape[1] * x.abs().amax().float() * weight.abs().amax().float()
    exponent = torch.ceil(torch.log2(bound.clamp(min=1.0) / 2.0 ** 15)).clamp(min=0)
    # NaN and infinity stay what they are
    exponent = torch.nan_to_num(exponent, nan=0.0, posinf=0.0)
    of_x = torch.exp2(torch.floor(exponent / 2))
    of_weight = torch.exp2(exponent) / of_x
    y = _product((x.float() / of_x).half(), (weight.float() / of_weight).half())
    return y.float() * of_x * of_weight


def _linear_gradients(dy, x, weight, needs, product):
    """dx, d_weight and d_bias of y = x weightT + bias; sums over rows as products of the same
    kernel. product: _product, or _wide_product of a scaled dy, whose sums float16 need not hold."""
    return (product(dy, weight.t().contiguous()) if needs[0] else None,
            product(dy.t().contiguous(), x.t().contiguous()) if needs[1] else None,
            dy.float().sum(0) if needs[2] else None)


class Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, residual, gelu, cast):
        named = (("x", x), ("weight", weight), ("bias", bias), ("residual", residual))
        ctx.types = [None if t is None else t.dtype for _, t in named]
        x16, w16, b16, r16 = [None if t is None else _half("linear: " + name, t, cast) for name,
                              t in named]
        rows = _rows("linear: x", x16)
        added = None if r16 is None else _rows("linear: residual", r16)
        ctx.gelu, ctx.shape = gelu, x.shape
        ctx.residual_shape = None if residual is None else residual.shape
        ctx.save_for_backward(rows, w16, b16)
        y = functions.linear_forward(rows, w16, b16, added, gelu)
        return y.view(*x.shape[:-1], weight.shape[0]).to(x.dtype)

    @staticmethod
    @_once
    def backward(ctx, dy):
        x, weight, bias = ctx.saved_tensors
        d_residual = dy.reshape(ctx.residual_shape) if ctx.needs_input_grad[3] else None
        dy, factor = _scaled_half(dy, ctx.types[0] == torch.float16)
        dy = _rows("dy", dy)
        if ctx.gelu:
            dy = (dy.float() * _gelu_slope(_product(x, weight, bias=bias))).half()
        dx, d_weight, d_bias = _linear_gradients(dy, x, weight, ctx.needs_input_grad,
                                                 _product if factor is None else _wide_product)
        dx = None if dx is None else dx.view(ctx.shape)
        return (_unscaled(dx, factor, ctx.types[0]), _unscaled(d_weight, factor, ctx.types[1]),
                _unscaled(d_bias, factor, ctx.types[2]), d_residual, None, None)


def linear(x, weight, bias=None, residual=None, gelu=False, cast=False):
    """act(x weightT + bias) + residual: x [..., in], weight [out, in], `in` a multiple of 8; act is
    the exact GELU or nothing."""
    return Linear.apply(x, weight, bias, residual, gelu, cast)


class Mlp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w1, b1, w2, b2, residual, cast):
        named = (("x", x), ("w1", w1), ("b1", b1), ("w2", w2), ("b2", b2), ("residual", residual))
        ctx.types = [None if t is None else t.dtype for _, t in named]
        halves = [None if t is None else _half("mlp: " + name, t, cast) for name, t in named]
        rows = _rows("mlp: x", halves[0])
        added = None if residual is None else _rows("mlp: residual", halves[5])
        ctx.shape, ctx.residual_shape = x.shape, None if residual is None else residual.shape
        ctx.save_for_backward(rows, *halves[1:4])
        y = functions.mlp_forward(rows, *halves[1:5], added)
        return y.view(*x.shape[:-1], w2.shape[0]).to(x.dtype)

    @staticmethod
    @_once
    def backward(ctx, dy):
        x, w1, b1, w2 = ctx.saved_tensors
        needs = ctx.needs_input_grad
        d_residual = dy.reshape(ctx.residual_shape) if needs[5] else None
        dy, factor = _scaled_half(dy, ctx.types[0] == torch.float16)
        dy = _rows("dy", dy)
        # The hidden array was scratch: it is computed once more.
        hidden = _product(x, w1, gelu=True, bias=b1)
        product = _product if factor is None else _wide_product
        d_hidden, d_w2, d_b2 = _linear_gradients(dy, hidden, w2, (True, needs[3], needs[4]),
                                                 product)
        d_before = d_hidden.float() * _gelu_slope(_product(x, w1, bias=b1))
        d_before, more = _scaled_half(d_before.to(dy.dtype) if factor is None else d_before,
                                      factor is None)
        dx, d_w1, d_b1 = _linear_gradients(d_before, x, w1, needs, product)
        dx = None if dx is None else dx.view(ctx.shape)
        first = None if factor is None else factor * more
        gradients = [_unscaled(g, f, t) for g, f, t in
                     zip((dx, d_w1, d_b1, d_w2, d_b2), (first,) * 3 + (factor,) * 2, ctx.types)]
        return (*gradients, d_residual, None)


def mlp(x, w1, b1, w2, b2, residual=None, cast=False):
    """w2 gelu(w1 x + b1) + b2 + residual: x [..., in], w1 [hidden, in], w2 [out, hidden]; `in` and
    `hidden` multiples of 8. The hidden array is computed again for the gradients, not kept."""
    return Mlp.apply(x, w1, b1, w2, b2, residual, cast)


# ---- Convolutional projection --------------------------------------------------------------------

class Projection(torch.autograd.Function):
    """BatchNorm's results for q, k and v. w [3, channels, 3, 3], scale and shift [3, channels]."""

    @staticmethod
    def forward(ctx, x, w, scale, shift, height, width, running_mean, running_variance, training):
        maps, statistics = functions.projection_forward(x, w, scale, shift, height, width,
                                                        running_mean,
                                                        running_variance, training)
        ctx.size, ctx.training = (height, width), training
        ctx.save_for_backward(x, w, *maps, *statistics)
        class_tokens = x.shape[1] - height * width
        normalized = []
        for of_map, factor, offset in zip(maps, statistics[2], statistics[3]):
            y = (of_map.float() * factor + offset).to(x.dtype)
            y[:, :class_tokens] = of_map[:, :class_tokens]
            normalized.append(y)
        return tuple(normalized)

    @staticmethod
    @_once
    def backward(ctx, *gradients):
        x, w, *rest = ctx.saved_tensors
        found = functions.projection_backward(x, w, rest[:3], rest[3:],
                                              [g.to(x.dtype).contiguous() for g in gradients],
                                              *ctx.size, ctx.training)
        return (*found, None, None, None, None, None)


def projection(x, w, scale, shift, height, width, running_mean=None, running_variance=None,
               training=True):
    """CvT's convolutional projection: q, k and v of x [batch, tokens, channels], each a depthwise 3
    x 3 convolution with padding 1 (stride 1 for q, 2 for k and v) and BatchNorm; a class token in
    front is passed on. x float16 or float32; w [3, channels, 3, 3], scale, shift and the running
    statistics [3, channels] float32. training: the batch's statistics, and running ones are brought
    forward in their place; else the running ones."""
    return Projection.apply(x, w.float(), scale.float(), shift.float(), height, width, running_mean,
                            running_variance,
                            training)


# ---- Convolution and instance norm ---------------------------------------------------------------

def conv_norm(x, weight, gamma, beta, residual=None, stride=1, padding=(1, 1, 1, 1), reflect=False,
              relu=True,
              epsilon=1e-5):
    """relu(instance norm of the convolution of x + residual); see functions.conv_norm_forward.
    Chapter 8 has no gradients: under torch.no_grad() alone, or on tensors that need none."""
    if torch.is_grad_enabled():
        for name, t in (("x", x), ("weight", weight), ("gamma", gamma), ("beta", beta),
                        ("residual", residual)):
            if t is not None and t.requires_grad:
                raise BadArgument(f"conv_norm: {name} requires a gradient, which this operator has "
                                  f"not: call it under "
                                  f"torch.no_grad(), or with {name}.detach()")
    return functions.conv_norm_forward(x, weight, gamma, beta, residual, stride, padding, reflect,
                                       relu, epsilon)
