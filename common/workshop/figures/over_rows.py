#!/usr/bin/env python3
"""Draws how long chapter 10's steps take, predicted, over the number of rows.

    over_rows.py PICTURE.png RESULT.json...

Each RESULT.json is what chapter 10's program writes with --predict --json, of another number of rows.
Both axes are logarithmic; dashed is a copy of the same bytes. Needs matplotlib (Debian:
python3-matplotlib).

Exit status: 0 drawn, 2 bad usage or input, 3 no matplotlib.
"""
import json
import sys

import palette
import predictions

STEPS = ("copy", "base", "cub", "warp", "vector", "rows")


def times(results):
    """{step: [(rows, us)]}, by rows; lines without a prediction are left out."""
    found = {step: [] for step in STEPS}
    for result in results:
        for kernel, predicted in zip(result["kernels"], predictions.of_kernels(result)):
            if kernel["name"] in found and "us" in predicted:
                found[kernel["name"]].append((result["problem"]["rows"], predicted["us"]))
    found = {step: sorted(points) for step, points in found.items() if points}
    if "copy" not in found:
        raise ValueError("no predicted time of copy in it")
    return found


def draw(plt, found, path):
    fig, ax = plt.subplots(figsize=(7.2, 4.3))
    for index, (step, points) in enumerate(found.items()):
        copy = step == "copy"
        ax.plot(*zip(*points), color=palette.INK if copy else palette.CHAPTERS[index], marker="o",
                markersize=4, linestyle="--" if copy else "-", label=step)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("rows of 768 columns in fp16; a photo has 197")
    ax.set_ylabel("predicted time, µs, ±25 %")
    ax.grid(True, linewidth=0.4)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    ax.legend(frameon=False, fontsize=8.5)
    fig.savefig(path, dpi=140, bbox_inches="tight", metadata={"Software": None})
    print(f"{path}: drawn")


def picture(path, *paths):
    plt, results = palette.plot(), []
    for result in paths:
        with open(result, encoding="utf-8") as file:
            results.append(json.load(file))
    draw(plt, times(results), path)


def main():
    return palette.main("over_rows.py PICTURE.png RESULT.json...", lambda of: len(of) >= 2, picture)

if __name__ == "__main__":
    sys.exit(main())
