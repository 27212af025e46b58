#!/usr/bin/env python3
"""Writes what the style-transfer network's tests expect, with PyTorch in double precision.

    python3 -m venv /tmp/golden
    /tmp/golden/bin/pip install torch==2.11.0 numpy==2.4.6 pillow==13.0.0
    /tmp/golden/bin/python data/golden/make_style.py [mathura.safetensors]
    /tmp/golden/bin/python data/golden/make_style.py --compare WEIGHTS PHOTO STYLED

style_narrow.safetensors is a network of the same layers with few channels and seeded random
weights; style_photo_*.png are cut out of images/chelsea.png, style_narrow_*.png what the network makes of
them. style_residual_*.npy is one residual block: float32 x, then weight, gamma and beta of both
convolutions; float64 out. With the trained weights of data/SOURCES.md the script also writes
style_mathura_*.png. --compare says how far a picture is from this script's. Nothing in the build or
in the tests needs PyTorch.
"""

import json
import pathlib
import struct
import sys

import numpy
import torch
from PIL import Image
from torch.nn.functional import conv2d, conv_transpose2d, pad, relu

FOLDER = pathlib.Path(__file__).resolve().parent
EPS = float(numpy.float32(1e-3))
# left, upper, right, lower in chelsea.png: an eye, and a part of the face of odd width.
PHOTOS = {"64x64": (210, 70, 274, 134), "75x96": (200, 60, 275, 156)}

# name and kernel, in order; all else of a layer is in its weight's shape.
LAYERS = [("conv1", 9), ("conv2", 3), ("conv3", 3),
          *((f"res{i}.conv{j}", 3) for i in range(1, 6) for j in (1, 2)),
          ("deconv1", 3), ("deconv2", 3), ("conv4", 9)]
NARROW = {"conv1": (3, 4), "conv2": (4, 6), "conv3": (6, 8), "deconv1": (8, 5), "deconv2": (5, 4),
          "conv4": (4, 3)}


