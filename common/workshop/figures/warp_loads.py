#!/usr/bin/env python3
"""Draws which bytes the 32 lanes of a warp touch, from traces of the virtual GPU.

    VGPU_TRACE=scores_kernel:0:trace.json ./run
    warp_loads.py PICTURE.png trace.json:K:load:20 trace.json:Q:load:20 ...

Each argument after the picture is a panel: trace file, allocation, load or store, and the how
manieth such access of the traced block's warp 0 (from 0). The first panel stands on the left, the
others on the right. Memory is drawn in rows of 128 bytes, a cache line, of which only those are shown
that the warp touches; everything comes from the trace's offsets. Needs matplotlib (Debian:
python3-matplotlib).

Exit status: 0 drawn, 2 bad usage or input, 3 no matplotlib.
"""
import sys

import palette
import traces
from results import Refused

SECTOR, ROW = 32, 128  # bytes
UNTOUCHED, MOVED, USED, EDGE = "#f2f2f2", "#f6b26b", "#7a1f1f", "#b0b0b0"


def read_panel(argument):
    """(kernel, access): one access of a trace, as the trace has it."""
    parts = argument.rsplit(":", 3)
    if len(parts) != 4 or not parts[3].isdigit():
        raise Refused(f"'{argument}': a panel reads FILE:ALLOCATION:load:NUMBER")
    file_name, allocation, kind, number = *parts[:3], int(parts[3])
    trace = traces.read(file_name)
    access = traces.picked(
        trace, lambda a: a["warp"] == 0 and a["space"] == "global" and
        a["allocation"] == allocation and a["access"] == kind, argument, number)
    if access["mask"] != 0xffffffff:
        raise Refused(f"'{argument}': not all lanes are active")
    return traces.title(trace), access


def draw(ax, kernel, access):
    from matplotlib.patches import Rectangle
    size, offsets = access["bytes"], access["offsets"]
    touched = {sector for offset in offsets
               for sector in range(offset // SECTOR, (offset + size - 1) // SECTOR + 1)}
    if len(touched) != access["sector_count"]:
        raise Refused(f"{kernel}, {access['allocation']}: {len(touched)} sectors by the offsets, "
                      f"{access['sector_count']} by the trace")
    used = {byte for offset in offsets for byte in range(offset, offset + size)}
    rows = sorted({sector * SECTOR // ROW for sector in touched})
    for y, row in enumerate(rows):
        for sector in range(row * ROW // SECTOR, (row + 1) * ROW // SECTOR):
            ax.add_patch(Rectangle((sector * SECTOR - row * ROW, y), SECTOR, 1, edgecolor=EDGE,
                                   facecolor=MOVED if sector in touched else UNTOUCHED,
                                   linewidth=0.8))
        for offset in sorted(set(offsets)):
            if offset // ROW == row:
                ax.add_patch(Rectangle((offset - row * ROW, y), size, 1, facecolor=USED,
                                       edgecolor=MOVED, linewidth=0.3))
    ax.set_title(f"{kernel} {access['access']}s {access['allocation']}: {len(touched)} "
                 f"sector{'s' if len(touched) > 1 else ''}\n{len(touched) * SECTOR} bytes moved, "
                 f"{len(used)} used", fontsize=9, loc="left")
    labels = []
    for row in rows:
        lanes = [lane for lane, offset in enumerate(offsets) if offset // ROW == row]
        who = f"lane {lanes[0]}" if len(lanes) == 1 else f"lanes {lanes[0]}-{lanes[-1]}"
        labels.append(f"{who}: {row * ROW} +")
    ax.set_xlim(0, ROW)
    ax.set_ylim(len(rows), 0)
    ax.set_xticks(range(0, ROW + 1, SECTOR))
    ax.set_yticks([y + 0.5 for y in range(len(rows))])
    ax.set_yticklabels(labels)
    ax.tick_params(labelsize=7 if len(rows) < 8 else 6.5, length=2)
    for side in ax.spines.values():
        side.set_visible(False)


def picture(path, *arguments):
    plt = palette.pyplot()
    from matplotlib.patches import Patch
    panels = [read_panel(argument) for argument in arguments]
    fig = plt.figure(figsize=(10.4, 6.0), dpi=100)
    left = fig.add_gridspec(1, 1, left=0.095, right=0.475, top=0.92, bottom=0.085)
    right = fig.add_gridspec(len(panels), 1, left=0.605, right=0.985, top=0.92, bottom=0.02,
                             hspace=1.1)
    first = fig.add_subplot(left[0])
    draw(first, *panels[0])
    longest = max(len(label.get_text()) for label in first.get_yticklabels())
    # A character's share of the width; long ones name lines far into a large allocation.
    left.update(left=max(0.095, 0.0056 * longest))
    for i, panel in enumerate(panels[1:]):
        draw(fig.add_subplot(right[i]), *panel)
    legend = fig.add_subplot(right[len(panels) - 1])
    legend.axis("off")
    legend.legend(handles=[Patch(color=USED, label="used by a lane"),
                           Patch(color=MOVED, label="moved: the rest of its 32-byte sector"),
                           Patch(facecolor=UNTOUCHED, edgecolor=EDGE, label="not moved")],
                  loc="center left", fontsize=7.5, frameon=False, ncol=3, borderaxespad=0,
                  columnspacing=0.7, handlelength=1.2)
    fig.text(0.095, 0.025, "offset in the allocation, bytes: of the line (left) + in the line "
             "(below)", fontsize=7.5)
    fig.savefig(path, metadata={"Software": None})
    print(f"{path}: drawn from {len(panels)} accesses")


def main():
    return palette.main("warp_loads.py PICTURE.png TRACE.json:ALLOCATION:load:NUMBER...",
                        lambda of: len(of) >= 2, picture)

if __name__ == "__main__":
    sys.exit(main())
