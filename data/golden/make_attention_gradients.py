#!/usr/bin/env python3
"""Writes the arrays of attention's gradients in this folder with PyTorch, in double precision.

    python3 -m venv /tmp/golden && /tmp/golden/bin/pip install torch==2.15.0 numpy==2.4.6
    /tmp/golden/bin/python data/golden/make_attention_gradients.py

Forward with torch.nn.functional.scaled_dot_product_attention, gradients with autograd. Inputs are
numbers that fp16 holds. Nothing in the build or in the tests needs PyTorch.

Each case NAME is two .npy files (format 1.0, little-endian, C order), one array after the other:
attention_gradients_NAME_inputs (float16) holds Q, K, V, dO [batch, heads, tokens, head_dim];
attention_gradients_NAME_outputs (float64) holds O, dQ, dK, dV, as Q, and log_sum_exp [batch, heads,
tokens]. attention_gradients.json lists the cases.
"""

import hashlib
import json
import pathlib

import numpy
import torch

FOLDER = pathlib.Path(__file__).resolve().parent

# name, batch, heads, tokens, head_dim, how much larger Q is than normal numbers, seed
CASES = [
    ("ragged", 1, 2, 21, 32, 1.0, 501),
    ("heads", 2, 2, 9, 64, 1.0, 502),
    ("peaked", 1, 1, 19, 128, 4.0, 503),
    ("tiles", 1, 1, 67, 64, 2.0, 504),
]


def wrong_results(q, k, v, d_o, scale):
    """dQ of wrong kernels known from the field; the right one is far from each."""
    p = torch.softmax(q @ k.mT * scale, -1)
    dp = d_o @ v.mT
    mean = (p * dp).sum(-1, keepdim=True)
    return {
        "mean_forgotten": p * dp @ k * scale,
        "scale_forgotten": p * (dp - mean) @ k,
        "last_key_forgotten": (p * (dp - mean))[..., :-1] @ k[..., :-1, :] * scale,
        "mean_of_another_row": p * (dp - mean.roll(1, -2)) @ k * scale,
    }


def relative_l2(got, reference):
    return float((got - reference).norm() / reference.norm())


def save(name, arrays):
    path = FOLDER / f"attention_gradients_{name}.npy"
    numpy.save(path, numpy.concatenate([array.numpy().ravel() for array in arrays]))
    return {"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def main():
    torch.set_num_threads(1)  # the same order of additions on every machine
    cases = []
    for name, batch, heads, tokens, head_dim, factor, seed in CASES:
        generator = torch.Generator().manual_seed(seed)
        scale = float(numpy.float32(head_dim ** -0.5))

        def random(size):
            values = torch.randn((batch, heads, tokens, head_dim), generator=generator,
                                 dtype=torch.float64)
            return (values * size).half()

        stored = [random(factor), random(1), random(1)]
        d_o = random(1)
        q, k, v = (tensor.double().requires_grad_() for tensor in stored)
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=scale)
        out.backward(d_o.double())
        sums = torch.logsumexp(q.detach() @ k.detach().mT * scale, -1)
        distances = {key: round(relative_l2(array, q.grad), 5) for key, array in wrong_results(
            q.detach(), k.detach(), v.detach(), d_o.double(), scale).items()}
        assert all(distance > 0.01 for distance in distances.values()), (name, distances)
        cases.append({
            "name": name, "batch": batch, "heads": heads, "tokens": tokens, "head_dim": head_dim,
            "scale": scale, "seed": seed, "relative_l2_of_wrong_results": distances,
            "inputs": save(name + "_inputs", stored + [d_o]),
            "outputs": save(name + "_outputs", [out.detach(), q.grad, k.grad, v.grad, sums]),
        })
    manifest = {
        "made_by": "data/golden/make_attention_gradients.py",
        "function": "torch.nn.functional.scaled_dot_product_attention and its gradients, float64",
        "torch": torch.__version__, "numpy": numpy.__version__,
        "layout": "inputs: Q, K, V, dO [batch, heads, tokens, head_dim], float16; outputs: O, dQ, dK, "
                  "dV, as Q, and log_sum_exp [batch, heads, tokens], float64; one after the other",
        "cases": cases,
    }
    (FOLDER / "attention_gradients.json").write_text(json.dumps(manifest, indent=1) + "\n")


if __name__ == "__main__":
    main()
