#!/usr/bin/env python3
"""Draws what chapter 8's steps load and store, array by array, from a result of the virtual GPU.

    bytes_moved.py PICTURE.png RESULT.json

RESULT.json is what chapter 8's program writes with --json. A bar for each launch of a step: to the left
the bytes that its loads ask for, to the right those that it stores. Needs matplotlib (Debian:
python3-matplotlib).

Exit status: 0 drawn, 2 bad usage or input, 3 no matplotlib.
"""
import json
import sys

import palette

LAUNCHES = {"convolution": "three passes: convolution", "instance norm": "three passes: instance norm",
            "ReLU": "three passes: ReLU", "first pass": "two passes: convolution",
            "second pass": "two passes: norm, ReLU", "fused": "fused"}
ARRAYS = {"x": palette.CHAPTERS[1], "weight": palette.CHAPTERS[2], "conv": palette.CHAPTERS[5],
          "y": palette.CHAPTERS[0]}
REST = palette.INK  # gamma, beta, moments


def bars(result):
    """[(launch, {array: bytes loaded}, {array: bytes stored})], in MiB."""
    rows = []
    for kernel in result["kernels"]:
        if kernel["name"] not in LAUNCHES or not kernel.get("counters"):
            continue
        moved = {"load": {}, "store": {}}
        for array, accesses in kernel["counters"]["allocations"].items():
            for access, sums in moved.items():
                name = array if array in ARRAYS else "rest"
                sums[name] = sums.get(name, 0) + accesses[access]["bytes_asked"] / 2**20
        rows.append((LAUNCHES[kernel["name"]], moved["load"], moved["store"]))
    if not rows:
        raise ValueError("no launch of chapter 8's steps with counters in it")
    return rows


def draw(plt, rows, path):
    fig, ax = plt.subplots(figsize=(8.2, 0.5 * len(rows) + 1.1), dpi=100)
    for at, (_, loaded, stored) in enumerate(rows):
        for sums, sign in ((loaded, -1), (stored, 1)):
            start = 0
            for array in (*ARRAYS, "rest"):
                size = sums.get(array, 0)
                ax.barh(at, sign * size, left=sign * start, height=0.62,
                        color=ARRAYS.get(array, REST))
                start += size
            if start > 0:
                ax.annotate(f"{start:.1f}", (sign * start, at), xytext=(sign * 4, 0),
                            textcoords="offset points", va="center",
                            ha="left" if sign > 0 else "right", fontsize=8.5)
    ax.set_yticks(range(len(rows)), [row[0] for row in rows])
    ax.invert_yaxis()
    ax.axvline(0, color=palette.INK, linewidth=0.8)
    ax.margins(x=0.1)
    ax.xaxis.set_major_formatter(lambda value, _: f"{abs(value):g}")
    ax.set_xlabel("MiB that loads ask for (left), MiB stored (right)")
    handles = [plt.Rectangle((0, 0), 1, 1, color=color) for color in (*ARRAYS.values(), REST)]
    ax.legend(handles, [*ARRAYS, "gamma, beta, moments"], ncol=5, loc="lower center",
              bbox_to_anchor=(0.4, 1.0), fontsize=8.5)
    fig.savefig(path, dpi=140, bbox_inches="tight", metadata={"Software": None})
    print(f"{path}: drawn")


def picture(path, result):
    plt = palette.plot()
    with open(result, encoding="utf-8") as file:
        draw(plt, bars(json.load(file)), path)


def main():
    return palette.main("bytes_moved.py PICTURE.png RESULT.json", lambda of: len(of) == 2, picture)

if __name__ == "__main__":
    sys.exit(main())
