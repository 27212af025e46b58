#!/usr/bin/env python3
"""Draws how long chapter 9's steps take for a whole batch, predicted, over batch and over image size.

    sweeps_embedding.py PICTURE.png SWEEPS.json

SWEEPS.json is data/results/virtual_h200/sweeps.json, which `make bench DEVICE=vgpu` writes. All axes are
logarithmic. A step that ran on a part of the outputs is dashed and hollow: its time is extended from that
part in a straight line. Steps whose times nowhere differ by more than 2% share a line. Needs matplotlib
(Debian: python3-matplotlib).

Exit status: 0 drawn, 2 bad usage or input, 3 no matplotlib.
"""
import sys

import labels
import palette
import results
import sweeps
from predictions import with_unit
from results import Refused

SAME = 0.02


def series(runs, of, fixed):
    """[(names, [(size, us)], extended)] over the size `of`, of the runs with these other sizes."""
    found, extended = {}, set()
    for run in runs:
        if any(run["problem"][name] != value for name, value in fixed.items()):
            continue
        for line in run["lines"]:
            found.setdefault(line["name"], []).append((run["problem"][of], line["us"]))
            if "share_run" in line:
                extended.add(line["name"])
    groups = []
    for name, points in found.items():
        points.sort()
        for names, other, is_extended in groups:
            if is_extended == (name in extended) and len(other) == len(points) and all(
                    abs(a[1] - b[1]) <= SAME * max(a[1], b[1]) for a, b in zip(points, other)):
                names.append(name)
                break
        else:
            groups.append(([name], points, name in extended))
    if not groups or any(len(points) < 2 for _, points, _ in groups):
        raise Refused(f"needs two sizes of {of} or more where {fixed}")
    return groups


def joined(names):
    """'1, 4, 128 streams' of '1 stream', '4 streams', '128 streams'."""
    words = [name.split(" ", 1) for name in names]
    if len(names) > 1 and all(len(of) == 2 and of[0].isdigit() for of in words):
        return ", ".join(of[0] for of in words) + " " + words[-1][1]
    return ", ".join(names)


def growth(points):
    return points[-1][1] / points[0][1]


def title_of(groups, axis, most):
    """What the panel shows, in its own numbers."""
    whole = [points for _, points, extended in groups if not extended]
    slow = [points for _, points, extended in groups if extended]
    if len(whole) != 1 or not slow:
        raise Refused("needs one step that computes all outputs, and others that do not")
    factor = sorted(growth(points) for points in slow)
    return (f"{axis.format(most)}: one product takes\n{growth(whole[0]):.2g} times as long, "
            f"each other step {factor[0]:.2g} times")


def draw(plt, panels, path, words):
    fig, axes = plt.subplots(1, len(panels), figsize=(11.4, 5.0), sharey=True, dpi=110, layout="constrained",
                             gridspec_kw={"width_ratios": [1.15, 1]})
    for ax, (groups, title, label, ticks) in zip(axes, panels):
        for index, (names, points, extended) in enumerate(groups):
            color = palette.CHAPTERS[index % len(palette.CHAPTERS)]
            ax.plot(*zip(*points), color=color, marker="o", markersize=5, linewidth=1.4,
                    linestyle="--" if extended else "-",
                    markerfacecolor="white" if extended else color)
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_title(title)
        ax.set_xlabel(label)
        ax.set_xticks(ticks, [str(tick) for tick in ticks])
        ax.minorticks_off()
        ax.set_xlim(ticks[0] / 1.07, ticks[-1] * (ticks[-1] / ticks[0]) ** 0.62)
    decades = (1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9)
    low, high = axes[0].get_ylim()
    shown = [us for us in decades if low <= us <= high]
    axes[0].set_yticks(shown, [with_unit(us) for us in shown])
    axes[0].set_ylabel("predicted, from the host's first call to its last wait")
    fig.supxlabel(words, fontsize=8.5, color=palette.INK)
    fig.canvas.draw()
    fig.set_layout_engine("none")
    for ax, (groups, *_) in zip(axes, panels):
        labels.at_the_end(ax, [
            (*points[-1], f"{joined(names)}: {with_unit(points[-1][1])}",
             palette.CHAPTERS[index % len(palette.CHAPTERS)])
            for index, (names, points, _) in enumerate(groups)])
    fig.savefig(path, dpi=110, metadata={"Software": None}, transparent=False, facecolor="white")
    print(f"{path}: drawn")


def panels_of(found):
    runs = sweeps.runs_of(found, 9)
    first = min(run["problem"]["height"] for run in runs)
    panels = []
    for of, fixed, axis, label in (
            ("batch", {"height": first}, "{} photos in place of one",
             f"photos of {first} x {first} pixels"),
            ("height", {"batch": 1}, "One photo of {} pixels in place of " + str(first),
             "pixels of a photo's side, batch 1")):
        groups = series(runs, of, fixed)
        sizes = [size for size, _ in groups[0][1]]
        panels.append((groups, title_of(groups, axis, sizes[-1]), label, sizes))
    part = runs[0]["problem"]
    error = max(line["error"] for run in runs for line in run["lines"])
    words = (f"Virtual {found['device']['name']}, {part['channels']} channels, ±{100 * error:.0f} %. "
             f"Dashed: {part['part_patches'] * part['part_channels']} outputs ran; "
             "the time of all is extended from them in a straight line.")
    return panels, words


def picture(path, file):
    plt = palette.plot()
    panels, words = panels_of(results.read(file))
    draw(plt, panels, path, words)


def main():
    return palette.main("sweeps_embedding.py PICTURE.png SWEEPS.json", lambda of: len(of) == 2, picture)

if __name__ == "__main__":
    sys.exit(main())
