#!/usr/bin/env python3
"""Draws chapter 12's images a second, predicted, and its memory over batch, for each image size.

    sweeps_net.py PICTURE.png SWEEPS.json

SWEEPS.json is data/results/virtual_h200/sweeps.json, which `make bench DEVICE=vgpu` writes. A line is a
choice of components and an image size; hollow: the times are predicted. Memory is that of the plan: the
high-water mark of all arrays between the components, with the weights beside it, and what the same arrays
would take each in a place of its own. Needs matplotlib (Debian: python3-matplotlib).

Exit status: 0 drawn, 2 bad usage or input, 3 no matplotlib.
"""
import sys

import labels
import palette
import results
import sweeps
from results import Refused

CHOICES = ("embed", "norm", "mlp", "attention")
MIB = 2 ** 20


def lines_of(runs):
    """{(choices, size): [(batch, line of the net)]}, by batch."""
    found = {}
    for run in runs:
        problem = run["problem"]
        net = next((line for line in run["lines"] if line["name"] == "net"), None)
        if net is None:
            raise Refused(f"a run of {run['chapter']} has no line 'net'")
        key = (tuple(problem[name] for name in CHOICES), problem["size"])
        found.setdefault(key, []).append((problem["batch"], net))
    for key, points in found.items():
        points.sort(key=lambda point: point[0])
        if len(points) < 2:
            raise Refused(f"needs two batches or more of {key[1]} pixels")
    return dict(sorted(found.items(), key=lambda of: (of[0][0], of[0][1])))


def rates(points):
    """[(batch, images a second)]"""
    return [(batch, 1e6 * batch / net["us"]) for batch, net in points]


def in_bytes(count):
    return f"{count / MIB:.0f} MiB" if count >= 10 * MIB else f"{count / MIB:.2g} MiB"


def scale(ax, batches, label):
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xticks(batches, [str(batch) for batch in batches])
    ax.minorticks_off()
    ax.set_xlim(batches[0] / 1.1, batches[-1] * 9)
    ax.set_xlabel("images at a time")
    ax.set_ylabel(label)


def color_of(sizes, size):
    return palette.CHAPTERS[(0, 5, 3, 1, 6)[sizes.index(size) % 5]]


def draw_rates(ax, lines, sizes):
    """The panel, and its labels for later."""
    ends, simple = [], {choices for choices, _ in lines if set(choices[:3]) == {"simple"}}
    for (choices, size), points in lines.items():
        color = color_of(sizes, size)
        ax.plot(*zip(*rates(points)), color=color, marker="o", markersize=5, markerfacecolor="white",
                linewidth=1.4, linestyle=":" if choices in simple else "-")
        batch, rate = rates(points)[-1]
        ends.append((batch, rate, f"{size} pixels{', simple' if choices in simple else ''}: {rate:,.0f}",
                     color))
    return ends


def draw_memory(ax, lines, sizes):
    ends, drawn = [], set()
    for (_, size), points in lines.items():
        if size in drawn:  # the plan is that of the net, whatever computes it
            continue
        drawn.add(size)
        color = color_of(sizes, size)
        for name, style in (("activations_bytes", "-"), ("separate_bytes", ":")):
            values = [(batch, net[name] / MIB) for batch, net in points]
            ax.plot(*zip(*values), color=color, linestyle=style, linewidth=1.4,
                    marker="o" if style == "-" else None, markersize=5)
            apart = ", apart" if name == "separate_bytes" else ""
            ends.append((*values[-1], f"{size} pixels{apart}: {in_bytes(values[-1][1] * MIB)}", color))
    weights = points[0][1]["weights_bytes"]
    ax.axhline(weights / MIB, color=palette.INK, linewidth=1.2, linestyle="--")
    ax.text(1.2 * points[-1][0], weights / MIB / 1.12, f"weights: {in_bytes(weights)}", fontsize=8.5,
            va="top")
    return ends


def titles(lines, sizes):
    """What the two panels show, in their own numbers."""
    fast = {size: points for (choices, size), points in lines.items()
            if set(choices[:3]) != {"simple"}}
    first = fast[sizes[0]]
    more = rates(first)[-1][1] / rates(first)[0][1]
    batch = first[-1][0] // first[0][0]
    less = min(points[-1][1]["separate_bytes"] / points[-1][1]["activations_bytes"]
               for points in fast.values())
    return (f"{batch} images at a time: {more:.2g} times as many\n"
            f"images a second as one at a time ({sizes[0]} pixels)",
            f"The net's arrays share places: each apart,\nthey would take {less:.2g} times as much memory")


def picture(path, file):
    plt = palette.plot()
    found = results.read(file)
    runs = sweeps.runs_of(found, 12)
    lines = lines_of(runs)
    sizes = sorted({size for _, size in lines})
    batches = sorted({batch for points in lines.values() for batch, _ in points})
    fig, axes = plt.subplots(1, 2, figsize=(11.4, 5.0), dpi=110, layout="constrained")
    scale(axes[0], batches, "images a second, predicted")
    scale(axes[1], batches, "MiB of the device's memory")
    ends = (draw_rates(axes[0], lines, sizes), draw_memory(axes[1], lines, sizes))
    for ax, title in zip(axes, titles(lines, sizes)):
        ax.set_title(title)
        ticks = [10 ** power for power in range(-3, 9)]
        low, high = ax.get_ylim()
        shown = [tick for tick in ticks if low <= tick <= high]
        ax.set_yticks(shown, [f"{tick:,g}" for tick in shown])
    error = max(line["error"] for run in runs for line in run["lines"])
    fast = next(choices for choices, _ in lines if set(choices[:3]) != {"simple"})
    words = ", ".join(f"--{flag} {step}" for flag, step in zip(CHOICES, fast))
    fig.supxlabel(f"Virtual {found['device']['name']}, ViT {runs[0]['problem']['model']}, "
                  f"±{100 * error:.0f} %. Full lines on the left: {words}.", fontsize=8.5,
                  color=palette.INK)
    fig.canvas.draw()
    fig.set_layout_engine("none")
    for ax, end in zip(axes, ends):
        labels.at_the_end(ax, end)
    fig.savefig(path, metadata={"Software": None}, transparent=False, facecolor="white")
    print(f"{path}: drawn")


def main():
    return palette.main("sweeps_net.py PICTURE.png SWEEPS.json", lambda of: len(of) == 2, picture)

if __name__ == "__main__":
    sys.exit(main())
