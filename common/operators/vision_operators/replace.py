"""Puts the operators into models without touching their code.

    with vision_operators.replaced(model) as used:
        model(x)
    print(used)         # calls by operator, and what was left to PyTorch with the reason

Inside the block torch.nn.functional.scaled_dot_product_attention and layer_norm are ours for every
caller, and of `model` each MLP of timm (timm.layers.Mlp), and each attention, projection and MLP of
Hugging Face's CvT. A call that our kernels cannot do goes to PyTorch; `used` says why. Tensors of
other types than float16 are rounded to it where the kernel takes nothing else (attention, linear
layers).

Functions and classes are changed, never a module: it can be copied and pickled inside the block,
and a copy has PyTorch's own MLPs. Blocks may be nested and may end in any order, also in several
threads: the one that was entered last counts, and when the last one has ended all is as before.
"""
import collections
import contextlib
import threading

import torch

from . import autograd as kernels_with_gradients
from .library import BadArgument, DeviceError, MissingLibrary


class Used:
    """calls[operator] and left[(operator, reason)]: how many."""

    def __init__(self):
        self.calls, self.left = collections.Counter(), collections.Counter()

    def __str__(self):
        lines = [f"{name}: {count} calls" for name, count in sorted(self.calls.items())]
        lines += [f"{name}: {count} calls left to PyTorch: {reason}"
                  for (name, reason), count in sorted(self.left.items())]
        return "\n".join(lines) or "no call"

    def run(self, name, ours, theirs):
        """ours(), or where that refuses, theirs()."""
        try:
            result = ours()
        except BadArgument as reason:
            self.left[name, str(reason)] += 1
            return theirs()
        except (DeviceError, MissingLibrary):
            raise
        self.calls[name] += 1
        return result


def _attend(kernels, q, k, v, scale):
    """By the kernel as it is, or filled up where there are fewer keys, or another head_dim."""
    is_plain = q.shape == k.shape == v.shape and q.shape[-1] in (32, 64, 128)
    run = kernels.attention if is_plain else kernels.cross_attention
    return run(q.contiguous(), k.contiguous(), v.contiguous(), scale, cast=True)


def _attention(used, kernels, original):
    def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0,
                                     is_causal=False, scale=None,
                                     **others):
        def ours():
            for name, is_so in (("attn_mask", attn_mask is not None), ("dropout_p", dropout_p != 0),
                                ("is_causal", is_causal),
                                ("enable_gqa", others.get("enable_gqa", False))):
                if is_so:
                    raise BadArgument(f"attention: {name} is not supported")
            return _attend(kernels, query, key, value, scale)

        return used.run("attention", ours, lambda: original(query, key, value, attn_mask, dropout_p,
                                                            is_causal,
                                                            scale=scale, **others))
    return scaled_dot_product_attention


def _layer_norm(used, kernels, original):
    def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5):
        def ours():
            if len(normalized_shape) != 1 or tuple(normalized_shape) != tuple(input.shape[-1:]):
                raise BadArgument(f"layer_norm: normalized_shape is {list(normalized_shape)}, must "
                                  f"be the last dimension")
            if weight is None or bias is None:
                raise BadArgument("layer_norm: weight and bias must be there")
            return kernels.layer_norm(input.contiguous(), weight, bias, eps)

        return used.run("layer_norm", ours, lambda: original(input, normalized_shape, weight, bias,
                                                             eps))
    return layer_norm


def _is_exact_gelu(module):
    return isinstance(module, torch.nn.GELU) and getattr(module, "approximate", "none") == "none"


def _drops(*modules):
    """Whether one of these drops something now."""
    return any(m.p > 0 and m.training for m in modules if isinstance(m, torch.nn.Dropout))


