#!/usr/bin/env python3
"""Draws which lane of a warp holds which element of a 16 x 16 accumulator, from a trace of the virtual GPU.

    VGPU_TRACE=wmma_attention:0:trace.json ./run --step wmma
    fragment_layout.py PICTURE.png STRIDE LANE trace.json

STRIDE: the floats from row to row of the tile to which the block's first fragment is stored. A cell tells
its lane, its colour which of the lane's elements x[i] it is; what LANE holds is outlined. All of it comes
from the addresses of wmma.store.d. Needs matplotlib (Debian: python3-matplotlib).

Exit status: 0 drawn, 2 bad usage or input, 3 no matplotlib.
"""
import sys

import palette
import traces
from results import Refused

SIZE, LANES, FLOAT = 16, 32, 4
STORE = "wmma.store.d.sync.aligned.row.m16n16k16.shared.f32"


def layout(trace, stride):
    """{(row, column): (lane, i)} of the first fragment that is stored."""
    number = next((n for n, of in enumerate(trace["instructions"]) if of["ptx"].startswith(STORE)),
                  None)
    if number is None:
        raise Refused(f"{trace['kernel']}: no {STORE} in the trace")
    parts = [a for a in trace["accesses"] if a["instruction"] == number]
    parts = parts[:SIZE * SIZE * FLOAT // (LANES * parts[0]["bytes"])]
    base = min(min(a["offsets"]) for a in parts)
    found, i = {}, 0
    for a in parts:
        for word in range(a["bytes"] // FLOAT):
            for lane, offset in enumerate(a["offsets"]):
                place = divmod((offset - base) // FLOAT + word, stride)
                if place in found or max(place) >= SIZE:
                    raise Refused(f"{trace['kernel']}: with {stride} floats a row element {place} "
                                  "is there twice or lies outside of 16 x 16")
                found[place] = lane, i
            i += 1
    return found


def picture(path, stride, shown, file):
    plt = palette.plot()
    from matplotlib.patches import Patch, Rectangle
    found = layout(traces.read(file), int(stride))
    fig, ax = plt.subplots(figsize=(7.6, 5.0), dpi=110, layout="constrained")
    for (row, column), (lane, i) in found.items():
        ax.add_patch(Rectangle((column, row), 1, 1, facecolor=palette.CHAPTERS[i], alpha=0.3,
                               edgecolor="white"))
        ax.text(column + 0.5, row + 0.52, str(lane), ha="center", va="center", fontsize=8,
                color="#303338")
        if lane == int(shown):
            ax.add_patch(Rectangle((column + 0.05, row + 0.05), 0.9, 0.9, fill=False,
                                   edgecolor="#303338", linewidth=1.6))
    ax.set(xlim=(0, SIZE), ylim=(SIZE, 0), aspect="equal")
    ax.set_xticks([i + 0.5 for i in range(SIZE)], [str(i) for i in range(SIZE)], fontsize=8)
    ax.set_yticks([i + 0.5 for i in range(SIZE)], [str(i) for i in range(SIZE)], fontsize=8)
    ax.set(xlabel="column", ylabel="row")
    ax.grid(False)
    rows = sorted({row for (row, _), (lane, _) in found.items() if lane == int(shown)})
    ax.set_title(f"In a cell: the lane that holds the element. Lane {shown} (outlined) has rows "
                 f"{' and '.join(map(str, rows))}.", fontsize=9.5)
    ax.legend(handles=[Patch(color=palette.CHAPTERS[i], alpha=0.3, label=f"x[{i}]")
                       for i in range(SIZE * SIZE // LANES)],
              loc="center left", bbox_to_anchor=(1.02, 0.5))
    fig.savefig(path, metadata={"Software": None}, transparent=False, facecolor="white")
    print(f"{path}: drawn from {len(found)} elements")


def main():
    return palette.main("fragment_layout.py PICTURE.png STRIDE LANE TRACE.json",
                        lambda of: len(of) == 4 and of[1].isdigit() and of[2].isdigit() and
                        int(of[2]) < LANES, picture)


if __name__ == "__main__":
    sys.exit(main())
