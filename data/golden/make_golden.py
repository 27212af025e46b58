#!/usr/bin/env python3
"""Writes the attention arrays of this folder with PyTorch, in double precision on the CPU.

    python3 -m venv /tmp/golden && /tmp/golden/bin/pip install torch==2.11.0 numpy==2.4.6
    /tmp/golden/bin/python data/golden/make_golden.py

They test the C++ reference of common/attention, which in turn tests the kernels, so they come from
an implementation that shares no line with it. Nothing in the build or in the tests needs PyTorch.

Each case NAME is four .npy files (format 1.0, little-endian, C order, [batch, heads, tokens, head_dim]):
NAME_q, NAME_k, NAME_v as float16 and NAME_out as float64. manifest.json lists the cases.
"""

import hashlib
import json
import pathlib

import numpy
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

FOLDER = pathlib.Path(__file__).resolve().parent

# name, (batch, heads, tokens, head_dim), seed, scale (None: 1/sqrt(head_dim)), standard deviation of Q
#
# K and V have deviation 1 and scale = 1/sqrt(head_dim) keeps that of Q in the scores: with 4 a row of
# 197 gives half of its weight to its best key. "huge" has scores beyond +-88, where exp() of a score
# itself overflows in fp32; "scaled" has a scale of its own, for code that computes it from head_dim.
CASES = [
    ("one_token", (1, 1, 1, 32), 101, None, 4.0),
    ("ragged_17", (1, 3, 17, 64), 102, None, 4.0),
    ("ragged_33", (3, 1, 33, 128), 103, None, 4.0),
    ("ragged_65", (1, 2, 65, 64), 104, None, 4.0),
    ("vit_197", (1, 1, 197, 64), 105, None, 4.0),
    ("batch_heads", (2, 3, 31, 32), 106, None, 4.0),
    ("scaled", (1, 2, 40, 32), 107, 0.5, 1.5),
    ("huge", (1, 1, 63, 64), 111, None, 30.0),
]


def inputs(shape, seed, q_deviation):
    """Seeded fp16 values; V has mean zero over the tokens, so that attention to nothing shows."""
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(3))
    if shape[2] > 1:
        v = v - v.mean(dim=2, keepdim=True)
    return (q * q_deviation).half(), k.half(), v.half()


def attention(q, k, v, scale):
    with sdpa_kernel(SDPBackend.MATH):
        return scaled_dot_product_attention(q.double(), k.double(), v.double(), scale=scale)


def relative_l2(got, reference):
    return float((got - reference).norm() / reference.norm())


def check(q, k, v, scale, out):
    """The array is the formula, and wrong kernels known from the field are far away from it."""
    scores = q.double() @ k.double().transpose(-1, -2) * scale
    assert relative_l2(torch.softmax(scores, -1) @ v.double(), out) < 1e-12
    tokens = q.shape[2]
    if tokens == 1:
        return {}
    wrong = {
        "mean_of_v": v.double().mean(2, keepdim=True).expand_as(out),
        "last_key_dropped": attention(q, k[:, :, :-1], v[:, :, :-1], scale),
        "rows_shifted": out.roll(1, 2),
        "scale_ignored": attention(q, k, v, 1.0),
    }
    if q.shape[1] > 1:
        wrong["heads_swapped"] = out.flip(1)
    distances = {name: round(relative_l2(array, out), 4) for name, array in wrong.items()}
    assert all(distance > 0.02 for distance in distances.values()), distances
    return distances


def save(name, array):
    path = FOLDER / f"{name}.npy"
    numpy.save(path, numpy.ascontiguousarray(array))
    return {"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def main():
    torch.set_num_threads(1)  # the same order of additions on every machine
    cases = []
    for name, shape, seed, scale, q_deviation in CASES:
        scale = shape[3] ** -0.5 if scale is None else scale
        q, k, v = inputs(shape, seed, q_deviation)
        out = attention(q, k, v, scale)
        distances = check(q, k, v, scale, out)
        arrays = {"q": q, "k": k, "v": v, "out": out}
        batch, heads, tokens, head_dim = shape
        cases.append({
            "name": name, "batch": batch, "heads": heads, "tokens": tokens, "head_dim": head_dim,
            "scale": scale, "seed": seed, "q_deviation": q_deviation,
            "largest_score": float((q.double() @ k.double().transpose(-1, -2) * scale).abs().max()),
            "relative_l2_of_wrong_results": distances,
            "arrays": {key: save(f"{name}_{key}", array.numpy()) for key, array in arrays.items()},
        })
    manifest = {
        "made_by": "data/golden/make_golden.py",
        "function": "torch.nn.functional.scaled_dot_product_attention, float64, math backend",
        "torch": torch.__version__, "numpy": numpy.__version__,
        "layout": "[batch, heads, tokens, head_dim], C order; q, k, v float16, out float64",
        "cases": cases,
    }
    (FOLDER / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


if __name__ == "__main__":
    main()