def read_safetensors(path):
    content = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header, data = json.loads(content[8:8 + length]), content[8 + length:]
    types = {"F16": "<f2", "F32": "<f4"}
    return {name: torch.from_numpy(
                numpy.frombuffer(data[slice(*entry["data_offsets"])], types[entry["dtype"]])
                .reshape(entry["shape"]).astype("float64"))
            for name, entry in header.items() if name != "__metadata__"}


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, tensor in tensors.items():
        raw = tensor.numpy().astype("<f2").tobytes()
        header[name] = {"dtype": "F16", "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def narrow_network():
    """Seeded weights, rounded to fp16; gamma around 1, so that no layer dies."""
    generator = torch.Generator().manual_seed(501)
    tensors = {}
    for name, kernel in LAYERS:
        before, after = NARROW.get(name, (8, 8))
        size = (before, after) if name.startswith("deconv") else (after, before)
        tensors[name + ".weight"] = torch.randn((*size, kernel, kernel), generator=generator) * 0.1
        tensors[name + ".in_gamma"] = 1 + 0.3 * torch.randn(after, generator=generator)
        tensors[name + ".in_beta"] = 0.3 * torch.randn(after, generator=generator)
    tensors["conv4.in_gamma"] *= 0.5  # few pixels at 0 and 255, where errors do not show
    return {name: tensor.half().double() for name, tensor in tensors.items()}


def same(size, kernel, stride):
    """TensorFlow's SAME: ceil(size / stride) outputs, the odd pixel at the end."""
    total = max(0, (-(-size // stride) - 1) * stride + kernel - size)
    return total // 2, total - total // 2


def layer(x, weights, name, stride=1):
    """Convolution and instance norm, by hand: its population variance, its affine."""
    weight = weights[name + ".weight"]
    if name.startswith("deconv"):
        conv = conv_transpose2d(x, weight, stride=2)[:, :, :2 * x.shape[2], :2 * x.shape[3]]
    else:
        rows, columns = (same(size, weight.shape[2], stride) for size in x.shape[2:])
        conv = conv2d(pad(x, (*columns, *rows)), weight, stride=stride)
    gamma, beta = weights[name + ".in_gamma"], weights[name + ".in_beta"]
    return torch.instance_norm(conv, gamma, beta, None, None, True, 0.0, EPS, False)


def residual_block(x, weights, name):
    inside = relu(layer(x, weights, name + ".conv1"))
    return x + layer(inside, weights, name + ".conv2")


def network(photo, weights):
    """photo, result: [height, width, 3] uint8."""
    height, width = photo.shape[:2]
    x = torch.from_numpy(photo.astype("float64")).permute(2, 0, 1).unsqueeze(0) / 255
    x = relu(layer(x, weights, "conv1"))
    x = relu(layer(x, weights, "conv2", 2))
    x = relu(layer(x, weights, "conv3", 2))
    for block in range(1, 6):
        x = residual_block(x, weights, f"res{block}")
    x = relu(layer(x, weights, "deconv1"))
    x = relu(layer(x, weights, "deconv2"))
    x = torch.tanh(layer(x, weights, "conv4")) * 150 + 127.5
    # 4 ceil(size / 4) pixels; SAME padding of odd sizes moved the picture down and to the right.
    x = x[0, :, x.shape[2] - height:, x.shape[3] - width:]
    return x.clamp(0, 255).round().permute(1, 2, 0).numpy().astype("uint8")


def write_residual():
    generator = torch.Generator().manual_seed(502)
    x = torch.randn((2, 12, 7, 9), generator=generator)
    weights = {}
    for part in ("conv1", "conv2"):
        weights[f"res.{part}.weight"] = torch.randn((12, 12, 3, 3), generator=generator)
        weights[f"res.{part}.in_gamma"] = torch.randn(12, generator=generator)
        weights[f"res.{part}.in_beta"] = torch.randn(12, generator=generator)
    flat = torch.cat([x.flatten(), *(tensor.flatten() for tensor in weights.values())])
    numpy.save(FOLDER / "style_residual_inputs.npy", flat.numpy().astype("<f4"))
    weights = {name: tensor.double() for name, tensor in weights.items()}
    out = residual_block(x.double(), weights, "res")
    plain = relu(out - x) + x
    assert float((plain - out).norm() / out.norm()) > 0.02  # a ReLU too many is far away
    numpy.save(FOLDER / "style_residual_out.npy", out.numpy())


def write_pictures(name, weights):
    chelsea = Image.open(FOLDER.parent / "images" / "chelsea.png").convert("RGB")
    for size, box in PHOTOS.items():
        photo = numpy.asarray(chelsea.crop(box))
        Image.fromarray(photo).save(FOLDER / f"style_photo_{size}.png", optimize=True)
        styled = network(photo, weights)
        clipped = float(((styled == 0) | (styled == 255)).mean())
        assert clipped < 0.5 and styled.std() > 20, (name, size, clipped, styled.std())
        Image.fromarray(styled).save(FOLDER / f"style_{name}_{size}.png", optimize=True)


def main():
    torch.set_num_threads(1)  # the same order of additions on every machine
    if sys.argv[1:2] == ["--compare"]:
        weights, photo, styled = sys.argv[2:]
        expected = network(numpy.asarray(Image.open(photo).convert("RGB")),
                           read_safetensors(weights)).astype(int)
        off = numpy.abs(numpy.asarray(Image.open(styled).convert("RGB")).astype(int) - expected)
        print(f"{expected.shape[1]} x {expected.shape[0]}: {100 * (off.max(2) <= 1).mean():.3f}% "
              f"of the pixels within one grey level, {100 * (off.max(2) == 0).mean():.3f}% the same, "
              f"largest difference {off.max()}")
        return
    weights = narrow_network()
    write_safetensors(FOLDER / "style_narrow.safetensors", weights)
    write_residual()
    write_pictures("narrow", weights)
    if len(sys.argv) > 1:
        write_pictures("mathura", read_safetensors(sys.argv[1]))


if __name__ == "__main__":
    main()
