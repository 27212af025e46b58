#!/usr/bin/env python3
"""Draws which bytes the lanes of one warp of chapter 1 touch.

    warp_loads.py RESULT.json PICTURE.png

RESULT.json is what `./run --json` writes on the virtual GPU. The shape comes from it; the addresses
come from the index expressions of chapters/01_naive_attention/kernel.cuh, repeated below. So that
the picture cannot drift from the kernels, the expressions are evaluated for every warp and every
step of the launch, and their requests and sectors must be exactly those that the run counted;
otherwise nothing is drawn. Needs matplotlib (Debian: python3-matplotlib).

Exit status: 0 drawn, 1 the expressions are not what the kernels did, 2 bad input, 3 no matplotlib.
"""
import json
import sys

try:
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import numpy as np
    from matplotlib.patches import Patch, Rectangle
except ImportError as missing:
    print(f"warp_loads: {missing}; on Debian or Ubuntu: apt-get install python3-matplotlib",
          file=sys.stderr)
    sys.exit(3)

SECTOR, LANES = 32, 32  # bytes, lanes of a warp
UNTOUCHED, MOVED, USED, EDGE = "#f2f2f2", "#f6b26b", "#7a1f1f", "#b0b0b0"


def accesses(shape):
    """(title, kernel, array, access, bytes of an element, threads, steps, address(thread, step)).

    An address counts bytes from the array's beginning, which cudaMalloc aligns to 256 bytes.
    """
    N, D = shape["tokens"], shape["head_dim"]
    scores = shape["batch"] * shape["heads"] * N * N
    elements = shape["batch"] * shape["heads"] * N * D
    return {
        "K": ("scores", "K", "load", 2, scores, D,
              lambda t, d: 2 * ((t // (N * N) * N + t % N) * D + d)),
        "Q": ("scores", "Q", "load", 2, scores, D, lambda t, d: 2 * (t // N * D + d)),
        "S": ("scores", "scores", "store", 4, scores, 1, lambda t, _: 4 * t),
        "V": ("values", "V", "load", 2, elements, N,
              lambda t, key: 2 * ((t // D // N * N + key) * D + t % D)),
        "P": ("values", "scores", "load", 4, elements, N, lambda t, key: 4 * (t // D * N + key)),
    }


def count(threads, steps, address):
    """Requests and sectors of all warps of a launch."""
    padded = -(-threads // LANES) * LANES
    thread = np.arange(padded).reshape(-1, LANES)
    there = thread < threads
    requests = sectors = 0
    for step in range(steps):
        sector = np.where(there, address(thread, step) // SECTOR, -1)
        sector.sort(axis=1)
        first = np.ones_like(sector, dtype=bool)
        first[:, 1:] = sector[:, 1:] != sector[:, :-1]
        requests += int(there.any(axis=1).sum())
        sectors += int((first & (sector >= 0)).sum())
    return requests, sectors


def draw(ax, title, access, row_bytes, row_name, step):
    """Memory in rows of row_bytes; what warp 0 moves and uses at one step of its loop."""
    _, _, _, size, _, _, address = access
    byte = address(np.arange(LANES), step)
    first = byte.min() // row_bytes
    rows = byte.max() // row_bytes - first + 1
    for row in range(rows):
        for x in range(0, row_bytes, SECTOR):
            start = (first + row) * row_bytes + x
            touched = ((byte // SECTOR) == start // SECTOR).any()
            ax.add_patch(Rectangle((x, row), SECTOR, 1, facecolor=MOVED if touched else UNTOUCHED,
                                   edgecolor=EDGE, linewidth=0.8))
    for start in sorted(set(byte.tolist())):
        ax.add_patch(Rectangle((start % row_bytes, start // row_bytes - first + 0.15), size, 0.7,
                               facecolor=USED, edgecolor=MOVED, linewidth=0.3))
    sectors = len(set((byte // SECTOR).tolist()))
    used = size * len(set(byte.tolist()))
    ax.set_title(f"{title}\n{sectors} sector{'s' if sectors > 1 else ''}, {sectors * SECTOR} bytes "
                 f"moved, {used} used", fontsize=9, loc="left")
    ax.set_xlim(0, row_bytes)
    ax.set_ylim(rows, 0)
    ax.set_xticks(range(0, row_bytes + 1, SECTOR))
    ax.tick_params(labelsize=7, length=2)
    if rows > 1:
        ax.set_yticks([row + 0.5 for row in range(rows)])
        ax.set_yticklabels([f"lane {row}: {row_name} {first + row}" for row in range(rows)],
                           fontsize=6.5)
    else:
        ax.set_yticks([0.5])
        ax.set_yticklabels([row_name], fontsize=7.5)
    for side in ax.spines.values():
        side.set_visible(False)


def main():
    if len(sys.argv) != 3:
        print("usage: warp_loads.py RESULT.json PICTURE.png", file=sys.stderr)
        return 2
    try:
        with open(sys.argv[1], encoding="utf-8") as file:
            result = json.load(file)
        shape = result["problem"]
        kernels = {k["name"]: k["counters"]["allocations"] for k in result["kernels"]
                   if k.get("counters")}
        counted = {name: kernels[a[0]][a[1]][a[2]] for name, a in accesses(shape).items()}
    except (OSError, json.JSONDecodeError, KeyError, TypeError) as error:
        print(f"warp_loads: {sys.argv[1]}: {error!r}: no result of chapter 1 on the virtual GPU",
              file=sys.stderr)
        return 2
    if shape["tokens"] < LANES or shape["head_dim"] != 64:
        print("warp_loads: the picture is laid out for head_dim 64 and 32 tokens or more",
              file=sys.stderr)
        return 2

    all_accesses = accesses(shape)
    for name, (kernel, array, access, _, threads, steps, address) in all_accesses.items():
        by_hand = count(threads, steps, address)
        by_run = (counted[name]["requests"], counted[name]["sectors"])
        if by_hand != by_run:
            print(f"warp_loads: {kernel} {array} {access}: {by_hand} requests and sectors by the "
                  f"index expression, {by_run} counted: kernel and picture differ", file=sys.stderr)
            return 1

    step = 20  # of the loop over head_dim or over keys; any other looks alike
    row = 2 * shape["head_dim"]
    fig = plt.figure(figsize=(10.4, 6.0), dpi=100)
    left = fig.add_gridspec(1, 1, left=0.085, right=0.5, top=0.925, bottom=0.085)
    right = fig.add_gridspec(5, 1, left=0.57, right=0.985, top=0.925, bottom=0.02, hspace=1.1)
    draw(fig.add_subplot(left[0]), f"scores_kernel loads K, element d = {step}",
         all_accesses["K"], row, "key", step)
    small = [("Q", f"scores_kernel loads Q, element d = {step}, same for all lanes", row, "Q"),
             ("S", "scores_kernel stores 32 scores", 128, "scores"),
             ("V", f"values_kernel loads V, key {step}", row, "V"),
             ("P", f"values_kernel loads one weight, key {step}, same for all lanes", 128,
              "scores")]
    for i, (name, title, row_bytes, row_name) in enumerate(small):
        draw(fig.add_subplot(right[i]), title, all_accesses[name], row_bytes, row_name, step)
    legend = fig.add_subplot(right[4])
    legend.axis("off")
    legend.legend(handles=[Patch(color=USED, label="used by a lane"),
                           Patch(color=MOVED, label="moved: the rest of its 32-byte sector"),
                           Patch(facecolor=UNTOUCHED, edgecolor=EDGE, label="not moved")],
                  loc="center left", fontsize=7.5, frameon=False, ncol=3, borderaxespad=0,
                  columnspacing=1.0, handlelength=1.2)
    fig.text(0.26, 0.02, "byte of the row", fontsize=7.5)
    fig.savefig(sys.argv[2], metadata={"Software": None})
    print(f"{sys.argv[2]}: drawn; requests and sectors of {len(all_accesses)} accesses are those "
          "of the run")
    return 0


if __name__ == "__main__":
    sys.exit(main())
