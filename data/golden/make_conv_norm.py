#!/usr/bin/env python3
"""Writes the arrays of convolution + instance norm in this folder with PyTorch, in float64.

    python3 -m venv /tmp/golden && /tmp/golden/bin/pip install torch==2.11.0 numpy==2.4.6
    /tmp/golden/bin/python data/golden/make_conv_norm.py

Two formulations, which must agree to 11 digits: conv2d (or conv_transpose2d), instance_norm and
relu; and one that unfolds the padded picture into columns and takes mean and variance by itself.
Nothing in the build or in the tests needs PyTorch.

conv_norm_inputs.npy (float32) holds x, weight, bias, gamma, beta and residual of all cases one
after the other, conv_norm_outputs.npy (float64) the convolution and y. Shapes, and what of it a case has,
stand in conv_norm.json; names as in common/attention/shape.h.
"""

import hashlib
import json
import pathlib

import numpy
import torch
from torch.nn.functional import conv2d, conv_transpose2d, pad, relu, unfold

FOLDER = pathlib.Path(__file__).resolve().parent


def same(size, kernel, stride):
    """TensorFlow's SAME: ceil(size / stride) outputs, the odd pixel at the end."""
    total = max(0, (-(-size // stride) - 1) * stride + kernel - size)
    return total // 2, total - total // 2


def shapes():
    """Every kernel, stride and padding on small ragged sizes; (name, shape, seed, kind) each."""
    seed = 300
    for kernel in (1, 3, 4, 5, 9):
        for stride in (1, 2):
            for padding in ("zero", "reflect"):
                seed += 1
                height, width = (10, 13) if kernel == 9 else ((7, 10), (9, 6), (8, 7))[seed % 3]
                if seed % 2:
                    rows, columns = same(height, kernel, stride), same(width, kernel, stride)
                else:  # as uneven as it may be
                    rows, columns = (kernel - 1, 0), (min(1, kernel - 1), kernel // 2)
                yield f"k{kernel}_s{stride}_{padding}", {
                    "batch": 1 + seed % 2, "in_channels": 2 if kernel == 9 else 3,
                    "out_channels": 2 + seed % 3, "height": height, "width": width,
                    "kernel": kernel, "stride": stride, "upsample": 1, "padding": padding,
                    "pads": [*rows, *columns], "eps": (1e-5, 1e-3)[seed // 2 % 2],
                    "relu": seed % 3 != 0, "bias": seed % 4 != 1, "residual": seed % 4 > 1,
                }, seed, "normal"
    plain = {"batch": 1, "in_channels": 3, "out_channels": 4, "height": 6, "width": 9, "kernel": 3,
             "stride": 1, "upsample": 1, "padding": "zero", "pads": [1, 1, 1, 1], "eps": 1e-5,
             "relu": True, "bias": True, "residual": False}
    # The first 2 height x 2 width pixels of a transposed convolution.
    turned = plain | {"upsample": 2, "pads": [2, 1, 2, 1]}
    yield "transposed", turned | {"height": 5, "width": 4, "eps": 1e-3}, 401, "normal"
    yield "transposed_batch", turned | {"batch": 2, "height": 3, "width": 7, "bias": False,
                                        "residual": True, "relu": False}, 402, "normal"
    yield "transposed_pixel", turned | {"height": 1, "width": 1}, 403, "normal"
    yield "transposed_k4", turned | {"kernel": 4, "pads": [2, 2, 2, 2], "height": 4, "width": 5}, \
        404, "normal"
    # Planes far from zero: by the bias, and by the picture itself, mirrored to be so at its border.
    yield "mean_1e4_of_bias", plain | {"eps": 1e-3}, 411, "bias 1e4"
    yield "mean_1e4_of_x", plain | {"padding": "reflect", "relu": False}, 412, "x 1e4"
    yield "one_pixel", plain | {"height": 1, "width": 1, "relu": False}, 421, "normal"
    yield "one_pixel_left", plain | {"height": 3, "width": 3, "pads": [0] * 4, "residual": True,
                                     "batch": 2}, 422, "normal"
    yield "one_row", plain | {"height": 1, "width": 17}, 423, "normal"
    yield "huge", plain | {"relu": False}, 431, "huge"  # squares of it still fit into fp32
    yield "beyond_fp32_squares", plain | {"relu": False}, 432, "beyond"
    yield "denormal", plain | {"relu": False, "bias": False}, 433, "denormal"


def inputs(shape, seed, kind):
    generator = torch.Generator().manual_seed(seed)
    k = shape["kernel"]

    def normal(*size):
        return torch.randn(size, generator=generator, dtype=torch.float64)

    x = normal(shape["batch"], shape["in_channels"], shape["height"], shape["width"])
    weight = normal(shape["out_channels"], shape["in_channels"], k, k)
    bias, gamma, beta = (normal(shape["out_channels"]) for _ in range(3))
    residual = normal(shape["batch"], shape["out_channels"], *out_size(shape))
    if kind == "bias 1e4":
        bias = bias * 1e4
        bias[0] = 1e4
    if kind == "x 1e4":
        x = x + 1e4
    if kind == "huge":
        x, weight, bias = x * 1e12, weight * 1e4, bias * 1e16
    if kind == "beyond":
        x, weight, bias = x * 1e20, weight * 1e10, bias * 1e30
    if kind == "denormal":
        x, beta, gamma = x * 1e-39, beta * 0, gamma * 1e5
    arrays = [a.float().double() for a in (x, weight, bias, gamma, beta, residual)]
    if not shape["bias"]:
        arrays[2] = None
    if not shape["residual"]:
        arrays[5] = None
    return arrays


def out_size(shape):
    top, bottom, left, right = shape["pads"]
    field = [(size - 1) * shape["upsample"] + 1 for size in (shape["height"], shape["width"])]
    return tuple((size - shape["kernel"]) // shape["stride"] + 1
                 for size in (field[0] + top + bottom, field[1] + left + right))


def padded(x, shape, mode):
    top, bottom, left, right = shape["pads"]
    return pad(x, (left, right, top, bottom), "reflect" if mode == "reflect" else "constant")


def convolution(x, weight, bias, shape, mode=None):
    if shape["upsample"] == 2:  # weight as conv_transpose2d has it: channels and taps turned round
        top, _, left, _ = shape["pads"]
        full = conv_transpose2d(x, weight.transpose(0, 1).flip(2, 3), bias, stride=2,
                                padding=0, output_padding=1)
        first_row, first_column = shape["kernel"] - 1 - top, shape["kernel"] - 1 - left
        rows, columns = out_size(shape)
        return full[:, :, first_row:first_row + rows, first_column:first_column + columns]
    return conv2d(padded(x, shape, mode or shape["padding"]), weight, bias, stride=shape["stride"])


def finish(normed, residual, shape):
    y = normed if residual is None else normed + residual
    return relu(y) if shape["relu"] else y


def by_pytorch(x, weight, bias, gamma, beta, residual, shape, mode=None):
    conv = convolution(x, weight, bias, shape, mode)
    # torch.instance_norm: unlike functional.instance_norm it takes planes of one pixel.
    eps = float(numpy.float32(shape["eps"]))
    normed = torch.instance_norm(conv, gamma, beta, None, None, True, 0.0, eps, False)
    return conv, finish(normed, residual, shape)


def directly(x, weight, bias, gamma, beta, residual, shape):
    if shape["upsample"] == 2:
        spread = torch.zeros(*x.shape[:2], *(2 * size - 1 for size in x.shape[2:]),
                             dtype=torch.float64)
        spread[:, :, ::2, ::2] = x
        x = spread
    columns = unfold(padded(x, shape, shape["padding"]), shape["kernel"], stride=shape["stride"])
    conv = weight.flatten(1) @ columns  # [batch, out_channels, pixels]
    if bias is not None:
        conv = conv + bias.view(1, -1, 1)
    variance, mean = torch.var_mean(conv, 2, keepdim=True, correction=0)
    normed = (conv - mean) / (variance + float(numpy.float32(shape["eps"]))).sqrt()
    normed = normed * gamma.view(1, -1, 1) + beta.view(1, -1, 1)
    size = (x.shape[0], weight.shape[0], *out_size(shape))
    return conv.reshape(size), finish(normed.reshape(size), residual, shape)


def relative_l2(got, reference):
    return float((got - reference).norm() / reference.norm())


def check(name, arrays, shape, kind):
    """Both formulations agree, and wrong kernels known from the field are far away."""
    x, weight, bias, gamma, beta, residual = arrays
    conv, y = by_pytorch(*arrays, shape)
    conv_2, y_2 = directly(*arrays, shape)
    # What a mean takes of a double's digits is gone in either way.
    assert relative_l2(conv_2, conv) < 1e-12 and relative_l2(y_2, y) < 1e-11, name
    if conv.shape[2] * conv.shape[3] == 1:
        return conv, y, {}
    wrong = {"rows_shifted": y.roll(1, 2) if y.shape[2] > 1 else y.roll(1, 3),
             "not_normalized": finish(conv, residual, shape),
             "channels_shifted": y.roll(1, 1)}
    if shape["kernel"] > 1:
        wrong["taps_turned"] = by_pytorch(x, weight.flip(2, 3), *arrays[2:], shape)[1]
        wrong["taps_transposed"] = by_pytorch(x, weight.transpose(2, 3), *arrays[2:], shape)[1]
        if shape["upsample"] == 1 and any(shape["pads"]) and y.shape[2] > 1:
            other = "zero" if shape["padding"] == "reflect" else "reflect"
            wrong["other_padding"] = by_pytorch(*arrays, shape, other)[1]
    if residual is not None and shape["relu"]:
        wrong["residual_after_relu"] = relu(by_pytorch(*arrays[:5], None, shape)[1]) + residual
    distances = {key: round(relative_l2(array, y), 4) for key, array in wrong.items()}
    assert all(distance > 0.02 for distance in distances.values()), (name, distances)
    # The variance of the sample, n - 1, is the closest of all: 1 / (2 n).
    n = y.shape[2] * y.shape[3]
    distances["variance_of_the_sample"] = 1 - ((n - 1) / n) ** 0.5
    return conv, y, distances


def save(name, parts, dtype):
    path = FOLDER / f"conv_norm_{name}.npy"
    flat = torch.cat([part.contiguous().view(-1) for part in parts]).numpy()
    numpy.save(path, flat.astype(dtype))
    return {"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def main():
    torch.set_num_threads(1)  # the same order of additions on every machine
    cases, all_inputs, all_outputs = [], [], []
    for name, shape, seed, kind in shapes():
        arrays = inputs(shape, seed, kind)
        conv, y, distances = check(name, arrays, shape, kind)
        all_inputs += [a for a in arrays if a is not None]
        all_outputs += [conv, y]
        cases.append({"name": name, **shape, "seed": seed, "values": kind,
                      "relative_l2_of_wrong_results": distances})
    manifest = {
        "made_by": "data/golden/make_conv_norm.py",
        "function": "conv2d or conv_transpose2d, instance_norm and relu of torch, float64, and a "
                    "direct formulation",
        "torch": torch.__version__, "numpy": numpy.__version__,
        "layout": "case after case: x, weight, bias (if there is one), gamma, beta, residual (if "
                  "there is one) float32; convolution, y float64; C order, pads: top, bottom, "
                  "left, right",
        "inputs": save("inputs", all_inputs, "<f4"), "outputs": save("outputs", all_outputs, "<f8"),
        "cases": cases,
    }
    (FOLDER / "conv_norm.json").write_text(json.dumps(manifest, indent=1) + "\n")


if __name__ == "__main__":
    main()
