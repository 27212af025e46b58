#!/usr/bin/env python3
"""Makes a file for chapter 20's `./run --style` of a TensorFlow checkpoint dumped for deeplearn.js or ml5.

    data/convert_style.py FOLDER OUT.safetensors

FOLDER has manifest.json and the float32 files that it names: Variable, Variable_1, ... Variable_47,
for each of the 16 layers its filter, beta and gamma. Ordinary filters are [height, width, in, out]
there, transposed ones [height, width, out, in]; the file gets [out, in, height, width] and
[in, out, height, width] in fp16. Needs nothing but Python.
"""

import array
import itertools
import json
import pathlib
import struct
import sys

LAYERS = ["conv1", "conv2", "conv3",
          *(f"res{i}.conv{j}" for i in range(1, 6) for j in (1, 2)),
          "deconv1", "deconv2", "conv4"]


def read(folder, manifest, number):
    """Shape and values of a variable."""
    name = "Variable" + (f"_{number}" if number else "")
    if name not in manifest:
        sys.exit(f"{folder}/manifest.json: '{name}' is missing, {3 * len(LAYERS)} variables are "
                 f"needed, {len(manifest)} are there")
    shape, path = manifest[name]["shape"], folder / manifest[name]["filename"]
    values = array.array("f", path.read_bytes())
    if sys.byteorder == "big":
        values.byteswap()
    elements = 1
    for size in shape:
        elements *= size
    if len(values) != elements:
        sys.exit(f"{path}: {len(values)} values, shape {shape} has {elements}")
    return shape, values


def moved(shape, values, axes):
    """The array with its axes in another order."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    steps = [range(0, shape[axis] * strides[axis], strides[axis]) for axis in axes]
    return [shape[axis] for axis in axes], [values[sum(at)] for at in itertools.product(*steps)]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    manifest = json.loads((folder / "manifest.json").read_text())
    header, data = {}, b""
    for number, layer in enumerate(LAYERS):
        parts = {".weight": read(folder, manifest, 3 * number),
                 ".in_beta": read(folder, manifest, 3 * number + 1),
                 ".in_gamma": read(folder, manifest, 3 * number + 2)}
        if len(parts[".weight"][0]) != 4:
            sys.exit(f"{layer}: the filter has shape {parts['.weight'][0]}, 4 axes are needed")
        parts[".weight"] = moved(*parts[".weight"], (3, 2, 0, 1))
        for part, (shape, values) in parts.items():
            raw = struct.pack(f"<{len(values)}e", *values)
            header[layer + part] = {"dtype": "F16", "shape": shape,
                                    "data_offsets": [len(data), len(data) + len(raw)]}
            data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path(sys.argv[2]).write_bytes(struct.pack("<Q", len(text)) + text + data)


if __name__ == "__main__":
    main()
