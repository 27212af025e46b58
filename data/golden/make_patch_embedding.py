#!/usr/bin/env python3
"""Writes the arrays of patch embedding in this folder with PyTorch, in double precision.

    python3 -m venv /tmp/golden && /tmp/golden/bin/pip install torch==2.15.0 numpy==2.4.6
    /tmp/golden/bin/python data/golden/make_patch_embedding.py

Two formulations, which must agree to 12 digits: torch.nn.functional.conv2d of stride 16, and unfold with
a matrix product. Nothing in the build or in the tests needs PyTorch.

Each case NAME is two .npy files (format 1.0, little-endian, C order): patch_embedding_NAME_inputs as
float16, flat: image, weight, bias, class_token, position; and _tokens as float64.
patch_embedding.json lists the cases.
"""

import json
import pathlib

import numpy
import torch
from torch.nn.functional import conv2d, unfold

FOLDER = pathlib.Path(__file__).resolve().parent

# name, batch, height, width, channels, seed
CASES = [("wide", 2, 32, 48, 24, 901), ("one_patch", 1, 16, 16, 1, 902), ("tall", 3, 48, 16, 35, 903)]


def main():
    manifest = []
    for name, batch, height, width, channels, seed in CASES:
        generator = torch.Generator().manual_seed(seed)

        def normal(shape, deviation):
            values = torch.randn(shape, generator=generator, dtype=torch.float64) * deviation
            return values.half().double()

        patches = (height // 16) * (width // 16)
        image = normal((batch, 3, height, width), 1)
        weight = normal((channels, 3, 16, 16), 768 ** -0.5)
        bias, class_token = normal((channels,), 0.1), normal((channels,), 0.5)
        position = normal((1 + patches, channels), 0.5)
        tokens = conv2d(image, weight, bias, stride=16).flatten(2).transpose(1, 2)
        other = unfold(image, 16, stride=16).transpose(1, 2) @ weight.flatten(1).T + bias
        assert torch.allclose(tokens, other, rtol=1e-12, atol=1e-12)
        first = class_token.expand(batch, 1, channels)
        tokens = torch.cat([first, tokens], 1) + position
        inputs = torch.cat([a.flatten() for a in (image, weight, bias, class_token, position)])
        numpy.save(FOLDER / f"patch_embedding_{name}_inputs.npy", inputs.half().numpy())
        numpy.save(FOLDER / f"patch_embedding_{name}_tokens.npy", tokens.numpy())
        manifest.append({"name": name, "batch": batch, "height": height, "width": width,
                         "channels": channels})
    text = json.dumps({"torch": torch.__version__.split("+")[0], "cases": manifest}, indent=2)
    (FOLDER / "patch_embedding.json").write_text(text + "\n")


main()
