#!/usr/bin/env python3
"""Writes the arrays of LayerNorm in this folder with PyTorch, in double precision.

    python3 -m venv /tmp/golden && /tmp/golden/bin/pip install torch==2.15.0 numpy==2.4.6
    /tmp/golden/bin/python data/golden/make_layer_norm.py

Forward with torch.nn.functional.layer_norm, of x and of x + residual (the sum rounded as it is
stored), gradients with autograd. Inputs are numbers that the storage holds, fp16 or fp32. Nothing in
the build or in the tests needs PyTorch.

Each case NAME is two .npy files (format 1.0, little-endian, C order), one array after the other, row by
row: layer_norm_NAME_inputs (of the storage's type) holds x, residual, dy [rows, columns], scale, bias
[columns]; layer_norm_NAME_outputs (float64) holds y, y of the sum, dx [rows, columns], dscale, dbias
[columns]. layer_norm.json lists the cases.
"""

import hashlib
import json
import pathlib

import numpy
import torch

FOLDER = pathlib.Path(__file__).resolve().parent
EPSILON = float(numpy.float32(1e-6))

# name, rows, columns, storage, mean and deviation of x, seed
CASES = [
    ("half", 5, 96, torch.float16, 0.0, 1.0, 301),
    ("half_ragged", 3, 67, torch.float16, 0.5, 2.0, 302),
    ("half_far", 4, 128, torch.float16, 512.0, 1.0, 303),
    ("single", 5, 96, torch.float32, 0.0, 1.0, 304),
    ("single_far", 3, 101, torch.float32, 4096.0, 1.0, 305),
]


def normalized(x, scale, bias):
    return torch.nn.functional.layer_norm(x, (x.shape[1],), scale, bias, EPSILON)


def wrong_results(x, scale, bias):
    """Wrong kernels known from the field; the right one is far from each."""
    columns, mean = x.shape[1], x.mean(1, keepdim=True)
    squares = ((x - mean) ** 2).sum(1, keepdim=True)
    return {
        "mean_kept": x / (squares / columns + EPSILON).sqrt() * scale + bias,
        "variance_of_the_sample": (x - mean) / (squares / (columns - 1) + EPSILON).sqrt() * scale + bias,
        "scale_forgotten": (x - mean) / (squares / columns + EPSILON).sqrt() + bias,
        "bias_forgotten": (x - mean) / (squares / columns + EPSILON).sqrt() * scale,
        "rows_shifted": normalized(x, scale, bias).roll(1, 0),
    }


def relative_l2(got, reference):
    return float((got - reference).norm() / reference.norm())


def save(name, arrays):
    path = FOLDER / f"layer_norm_{name}.npy"
    numpy.save(path, numpy.concatenate([array.numpy().ravel() for array in arrays]))
    return {"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def main():
    torch.set_num_threads(1)  # the same order of additions on every machine
    cases = []
    for name, rows, columns, storage, mean, deviation, seed in CASES:
        generator = torch.Generator().manual_seed(seed)

        def random(shape, centre, width):
            values = torch.randn(shape, generator=generator, dtype=torch.float64)
            return (values * width + centre).to(storage)

        x = random((rows, columns), mean, deviation)
        residual, dy = random((rows, columns), 0, 0.5), random((rows, columns), 0, 1)
        scale, bias = random((columns,), 1, 0.25), random((columns,), 0, 0.25)
        inputs = [tensor.double().requires_grad_() for tensor in (x, scale, bias)]
        y = normalized(*inputs)
        y.backward(dy.double())
        # fp16 + fp16 is exact in fp32 or rounded there first, as kernels do.
        stored_sum = (x.float() + residual.float()).to(storage).double()
        y_of_sum = normalized(stored_sum, scale.double(), bias.double())
        distances = {key: round(relative_l2(array, y.detach()), 5)
                     for key, array in wrong_results(*(t.double() for t in (x, scale, bias))).items()}
        assert all(distance > 0.003 for distance in distances.values()), (name, distances)
        outputs = [y.detach(), y_of_sum] + [tensor.grad for tensor in inputs]
        cases.append({
            "name": name, "rows": rows, "columns": columns, "seed": seed, "mean": mean,
            "storage": "fp16" if storage == torch.float16 else "fp32",
            "relative_l2_of_wrong_results": distances,
            "inputs": save(name + "_inputs", [x, residual, dy, scale, bias]),
            "outputs": save(name + "_outputs", outputs),
        })
    manifest = {
        "made_by": "data/golden/make_layer_norm.py",
        "function": "torch.nn.functional.layer_norm and its gradients, float64, epsilon 1e-6",
        "torch": torch.__version__, "numpy": numpy.__version__,
        "layout": "inputs: x, residual, dy [rows, columns], scale, bias [columns], of the storage's "
                  "type; outputs: y, y of x + residual, dx [rows, columns], dscale, dbias [columns], "
                  "float64; one after the other",
        "cases": cases,
    }
    (FOLDER / "layer_norm.json").write_text(json.dumps(manifest, indent=1) + "\n")


if __name__ == "__main__":
    main()
