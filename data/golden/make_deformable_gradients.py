#!/usr/bin/env python3
"""Writes the arrays of the gradients of deformable attention in this folder with PyTorch, in double
precision.

    python3 -m venv /tmp/golden && /tmp/golden/bin/pip install torch==2.15.0 numpy
    /tmp/golden/bin/python data/golden/make_deformable_gradients.py

Inputs are those of make_deformable.py, read from its files. The gradients are those of the sum of
grad_out times the output, by autograd through torch.nn.functional.grid_sample, level by level. Where
a location is NaN or infinite grid_sample has no rule: there they are 0. Nothing in the build or in the
tests needs PyTorch.

Each case NAME is four more .npy files: deformable_NAME_grad_out as float16, _grad_value,
_grad_locations and _grad_weights as float64. deformable_gradients.json lists the cases.
"""

import hashlib
import json
import pathlib

import numpy
import torch

from make_deformable import by_grid_sample

FOLDER = pathlib.Path(__file__).resolve().parent
SEED = 301


def saved(name, array):
    path = FOLDER / f"deformable_{name}.npy"
    numpy.save(path, numpy.ascontiguousarray(array))
    return {"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def relative_l2(got, reference):
    return float((got - reference).norm() / reference.norm())


def gradients(entry, arrays, grad_out):
    """Of value, locations and weights; 0 for locations that are not finite."""
    leaves = [arrays[name].double().requires_grad_() for name in ("value", "locations", "weights")]
    out = by_grid_sample(leaves[0], entry["levels"], leaves[1], leaves[2])
    found = torch.autograd.grad((out * grad_out.double()).sum(), leaves)
    assert all(bool(torch.isfinite(array).all()) for array in found), entry["name"]
    return found


def main():
    torch.set_num_threads(1)  # the same order of additions on every machine
    cases = []
    for number, entry in enumerate(json.loads((FOLDER / "deformable.json").read_text())["cases"]):
        arrays = {name: torch.from_numpy(numpy.load(FOLDER / of["file"]))
                  for name, of in entry["arrays"].items()}
        generator = torch.Generator().manual_seed(SEED + number)
        grad_out = torch.randn(arrays["out"].shape, generator=generator, dtype=torch.float64).half()
        value, locations, weights = gradients(entry, arrays, grad_out)
        # Mistakes known from the field are far away.
        sizes = torch.tensor([[w, h] for h, w in entry["levels"]], dtype=torch.float64)
        distances = {
            "slope_of_a_pixel": relative_l2(locations / sizes[:, None, :], locations),
            "x_and_y_swapped": relative_l2(locations.flip(-1), locations),
            "weights_ignored": relative_l2(
                gradients(entry, arrays | {"weights": torch.ones_like(arrays["weights"])},
                          grad_out)[0], value),
            "rows_shifted": relative_l2(weights.roll(1, 1), weights),
        }
        assert all(distance > 0.02 for key, distance in distances.items()), (entry["name"], distances)
        found = {"grad_out": grad_out, "grad_value": value, "grad_locations": locations,
                 "grad_weights": weights}
        cases.append({
            "name": entry["name"], "seed": SEED + number,
            "relative_l2_of_wrong_results": {key: round(d, 4) for key, d in distances.items()},
            "arrays": {key: saved(f"{entry['name']}_{key}", array.detach().numpy())
                       for key, array in found.items()},
        })
    manifest = {
        "made_by": "data/golden/make_deformable_gradients.py",
        "function": "autograd through torch.nn.functional.grid_sample, float64",
        "torch": torch.__version__, "numpy": numpy.__version__,
        "layout": "grad_out [batch, queries, heads, channels] float16; grad_value, grad_locations and "
                  "grad_weights as value, locations and weights, float64; C order",
        "cases": cases,
    }
    (FOLDER / "deformable_gradients.json").write_text(json.dumps(manifest, indent=1) + "\n")


if __name__ == "__main__":
    main()
