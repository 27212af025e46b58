#!/usr/bin/env python3
"""Draws how a warp's accesses to shared memory pass through its 32 banks, from traces of the virtual
GPU.

    VGPU_TRACE=attention_kernel:0:trace.json ./run
    warp_banks.py PICTURE.png trace.json:store:20 after.json:load:7 ...

Each argument after the picture is a panel: trace file, load or store, and the how manieth such access of
the traced block's warp 0 to shared memory (from 0); "store2:20" counts only accesses of 2 bytes a lane.
":without_padding" behind the number is the panel's title instead of the kernel's name (_ for blanks),
and ":8" behind that the most clocks to be shown. A row of a panel is one wavefront: what the banks do in
one clock. A cell is a bank, 4 bytes wide, and tells the lanes that it serves. An access is split into as
many wavefronts as its worst bank has different words; 8 bytes a lane go as two half-warps, 16 bytes as
four quarters. Needs matplotlib (Debian: python3-matplotlib).

Exit status: 0 drawn, 2 bad usage or input, 3 no matplotlib.
"""
import re
import sys

import palette
import traces
from results import Refused

BANKS, WORD, LANES = 32, 4, 32
IDLE, BUSY, SHARED, EDGE = "#f2f2f2", "#f6b26b", "#d98032", "#b0b0b0"


def read_panel(argument):
    """(title, access, most clocks): one access of a trace, as the trace has it."""
    match = re.fullmatch(r"(.+?):(load|store)(\d*):(\d+)(?::([^:]+)(?::(\d+))?)?", argument)
    if not match:
        raise Refused(f"'{argument}': a panel reads FILE:store:NUMBER or FILE:store2:NUMBER, "
                      "perhaps with :TITLE or :TITLE:CLOCKS")
    name, kind, size, number = match[1], match[2], match[3], int(match[4])
    trace = traces.read(name)
    return (match[5] or traces.title(trace)).replace("_", " "), traces.picked(
        trace, lambda a: a["warp"] == 0 and a["space"] == "shared" and a["access"] == kind and
        (not size or a["bytes"] == int(size)), argument, number), int(match[6] or 99)


def wavefronts(access):
    """[{word: lanes}] a wavefront, from the lanes' offsets."""
    size, lanes = access["bytes"], [i for i in range(LANES) if access["mask"] >> i & 1]
    offsets = access["offsets"]
    if len(offsets) != len(lanes):
        offsets = [offsets[lane] for lane in lanes]
    group = LANES if size <= 4 else LANES * 4 // size
    result = []
    for first in range(0, LANES, group):
        banks = {}  # bank: {word: lanes}
        for lane, offset in zip(lanes, offsets):
            if first <= lane < first + group:
                for word in range(offset // WORD, (offset + size - 1) // WORD + 1):
                    banks.setdefault(word % BANKS, {}).setdefault(word, []).append(lane)
        for turn in range(max((len(words) for words in banks.values()), default=0)):
            result.append({word: lanes_of for words in banks.values()
                           for i, (word, lanes_of) in enumerate(words.items()) if i == turn})
    if len(result) != access["wavefronts"]:
        raise Refused(f"{len(result)} wavefronts by the offsets, {access['wavefronts']} by the trace")
    return result


def text_of(lanes):
    return f"{lanes[0]}" if len(lanes) == 1 else \
        f"{lanes[0]}-{lanes[-1]}" if len(lanes) == lanes[-1] - lanes[0] + 1 else f"{lanes[0]}.."


def draw(ax, kernel, access, most):
    from matplotlib.patches import Rectangle
    rows = wavefronts(access)
    shown = rows[:most]
    for y, words in enumerate(shown):
        for bank in range(BANKS):
            ax.add_patch(Rectangle((bank, y), 1, 1, facecolor=IDLE, edgecolor=EDGE, linewidth=0.5))
        for word, lanes in words.items():
            ax.add_patch(Rectangle((word % BANKS, y), 1, 1, edgecolor=EDGE, linewidth=0.5,
                                   facecolor=BUSY if len(lanes) == 1 else SHARED))
            ax.text(word % BANKS + 0.5, y + 0.52, text_of(lanes), ha="center", va="center",
                    fontsize=5.6)
    many = "wavefront" if len(rows) == 1 else "wavefronts"
    ax.set_title(f"{kernel} {access['access']}s {access['bytes']} bytes a lane: {len(rows)} {many}, "
                 f"{access['ideal_wavefronts']} if no two lanes met in a bank" +
                 (f"; the first {most}:" if len(rows) > most else ""), fontsize=9, loc="left")
    ax.set_xlim(0, BANKS)
    ax.set_ylim(len(shown), 0)
    ax.set_xticks([bank + 0.5 for bank in range(0, BANKS, 4)] + [BANKS - 0.5])
    ax.set_xticklabels([str(bank) for bank in range(0, BANKS, 4)] + [str(BANKS - 1)])
    ax.set_yticks([y + 0.5 for y in range(len(shown))])
    ax.set_yticklabels([f"clock {y + 1}" for y in range(len(shown))])
    ax.tick_params(labelsize=7, length=2)
    for side in ax.spines.values():
        side.set_visible(False)


def picture(path, *arguments):
    plt = palette.pyplot()
    from matplotlib.patches import Patch
    panels = [read_panel(argument) for argument in arguments]
    heights = [min(most, len(wavefronts(access))) + 1.6 for _, access, most in panels]
    fig, axes = plt.subplots(len(panels), 1, figsize=(10.4, 0.27 * sum(heights) + 0.9), dpi=100,
                             gridspec_kw={"height_ratios": heights}, squeeze=False)
    for ax, panel in zip(axes[:, 0], panels):
        draw(ax, *panel)
    axes[-1, 0].set_xlabel("bank; in the cell: the lanes that it serves in this clock", fontsize=7.5)
    fig.legend(handles=[Patch(color=BUSY, label="one lane"),
                        Patch(color=SHARED, label="several lanes, the same word"),
                        Patch(facecolor=IDLE, edgecolor=EDGE, label="idle")],
               loc="lower right", fontsize=7.5, frameon=False, ncol=3)
    fig.tight_layout(rect=(0, 0.02, 1, 1))
    fig.savefig(path, metadata={"Software": None})
    print(f"{path}: drawn from {len(panels)} accesses")


def main():
    return palette.main("warp_banks.py PICTURE.png TRACE.json:store:NUMBER...",
                        lambda of: len(of) >= 2, picture)

if __name__ == "__main__":
    sys.exit(main())
