#!/usr/bin/env python3
"""Draws what the warps of one block do over time, from a timeline of the virtual GPU.

    VGPU_TIME=1 VGPU_TIMELINE=run.json ./run --batch 32 --tokens 197 --predict
    warp_phases.py PICTURE.png CLOCKS run.json:registers_kernel:title run.json:pipeline_kernel:title ...

A panel for each argument, a lane for each warp of the first block of the kernel of that name, CLOCKS clocks
from the kernel's begin on; of block 7 where the kernel reads registers_kernel@7. A title has _ for blanks. A
dashed line is a fence of the device: there a block arrives at a barrier of the grid. Needs matplotlib
(Debian: python3-matplotlib).

Exit status: 0 drawn, 2 bad usage or input, 3 no matplotlib.
"""
import json
import re
import sys

import palette
from results import Refused

STEP = 40  # clocks; each step of the picture has the colour of what takes most of them
# What an instruction is for. A short wait, and each instruction not named here, belongs to the next
# one that is: the warp does what it does in order to get there.
FOR = {"global_load": "copy", "async_copy": "copy", "bulk_copy": "copy", "shared_store": "copy",
       "global_store": "copy",
       "tensor": "multiply", "matrix_load": "multiply",
       "fp32": "softmax", "special": "softmax", "shuffle": "softmax", "vote": "softmax"}
# The same where no warp of the block uses tensor cores.
PLAIN = {**{what: "compute" for what in ("fp32", "fp16", "special", "shuffle", "vote", "shared_load")},
         **{what: phase for what, phase in FOR.items() if phase == "copy"}}
LONG = {"long_scoreboard": "wait for copies", "lg_throttle": "wait for copies",
        "barrier": "wait at a barrier"}
# There it is any load of global memory that a warp waits for: samples, or what other blocks have found.
PLAIN_LONG = {what: "wait for global memory" if phase == "wait for copies" else phase
              for what, phase in LONG.items()}
COLORS = {"copy": palette.CHAPTERS[3], "multiply": palette.CHAPTERS[5],
          "softmax": palette.CHAPTERS[1], "compute": palette.CHAPTERS[1], "wait for copies": "#d5d8dc",
          "wait for global memory": "#d5d8dc", "wait at a barrier": "#8f959d"}


def process_of(events, kernel):
    """The process of the timeline that shows the warps of that kernel."""
    found = [e["pid"] for e in events if e["ph"] == "M" and e["name"] == "process_name" and
             re.search(rf"^SM \d+ of (.*::)?{re.escape(kernel)}\b", e["args"]["name"])]
    if len(found) != 1:
        raise Refused(f"'{kernel}': {len(found)} kernels with warps in the timeline have this name, "
                      "must be one (VGPU_TIME=1 shows warps)")
    return found[0]


def warps_of(events, kernel):
    """{warp: [(what, begin, end)]} of the kernel's first block, or of block N of KERNEL@N, in clocks."""
    kernel, _, block = kernel.partition("@")
    process = process_of(events, kernel)
    names = {e["tid"]: re.fullmatch(r"block (\d+), warp (\d+)", e["args"]["name"]) for e in events
             if e["ph"] == "M" and e["name"] == "thread_name" and e["pid"] == process}
    tracks = {tid: (int(name[1]), int(name[2])) for tid, name in names.items() if name}
    if not tracks:
        raise Refused(f"'{kernel}': the timeline has no warps of it")
    first = min(number for number, _ in tracks.values() if not block or number == int(block))
    warps = {warp: [] for number, warp in tracks.values() if number == first}
    for e in events:
        if e["ph"] == "X" and e["pid"] == process and tracks[e["tid"]][0] == first:
            warps[tracks[e["tid"]][1]].append(
                (e["name"], e["args"]["begin_clock"], e["args"]["end_clock"]))
    for warp, told in warps.items():
        if not any(what == "exit" for what, *_ in told):
            raise Refused(f"'{kernel}': the timeline breaks off before warp {warp} of block {first} "
                          "ends: a smaller problem fits")
    return {warp: sorted(warps[warp], key=lambda told: told[1]) for warp in sorted(warps)}


def kinds_of(warps):
    """FOR, or PLAIN for a block of which no warp multiplies on tensor cores."""
    return FOR if any(FOR.get(what) == "multiply" for told in warps.values() for what, *_ in told) else PLAIN


def long_waits(kinds):
    """What a warp does in a long wait, by the reason."""
    return PLAIN_LONG if kinds is PLAIN else LONG


