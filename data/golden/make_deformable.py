#!/usr/bin/env python3
"""Writes the arrays of deformable attention in this folder with PyTorch, in double precision.

    python3 -m venv /tmp/golden && /tmp/golden/bin/pip install torch==2.11.0 numpy==2.4.6
    /tmp/golden/bin/python data/golden/make_deformable.py

Two formulations, which must agree to 12 digits: torch.nn.functional.grid_sample level by level, and
a direct one that gathers the four pixels around each sample. Nothing in the build or in the tests
needs PyTorch.

Each case NAME is four .npy files (format 1.0, little-endian, C order): deformable_NAME_value,
_locations and _weights as float16, _out as float64. deformable.json lists the cases.
"""

import hashlib
import json
import pathlib

import numpy
import torch
from torch.nn.functional import grid_sample

FOLDER = pathlib.Path(__file__).resolve().parent

# name, (batch, queries, heads, channels, points), levels (height, width), seed, kind of locations
CASES = [
    ("pyramid", (2, 9, 1, 32, 8), [(9, 16), (5, 8), (3, 4), (2, 2)], 201, "wide"),
    ("heads", (1, 5, 3, 16, 4), [(6, 7), (3, 5)], 202, "wide"),
    ("one_level", (3, 3, 2, 64, 4), [(4, 5)], 203, "wide"),
    ("thin_levels", (1, 6, 1, 16, 4), [(1, 1), (1, 7), (6, 1), (2, 2), (1, 3)], 204, "wide"),
    ("borders", (2, 8, 1, 32, 4), [(4, 8), (2, 4)], 205, "borders"),
    ("not_finite", (1, 8, 1, 32, 4), [(4, 8), (2, 4)], 206, "not finite"),
]


