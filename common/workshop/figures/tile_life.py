#!/usr/bin/env python3
"""Draws a tile's life in a product of chapter 11, from a trace of one block by the virtual GPU.

    VGPU_TRACE=epilogue_kernel:0:trace.json ./run --step epilogue --tokens 64 --width 384 --hidden 128
    tile_life.py PICTURE.png x:768 hidden:256 trace.json

x:768 and hidden:256 are the copied array and the stored one, each with the bytes of its rows. Four panels:
which slices the block copies of x; what warp 0 does, access by access, with the stages of shared memory;
where a stage's pieces lie in the banks; which lane stores what. Needs matplotlib (Debian:
python3-matplotlib).

Exit status: 0 drawn, 2 bad usage or input, 3 no matplotlib.
"""
import sys

import palette
import tile_layouts
import traces
from results import Refused
from tile_layouts import LINE, PIECE

WARP = 0


def color_of(number):
    return palette.CHAPTERS[(0, 5, 3, 1, 6, 4, 7, 2)[number % 8]]


def stages(trace, array, row_bytes):
    """[first byte] of the stages of shared memory, in their order: where slices of the array begin."""
    begins = {}
    for access in tile_layouts.copies(trace, array):
        for source, to in zip(access["offsets"], access["to_shared"]):
            if source is not None:
                number = source % row_bytes // LINE
                begins[number] = min(to, begins.get(number, to))
    return sorted(set(begins.values()))


def stage_of(address, begins):
    return max(i for i, begin in enumerate(begins) if address >= begin)


def story(trace, array, row_bytes):
    """[(what, stage, slice)] of warp 0's accesses, in their order: 'copy', 'load', 'store'. A stage is
    that of the copied array and what lies behind it."""
    begins, holds, told = stages(trace, array, row_bytes), {}, []
    for access in trace["accesses"]:
        if access["warp"] != WARP:
            continue
        if "to_shared" in access:
            lane = next(i for i, of in enumerate(access["to_shared"]) if of is not None)
            stage = stage_of(access["to_shared"][lane], begins)
            if access["allocation"] == array:
                holds[stage] = access["offsets"][lane] % row_bytes // LINE
            told.append(("copy", stage, holds[stage]))
        elif access["space"] == "shared" and access["access"] == "load":
            stage = stage_of(next(of for of in access["offsets"] if of is not None), begins)
            told.append(("load", stage, holds[stage]))
        elif access["space"] == "global" and access["access"] == "store":
            told.append(("store", None, None))
    return told


def ahead(told):
    """How many slices the copies are ahead of the loads around them, at most and at least."""
    found, loaded = set(), None
    for what, _, number in told:
        if what == "load":
            loaded = number
        elif what == "copy" and loaded is not None:
            found.add(number - loaded)
    return sorted(found)


