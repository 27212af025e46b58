#!/usr/bin/env python3
"""Puts the operators into Hugging Face's CvT and into a Vision Transformer of timm, without
touching their code, and compares output and gradients with the same net in double. Both nets are
small and have random weights.

    make operators && common/operators/models.py [--model cvt|vit] [--batch N] [--device cpu|cuda]

Exit status: 0 equal within the bound, 1 not, 2 bad usage, 3 PyTorch, transformers, timm or the
library is missing.

The bound. The kernels of attention and linear layers round to float16 what they take, what they
keep between two products and what they give, on both ways. How much of that arrives in the result
depends on the net: a score of 10 makes a rounding of its query ten times as large a share of its
weight. So the same net runs a third time, in double with the same arrays rounded to 11 bits (class
Rounded), and its error is what float16 costs. Ours may be twice that, and for one parameter alone
four times, since errors of two runs are two draws: other sums, the same size. Whatever is wrong
beyond rounding is larger by far. A parameter whose gradient is 0 by the formula, such as the bias
of keys, is held against the average size of all.
"""
import argparse
import copy
import math
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
def lacks(words):
    print(f"models.py: {words}", file=sys.stderr)
    sys.exit(3)


def cvt(torch):
    try:
        from transformers import CvtConfig, CvtForImageClassification
    except ImportError as error:
        lacks(f"no CvT here: {error}; pip install transformers")
    return CvtForImageClassification(CvtConfig(
        embed_dim=[64, 64, 128], num_heads=[1, 2, 2], depth=[1, 2, 3],
        drop_path_rate=[0.0, 0.0, 0.0],
        num_labels=10)), lambda output: output.logits, 48


def vit(torch):
    try:
        import timm
    except ImportError as error:
        lacks(f"no timm here: {error}; pip install timm")
    return timm.models.VisionTransformer(img_size=32, patch_size=8, embed_dim=64, depth=2,
                                         num_heads=2,
                                         num_classes=10), lambda output: output, 32


MODELS = {"cvt": cvt, "vit": vit}


def randomize(torch, model, seed):
    """Weights with which attention is far from uniform and every parameter counts."""
    seed = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            numbers = torch.randn(parameter.shape, generator=seed)
            if parameter.dim() > 1 and not name.endswith(("pos_embed", "cls_token")):
                parameter.copy_(numbers * 1.5 / math.sqrt(parameter[0].numel()))
            elif "norm" in name and name.endswith("weight"):
                parameter.copy_(1 + 0.2 * numbers)
            else:
                parameter.copy_(0.2 * numbers)


def run(torch, model, logits_of, photos, d_logits):
    """The logits, and the gradient of each parameter."""
    model.zero_grad(set_to_none=True)
    logits = logits_of(model(photos))
    logits.backward(d_logits.to(logits.dtype))
    return logits.detach(), {name: p.grad.clone() for name, p in model.named_parameters()}


def run_in_double(torch, model, logits_of, photos, d_logits):
    """The same in double. One photo has a second one beside it that counts for nothing: PyTorch's
    batch_norm has wrong gradients for one photo on a CPU, where the gradient of its result has its
    channels innermost, as after CvT's permute (seen with 2.15)."""
    alone = len(photos) == 1
    if alone:
        photos = torch.cat((photos, photos))
        d_logits = torch.cat((d_logits, torch.zeros_like(d_logits)))
    logits, gradients = run(torch, model, logits_of, photos.double(), d_logits)
    return logits[:1] if alone else logits, gradients


def rounded_kernels(torch):
    """The operators by their formulas, with what the kernels round to float16 rounded to 11 bits:
    no number is too small or too large."""
    class Rounded(torch.autograd.Function):
        @staticmethod
        def round(x):
            mantissa, exponent = torch.frexp(x)
            return torch.ldexp(torch.round(mantissa * 2048) / 2048, exponent)

        @staticmethod
        def forward(ctx, x, there, back):
            ctx.back = back
            return Rounded.round(x) if there else x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return (Rounded.round(gradient) if ctx.back else gradient), None, None

    def both(x):
        return None if x is None else Rounded.apply(x, True, True)

    functional = torch.nn.functional

    class Attention(torch.autograd.Function):
        """Backward as the kernels have it: weights once more, and the sum of weights times their
        gradients from the output, which was rounded, too."""

        @staticmethod
        def forward(ctx, q, k, v, scale):
            q, k, v = (Rounded.round(x) for x in (q, k, v))
            weights = torch.softmax(scale * q @ k.transpose(-1, -2), -1)
            o = Rounded.round(Rounded.round(weights) @ v)
            ctx.scale = scale
            ctx.save_for_backward(q, k, v, o, weights)
            return o

        @staticmethod
        def backward(ctx, d_o):
            q, k, v, o, weights = ctx.saved_tensors
            d_o = Rounded.round(d_o)
            d_scores = weights * (d_o @ v.transpose(-1, -2) - (d_o * o).sum(-1, keepdim=True))
            d_scores = Rounded.round(d_scores)
            return (Rounded.round(ctx.scale * d_scores @ k),
                    Rounded.round(ctx.scale * d_scores.transpose(-1, -2) @ q),
                    Rounded.round(Rounded.round(weights).transpose(-1, -2) @ d_o), None)

    class Kernels:
        @staticmethod
        def attention(q, k, v, scale=None, cast=True):
            return Attention.apply(q, k, v, q.shape[-1] ** -0.5 if scale is None else scale)

        cross_attention = attention

        @staticmethod
        def layer_norm(x, scale, bias, epsilon):
            return torch.layer_norm(x, scale.shape, scale, bias, epsilon)

        @staticmethod
        def linear(x, weight, bias=None, gelu=False, cast=True):
            y = functional.linear(both(x), both(weight), both(bias))
            return both(functional.gelu(Rounded.apply(y, False, True)) if gelu else y)

        @staticmethod
        def mlp(x, w1, b1, w2, b2, cast=True):
            return Kernels.linear(Kernels.linear(x, w1, b1, gelu=True), w2, b2)

        @staticmethod
        def projection(x, w, scale, shift, height, width, running_mean, running_variance, training):
            """In fp32, which is not rounded here."""
            class_tokens = x.shape[1] - height * width
            photo = x[:, class_tokens:].transpose(1, 2).unflatten(2, (height, width))
            found = []
            for i, stride in enumerate((1, 2, 2)):
                y = functional.conv2d(photo, w[i].unsqueeze(1), stride=stride, padding=1,
                                      groups=w.shape[1])
                y = functional.batch_norm(y, running_mean[i], running_variance[i], scale[i],
                                          shift[i], training)
                found.append(torch.cat((x[:, :class_tokens], y.flatten(2).transpose(1, 2)), 1))
            return found

    return Kernels


