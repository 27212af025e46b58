#!/usr/bin/env python3
"""Draws how a block walks over the keys, tile by tile, from a trace of the virtual GPU.

    VGPU_TRACE=tiling::attention_kernel:0:trace.json ./run --tokens 197 --head-dim 32 --step tiling
    tile_walk.py PICTURE.png TOKENS HEAD_DIM trace.json

A row of the picture is a tile: which rows of K and V the block loads, which scores it computes of them,
and what is left of all keys so far. A tile begins where a warp loads K (or V) again after it has read
shared memory. Needs matplotlib (Debian: python3-matplotlib).

Exit status: 0 drawn, 2 bad usage or input, 3 no matplotlib.
"""
import sys

import palette
import traces
from results import Refused

NOW, SEEN, LATER, EDGE, INK = "#c7681f", "#f3d9bd", "#f2f2f2", "#b0b0b0", "#303338"


def tiles_of(trace, array, row_bytes):
    """[{rows}]: of each tile the rows of the array that the block loads."""
    if trace["accesses_executed"] != trace["accesses_written"]:
        raise Refused(f"{trace['kernel']}: the trace is cut off: take fewer tokens")
    found, state = [], {}  # of each warp: its tile, whether it has read shared memory since
    for a in trace["accesses"]:
        tile, read = state.get(a["warp"], (-1, True))
        if a["space"] == "shared" and a["access"] == "load":
            state[a["warp"]] = tile, True
        elif a["space"] == "global" and a["allocation"] == array and a["access"] == "load":
            tile += read
            state[a["warp"]] = tile, False
            while len(found) <= tile:
                found.append(set())
            found[tile] |= {offset // row_bytes for offset in a["offsets"] if offset is not None}
    if not found:
        raise Refused(f"{trace['kernel']}: the block loads nothing of {array}")
    return found


def rows_of(trace, array, row_bytes):
    return {offset // row_bytes for a in trace["accesses"] if a["space"] == "global" and
            a["allocation"] == array and a["access"] == "load" for offset in a["offsets"]
            if offset is not None}


def walk(trace, tokens, head_dim):
    """[(first key, last key)] of the tiles, and the number of query rows."""
    keys, values = (tiles_of(trace, array, 2 * head_dim) for array in ("K", "V"))
    if keys != values:
        raise Refused(f"{trace['kernel']}: the tiles of K and V differ")
    ends = [(min(tile), max(tile)) for tile in keys]
    for (first, last), tile in zip(ends, keys):
        if len(tile) != last - first + 1:
            raise Refused(f"{trace['kernel']}: a tile has a gap")
    if max(last for _, last in ends) >= tokens:
        raise Refused(f"{trace['kernel']}: the block leaves the first (batch, head)")
    return ends, len(rows_of(trace, "Q", 2 * head_dim))


def draw(ax, number, ends, tokens, query_rows):
    from matplotlib.patches import Rectangle
    first, last = ends[number]
    bands = (("K", 0, 5), ("scores", 7, query_rows), ("V", 9 + query_rows, 5))
    for name, top, height in bands:
        ax.add_patch(Rectangle((0, top), tokens, height, facecolor=LATER, edgecolor=EDGE,
                               linewidth=0.8))
        if first:
            ax.add_patch(Rectangle((0, top), first, height, edgecolor=EDGE, linewidth=0.8,
                                   facecolor=SEEN, hatch="////" if name == "scores" else None))
        ax.add_patch(Rectangle((first, top), last - first + 1, height, facecolor=NOW,
                               edgecolor=EDGE, linewidth=0.8))
        text = name if name != "scores" else f"{query_rows} x {last - first + 1} scores"
        wide = last - first > 25
        ax.text((first + last + 1) / 2 if wide else first - 2, top + height / 2, text,
                ha="center" if wide else "right", va="center", fontsize=8,
                color="white" if wide else INK)
    end = bands[-1][1] + bands[-1][2]
    ax.add_patch(Rectangle((tokens + 13, 2), 78, end - 4, facecolor="white", edgecolor=NOW,
                           linewidth=1.4))
    ax.annotate("", (tokens + 12, end / 2), (tokens + 2, end / 2),
                arrowprops={"arrowstyle": "->", "color": NOW})
    ax.text(tokens + 52, end / 2, f"m, l, o of {query_rows} rows:\nkeys 0 to {last}", ha="center",
            va="center", fontsize=9, color=INK)
    if number + 1 < len(ends):
        ax.annotate("", (tokens + 52, end + 7), (tokens + 52, end - 2), annotation_clip=False,
                    arrowprops={"arrowstyle": "->", "color": NOW})
        ax.text(tokens + 55, end + 3.2, "l and o times f", fontsize=8, color=INK, va="center")
    ax.set(xlim=(0, tokens + 92), ylim=(end + 6, 0))
    ax.set_ylabel(f"tile {number + 1}", fontsize=9, rotation=0, ha="right", va="center", color=INK)
    ax.set_xticks([key for key, _ in ends])
    ax.set_yticks([])
    ax.tick_params(labelsize=7.5, length=2, colors=INK)
    for side in ax.spines.values():
        side.set_visible(False)


def picture(path, tokens, head_dim, file):
    plt = palette.pyplot()
    from matplotlib.patches import Patch
    ends, query_rows = walk(traces.read(file), int(tokens), int(head_dim))
    fig, axes = plt.subplots(len(ends), 1, figsize=(10.4, 1.3 * len(ends) + 0.5), dpi=100,
                             squeeze=False)
    for number, (ax,) in enumerate(axes):
        draw(ax, number, ends, int(tokens), query_rows)
    axes[-1][0].set_xlabel(f"key, of {tokens}", fontsize=8, color=INK, loc="left")
    fig.legend(handles=[Patch(color=NOW, label="in shared memory now"),
                        Patch(facecolor=SEEN, edgecolor=EDGE, hatch="////",
                              label="used and overwritten: only m, l, o know of it"),
                        Patch(facecolor=LATER, edgecolor=EDGE, label="still to come")],
               loc="lower center", fontsize=8, frameon=False, ncol=3)
    fig.tight_layout(rect=(0, 0.05, 1, 1), h_pad=0.4)
    fig.savefig(path, metadata={"Software": None})
    print(f"{path}: drawn from {len(ends)} tiles")


def main():
    return palette.main("tile_walk.py PICTURE.png TOKENS HEAD_DIM TRACE.json",
                        lambda of: len(of) == 4 and of[1].isdigit() and of[2].isdigit(), picture)


if __name__ == "__main__":
    sys.exit(main())
