#!/usr/bin/env python3
"""Writes the arrays of chapter 16 (CvT) in this folder with PyTorch.

    python3 -m venv /tmp/golden && /tmp/golden/bin/pip install torch==2.15.0 numpy==2.4.6
    /tmp/golden/bin/python data/golden/make_cvt.py

The net is that of Wu et al. 2021: projections of depthwise convolution, BatchNorm and a linear layer, strides 1
(query) and 2 (key, value); a class token in the last stage that no convolution sees; scores times the whole
width to the power -1/2; exact GELU; LayerNorm and BatchNorm with eps 1e-5. First values of parameters, order of
images and augmentation are drawn from the same generator as in the chapter (common/lab/random.h), so that both
train the same net on the same images. Nothing in the build or in the tests needs PyTorch.

cvt_losses.npy   [6, 20]: losses of the chapter's default training: in double and in single precision, and with all
                 operands of products rounded to tf32, to nearest and towards zero; then as many of a narrow net
                 with random images: in double, and the largest distance of both roundings from it
cvt_narrow_gradients.npy  the narrow net's gradients in its first step, one parameter after the other (float32
                 from double), in the order of cvt.json
cvt.json         the narrow net's shape and its parameters: name, shape, and the L2 distance between gradients
                 with operands rounded to tf32 and those in double (the larger one of both roundings)
cvt_OPERATION.npy  inputs, outputs and gradients of one operation on a tiny shape (float64), one array after the
                 other; cvt.json names them with their shapes
"""

import hashlib
import json
import math
import pathlib

import numpy
import torch
import torch.nn.functional as functional

FOLDER = pathlib.Path(__file__).resolve().parent
STEPS = 20
RATE, SEED, BATCH, DECAY, SMOOTHING, WARM_UP = 0.003, 1, 32, 0.05, 0.1, 20
TURN, SCALE, SHIFT = 8.0, 0.1, 1.0

# kernel, stride, padding, width, heads, blocks
SMALL = {"size": 28, "ratio": 2, "classes": 10,
         "stages": [(7, 4, 2, 32, 1, 1), (3, 2, 1, 64, 2, 1), (3, 2, 1, 96, 3, 1)]}
NARROW = {"size": 20, "ratio": 1, "classes": 5,
          "stages": [(7, 4, 2, 32, 1, 1), (3, 2, 1, 32, 1, 1), (3, 2, 1, 32, 2, 2)]}
NARROW_BATCH, NARROW_SEED = 3, 5


# ---- The generator of common/lab/random.h -----------------------------------------------------------

def random_bits(seed, index):
    mask = (1 << 64) - 1
    with numpy.errstate(over="ignore"):
        u = numpy.uint64
        z = u(seed * 0xD1342543DE82EF95 & mask) + (numpy.asarray(index, dtype=u) + u(1)) * u(0x9E3779B97F4A7C15)
        z = (z ^ (z >> u(30))) * u(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> u(27))) * u(0x94D049BB133111EB)
        return z ^ (z >> u(31))


def uniform(seed, index):
    return (random_bits(seed, index) >> numpy.uint64(11)).astype(numpy.float64) * 2.0 ** -53


# ---- Parameters, in the chapter's order: decayed ones in front ----------------------------------------

def parameters_of(net):
    """[(name, shape, kind)]"""
    found = []

    def linear(name, inputs, outputs):
        found.extend([(name + ".weight", (outputs, inputs), "uniform"), (name + ".bias", (outputs,), "zeros")])

    def norm(name, channels):
        found.extend([(name + ".weight", (channels,), "ones"), (name + ".bias", (channels,), "zeros")])

    before = 1
    for i, (kernel, _, _, width, _, blocks) in enumerate(net["stages"]):
        found.append((f"stages.{i}.embed.weight", (width, before, kernel, kernel), "uniform"))
        found.append((f"stages.{i}.embed.bias", (width,), "zeros"))
        norm(f"stages.{i}.norm", width)
        for b in range(blocks):
            name = f"stages.{i}.blocks.{b}"
            norm(name + ".norm1", width)
            for which in (".query", ".key", ".value"):
                found.append((name + which + ".conv.weight", (width, 3, 3), "uniform"))
                norm(name + which + ".bn", width)
                linear(name + which + ".linear", width, width)
            linear(name + ".out", width, width)
            norm(name + ".norm2", width)
            linear(name + ".fc1", width, width * net["ratio"])
            linear(name + ".fc2", width * net["ratio"], width)
        before = width
    found.append(("class_token", (before,), "token"))
    norm("norm", before)
    linear("head", before, net["classes"])
    return [p for p in found if p[2] == "uniform"] + [p for p in found if p[2] != "uniform"]