class Errors:
    """Relative L2 errors of a run beside the exact one: of the output, of all gradients as one
    array, of each."""

    def __init__(self, found, exact):
        def of(got, expected, least=0.0):
            return float((got.double() - expected).norm()) / max(float(expected.norm()), least)

        (got, own), (expected, gradients) = found, exact
        self.output = of(got, expected)
        size = math.sqrt(sum(float(g.norm()) ** 2 for g in gradients.values()))
        elements = sum(g.numel() for g in gradients.values())
        self.gradients = math.sqrt(sum(float((own[name].double() - g).norm()) ** 2
                                       for name, g in gradients.items())) / size
        self.each = {name: of(own[name], g, size * math.sqrt(g.numel() / elements)) for name,
                     g in gradients.items()}


def compare(torch, name, batch, device, scale_error=1.0):
    """A line for the output, one for all gradients and one for the parameter that comes nearest to
    its bound. True where all are within theirs. scale_error: a mistake for the test of this
    comparison."""
    import vision_operators as ops
    model, logits_of, size = MODELS[name](torch)
    randomize(torch, model, 1)
    model.eval()
    seed = torch.Generator().manual_seed(2)
    photos = torch.randn(batch, 3, size, size, generator=seed)
    d_logits = torch.randn(batch, 10, generator=seed)
    wide = copy.deepcopy(model).double()
    exact = run_in_double(torch, wide, logits_of, photos, d_logits)
    with ops.replaced(wide, rounded_kernels(torch)):
        of_rounding = Errors(run_in_double(torch, wide, logits_of, photos, d_logits), exact)

    model, photos = model.to(device), photos.to(device)
    for module in model.modules():
        if isinstance(getattr(module, "scale", None), float):
            module.scale *= scale_error
    with ops.replaced(model) as used:
        got, own = run(torch, model, logits_of, photos, d_logits.to(device))
    errors = Errors((got.cpu(), {key: value.cpu() for key, value in own.items()}), exact)
    print(f"{name}, batch {batch}, {size} x {size} pixels, on {device}: "
          + ", ".join(str(used).split("\n")))

    lines = [("output", errors.output, 2 * of_rounding.output),
             ("all gradients", errors.gradients, 2 * of_rounding.gradients)]
    # Beyond rounding to float16, sums are in fp32: a millionth.
    each = [(f"gradient of {key}", error, 4 * of_rounding.each[key] + 1e-6) for key,
            error in errors.each.items()]
    lines.append(max(each, key=lambda line: line[1] / line[2] if line[1] == line[1] else math.inf))
    for what, error, bound in lines:
        print(f"  {what}: relative L2 error {error:.2e}, bound {bound:.2e}: "
              f"{'ok' if error <= bound else 'WRONG'}")
    return bool(used.calls) and all(error <= bound for _, error, bound in lines)  # false for NaN


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--model", choices=sorted(MODELS), help="one of them (default: both)")
    parser.add_argument("--batch", type=int, default=2, help="photos (default 2)")
    parser.add_argument("--device", choices=("cpu", "cuda"),
                        help="default: a GPU if PyTorch has one")
    arguments = parser.parse_args()
    if not 1 <= arguments.batch <= 1024:
        parser.error(f"argument --batch: {arguments.batch}: must be 1 to 1024")
    try:
        import torch
    except ImportError as error:
        lacks(f"no PyTorch here: {error}; pip install torch")
    from vision_operators import library
    device = arguments.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device == "cuda" and not torch.cuda.is_available():
        lacks("--device cuda: PyTorch finds no GPU here")
    try:
        print(library.library("cuda" if device == "cuda" else "vgpu").device())
    except (library.MissingLibrary, library.DeviceError, OSError) as error:
        lacks(str(error))
    results = [compare(torch, name, arguments.batch, device)
               for name in ([arguments.model] if arguments.model else sorted(MODELS))]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
