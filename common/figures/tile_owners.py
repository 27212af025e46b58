#!/usr/bin/env python3
"""Draws which warp of a block loads which piece of a tile, from traces of the virtual GPU.

    VGPU_TRACE=attention_kernel:0:trace.json ./run
    tile_owners.py PICTURE.png TRACE.json:K:64:128:16 ...

Each argument after the picture is a panel: trace file, allocation, rows of the tile, bytes of a row, and
the query rows that one warp has. The tile is the first of the allocation; a cell is what one lane loads
at a time, in the color of its warp. Needs matplotlib (Debian: python3-matplotlib).

Exit status: 0 drawn, 2 bad usage or input, 3 no matplotlib.
"""
import sys

import palette
import traces
from traces import Refused


LANES = 32
COLORS = ["#f6b26b", "#7a1f1f", "#6fa8a0", "#3d5a80", "#d9c26a", "#a35d7a", "#9bb365", "#5b5b5b"]


def read_panel(argument):
    """The tile of one trace: who loads its pieces, how often, with how many requests."""
    parts = argument.rsplit(":", 4)
    if len(parts) != 5 or not all(part.isdigit() for part in parts[2:]):
        raise Refused(f"'{argument}': a panel reads FILE:ALLOCATION:ROWS:BYTES:QUERY_ROWS")
    rows, row_bytes, query_rows = map(int, parts[2:])
    trace = traces.read(parts[0])
    owners, requests, size = {}, {}, 0  # {offset: warp}, {warp: requests}
    for access in trace["accesses"]:
        if access["space"] != "global" or access["access"] != "load" or \
                access["allocation"] != parts[1]:
            continue
        inside = [offset for offset in access["offsets"]
                  if offset is not None and offset < rows * row_bytes]
        for offset in inside:
            if owners.setdefault(offset, access["warp"]) != access["warp"]:
                raise Refused(f"'{argument}': two warps load the bytes at {offset}")
        if inside:
            size = access["bytes"]
            requests[access["warp"]] = requests.get(access["warp"], 0) + 1
    if len(owners) * size != rows * row_bytes:
        raise Refused(f"'{argument}': {len(owners) * size} bytes of the tile are loaded, it has "
                      f"{rows * row_bytes}")
    warps = trace["block"][0] * trace["block"][1] * trace["block"][2] // LANES
    return {"title": traces.title(trace), "owners": owners, "requests": requests, "size": size,
            "rows": rows, "row_bytes": row_bytes, "warps": warps, "query_rows": query_rows * warps}


def draw(ax, panel):
    from matplotlib.patches import Rectangle
    for offset, warp in panel["owners"].items():
        ax.add_patch(Rectangle((offset % panel["row_bytes"], offset // panel["row_bytes"]),
                               panel["size"], 1, facecolor=COLORS[warp % len(COLORS)],
                               edgecolor="white", linewidth=0.4))
    each = sorted(set(panel["requests"].values()))
    if len(each) != 1:
        raise Refused(f"{panel['title']}: the warps load {each} times")
    name = "1 warp" if panel["warps"] == 1 else f"{panel['warps']} warps"
    loads = "1 load" if each[0] == 1 else f"{each[0]} loads"
    ax.set_title(f"{panel['title']}, {name}\n{loads} a warp, for {panel['query_rows']} query rows",
                 fontsize=9, loc="left")
    ax.set_xlim(0, panel["row_bytes"])
    ax.set_ylim(panel["rows"], 0)
    ax.set_xticks(range(0, panel["row_bytes"] + 1, 32))
    ax.set_yticks([y + 0.5 for y in (*range(0, panel["rows"], 8), panel["rows"] - 1)])
    ax.set_yticklabels([str(y) for y in (*range(0, panel["rows"], 8), panel["rows"] - 1)])
    ax.tick_params(labelsize=7, length=2)
    ax.set_xlabel("byte of the key's row", fontsize=7.5)
    for side in ax.spines.values():
        side.set_visible(False)


def picture(path, *arguments):
    plt = palette.pyplot()
    from matplotlib.patches import Patch
    panels = [read_panel(argument) for argument in arguments]
    fig, axes = plt.subplots(1, len(panels), figsize=(3.4 * len(panels), 4.6), dpi=100,
                             squeeze=False)
    for ax, panel in zip(axes[0], panels):
        draw(ax, panel)
    axes[0, 0].set_ylabel("key of the tile", fontsize=7.5)
    most = max(panel["warps"] for panel in panels)
    fig.legend(handles=[Patch(color=COLORS[warp], label=f"warp {warp}") for warp in range(most)],
               loc="lower center", fontsize=7.5, frameon=False, ncol=most)
    fig.tight_layout(rect=(0, 0.05, 1, 1))
    fig.savefig(path, metadata={"Software": None})
    print(f"{path}: drawn from {len(panels)} traces")


def main():
    return palette.main("tile_owners.py PICTURE.png TRACE.json:ALLOCATION:ROWS:BYTES:QUERY_ROWS...",
                        lambda of: len(of) >= 2, picture, Refused)

if __name__ == "__main__":
    sys.exit(main())