def _timm_mlp(used, kernels, original):
    def forward(self, x):
        def ours():
            if not isinstance(self.fc1, torch.nn.Linear) or \
                    not isinstance(self.norm, torch.nn.Identity) or \
                    not _is_exact_gelu(self.act) or _drops(self.drop1, self.drop2):
                raise BadArgument("mlp: must be two linear layers with the exact GELU, without "
                                  "norm and dropout")
            return kernels.mlp(x.contiguous(), self.fc1.weight, self.fc1.bias, self.fc2.weight,
                               self.fc2.bias,
                                cast=True)
        return used.run("mlp", ours, lambda: original(self, x))
    return forward


def _cvt_intermediate(used, kernels, original):
    def forward(self, hidden_state):
        def ours():
            if not _is_exact_gelu(self.activation):
                raise BadArgument("linear: activation must be the exact GELU")
            return kernels.linear(hidden_state.contiguous(), self.dense.weight, self.dense.bias,
                                  gelu=True, cast=True)
        return used.run("linear with GELU", ours, lambda: original(self, hidden_state))
    return forward


def _cvt_output(used, kernels, original):
    def forward(self, hidden_state, input_tensor):
        def ours():
            if _drops(self.dropout):
                raise BadArgument("linear: no dropout")
            # The residual stays in the caller's type: it is added there.
            return kernels.linear(hidden_state.contiguous(), self.dense.weight, self.dense.bias,
                                   cast=True) + input_tensor
        return used.run("linear", ours, lambda: original(self, hidden_state, input_tensor))
    return forward


_PROJECTIONS = ("query", "key", "value")


def _require_projection(name, convolution, norm, stride):
    """Refuses what is not a depthwise 3 x 3 convolution and BatchNorm as the kernel has them."""
    if not isinstance(convolution, torch.nn.Conv2d) or not isinstance(norm, torch.nn.BatchNorm2d):
        raise BadArgument(f"projection: that of {name} must be a convolution and BatchNorm")
    channels = norm.num_features
    found = (convolution.kernel_size, convolution.stride, convolution.padding, convolution.dilation,
             convolution.groups, convolution.in_channels, convolution.out_channels,
             convolution.padding_mode, convolution.bias)
    if found != ((3, 3), (stride, stride), (1, 1), (1, 1), channels, channels, channels, "zeros",
                 None):
        raise BadArgument(f"projection: that of {name} must be a depthwise 3 x 3 convolution with "
                          f"stride "
                          f"{stride}, padding 1 and no bias")
    if (norm.eps, norm.momentum, norm.affine, norm.track_running_stats) != (1e-5, 0.1, True, True):
        raise BadArgument(f"projection: BatchNorm of {name} must have eps 1e-5, momentum 0.1, "
                          f"weights and "
                          "running statistics")


def _project(used, kernels, attention, tokens, height, width):
    """What the projections of a CvT's attention give for q, k and v, before their linear layers."""
    projections = [getattr(attention, "convolution_projection_" + name) for name in _PROJECTIONS]

    def ours():
        parts = [getattr(p, "convolution_projection", None) for p in projections]
        convolutions = [getattr(p, "convolution", None) for p in parts]
        norms = [getattr(p, "normalization", None) for p in parts]
        for arguments in zip(_PROJECTIONS, convolutions, norms, (1, 2, 2)):
            _require_projection(*arguments)
        training = norms[0].training
        if any(norm.training != training for norm in norms):
            raise BadArgument("projection: q, k and v must all be in training or none of them")
        running = [torch.stack([getattr(norm, name) for norm in norms])
                   for name in ("running_mean", "running_var")]
        found = kernels.projection(
            tokens.contiguous(), torch.stack([c.weight.squeeze(1) for c in convolutions]),
            torch.stack([norm.weight for norm in norms]),
            torch.stack([norm.bias for norm in norms]),
            height, width, *running, training)
        for i, norm in enumerate(norms if training else ()):
            norm.running_mean.copy_(running[0][i])
            norm.running_var.copy_(running[1][i])
            norm.num_batches_tracked.add_(1)
        return found

    def theirs():
        class_tokens = tokens.shape[1] - height * width
        photo = tokens[:, class_tokens:].permute(0, 2, 1).reshape(tokens.shape[0], -1, height,
                                                                  width)
        found = [p(photo) for p in projections]
        return [torch.cat((tokens[:, :class_tokens], y), 1)
                for y in found] if class_tokens else found

    return used.run("projection", ours, theirs)