def locations_of(kind, shape, levels, generator):
    """fp16 locations, [batch, queries, heads, levels, points, (x, y)]."""
    batch, queries, heads, _, points = shape
    where = torch.rand((batch, queries, heads, len(levels), points, 2), generator=generator,
                       dtype=torch.float64)
    if kind == "wide":  # inside and up to a third of the level outside
        return (where * 1.6 - 0.3).half()
    # Pixels on the first and last column and row, half a pixel and a whole one beside them, and far
    # outside. The levels' sizes are powers of two, so that fp16 holds each of these exactly.
    for l, (height, width) in enumerate(levels):
        for axis, size in enumerate((width, height)):
            pixels = torch.tensor([-100.0, -1.5, -1.0, -0.5, 0.0, 0.5, size - 1.5, size - 1.0,
                                   size - 0.5, size, size + 0.5, 100.0], dtype=torch.float64)
            chosen = torch.randint(len(pixels), where.shape[:3] + where.shape[4:5],
                                   generator=generator)
            where[:, :, :, l, :, axis] = (pixels[chosen] + 0.5) / size
    where = where.half()
    if kind == "not finite":
        flat = where.view(-1)
        for value in (float("nan"), float("inf"), float("-inf")):
            flat[torch.randperm(len(flat), generator=generator)[: len(flat) // 12]] = value
    return where


def by_grid_sample(value, levels, locations, weights, **options):
    batch, queries, heads, _, points, _ = locations.shape
    channels, start, out = value.shape[3], 0, 0
    # grid_sample has no rule for what is not finite: far outside is where it contributes nothing.
    bad = ~torch.isfinite(locations).all(-1, keepdim=True)
    locations = torch.where(bad, torch.full_like(locations, -1000.0), locations)
    for l, (height, width) in enumerate(levels):
        image = value[:, start:start + height * width].permute(0, 2, 3, 1)
        image = image.reshape(batch * heads, channels, height, width)
        grid = locations[:, :, :, l].permute(0, 2, 1, 3, 4).reshape(batch * heads, queries, points, 2)
        settings = {"mode": "bilinear", "padding_mode": "zeros", "align_corners": False} | options
        samples = grid_sample(image, 2 * grid - 1, **settings)  # [B H, C, Q, P]
        share = weights[:, :, :, l].permute(0, 2, 1, 3).reshape(batch * heads, 1, queries, points)
        out = out + (samples * share).sum(-1)
        start += height * width
    return out.reshape(batch, heads, channels, queries).permute(0, 3, 1, 2)


def directly(value, levels, locations, weights, half_pixel=0.5):
    batch, queries, heads, _, points, _ = locations.shape
    out = torch.zeros(batch, queries, heads, value.shape[3], dtype=torch.float64)
    b = torch.arange(batch).view(-1, 1, 1, 1).expand(batch, queries, heads, points)
    h = torch.arange(heads).view(1, 1, -1, 1).expand(batch, queries, heads, points)
    start = 0
    for l, (height, width) in enumerate(levels):
        x = locations[:, :, :, l, :, 0] * width - half_pixel
        y = locations[:, :, :, l, :, 1] * height - half_pixel
        finite = torch.isfinite(x) & torch.isfinite(y)
        x, y = (torch.where(finite, v, torch.zeros_like(v)) for v in (x, y))
        for dy in (0, 1):
            for dx in (0, 1):
                column, row = x.floor() + dx, y.floor() + dy
                share = (1 - (x - column).abs()) * (1 - (y - row).abs())
                inside = finite & (column >= 0) & (column < width) & (row >= 0) & (row < height)
                pixel = torch.where(inside, start + row * width + column, torch.zeros_like(x))
                corner = value[b, pixel.long(), h]  # [batch, queries, heads, points, channels]
                share = torch.where(inside, share * weights[:, :, :, l], torch.zeros_like(share))
                out += (corner * share.unsqueeze(-1)).sum(3)
        start += height * width
    return out


def relative_l2(got, reference):
    return float((got - reference).norm() / reference.norm())


def check(name, value, levels, locations, weights):
    """Both formulations agree, and wrong kernels known from the field are far away."""
    out = by_grid_sample(value, levels, locations, weights)
    assert relative_l2(directly(value, levels, locations, weights), out) < 1e-12, name
    wrong = {
        "x_and_y_swapped": directly(value, levels, locations.flip(-1), weights),
        "half_pixel_forgotten": directly(value, levels, locations, weights, half_pixel=0.0),
        "border_repeated": by_grid_sample(value, levels, locations, weights, padding_mode="border"),
        "nearest_pixel": by_grid_sample(value, levels, locations, weights, mode="nearest"),
        "weights_ignored": directly(value, levels, locations,
                                    torch.full_like(weights, 1 / (weights.shape[3] * weights.shape[4]))),
        "rows_shifted": out.roll(1, 1),
    }
    distances = {key: round(relative_l2(array, out), 4) for key, array in wrong.items()}
    assert all(distance > 0.02 for distance in distances.values()), (name, distances)
    return out, distances


def save(name, array):
    path = FOLDER / f"deformable_{name}.npy"
    numpy.save(path, numpy.ascontiguousarray(array))
    return {"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def main():
    torch.set_num_threads(1)  # the same order of additions on every machine
    cases = []
    for name, shape, levels, seed, kind in CASES:
        batch, queries, heads, channels, points = shape
        generator = torch.Generator().manual_seed(seed)
        pixels = sum(height * width for height, width in levels)
        value = torch.randn((batch, pixels, heads, channels), generator=generator,
                            dtype=torch.float64).half()
        locations = locations_of(kind, shape, levels, generator)
        weights = torch.randn((batch, queries, heads, len(levels) * points), generator=generator,
                              dtype=torch.float64).mul(1.5).softmax(-1).half()
        weights = weights.reshape(batch, queries, heads, len(levels), points)
        out, distances = check(name, value.double(), levels, locations.double(), weights.double())
        arrays = {"value": value, "locations": locations, "weights": weights, "out": out}
        cases.append({
            "name": name, "batch": batch, "queries": queries, "heads": heads, "channels": channels,
            "points": points, "levels": levels, "seed": seed, "locations": kind,
            "relative_l2_of_wrong_results": distances,
            "arrays": {key: save(f"{name}_{key}", array.numpy()) for key, array in arrays.items()},
        })
    manifest = {
        "made_by": "data/golden/make_deformable.py",
        "function": "torch.nn.functional.grid_sample, float64, and a direct formulation",
        "torch": torch.__version__, "numpy": numpy.__version__,
        "layout": "value [batch, pixels, heads, channels], locations [batch, queries, heads, levels, "
                  "points, (x, y)], weights [batch, queries, heads, levels, points] float16; out "
                  "[batch, queries, heads, channels] float64; C order",
        "cases": cases,
    }
    (FOLDER / "deformable.json").write_text(json.dumps(manifest, indent=1) + "\n")


if __name__ == "__main__":
    main()