def draw_global(ax, trace, array, row_bytes):
    from matplotlib.patches import Rectangle
    rows = 0
    for access in tile_layouts.copies(trace, array):
        for source in access["offsets"]:
            if source is not None:
                row, piece = source // row_bytes, source % row_bytes // PIECE
                rows = max(rows, row + 1)
                ax.add_patch(Rectangle((piece, row), 1, 1, alpha=0.4, linewidth=0,
                                       facecolor=color_of(piece // (LINE // PIECE))))
    first = next(of for of in tile_layouts.copies(trace, array) if of["warp"] == WARP)
    for source in first["offsets"]:
        ax.add_patch(Rectangle((source % row_bytes // PIECE, source // row_bytes), 1, 1, fill=False,
                               edgecolor="#303338", linewidth=0.8))
    many = row_bytes // LINE
    for number in range(many):
        ax.text((number + 0.5) * 8, rows * 0.55, f"slice {number}", ha="center", fontsize=8,
                rotation=90, color="#303338")
    ax.set(xlim=(0, row_bytes // PIECE), ylim=(rows, 0), ylabel=f"row of {array}")
    ax.set_xticks(range(0, row_bytes // PIECE + 1, 8),
                  [str(PIECE * i) for i in range(0, row_bytes // PIECE + 1, 8)])
    ax.set_xlabel("byte of the row; outlined: the first copy of warp 0")
    ax.set_title(f"1. {array} in global memory: {many} slices of 128 bytes a row,\n"
                 f"a copy of a warp takes {first['sector_count']} sectors, all of them whole",
                 fontsize=9.5)
    ax.grid(False)
    if 32 * first["sector_count"] != PIECE * sum(of is not None for of in first["offsets"]):
        raise Refused("the first copy's sectors are not whole")


def draw_story(ax, told):
    lanes = [f"copies to stage {i}" for i in range(3)] + \
        [f"ldmatrix, stage {i}" for i in range(3)] + ["stores"]
    for n, (what, stage, number) in enumerate(told):
        lane = 6 if what == "store" else stage + (3 if what == "load" else 0)
        ax.barh(lane + 0.12, 1, left=n, height=0.56, linewidth=0,
                color=palette.INK if what == "store" else color_of(number))
    begun = {}
    for n, (what, stage, number) in enumerate(told):
        if what != "store" and (what, number) not in begun:
            begun[what, number] = n
            ax.text(n, stage + (3 if what == "load" else 0) - 0.2, f"slice {number}", fontsize=6.8,
                    va="bottom", color="#303338")
    ax.set_yticks([i + 0.12 for i in range(7)], lanes)
    ax.set_ylim(6.5, -0.9)
    ax.set_xlim(0, len(told))
    ax.set_xlabel("accesses of warp 0, in their order")
    distance = ahead(told)
    if len(distance) != 1:
        raise Refused(f"copies are {distance} slices ahead of the loads")
    ax.set_title(f"2. Stages: while slice s is read, copies bring slice s + {distance[0]}",
                 fontsize=9.5)
    ax.grid(axis="y", visible=False)


def draw_stores(ax, trace, array, row_bytes):
    from matplotlib.patches import Rectangle
    stores = [of for of in trace["accesses"] if of["warp"] == WARP and of["access"] == "store" and
              of.get("allocation") == array]
    if not stores:
        raise Refused(f"warp {WARP} stores nothing to '{array}'")
    size = stores[0]["bytes"]
    last = 0
    for number, access in enumerate(stores[:2]):
        for lane, offset in enumerate(access["offsets"]):
            if offset is None:
                continue
            row, byte = offset // row_bytes, offset % row_bytes
            last = max(last, row + 1)
            ax.add_patch(Rectangle((byte / 2, row), size / 2, 1, facecolor=color_of(number),
                                   alpha=0.35, edgecolor="white", linewidth=1))
            ax.text((byte + size / 2) / 2, row + 0.52, f"lane {lane}", ha="center", va="center",
                    fontsize=6.8, color="#303338")
    left = min(of % row_bytes for access in stores[:2] for of in access["offsets"]) / 2
    right = max(of % row_bytes for access in stores[:2] for of in access["offsets"]) / 2 + size / 2
    ax.set(xlim=(left, right), ylim=(last, 0), ylabel=f"row of {array}")
    ax.set_xlabel("column; a colour: one store of warp 0, of which two are shown")
    ax.set_title(f"4. From registers to {array}: a lane stores {size // 2} neighbouring columns,\n"
                 f"{stores[0]['sector_count']} whole sectors in a store", fontsize=9.5)
    ax.grid(False)


def picture(path, *arguments):
    plt = palette.plot()
    *arrays, file = arguments
    trace = traces.read(file)
    (copied, copied_bytes), (stored, stored_bytes) = (
        (of.partition(":")[0], int(of.partition(":")[2])) for of in arrays)
    fig, axes = plt.subplots(2, 2, figsize=(11.6, 8.2), dpi=110, layout="constrained")
    draw_global(axes[0][0], trace, copied, copied_bytes)
    draw_story(axes[0][1], story(trace, copied, copied_bytes))
    load = tile_layouts.first_load(trace)
    tile_layouts.draw_tile(axes[1][0], tile_layouts.pieces_of(trace, copied, copied_bytes),
                           load["offsets"][:8])
    axes[1][0].set_title(f"3. A stage in shared memory, row.piece: ldmatrix reads the outlined "
                         f"ones\nfrom {tile_layouts.banks_of(load['offsets'][:8])} groups of "
                         f"banks, {load['wavefronts']} clocks for four such matrices",
                         fontsize=9.5)
    axes[1][0].set_ylabel("byte of the stage")
    draw_stores(axes[1][1], trace, stored, stored_bytes)
    fig.savefig(path, metadata={"Software": None}, transparent=False, facecolor="white")
    print(f"{path}: drawn")


def main():
    return palette.main(
        "tile_life.py PICTURE.png COPIED:ROW_BYTES STORED:ROW_BYTES TRACE.json",
        lambda of: len(of) == 4 and all(part.partition(":")[2].isdigit() for part in of[1:3]),
        picture)

if __name__ == "__main__":
    sys.exit(main())
