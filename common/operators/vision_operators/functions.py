"""The C functions on torch tensors and NumPy arrays: results come back as what came in. No
gradients are recorded here; see autograd.py.

Every function raises BadArgument (a ValueError) that names the argument, what it is and what it
must be.
"""
import ctypes
import math

from .library import BadArgument, ConvNormOptions, Output, View, is_torch, run


def empty_like(array, shape, dtype=None):
    """An array of the same library on the same device; dtype None: of the same type."""
    if is_torch(array):
        import torch
        return torch.empty(shape, dtype=getattr(torch, dtype) if dtype else array.dtype,
                           device=array.device)
    import numpy
    return numpy.empty(shape, dtype=dtype or array.dtype)


def _shape(array):
    return tuple(getattr(array, "shape", ()))


def _call(function, inputs, outputs, order):
    """order: names, or what ctypes passes on. An array that is None is passed as null. What is
    brought forward in its place is an input and an output."""
    try:
        views = {name: View(name, array) for name,
                 array in {**inputs, **outputs}.items() if array is not None}
        arguments = []
        for item in order:
            if not isinstance(item, str):
                arguments.append(item)
            elif item not in views:
                arguments.append(None)
            else:
                arguments.append(Output(views[item], item in inputs) if item in outputs
                                 else views[item])
        run(function, list(views.values()), arguments)
    except BadArgument as error:
        text = str(error)
        raise BadArgument(text if text.startswith(function) else f"{function}: {text}") from None


def default_scale(q, scale):
    """scale, or where that is None 1 / sqrt(head_dim). Refuses what is no finite number in
    float32."""
    if scale is None:
        return float(_shape(q)[-1] or 1) ** -0.5 if _shape(q) else 0.0
    try:
        found = float(scale)
    except (TypeError, ValueError):
        found = math.nan
    if not math.isfinite(ctypes.c_float(found).value):
        raise BadArgument(f"attention: scale is {scale!r}, must be a finite number")
    return found


def attention_forward(q, k, v, scale=None, with_log_sum_exp=False):
    """softmax(scale q kT) v, and the rows' log-sum-exp or None. q, k, v float16 [batch, heads,
    tokens, head_dim], head_dim 32, 64 or 128; scale None: 1 / sqrt(head_dim)."""
    outputs = {"o": empty_like(q, _shape(q)),
               "log_sum_exp": empty_like(q, _shape(q)[:3], "float32") if with_log_sum_exp else None}
    _call("attention_forward", {"q": q, "k": k, "v": v}, outputs,
          ["q", "k", "v", "o", "log_sum_exp", ctypes.c_float(default_scale(q, scale))])
    return outputs["o"], outputs["log_sum_exp"]


def attention_backward(q, k, v, o, log_sum_exp, d_o, scale=None, deterministic=True):
    """dq, dk and dv."""
    outputs = {name: empty_like(q, _shape(q)) for name in ("dq", "dk", "dv")}
    _call("attention_backward", {"q": q, "k": k, "v": v, "o": o, "log_sum_exp": log_sum_exp,
                                 "d_o": d_o}, outputs,
          ["q", "k", "v", "o", "log_sum_exp", "d_o", "dq", "dk", "dv",
           ctypes.c_float(default_scale(q, scale)),
           ctypes.c_int(bool(deterministic))])
    return outputs["dq"], outputs["dk"], outputs["dv"]