def first_values(net, seed):
    values = {}
    for p, (name, shape, kind) in enumerate(parameters_of(net)):
        count = math.prod(shape)
        array = numpy.full(shape, 1.0 if kind == "ones" else 0.0, dtype=numpy.float32)
        if kind in ("uniform", "token"):
            most = 0.03 if kind == "token" else 1 / math.sqrt(count // shape[0])
            array = ((2 * uniform(seed * 4096 + p, numpy.arange(count)) - 1) * most).astype(numpy.float32)
        values[name] = torch.tensor(array.reshape(shape))
    return values


# ---- Products whose operands are rounded to tf32, forward and backward --------------------------------

def to_tf32(x, nearest):
    bits = x.to(torch.float32).contiguous().view(torch.int32)
    if nearest:
        bits = bits + 0x1000
    return (bits & ~0x1FFF).view(torch.float32).to(x.dtype)


class RoundedProduct(torch.autograd.Function):
    @staticmethod
    def forward(context, a, b, nearest):
        context.save_for_backward(a, b)
        context.nearest = nearest
        return to_tf32(a, nearest) @ to_tf32(b, nearest)

    @staticmethod
    def backward(context, gradient):
        a, b = (to_tf32(x, context.nearest) for x in context.saved_tensors)
        gradient = to_tf32(gradient, context.nearest)
        da, db = gradient @ b.transpose(-1, -2), a.transpose(-1, -2) @ gradient
        while db.ndim > b.ndim:
            db = db.sum(0)
        return da, db, None


class Cvt:
    """rounding: None, "nearest" or "zero"."""

    def __init__(self, net, values, dtype, rounding=None):
        self.net, self.dtype, self.rounding = net, dtype, rounding
        self.p = {name: value.to(dtype).clone().requires_grad_() for name, value in values.items()}

    def product(self, a, b):
        return a @ b if self.rounding is None else RoundedProduct.apply(a, b, self.rounding == "nearest")

    def linear(self, name, x):
        return self.product(x, self.p[name + ".weight"].T) + self.p[name + ".bias"]

    def norm(self, name, x):
        return functional.layer_norm(x, x.shape[-1:], self.p[name + ".weight"], self.p[name + ".bias"], 1e-5)

    def project(self, name, tokens, side, class_tokens, stride):
        own, rest = tokens[:, :class_tokens], tokens[:, class_tokens:]
        batch, _, width = tokens.shape
        image = rest.transpose(1, 2).reshape(batch, width, side, side)
        image = functional.conv2d(image, self.p[name + ".conv.weight"][:, None], stride=stride, padding=1, groups=width)
        image = functional.batch_norm(image, None, None, self.p[name + ".bn.weight"], self.p[name + ".bn.bias"],
                                      training=True, eps=1e-5)
        return self.linear(name + ".linear", torch.cat([own, image.flatten(2).transpose(1, 2)], 1))

    def attention(self, name, tokens, side, class_tokens, heads):
        batch, _, width = tokens.shape
        q, k, v = (self.project(name + which, tokens, side, class_tokens, stride)
                   .reshape(batch, -1, heads, width // heads).transpose(1, 2)
                   for which, stride in ((".query", 1), (".key", 2), (".value", 2)))
        weights = torch.softmax(self.product(q, k.transpose(-1, -2)) * width ** -0.5, -1)
        return self.linear(name + ".out", self.product(weights, v).transpose(1, 2).reshape(batch, -1, width))

    def embed(self, name, x, kernel, stride, padding):
        weight = self.p[name + ".embed.weight"]
        columns = functional.unfold(x, kernel, stride=stride, padding=padding).transpose(1, 2)
        return self.norm(name + ".norm", self.product(columns, weight.flatten(1).T) + self.p[name + ".embed.bias"])

    def __call__(self, x):
        x = x.to(self.dtype)
        for i, (kernel, stride, padding, width, heads, blocks) in enumerate(self.net["stages"]):
            tokens = self.embed(f"stages.{i}", x, kernel, stride, padding)
            side, batch = math.isqrt(tokens.shape[1]), tokens.shape[0]
            class_tokens = int(i == len(self.net["stages"]) - 1)
            if class_tokens:
                tokens = torch.cat([self.p["class_token"].expand(batch, 1, width), tokens], 1)
            for b in range(blocks):
                name = f"stages.{i}.blocks.{b}"
                tokens = tokens + self.attention(name, self.norm(name + ".norm1", tokens), side, class_tokens, heads)
                hidden = functional.gelu(self.linear(name + ".fc1", self.norm(name + ".norm2", tokens)))
                tokens = tokens + self.linear(name + ".fc2", hidden)
            x = tokens.transpose(1, 2).reshape(batch, width, side, side) if not class_tokens else tokens[:, 0]
        return self.linear("head", self.norm("norm", x))


# ---- The chapter's batches ---------------------------------------------------------------------------

def read_excerpt():
    folder = FOLDER.parent / "fashion_mnist"
    images = numpy.fromfile(folder / "t10k-500-images-idx3-ubyte", numpy.uint8)[16:].reshape(-1, 28, 28)
    labels = numpy.fromfile(folder / "t10k-500-labels-idx1-ubyte", numpy.uint8)[8:]
    return images[:400], labels[:400]


def batch_of_step(count, step):
    epoch, within = divmod(step, count // BATCH)
    order = list(range(count))
    for i in range(count - 1, 0, -1):
        j = int(random_bits(SEED * 4096 + 2000, epoch * count + i)) % (i + 1)
        order[i], order[j] = order[j], order[i]
    return order[within * BATCH:(within + 1) * BATCH]


def augmented(images, step):
    result = numpy.zeros((BATCH, 28, 28), numpy.float32)
    for j, image in enumerate(images.astype(numpy.float64)):
        draw = 2 * uniform(SEED * 4096 + 3000, (step * BATCH + j) * 8 + numpy.arange(8)) - 1
        angle, size = TURN * math.pi / 180 * draw[0], 1 + SCALE * draw[1]
        cosine, sine = math.cos(angle) * size, math.sin(angle) * size
        y, x = numpy.mgrid[0:28, 0:28] - 13.5
        x = x * (-1 if draw[4] < 0 else 1)
        from_x = cosine * x - sine * y + SHIFT * draw[2] + 13.5
        from_y = sine * x + cosine * y + SHIFT * draw[3] + 13.5
        left, top = numpy.floor(from_x).astype(int), numpy.floor(from_y).astype(int)
        a, b = from_x - left, from_y - top

        def pixel(row, column):
            inside = (row >= 0) & (row < 28) & (column >= 0) & (column < 28)
            return numpy.where(inside, image[row.clip(0, 27), column.clip(0, 27)], 0.0)

        mixed = (1 - b) * ((1 - a) * pixel(top, left) + a * pixel(top, left + 1)) + b * (
            (1 - a) * pixel(top + 1, left) + a * pixel(top + 1, left + 1))
        result[j] = ((mixed / 255 - 0.286) / 0.353).astype(numpy.float32)
    return torch.tensor(result)[:, None]


def train(net, values, dtype, rounding, batch_for):
    """Losses of STEPS steps, and the gradients of the first."""
    model = Cvt(net, values, dtype, rounding)
    kinds = {name: kind for name, _, kind in parameters_of(net)}
    optimizer = torch.optim.AdamW([
        {"params": [p for n, p in model.p.items() if kinds[n] == "uniform"], "weight_decay": DECAY},
        {"params": [p for n, p in model.p.items() if kinds[n] != "uniform"], "weight_decay": 0.0}], lr=RATE)
    losses, gradients = [], None
    for step in range(STEPS):
        images, labels = batch_for(step)
        loss = functional.cross_entropy(model(images), labels, label_smoothing=SMOOTHING)
        optimizer.zero_grad()
        loss.backward()
        if gradients is None:
            gradients = {name: p.grad.to(torch.float64).clone() for name, p in model.p.items()}
        for group in optimizer.param_groups:
            group["lr"] = float(numpy.float32(RATE * (step + 1) / WARM_UP))
        optimizer.step()
        losses.append(loss.item())
    return losses, gradients


def narrow_batch(_):
    count = NARROW_BATCH * NARROW["size"] ** 2
    images = ((2 * uniform(77, numpy.arange(count)) - 1) * 1.5).astype(numpy.float32)
    return (torch.tensor(images).reshape(NARROW_BATCH, 1, NARROW["size"], NARROW["size"]),
            torch.tensor([i % NARROW["classes"] for i in range(NARROW_BATCH)]))


# ---- Single operations -------------------------------------------------------------------------------

def operations():
    """{name: [(array's name, tensor)]} in double; every gradient is of a random dy."""
    random = torch.Generator().manual_seed(16)

    def draw(*shape):
        return torch.randn(*shape, generator=random).to(torch.float64).requires_grad_()

    def entry(inputs, outputs):
        gradients = [torch.randn(o.shape, generator=random).to(torch.float64) for _, o in outputs]
        of_inputs = torch.autograd.grad([o for _, o in outputs], [t for _, t in inputs], gradients)
        return (inputs + outputs + [("d" + n, g) for (n, _), g in zip(outputs, gradients)]
                + [("d" + n, g) for (n, _), g in zip(inputs, of_inputs)])

    found = {}
    # Tokens [2, 7 x 5, 6] as a map, channels last.
    for class_tokens in (0, 1):
        height, width, channels = 7, 5, 8
        inputs = [("x", draw(2, class_tokens + height * width, channels))]
        x, outputs, running = inputs[0][1], [], []
        for which, stride in (("q", 1), ("k", 2), ("v", 2)):
            own = [("w_" + which, draw(channels, 3, 3)), ("scale_" + which, draw(channels)),
                   ("shift_" + which, draw(channels))]
            before = (torch.linspace(-1, 1, channels, dtype=torch.float64),
                      torch.linspace(0.5, 2, channels, dtype=torch.float64))
            mean, variance = before[0].clone(), before[1].clone()
            image = x[:, class_tokens:].transpose(1, 2).reshape(2, channels, height, width)
            image = functional.conv2d(image, own[0][1][:, None], stride=stride, padding=1, groups=channels)
            image = functional.batch_norm(image, mean, variance, own[1][1], own[2][1], training=True,
                                          momentum=0.1, eps=1e-5)
            running += [("mean_before_" + which, before[0]), ("variance_before_" + which, before[1]),
                        ("running_mean_" + which, mean), ("running_variance_" + which, variance)]
            outputs.append((which, torch.cat([x[:, :class_tokens], image.flatten(2).transpose(1, 2)], 1)))
            inputs.extend(own)
        found[f"projection_{class_tokens}"] = entry(inputs, outputs) + running
    for name, (size, into, out, kernel, stride, padding) in {
            "embed_7": (11, 1, 8, 7, 4, 2), "embed_3": (5, 8, 16, 3, 2, 1)}.items():
        x, w, bias = draw(2, size, size, into), draw(out, into, kernel, kernel), draw(out)
        y = functional.conv2d(x.permute(0, 3, 1, 2), w, bias, stride=stride, padding=padding).permute(0, 2, 3, 1)
        found[name] = entry([("x", x), ("w", w), ("bias", bias)], [("y", y)])
    q, k, v = draw(2, 17, 64), draw(2, 5, 64), draw(2, 5, 64)
    heads = [t.reshape(2, -1, 2, 32).transpose(1, 2) for t in (q, k, v)]
    weights = torch.softmax(heads[0] @ heads[1].transpose(-1, -2) * 64 ** -0.5, -1)
    found["attention"] = entry([("q", q), ("k", k), ("v", v)],
                               [("o", (weights @ heads[2]).transpose(1, 2).reshape(2, 17, 64))])
    logits = draw(5, 10)
    for smoothing in (0.0, 0.1):
        loss = functional.cross_entropy(logits, torch.arange(5) * 2 % 10, label_smoothing=smoothing)
        (dlogits,) = torch.autograd.grad(loss, [logits])
        found[f"cross_entropy_{smoothing}"] = [("logits", logits), ("loss", loss), ("dlogits", dlogits)]
    x, scale, shift = draw(7, 40), draw(40), draw(40)
    found["layer_norm"] = entry([("x", x), ("scale", scale), ("shift", shift)],
                                [("y", functional.layer_norm(x, (40,), scale, shift, 1e-5))])
    x, w, bias = draw(9, 36), draw(24, 36), draw(24)
    found["linear_gelu"] = entry([("x", x), ("w", w), ("bias", bias)],
                                 [("y", functional.gelu(functional.linear(x, w, bias)))])
    p = draw(50)
    optimizer = torch.optim.AdamW([p], lr=2**-7, betas=(0.875, 0.984375), eps=1e-8, weight_decay=0.125)
    gradients = torch.randn(3, 50, generator=random).to(torch.float64)
    first = p.detach().clone()
    for p.grad in gradients:
        optimizer.step()
    state = optimizer.state[p]
    found["adamw"] = [("first", first), ("gradients", gradients), ("parameters", p),
                      ("m", state["exp_avg"]), ("v", state["exp_avg_sq"])]
    return found


def save(name, arrays, dtype):
    path = FOLDER / f"cvt_{name}.npy"
    numpy.save(path, numpy.concatenate([numpy.asarray(a.detach()).ravel() for a in arrays]).astype(dtype))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main():
    torch.set_num_threads(1)
    images, labels = read_excerpt()

    def batch_for(step):
        numbers = batch_of_step(len(images), step)
        return augmented(images[numbers], step), torch.tensor(labels[numbers]).long()

    ways = [(torch.float64, None), (torch.float32, None), (torch.float64, "nearest"), (torch.float64, "zero")]
    losses = [train(SMALL, first_values(SMALL, SEED), *way, batch_for)[0] for way in ways]
    narrow = [train(NARROW, first_values(NARROW, NARROW_SEED), *way, narrow_batch) for way in (ways[0], *ways[2:])]
    exact = numpy.array(narrow[0][0])
    losses += [exact, numpy.max([numpy.abs(numpy.array(n[0]) - exact) for n in narrow[1:]], axis=0)]
    numpy.save(FOLDER / "cvt_losses.npy", numpy.array(losses))
    gradients = narrow[0][1]
    hashes = {"narrow_gradients": save("narrow_gradients", list(gradients.values()), numpy.float32)}
    listed = [{"name": name, "shape": list(g.shape), "norm": float(g.norm()),
               "tf32_distance": max(float((other[1][name] - g).norm()) for other in narrow[1:])}
              for name, g in gradients.items()]
    named = {}
    for name, arrays in operations().items():
        hashes[name] = save(name, [t for _, t in arrays], numpy.float64)
        named[name] = [{"name": n, "shape": list(t.shape)} for n, t in arrays]
    with open(FOLDER / "cvt.json", "w", encoding="utf-8") as file:
        json.dump({"torch": torch.__version__.split("+")[0], "narrow": NARROW, "gradients": listed,
                   "operations": named, "sha256": hashes}, file, indent=1)
        file.write("\n")
    for row in losses:
        print(" ".join(f"{value:.6f}" for value in row))


if __name__ == "__main__":
    main()