def phases(told, kinds=FOR):
    """[(phase, begin, end)] of one warp. What comes before its first copy leads to that, unless it has
    multiplied by then; after its last instruction with a phase there is none. A warp without products has
    no softmax either: it computes where to copy."""
    found, phase, long = [], None, long_waits(kinds)
    multiplies = kinds is PLAIN or any(FOR.get(what) == "multiply" for what, *_ in told)
    for what, begin, end in reversed(told):
        if what in long:
            found.append((long[what], begin, end))
        else:
            of = kinds.get(what, phase)
            phase = of if multiplies or of == "copy" else phase
            found.append((phase, begin, end))
    found.reverse()
    first = next((i for i, (what, *_) in enumerate(told) if kinds.get(what) in ("copy", "multiply")), 0)
    if told and kinds.get(told[first][0]) != "copy":
        first = 0
    return [("copy", *found[i][1:]) if i < first else found[i] for i in range(len(found))]


def steps(found, last):
    """The phase that takes most of each STEP clocks, from clock 0 to `last`."""
    clocks = [{} for _ in range(-(-last // STEP))]
    for phase, begin, end in found:
        for i in range(begin // STEP, min(len(clocks), -(-end // STEP))):
            share = min(end, (i + 1) * STEP) - max(begin, i * STEP)
            clocks[i][phase] = clocks[i].get(phase, 0) + share
    return [max(of, key=of.get) if of else None for of in clocks]


def shares(warps):
    """{phase: share of all warps' clocks}, over the block's whole life."""
    total, kinds = {}, kinds_of(warps)
    for told in warps.values():
        for phase, begin, end in phases(told, kinds):
            total[phase] = total.get(phase, 0) + end - begin
    return {phase: clocks / sum(total.values()) for phase, clocks in total.items()}


def title_of(title, warps):
    of, long = shares(warps), long_waits(kinds_of(warps))
    waits = sum(of.get(wait, 0) for wait in set(long.values()))
    end = max(told[-1][2] for told in warps.values())
    return (f"{title}: the block takes {end:,} clocks; its warps {long['long_scoreboard']} and at barriers "
            f"{100 * waits:.0f}% of them")


def draw(ax, title, warps, last):
    kinds = kinds_of(warps)
    for lane, told in enumerate(warps.values()):
        drawn = steps(phases(told, kinds), last)
        for phase, color in COLORS.items():
            bars = [(i * STEP, STEP) for i, of in enumerate(drawn) if of == phase]
            ax.broken_barh(bars, (lane - 0.4, 0.8), facecolor=color, linewidth=0)
    for fence in sorted({begin for told in warps.values() for what, begin, _ in told if what == "membar"}):
        ax.axvline(fence, color=palette.INK, linewidth=1.4, linestyle="--")
    ax.set_title(title_of(title, warps), fontsize=9.5)
    ax.set(xlim=(0, last), ylim=(len(warps) - 0.45, -0.55))
    ax.set_yticks(range(len(warps)), [f"warp {warp}" for warp in warps])
    ax.grid(axis="y", visible=False)


def picture(to, clocks, *arguments):
    plt = palette.plot()
    from matplotlib.patches import Patch
    panels, files = [], {}
    for argument in arguments:
        path, kernel, title = argument.split(":", 2)
        if path not in files:
            with open(path, encoding="utf-8") as file:
                files[path] = json.load(file)["traceEvents"]
        panels.append((title.replace("_", " "), warps_of(files[path], kernel)))
    last = int(clocks)
    heights = [max(1.65, 0.165 * len(warps)) for _, warps in panels]  # each warp's name needs its line
    fig, axes = plt.subplots(len(panels), 1, figsize=(10.5, 0.5 + sum(heights)), dpi=110,
                             squeeze=False, layout="constrained",
                             gridspec_kw={"height_ratios": heights})
    for (title, warps), (ax,) in zip(panels, axes):
        draw(ax, title, warps, last)
    axes[-1][0].set_xlabel("clocks from the kernel's begin on")
    seen = set().union(*(shares(warps) for _, warps in panels))
    axes[-1][0].legend(handles=[Patch(color=color, label=phase)
                                for phase, color in COLORS.items() if phase in seen],
                       loc="upper center", bbox_to_anchor=(0.5, min(-0.1, -0.5 / heights[-1])),
                       ncols=len(COLORS))
    fig.savefig(to, metadata={"Software": None}, transparent=False, facecolor="white")
    print(f"{to}: drawn")


def fits(arguments):
    return len(arguments) >= 3 and arguments[1].isdigit() and int(arguments[1]) >= STEP and \
        all(of.count(":") >= 2 for of in arguments[2:])


def main():
    return palette.main("warp_phases.py PICTURE.png CLOCKS TIMELINE.json:KERNEL:TITLE ..., CLOCKS a "
                        f"number from {STEP} on", fits, picture)

if __name__ == "__main__":
    sys.exit(main())
