#!/usr/bin/env python3
"""Writes the arrays of an MLP in this folder with PyTorch, in float64.

    python3 -m venv /tmp/golden && /tmp/golden/bin/pip install torch==2.15.0 numpy==2.4.6
    /tmp/golden/bin/python data/golden/make_mlp.py

y = x + fc2(gelu(fc1(x))) by nn.Linear and nn.functional.gelu, and by a second formulation with einsum
and torch.erf; they must agree to 13 digits. Nothing in the build or in the tests needs PyTorch.

Inputs are numbers of fp16, stored as such; mlp_hidden16.npy is the hidden array rounded to fp16, and
mlp_y_of_hidden16.npy what the second layer makes of that: each product has arrays of its own. What is
computed is float64. Sizes and hashes stand in mlp.json.
"""

import hashlib
import json
import math
import pathlib

import numpy
import torch
from torch.nn.functional import gelu, linear

FOLDER = pathlib.Path(__file__).resolve().parent
TOKENS, WIDTH, HIDDEN, SEED = 37, 40, 104, 11


def inputs():
    generator = torch.Generator().manual_seed(SEED)

    def normal(*size, of=1.0):
        values = torch.randn(size, generator=generator, dtype=torch.float64) * of
        return values.half().double()

    x = normal(TOKENS, WIDTH)
    x[0] *= 4  # where GELU is 0 or nothing but its argument
    return {"x": x, "w1": normal(HIDDEN, WIDTH, of=WIDTH ** -0.5), "b1": normal(HIDDEN, of=0.5),
            "w2": normal(WIDTH, HIDDEN, of=HIDDEN ** -0.5), "b2": normal(WIDTH, of=0.5)}


def by_pytorch(x, w1, b1, w2, b2):
    hidden = gelu(linear(x, w1, b1), approximate="none")
    return hidden, x + linear(hidden, w2, b2)


def directly(x, w1, b1, w2, b2):
    sums = torch.einsum("tw,hw->th", x, w1) + b1
    hidden = sums / 2 * (1 + torch.erf(sums / math.sqrt(2)))
    return hidden, torch.einsum("th,wh->tw", hidden, w2) + b2 + x


def relative_l2(got, reference):
    return float((got - reference).norm() / reference.norm())


def main():
    torch.set_num_threads(1)  # the same order of additions on every machine
    arrays = inputs()
    hidden, y = by_pytorch(**arrays)
    for got, reference in zip(directly(**arrays), (hidden, y)):
        assert relative_l2(got, reference) < 1e-13
    rounded = hidden.half().double()
    outputs = {"hidden": hidden, "y": y, "hidden16": rounded,
               "y_of_hidden16": arrays["x"] + linear(rounded, arrays["w2"], arrays["b2"])}

    # Wrong kernels known from the field are far away.
    x, w1, b1, w2, b2 = arrays.values()
    sums = linear(x, w1, b1)
    wrong = {"gelu_by_tanh": x + linear(gelu(sums, approximate="tanh"), w2, b2),
             "no_residual": y - x, "no_bias": y - b2,
             "last_products_dropped": x + linear(hidden[:, :-8], w2[:, :-8], b2),
             "rows_shifted": y.roll(1, 0)}
    distances = {name: relative_l2(array, y) for name, array in wrong.items()}
    # By tanh GELU is off by 5e-4 at most: nearer than fp16 rounds, and no kernel here computes it so.
    assert all(d > 0.02 for name, d in distances.items() if name != "gelu_by_tanh"), distances

    files = {}
    for name, array in (arrays | outputs).items():
        path = FOLDER / f"mlp_{name}.npy"
        halves = name in arrays or name == "hidden16"
        numpy.save(path, array.numpy().astype("<f2" if halves else "<f8"))
        files[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    manifest = {
        "made_by": "data/golden/make_mlp.py",
        "function": "linear and gelu of torch, float64, and a direct formulation",
        "torch": torch.__version__, "numpy": numpy.__version__,
        "mlp": {"tokens": TOKENS, "width": WIDTH, "hidden": HIDDEN, "seed": SEED},
        "relative_l2_of_wrong_results": {k: round(v, 5) for k, v in distances.items()},
        "files": files,
    }
    (FOLDER / "mlp.json").write_text(json.dumps(manifest, indent=1) + "\n")


if __name__ == "__main__":
    main()