def _cvt_attention(used, kernels, original):
    def forward(self, hidden_state, height, width):
        def ours():
            if _drops(self.dropout):
                raise BadArgument("attention: no dropout")
            # Whatever is refused is refused here, before a BatchNorm of the projections has counted
            # this batch.
            head_dim = self.embed_dim // self.num_heads
            if head_dim > 127 or self.scale < 1 / 256:
                raise BadArgument(f"attention: head_dim is {head_dim} and scale {self.scale}, must "
                                  f"be at most 127 and at "
                                  "least 1/256")
            found = _project(used, kernels, self, hidden_state, height, width)
            wide = [getattr(self, "projection_" + name)(y) for name, y in zip(_PROJECTIONS, found)]
            heads = [y.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for y in wide]
            return _attend(kernels, *heads, self.scale).transpose(1, 2).flatten(2)
        return used.run("attention", ours, lambda: original(self, hidden_state, height, width))
    return forward


# By class name and where it comes from, so that neither package has to be there.
_MODULES = {("timm.layers.mlp", "Mlp"): _timm_mlp,
            ("transformers.models.cvt.modeling_cvt", "CvtIntermediate"): _cvt_intermediate,
            ("transformers.models.cvt.modeling_cvt", "CvtOutput"): _cvt_output,
            ("transformers.models.cvt.modeling_cvt", "CvtSelfAttention"): _cvt_attention}


class _Block:
    """What one `replaced` puts in the place of what."""

    def __init__(self, model, kernels):
        self.used, self.kernels = Used(), kernels
        # By identity: a module may compare equal to another one.
        self.modules = {id(m): m for m in (model.modules() if model is not None else ())
                        if (type(m).__module__, type(m).__name__) in _MODULES}
        self.classes = {type(m) for m in self.modules.values()}


_lock = threading.Lock()
_blocks = []     # those that are open, the last one entered at the end
_originals = {}  # (torch.nn.functional or a class, name): what stood there before the first block


def _put(place, name, value):
    _originals.setdefault((place, name), getattr(place, name))
    setattr(place, name, value)


def _forward_of(kind):
    """For a class: ours for the modules of the last open block that has them, else its own."""
    original = _originals.get((kind, "forward"), kind.forward)
    make = _MODULES[kind.__module__, kind.__name__]

    def forward(self, *arguments, **named):
        for block in reversed(tuple(_blocks)):
            if id(self) in block.modules:
                return make(block.used, block.kernels, original)(self, *arguments, **named)
        return original(self, *arguments, **named)
    return forward


def _install():
    """Makes functions and classes what the open blocks want; with _lock held."""
    if _blocks:
        last, functional = _blocks[-1], torch.nn.functional
        for name, make in (("scaled_dot_product_attention", _attention),
                           ("layer_norm", _layer_norm)):
            original = _originals.get((functional, name), getattr(functional, name))
            _put(functional, name, make(last.used, last.kernels, original))
        for kind in {kind for block in _blocks for kind in block.classes}:
            _put(kind, "forward", _forward_of(kind))
        return
    for (place, name), original in _originals.items():
        setattr(place, name, original)
    _originals.clear()


@contextlib.contextmanager
def replaced(model=None, kernels=kernels_with_gradients):
    """See above. kernels: what has attention, cross_attention, layer_norm, linear, mlp and
    projection of autograd.py, for those who put something else there."""
    block = _Block(model, kernels)
    with _lock:
        _blocks.append(block)
        _install()
    try:
        yield block.used
    finally:
        with _lock:
            _blocks.remove(block)
            _install()
