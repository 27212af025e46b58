#!/usr/bin/env python3
"""Draws where the pieces of a tile lie in the banks of shared memory, from traces of the virtual GPU.

    VGPU_TRACE=pipeline_kernel:0:trace.json ./run --step swizzle --preset tiny
    tile_layouts.py PICTURE.png x:384 trace.json:no_padding other.json:swizzled ...

A panel is a trace with its title (_ for blanks); x:384 is the copied array and the bytes of its rows. A
row of a panel is 128 bytes of shared memory, all 32 banks; a cell is 16 bytes, one piece of a row of the
tile, which says `row.piece`. Where each piece lies is what asynchronous copies did. Outlined are the
eight pieces that the first ldmatrix reads together. Needs matplotlib (Debian: python3-matplotlib).

Exit status: 0 drawn, 2 bad usage or input, 3 no matplotlib.
"""
import sys

import palette
import traces
from results import Refused

PIECE, LINE = 16, 128  # bytes: of a piece, of all banks
SHOWN = 9              # lines


def copies(trace, array):
    """The asynchronous copies of an array, in their order."""
    found = [of for of in trace["accesses"] if of.get("allocation") == array and "to_shared" in of]
    if not found:
        raise Refused(f"the trace of {traces.title(trace)} has no asynchronous copy of '{array}'")
    return found


def pieces_of(trace, array, row_bytes, slice_bytes=LINE):
    """{shared address: (row, piece)} of the array's first slice."""
    places = {}
    for access in copies(trace, array):
        for source, to in zip(access["offsets"], access["to_shared"]):
            if source is not None and source % row_bytes < slice_bytes:
                places[to] = (source // row_bytes, source % row_bytes // PIECE)
    if not places:
        raise Refused(f"no piece of the first slice of '{array}' is copied")
    return places


def first_load(trace):
    """Warp 0's first access of 16 bytes a lane from shared memory: an ldmatrix."""
    return traces.picked(trace, lambda a: a["warp"] == 0 and a["space"] == "shared" and
                         a["access"] == "load" and a["bytes"] == PIECE, "ldmatrix", 0)


def banks_of(addresses):
    """How many of the eight groups of four banks these pieces meet."""
    return len({address % LINE // PIECE for address in addresses})


def draw_tile(ax, places, together):
    from matplotlib.patches import Rectangle
    first = min(places) // LINE
    for address, (row, piece) in places.items():
        line, group = address // LINE - first, address % LINE // PIECE
        if line >= SHOWN:
            continue
        color = palette.CHAPTERS[piece % len(palette.CHAPTERS)]
        ax.add_patch(Rectangle((group, line), 1, 1, facecolor=color, alpha=0.3, edgecolor="white"))
        ax.text(group + 0.5, line + 0.5, f"{row}.{piece}", ha="center", va="center", fontsize=7.4,
                color="#303338")
    for address in together:
        line, group = address // LINE - first, address % LINE // PIECE
        if line < SHOWN:
            ax.add_patch(Rectangle((group + 0.05, line + 0.05), 0.9, 0.9, fill=False,
                                   edgecolor="#303338", linewidth=1.5))
    ax.set(xlim=(0, LINE // PIECE), ylim=(SHOWN, 0))
    ax.set_xticks([i + 0.5 for i in range(8)], [f"{4 * i}-{4 * i + 3}" for i in range(8)],
                  fontsize=7.4)
    ax.set_yticks([i + 0.5 for i in range(SHOWN)], [str(LINE * i) for i in range(SHOWN)],
                  fontsize=7.4)
    ax.set_xlabel("banks")
    ax.grid(False)


def read_panel(argument, array, row_bytes):
    name, _, title = argument.partition(":")
    trace = traces.read(name)
    return title.replace("_", " "), pieces_of(trace, array, row_bytes), first_load(trace)


def title_of(title, load):
    met = banks_of(load["offsets"][:8])
    return (f"{title}: 8 rows in {met} group{'s' * (met != 1)} of banks,\n"
            f"ldmatrix takes {load['wavefronts']} clocks, {load['ideal_wavefronts']} at best")


def picture(path, tile, *arguments):
    plt = palette.plot()
    array, _, row_bytes = tile.partition(":")
    panels = [read_panel(argument, array, int(row_bytes)) for argument in arguments]
    fig, axes = plt.subplots(1, len(panels), figsize=(3.9 * len(panels), 4.1), dpi=110,
                             squeeze=False, layout="constrained")
    for ax, (title, places, load) in zip(axes[0], panels):
        draw_tile(ax, places, load["offsets"][:8])
        ax.set_title(title_of(title, load), fontsize=9)
    axes[0][0].set_ylabel("byte of shared memory")
    fig.supxlabel("a cell: 16 bytes, row.piece of the tile; white: padding; outlined: one of the "
                  "four matrices that an ldmatrix loads", fontsize=8.5, color=palette.INK)
    fig.savefig(path, metadata={"Software": None}, transparent=False, facecolor="white")
    print(f"{path}: drawn from {len(panels)} traces")


def main():
    return palette.main("tile_layouts.py PICTURE.png ARRAY:ROW_BYTES TRACE.json:TITLE...",
                        lambda of: len(of) >= 3 and of[1].partition(":")[2].isdigit(), picture)

if __name__ == "__main__":
    sys.exit(main())
