#!/usr/bin/env python3
"""Expected arrays of a Vision Transformer, computed by PyTorch in float64.

    make_vit.py                    writes vit_narrow.safetensors, vit_narrow_*.npy and vit_positions_*.npy
    make_vit.py --weights F.safetensors --photo P.png... --out FOLDER
                                   a trained net's logits of photos: FOLDER/vit_NAME_logits.npy

The narrow net has timm's names and structure: width 64, 2 heads, 2 blocks, 10 classes, images of 64
pixels. Its weights are what fp16 holds, and large enough that each component matters. Needs torch and
numpy; photos need Pillow.
"""
import argparse
import json
import os
import struct

import numpy as np
import torch
from torch import nn

FOLDER = os.path.dirname(os.path.abspath(__file__))
EPSILON = 1e-6
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
TYPES = {"F16": np.dtype("<f2"), "F32": np.dtype("<f4")}


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = (nn.LayerNorm(width, eps=EPSILON) for _ in range(2))
        self.attn = nn.ModuleDict({"qkv": nn.Linear(width, 3 * width),
                                   "proj": nn.Linear(width, width)})
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(width, 4 * width),
                                  "fc2": nn.Linear(4 * width, width)})

    def forward(self, x, see):
        batch, tokens, width = x.shape
        y = see("norm1", self.norm1(x))
        qkv = see("qkv", self.attn["qkv"](y))
        q, k, v = qkv.reshape(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = see("attention", nn.functional.scaled_dot_product_attention(q, k, v))
        x = see("proj", x + self.attn["proj"](y.transpose(1, 2).reshape(batch, tokens, width)))
        y = see("norm2", self.norm2(x))
        y = see("fc1", nn.functional.gelu(self.mlp["fc1"](y)))
        return see("fc2", x + self.mlp["fc2"](y))


class VisionTransformer(nn.Module):
    def __init__(self, size, width, heads, blocks, classes, patch=16):
        super().__init__()
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + (size // patch) ** 2, width))
        self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(3, width, patch, patch)})
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(blocks))
        self.norm = nn.LayerNorm(width, eps=EPSILON)
        self.head = nn.Linear(width, classes)

    def forward(self, image, see=lambda name, value: value):
        patches = self.patch_embed["proj"](image).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(image), -1, -1), patches], 1) + self.pos_embed
        x = see("tokens", x)
        for i, block in enumerate(self.blocks):
            x = block(x, lambda name, value, i=i: see(f"blocks.{i}.{name}", value))
        return see("logits", self.head(see("norm", self.norm(x[:, 0]))))


def read_safetensors(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    return {name: np.frombuffer(data[slice(*entry["data_offsets"])],
                                TYPES[entry["dtype"]]).reshape(entry["shape"])
            for name, entry in header.items() if name != "__metadata__"}


def write_safetensors(path, arrays):
    header, data = {}, b""
    for name, array in sorted(arrays.items()):
        header[name] = {"dtype": "F16", "shape": list(array.shape),
                        "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def write(name, values):
    np.save(os.path.join(FOLDER, f"vit_{name}.npy"), values.detach().numpy().astype("<f4"))


def narrow():
    torch.manual_seed(1)
    net = VisionTransformer(size=64, width=64, heads=2, blocks=2, classes=10).double()
    with torch.no_grad():
        for name, value in net.named_parameters():
            scale = "norm" in name and name.endswith("weight")
            spread = {"cls_token": 1, "pos_embed": 1, "patch_embed.proj.weight": 0.05}.get(name)
            if spread is None:
                spread = 0.3 if value.dim() == 1 else 1.5 / value.shape[1] ** 0.5
            value.copy_((scale + spread * torch.randn(value.shape)).half().double())
        image = torch.randn(2, 3, 64, 64).half().double()
        net(image, lambda name, value: (write(f"narrow_{name}", value), value)[1])
    np.save(os.path.join(FOLDER, "vit_narrow_image.npy"), image.numpy().astype("<f2"))
    write_safetensors(os.path.join(FOLDER, "vit_narrow.safetensors"),
                      {name: value.numpy().astype("<f2") for name, value in net.state_dict().items()})


def positions():
    """Positions of 5 x 5 patches for 8 x 8 and for 3 x 3, as timm resamples them."""
    torch.manual_seed(2)
    grid = torch.randn(1, 5, 5, 8)
    write("positions_5", grid[0])
    for to in (8, 3):
        resampled = nn.functional.interpolate(grid.permute(0, 3, 1, 2), size=(to, to),
                                              mode="bicubic", antialias=True)
        write(f"positions_{to}", resampled[0].permute(1, 2, 0))


def trained(weights, photos, out):
    from PIL import Image
    state = {name: torch.tensor(value.astype("f8")) for name, value in read_safetensors(weights).items()}
    width = state["cls_token"].shape[-1]
    net = VisionTransformer(224, width, width // 64, 12, len(state["head.bias"])).double()
    net.load_state_dict(state)
    for path in photos:
        photo = Image.open(path).convert("RGB")
        scale = 256 / min(photo.size)
        width, height = (round(scale * side) for side in photo.size)
        left, top = (round((side - 224) / 2) for side in (width, height))
        photo = photo.resize((width, height), Image.BICUBIC).crop((left, top, left + 224, top + 224))
        image = (np.asarray(photo) / 255 - MEAN) / DEVIATION
        with torch.no_grad():
            logits = net(torch.tensor(image).permute(2, 0, 1)[None].half().double())[0]
        name = os.path.basename(path).split(".")[0].split("_")[0]
        np.save(os.path.join(out, f"vit_{name}_logits.npy"), logits.numpy().astype("<f4"))
        print(name, logits.softmax(0).topk(3))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights")
    parser.add_argument("--photo", nargs="+", default=[])
    parser.add_argument("--out", default=FOLDER)
    options = parser.parse_args()
    if options.weights:
        trained(options.weights, options.photo, options.out)
    else:
        narrow()
        positions()


if __name__ == "__main__":
    main()
