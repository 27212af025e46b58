#!/usr/bin/env python3
"""Makes a file for chapter 12's `./run --weights` of a Vision Transformer as others publish it.

    data/convert_deit.py IN.safetensors OUT.safetensors
    data/convert_deit.py IN.pth OUT.safetensors              needs PyTorch

The names may be timm's, which stay, or those of Hugging Face's transformers (`vit.` or `deit.` in
front, query, key and value apart). Numbers of F32, BF16 and F16 become F16. Of a .pth, a dictionary
of tensors or one that has it under `model`. Without PyTorch it needs nothing but Python.
"""

import array
import json
import re
import struct
import sys

PLACES = [(r"(?:vit|deit)\.embeddings\.cls_token", "cls_token"),
          (r"(?:vit|deit)\.embeddings\.position_embeddings", "pos_embed"),
          (r"(?:vit|deit)\.embeddings\.patch_embeddings\.projection\.(\w+)", r"patch_embed.proj.\1"),
          (r"(?:vit|deit)\.layernorm\.(\w+)", r"norm.\1"),
          (r"classifier\.(\w+)", r"head.\1")]
LAYER = r"(?:vit|deit)\.encoder\.layer\.(\d+)\."
IN_LAYER = {"attention.output.dense": "attn.proj", "intermediate.dense": "mlp.fc1",
            "output.dense": "mlp.fc2", "layernorm_before": "norm1", "layernorm_after": "norm2"}


def floats(path, name, dtype, data):
    """A tensor's numbers."""
    if dtype == "F16":
        return struct.unpack(f"<{len(data) // 2}e", data)
    if dtype == "BF16":  # the upper half of an F32
        data = b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))
    elif dtype != "F32":
        sys.exit(f"{path}: tensor '{name}' is {dtype}, F32, BF16 or F16 is needed")
    values = array.array("f", data)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def read_safetensors(path):
    try:
        with open(path, "rb") as file:
            content = file.read()
        length = struct.unpack("<Q", content[:8])[0]
        header = json.loads(content[8:8 + length])
    except (OSError, struct.error, ValueError) as error:
        sys.exit(f"{path}: is no safetensors file: {error}")
    data = content[8 + length:]
    return {name: (entry["shape"], floats(path, name, entry["dtype"], data[slice(*entry["data_offsets"])]))
            for name, entry in header.items() if name != "__metadata__"}


def read_pth(path):
    try:
        import torch
    except ImportError:
        sys.exit(f"{path}: needs PyTorch to be read; a .safetensors file does not")
    state = torch.load(path, map_location="cpu", weights_only=True)
    state = state.get("model", state)
    return {name: (list(value.shape), value.float().flatten().tolist())
            for name, value in state.items()}


def in_timms_names(tensors):
    """The same with timm's names; query, key and value become one tensor."""
    result, apart = {}, {}
    for name, tensor in tensors.items():
        for pattern, new in PLACES:
            if match := re.fullmatch(pattern, name):
                result[match.expand(new)] = tensor
                break
        else:
            if match := re.fullmatch(LAYER + r"attention\.attention\.(query|key|value)\.(\w+)", name):
                layer, part, kind = match.groups()
                apart.setdefault(f"blocks.{layer}.attn.qkv.{kind}", {})[part] = tensor
            elif match := re.fullmatch(LAYER + r"(.+)\.(weight|bias)", name):
                layer, place, kind = match.groups()
                if place not in IN_LAYER:
                    sys.exit(f"tensor '{name}': nothing is known of '{place}'")
                result[f"blocks.{layer}.{IN_LAYER[place]}.{kind}"] = tensor
            else:
                result[name] = tensor
    for name, parts in apart.items():
        if missing := {"query", "key", "value"} - set(parts):
            sys.exit(f"for '{name}' {' and '.join(sorted(missing))} is missing")
        shape = parts["query"][0]
        result[name] = ([3 * shape[0], *shape[1:]],
                        [x for part in ("query", "key", "value") for x in parts[part][1]])
    return result


def write(path, tensors):
    header, chunks, at = {}, [], 0
    for name, (shape, values) in sorted(tensors.items()):
        try:
            chunk = struct.pack(f"<{len(values)}e", *values)
        except OverflowError:
            sys.exit(f"tensor '{name}' has a number beyond fp16's 65504")
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [at, at + len(chunk)]}
        chunks.append(chunk)
        at += len(chunk)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(chunks))


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    source, target = sys.argv[1:]
    tensors = (read_pth if source.endswith((".pth", ".pt", ".bin")) else read_safetensors)(source)
    write(target, in_timms_names(tensors))


if __name__ == "__main__":
    main()