def _levels(level_sizes):
    try:
        pairs = [tuple(int(size) for size in pair) for pair in level_sizes]
        if any(len(pair) != 2 for pair in pairs):
            raise TypeError
    except (TypeError, ValueError):
        raise BadArgument(f"deformable_attention: level_sizes is {level_sizes!r}, must be pairs "
                          "(height, width)") from None
    flat = [size for pair in pairs for size in pair]
    return (ctypes.c_int64 * max(len(flat), 1))(*flat), ctypes.c_int(len(flat) // 2)


def deformable_attention_forward(value, level_sizes, locations, weights):
    """[batch, queries, heads * channels]. float16: value [batch, pixels, heads, channels],
    locations [batch, queries, heads, levels, points, 2], weights [batch, queries, heads, levels,
    points]; level_sizes: height and width of each level."""
    of_value, of_locations = _shape(value), _shape(locations)
    if len(of_value) != 4 or len(of_locations) != 6:
        raise BadArgument(f"deformable_attention_forward: value has shape {list(of_value)}, must "
                          f"be [batch, pixels, "
                          f"heads, channels]; locations has {list(of_locations)}, must be [batch, "
                          f"queries, heads, "
                          "levels, points, 2]")
    out = empty_like(value, (of_value[0], of_locations[1], of_value[2] * of_value[3]))
    _call("deformable_attention_forward", {"value": value, "locations": locations,
                                           "weights": weights},
          {"out": out}, ["value", *_levels(level_sizes), "locations", "weights", "out"])
    return out


def deformable_attention_backward(value, level_sizes, locations, weights, d_out,
                                  deterministic=True):
    """Gradients of value, locations and weights in float32."""
    outputs = {"d_" + name: empty_like(value, _shape(array), "float32")
               for name, array in (("value", value), ("locations", locations),
                                   ("weights", weights))}
    _call("deformable_attention_backward",
          {"value": value, "locations": locations, "weights": weights, "d_out": d_out}, outputs,
          ["value", *_levels(level_sizes), "locations", "weights", "d_out", *outputs,
           ctypes.c_int(bool(deterministic))])
    return tuple(outputs.values())


def conv_norm_forward(x, weight, gamma, beta, residual=None, stride=1, padding=(1, 1, 1, 1),
                      reflect=False,
                      relu=True, epsilon=1e-5):
    """act(instance norm of the convolution + residual). x [batch, in_channels, height, width],
    weight [out_channels, in_channels, kernel, kernel]; padding: top, left, bottom, right, or one
    number for all. gamma and beta float32."""
    sides = tuple(padding) if isinstance(padding, (tuple, list)) else (padding,) * 4
    if len(sides) != 4 or not all(isinstance(side, int) for side in sides):
        raise BadArgument(f"conv_norm: padding is {padding!r}, must be an integer, or four: top, "
                          f"left, "
                          "bottom, right")
    top, left, bottom, right = sides
    options = ConvNormOptions(stride, top, left, bottom, right, bool(reflect), bool(relu), epsilon)
    of_x, of_weight = _shape(x), _shape(weight)
    if len(of_x) != 4 or len(of_weight) != 4 or stride not in (1, 2):
        raise BadArgument(f"conv_norm: x has shape {list(of_x)}, must be [batch, in_channels, "
                          f"height, width]; weight "
                          f"has {list(of_weight)}, must be [out_channels, in_channels, kernel, "
                          f"kernel]; stride is "
                          f"{stride}, must be 1 or 2")
    size = [max(0, (of_x[2] + top + bottom - of_weight[2]) // stride + 1),
            max(0, (of_x[3] + left + right - of_weight[3]) // stride + 1)]
    y = empty_like(x, (of_x[0], of_weight[0], *size))
    _call("conv_norm", {"x": x, "weight": weight, "gamma": gamma, "beta": beta,
                        "residual": residual}, {"y": y},
          ["x", "weight", "gamma", "beta", "residual", "y", ctypes.byref(options)])
    return y


def layer_norm_forward(x, scale, bias, residual=None, epsilon=1e-5):
    """y and sum: y is the norm of x [rows, columns], or of sum = x + residual. Without residual,
    sum is None."""
    y, total = empty_like(x, _shape(x)), None
    if residual is not None:
        total = empty_like(x, _shape(x))
    _call("layer_norm_forward", {"x": x, "residual": residual, "scale": scale, "bias": bias},
          {"sum": total, "y": y}, ["x", "residual", "scale", "bias", "sum", "y",
                                   ctypes.c_float(epsilon)])
    return y, total


def layer_norm_backward(dy, x, scale, epsilon=1e-5):
    """dx, and in float32 d_scale and d_bias; x: what was normalized."""
    outputs = {"dx": empty_like(x, _shape(x)), "d_scale": empty_like(x, _shape(scale), "float32"),
               "d_bias": empty_like(x, _shape(scale), "float32")}
    _call("layer_norm_backward", {"dy": dy, "x": x, "scale": scale}, outputs,
          ["dy", "x", "scale", *outputs, ctypes.c_float(epsilon)])
    return tuple(outputs.values())


def linear_forward(x, weight, bias=None, residual=None, gelu=False):
    """act(x weightT + bias) + residual in float16, x [rows, in], weight [out, in]."""
    if len(_shape(x)) != 2 or len(_shape(weight)) != 2:
        raise BadArgument(f"linear: x has shape {list(_shape(x))}, must be [rows, in]; weight has "
                          f"{list(_shape(weight))}, must be [out, in]")
    y = empty_like(x, (_shape(x)[0], _shape(weight)[0]))
    _call("linear", {"x": x, "weight": weight, "bias": bias, "residual": residual}, {"y": y},
          ["x", "weight", "bias", "residual", "y", ctypes.c_int(bool(gelu))])
    return y


def mlp_forward(x, w1, b1, w2, b2, residual=None):
    """w2 gelu(w1 x + b1) + b2 + residual in float16, x [rows, in], w1 [hidden, in], w2 [out,
    hidden]."""
    if len(_shape(x)) != 2 or len(_shape(w2)) != 2:
        raise BadArgument(f"mlp: x has shape {list(_shape(x))}, must be [rows, in]; w2 has "
                          f"{list(_shape(w2))}, "
                          "must be [out, hidden]")
    y = empty_like(x, (_shape(x)[0], _shape(w2)[0]))
    _call("mlp", {"x": x, "w1": w1, "b1": b1, "w2": w2, "b2": b2, "residual": residual}, {"y": y},
          ["x", "w1", "b1", "w2", "b2", "residual", "y"])
    return y


def _projected(x, w, height, width):
    """Shapes of q, of k and v, and of statistics; refuses what is no map."""
    of_x, of_w = _shape(x), _shape(w)
    if len(of_x) != 3 or len(of_w) != 4 or of_w[0] != 3 or of_w[1] != of_x[2] or \
            of_x[1] - height * width not in (0, 1):
        raise BadArgument(f"projection: x has shape {list(of_x)}, must be [batch, tokens, "
                          f"channels] with {height} * "
                          f"{width} tokens, or one more for a class token; w has {list(of_w)}, "
                          f"must be [3, channels, "
                          "3, 3]")
    keys = of_x[1] - height * width + (height + 1) // 2 * ((width + 1) // 2)
    return of_x, (of_x[0], keys, of_x[2]), (3, of_x[2])


def projection_forward(x, w, scale, shift, height, width, running_mean=None, running_variance=None,
                       training=True):
    """CvT's depthwise convolutions for q, k and v, before BatchNorm: (q, k, v) and the statistics
    (mean, inverse_deviation, factor, offset), [3, channels] each. BatchNorm gives map * factor +
    offset, and leaves a class token in front alone. x [batch, tokens, channels], float16 or
    float32, w [3, channels, 3, 3], scale and shift [3, channels]. training: statistics are the
    batch's, and running_mean and running_variance, where they are there, are brought forward in
    their place; else those two are the statistics."""
    of_q, of_k, of_statistics = _projected(x, w, height, width)
    running = {"running_mean": running_mean, "running_variance": running_variance}
    outputs = {"q": empty_like(x, of_q), "k": empty_like(x, of_k), "v": empty_like(x, of_k)}
    statistics = {name: empty_like(x, of_statistics, "float32")
                  for name in ("mean", "inverse_deviation", "factor", "offset")}
    _call("projection_forward", {"x": x, "w": w, "scale": scale, "shift": shift, **running},
          {**outputs, **statistics, **(running if training else {})},
          ["x", "w", "scale", "shift", *running, *outputs, *statistics, ctypes.c_int(height),
           ctypes.c_int(width),
           ctypes.c_int(bool(training))])
    return tuple(outputs.values()), tuple(statistics.values())


def projection_backward(x, w, maps, statistics, gradients, height, width, training=True):
    """dx, and in float32 d_w, d_scale and d_shift. maps and statistics: what forward gave;
    gradients: of what BatchNorm gave, for q, k and v."""
    _, _, of_statistics = _projected(x, w, height, width)
    taken = {**dict(zip(("q", "k", "v"), maps)),
             **dict(zip(("mean", "inverse_deviation", "factor"), statistics)),
             **dict(zip(("d_q", "d_k", "d_v"), gradients))}
    outputs = {"dx": empty_like(x, _shape(x)), "d_w": empty_like(x, _shape(w), "float32"),
               "d_scale": empty_like(x, of_statistics, "float32"),
               "d_shift": empty_like(x, of_statistics, "float32")}
    _call("projection_backward", {"x": x, "w": w, **taken}, outputs,
          ["x", "w", *taken, *outputs, ctypes.c_int(height), ctypes.c_int(width),
           ctypes.c_int(bool(training))])
    return tuple(outputs.values())


def fold_batch_norm(weight, bias, factor, offset):
    """weight and bias of the linear layer on maps that does what weight and bias (or None) do
    behind BatchNorm; all float32."""
    outputs = {"folded_weight": empty_like(weight, _shape(weight)),
               "folded_bias": empty_like(weight, _shape(weight)[:1])}
    _call("fold_batch_norm", {"weight": weight, "bias": bias, "factor": factor, "offset": offset},
          outputs,
          ["weight", "bias", "factor", "offset", *outputs])
    return tuple(outputs.values())
