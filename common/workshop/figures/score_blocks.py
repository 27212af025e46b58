#!/usr/bin/env python3
"""Draws which scores one block computes and how often it asks for each key's row of K, from traces of
the virtual GPU.

    VGPU_TRACE=scores_kernel:0:before.json ./run --tokens 128
    score_blocks.py PICTURE.png 128 64 before.json after.json

After the picture: tokens and head_dim of the run, then one trace a panel, of a block that works in the
first (batch, head). A block's scores are those that it stores; one that keeps them to itself multiplies
each row of Q that it loads with each row of K. Needs matplotlib (Debian: python3-matplotlib).

Exit status: 0 drawn, 2 bad usage or input, 3 no matplotlib.
"""
import sys

import palette
import traces
from results import Refused

SHOWN_ROWS = 24  # of the score matrix
OF_BLOCK, OF_LOAD, EMPTY, EDGE = "#f6b26b", "#7a1f1f", "#f2f2f2", "#b0b0b0"


def requests(trace, allocation, access):
    """Of each request of the block to an allocation: its warp, its lanes' offsets, bytes a lane."""
    for a in trace["accesses"]:
        if a["space"] == "global" and a["allocation"] == allocation and a["access"] == access:
            yield a["warp"], [offset for offset in a["offsets"] if offset is not None], a["bytes"]


def measure(trace, tokens, head_dim):
    """The block's scores (query, key), those that warp 0's first load of K works for, and how often
    each row of K is asked for."""
    if trace["accesses_executed"] != trace["accesses_written"]:
        raise Refused(f"{trace['kernel']}: the trace is cut off: take fewer tokens")
    row_bytes = 2 * head_dim
    asked = [0] * tokens
    first = None
    for warp, offsets, size in requests(trace, "K", "load"):
        for offset in offsets:
            if offset >= tokens * row_bytes:
                raise Refused(f"{trace['kernel']}: the block leaves the first (batch, head)")
            asked[offset // row_bytes] += size
        if first is None and warp == 0:
            first = {offset // row_bytes for offset in offsets}
    if first is None:
        raise Refused(f"{trace['kernel']}: warp 0 loads nothing of K")
    stores = list(requests(trace, "scores", "store"))
    if stores:
        pairs = {divmod(offset // 4, tokens) for _, offsets, _ in stores for offset in offsets}
        of_warp = {divmod(offset // 4, tokens) for warp, offsets, _ in stores for offset in offsets
                   if warp == 0}
    else:
        rows = {offset // row_bytes for _, offsets, _ in requests(trace, "Q", "load")
                for offset in offsets}
        pairs = of_warp = {(row, key) for row in rows for key in range(tokens) if asked[key]}
    return pairs, {pair for pair in of_warp if pair[1] in first}, [a / row_bytes for a in asked]


def draw(top, bottom, trace, tokens, head_dim):
    from matplotlib.patches import Rectangle
    pairs, of_load, times = measure(trace, tokens, head_dim)
    top.add_patch(Rectangle((0, 0), tokens, SHOWN_ROWS, facecolor=EMPTY, edgecolor=EDGE))
    for colour, some in ((OF_BLOCK, pairs - of_load), (OF_LOAD, of_load)):
        for query, key in some:
            top.add_patch(Rectangle((key, query), 1, 1, facecolor=colour, linewidth=0,
                                    antialiased=False))
    bytes_asked = sum(times) * 2 * head_dim
    top.set_title(f"{traces.title(trace)}: a block computes {len(pairs):,} scores and asks for "
                  f"{bytes_asked:,.0f} bytes of K,\n{bytes_asked / len(pairs):g} bytes a score; "
                  f"warp 0's first load of K works for {len(of_load)} scores", fontsize=9, loc="left")
    top.set_xlim(0, tokens)
    top.set_ylim(SHOWN_ROWS, 0)
    top.set_yticks([0, 8, 16, SHOWN_ROWS])
    top.set_ylabel(f"query (the first {SHOWN_ROWS})", fontsize=7.5)
    bottom.bar([key + 0.5 for key in range(tokens)], times, width=1, color=OF_BLOCK, linewidth=0,
               antialiased=False)
    bottom.set_xlim(0, tokens)
    bottom.yaxis.get_major_locator().set_params(integer=True)
    bottom.set_ylabel("times asked for", fontsize=7.5)
    bottom.set_xlabel("key", fontsize=7.5)
    for ax in (top, bottom):
        ax.set_xticks(range(0, tokens + 1, 32))
        ax.tick_params(labelsize=7, length=2)
        for side in ax.spines.values():
            side.set_visible(False)
    return max(times)


def picture(path, tokens, head_dim, *files):
    plt = palette.pyplot()
    from matplotlib.patches import Patch
    panels = [traces.read(name) for name in files]
    fig, axes = plt.subplots(2, len(panels), figsize=(10.4, 3.9), dpi=100, squeeze=False,
                             gridspec_kw={"height_ratios": [3, 1]})
    most = max(draw(axes[0][i], axes[1][i], panel, int(tokens), int(head_dim))
               for i, panel in enumerate(panels))
    for ax in axes[1]:
        ax.set_ylim(0, 1.1 * most)
        ax.yaxis.grid(color=EDGE, linewidth=0.5)
    fig.legend(handles=[Patch(color=OF_LOAD, label="scores that this one load works for"),
                        Patch(color=OF_BLOCK, label="the block's other scores"),
                        Patch(facecolor=EMPTY, edgecolor=EDGE, label="scores of other blocks")],
               loc="lower center", fontsize=7.5, frameon=False, ncol=3)
    fig.tight_layout(rect=(0, 0.06, 1, 1))
    fig.savefig(path, metadata={"Software": None})
    print(f"{path}: drawn from {len(panels)} blocks")


def main():
    return palette.main("score_blocks.py PICTURE.png TOKENS HEAD_DIM TRACE.json...",
                        lambda of: len(of) >= 4 and of[1].isdigit() and of[2].isdigit(), picture)

if __name__ == "__main__":
    sys.exit(main())
