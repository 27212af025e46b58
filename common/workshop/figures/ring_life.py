#!/usr/bin/env python3
"""Draws the life of a ring's stages in one block, from a timeline of the virtual GPU.

    VGPU_TIME=1 VGPU_TIMELINE=run.json ./run --batch 32 --tokens 576 --predict
    ring_life.py PICTURE.png STAGES:TILES run.json:tensor_maps_kernel:title ...

A panel for each argument, a lane for each stage of the first block of the kernel of that name. Tile t lies in
stage t modulo STAGES. It is asked for when a thread gives its first copy to the copy engine, and read from
the first of its products to the last, of all warps. The block has TILES tiles, all of them as large: each
takes the same number of copies, and of products in each warp. A title has _ for blanks. Needs matplotlib
(Debian: python3-matplotlib).

Exit status: 0 drawn, 2 bad usage or input, 3 no matplotlib.
"""
import re
import sys

import palette
import traces
from results import Refused
from warp_phases import warps_of

COPY, PRODUCT = "bulk_copy", "tensor"
COLORS = {"asked for: on its way, or waiting to be read": "#d5d8dc",
          "read by at least one warp": palette.CHAPTERS[5]}


def groups(clocks, count, what):
    """The clocks in `count` groups of as many each; what is over, at the front, belongs to none (Q's copy)."""
    each = len(clocks) // count
    if not each:
        raise Refused(f"{len(clocks)} {what}, fewer than tiles ({count})")
    clocks = clocks[len(clocks) - each * count:]
    return [clocks[i * each:(i + 1) * each] for i in range(count)]


def tiles_of(warps, count):
    """[(asked, first read, last read)] of the block's tiles, in clocks."""
    copies = sorted(begin for told in warps.values() for what, begin, _ in told if what == COPY)
    asked = [of[0] for of in groups(copies, count, "copies")]
    reads = []
    for warp, told in warps.items():
        products = [(begin, end) for what, begin, end in told if what == PRODUCT]
        if not products:
            continue
        if len(products) % count:
            raise Refused(f"warp {warp} has {len(products)} products, which is no multiple of the "
                          f"{count} tiles: a tile that is not full has fewer")
        reads.append(groups(products, count, "products"))
    if not reads:
        raise Refused("no warp multiplies")
    return [(asked[t], min(of[t][0][0] for of in reads), max(of[t][-1][1] for of in reads))
            for t in range(count)]


def ahead(tiles):
    """How many tiles are asked for and not read to the end, in the mean, while the block reads."""
    begin, end = tiles[0][1], tiles[-1][2]
    held = sum(max(0, min(last, end) - max(asked, begin)) for asked, _, last in tiles)
    return held / (end - begin)


def draw(ax, title, tiles, stages):
    asked, read = COLORS.values()
    for stage in range(stages):
        mine = tiles[stage::stages]
        ax.broken_barh([(a, first - a) for a, first, _ in mine], (stage - 0.4, 0.8),
                       facecolor=asked, linewidth=0)
        ax.broken_barh([(first, last - first) for _, first, last in mine], (stage - 0.4, 0.8),
                       facecolor=read, linewidth=0)
        for i, (_, first, last) in enumerate(mine):
            ax.text((first + last) / 2, stage, str(i * stages + stage), ha="center", va="center",
                    fontsize=8, color="white")
    ax.set_title(f"{title}: of {stages} stages {ahead(tiles):.1f} are taken in the mean", fontsize=9.5)
    ax.set(xlim=(0, tiles[-1][2] * 1.01), ylim=(stages - 0.45, -0.55))
    ax.set_yticks(range(stages), [f"stage {stage}" for stage in range(stages)])
    ax.grid(axis="y", visible=False)


def picture(path, ring, *arguments):
    plt = palette.plot()
    from matplotlib.patches import Patch
    stages, count = map(int, ring.split(":"))
    panels = []
    for argument in arguments:
        file, kernel, title = argument.split(":", 2)
        panels.append((title.replace("_", " "), tiles_of(warps_of(traces.read(file)["traceEvents"], kernel), count)))
    fig, axes = plt.subplots(len(panels), 1, figsize=(10.5, 0.5 + 1.65 * len(panels)), dpi=110,
                             squeeze=False, layout="constrained")
    for (title, tiles), (ax,) in zip(panels, axes):
        draw(ax, title, tiles, stages)
    axes[-1][0].set_xlabel("clocks from the kernel's begin on; numbers are tiles")
    axes[-1][0].legend(handles=[Patch(color=color, label=label) for label, color in COLORS.items()],
                       loc="upper center", bbox_to_anchor=(0.5, -0.3), ncols=len(COLORS))
    fig.savefig(path, metadata={"Software": None}, transparent=False, facecolor="white")
    print(f"{path}: drawn")


def main():
    return palette.main("ring_life.py PICTURE.png STAGES:TILES TIMELINE.json:KERNEL:TITLE ..., as in 4:9",
                        lambda of: len(of) >= 3 and re.fullmatch(r"[1-9]\d?:[1-9]\d{0,2}", of[1]) and
                        all(panel.count(":") >= 2 for panel in of[2:]), picture)


if __name__ == "__main__":
    sys.exit(main())
