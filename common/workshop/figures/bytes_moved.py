#!/usr/bin/env python3
"""Draws what chapter 8's steps move, array by array, from a result of the virtual GPU.

    bytes_moved.py PICTURE.png RESULT.json

RESULT.json is what chapter 8's program writes with --json. A bar for each launch of a step: on the left
what DRAM must read and write with cold caches, each sector once; on the right all that loads and stores
ask for, most of which the L1 and the L2 serve. Needs matplotlib (Debian: python3-matplotlib).

Exit status: 0 drawn, 2 bad usage or input, 3 no matplotlib.
"""
import json
import sys

import palette

LAUNCHES = {"convolution": "three passes", "instance norm": "three passes", "ReLU": "three passes",
            "first pass": "two passes", "second pass": "two passes", "fused": "fused"}
ARRAYS = {"x": palette.CHAPTERS[1], "weight": palette.CHAPTERS[2], "conv": palette.CHAPTERS[5],
          "y": palette.CHAPTERS[0], "moments": palette.CHAPTERS[6]}
REST = palette.INK  # gamma, beta, the barrier of the grid
SECTOR = 32
MIB = 2**20


def bars(result):
    """[(step, launch, {array: MiB of DRAM}, {array: MiB asked for})]."""
    rows = []
    for kernel in result["kernels"]:
        if kernel["name"] not in LAUNCHES or not kernel.get("counters"):
            continue
        dram, asked = {}, {}
        for array, told in kernel["counters"]["allocations"].items():
            name = array if array in ARRAYS else "rest"
            dram[name] = dram.get(name, 0) + SECTOR * (told["sectors_read"] + told["sectors_written"]) / MIB
            asked[name] = asked.get(name, 0) + sum(told[access]["bytes_asked"]
                                                   for access in ("load", "store")) / MIB
        rows.append((LAUNCHES[kernel["name"]], kernel["name"], dram, asked))
    if not rows:
        raise ValueError("no launch of chapter 8's steps with counters in it")
    return rows


def totals(rows):
    """{step: (MiB of DRAM, MiB asked for)}, in the order of the rows."""
    found = {}
    for step, _, *both in rows:
        have = found.get(step, (0.0, 0.0))
        found[step] = tuple(a + sum(b.values()) for a, b in zip(have, both))
    return found


def draw(plt, rows, path):
    fig, axes = plt.subplots(1, 2, figsize=(10.4, 0.5 * len(rows) + 1.7), dpi=100, sharey=True,
                             gridspec_kw={"wspace": 0.06})
    every = totals(rows)
    for panel, ax in enumerate(axes):
        for at, (_, _, *both) in enumerate(rows):
            start = 0
            for array in (*ARRAYS, "rest"):
                size = both[panel].get(array, 0)
                ax.barh(at, size, left=start, height=0.62, color=ARRAYS.get(array, REST))
                start += size
            ax.annotate(f"{start:.1f}", (start, at), xytext=(4, 0), textcoords="offset points", va="center",
                        fontsize=8.5)
        ax.margins(x=0.12)
        said = ", ".join(f"{step} {both[panel]:.1f}" for step, both in every.items())
        ax.set_title(f"{('DRAM reads and writes', 'loads and stores ask for')[panel]}: {said}", fontsize=9)
        ax.set_xlabel("MiB")
        ax.grid(axis="y", visible=False)
    axes[0].set_yticks(range(len(rows)), [launch if launch == step else f"{step}: {launch}"
                                          for step, launch, *_ in rows])
    axes[0].invert_yaxis()
    handles = [plt.Rectangle((0, 0), 1, 1, color=color) for color in (*ARRAYS.values(), REST)]
    fig.legend(handles, [*ARRAYS, "other"], ncol=6, loc="lower center", bbox_to_anchor=(0.5, 0.98),
               fontsize=8.5)
    fig.savefig(path, dpi=120, bbox_inches="tight", metadata={"Software": None}, transparent=False,
                facecolor="white")
    print(f"{path}: drawn")


def picture(path, result):
    plt = palette.plot()
    with open(result, encoding="utf-8") as file:
        draw(plt, bars(json.load(file)), path)


def main():
    return palette.main("bytes_moved.py PICTURE.png RESULT.json", lambda of: len(of) == 2, picture)

if __name__ == "__main__":
    sys.exit(main())
