#!/usr/bin/env python3
"""Draws what host, link and device do over time, from timelines of the virtual GPU.

    VGPU_TIME=1 VGPU_TIMELINE=unified.json ./run --step unified --part 1x6
    gantt.py PICTURE.png US unified.json:"title of the panel" ...

A panel a timeline, all with the same axis: US microseconds from the first copy or launch on. Lanes: calls
of the host, those that wait hatched; copies in; kernels, one lane a stream; copies out. Needs matplotlib
(Debian: python3-matplotlib).

Exit status: 0 drawn, 2 bad usage or input, 3 no matplotlib.
"""
import json
import sys

import palette

CALL, WAIT, IN, KERNEL, OUT = "#9aa0a6", "#c9ccd1", "#2f7fe0", "#e5534b", "#1f8a8a"
BEGIN = ("cudaMemcpyAsync", "cudaLaunchKernel", "cudaGraphLaunch")


def read(path):
    """[(lane, color, begin, end, waits)] of a timeline, times in microseconds from its first copy."""
    with open(path, encoding="utf-8") as file:
        events = [e for e in json.load(file)["traceEvents"] if e["ph"] == "X"]
    device = [e for e in events if e["cat"] in ("engine", "kernel")]
    if not device:
        raise ValueError(f"'{path}': nothing is copied or launched")
    # From the call that submits the first of them to the end of the last.
    first, last = min(e["ts"] for e in device), max(e["ts"] + e["dur"] for e in device)
    zero = max(e["ts"] for e in events if e["cat"] == "call" and e["name"] in BEGIN and
               e["ts"] + e["dur"] <= first)
    events = [e for e in events if e["ts"] < last - 1e-2]
    bars, streams = [], []
    for event in events:
        begin, end = event["ts"] - zero, event["ts"] - zero + event["dur"]
        if begin < 0:
            continue
        if event["cat"] == "call":
            waits = event["name"].endswith("Synchronize")
            bars.append(("calls", WAIT if waits else CALL, begin, end, waits))
        elif event["cat"] == "kernel":
            track = (event["pid"], event["tid"])
            if track not in streams:
                streams.append(track)
            bars.append((f"kernels {streams.index(track)}", KERNEL, begin, end, False))
        elif event["cat"] == "engine":
            to_host = event["name"] == "copy to host"
            bars.append(("copies out" if to_host else "copies in", OUT if to_host else IN, begin, end,
                         False))
    return bars


def picture(path, us, *arguments):
    plt, last = palette.plot(), float(us)
    panels = [(title.replace("_", " "), read(path))
              for path, title in (argument.split(":", 1) for argument in arguments)]
    lanes_of = [["calls", "copies in",
                 *sorted({lane for lane, *_ in bars if lane.startswith("kernels")}), "copies out"]
                for _, bars in panels]
    figure, axes = plt.subplots(len(panels), 1, figsize=(9.5, 0.62 * len(panels) +
                                0.24 * sum(map(len, lanes_of))), squeeze=False,
                                gridspec_kw={"height_ratios": [len(lanes) for lanes in lanes_of]})
    for (title, bars), lanes, (ax,) in zip(panels, lanes_of, axes):
        for lane, color, begin, end, waits in bars:
            if begin < last and lane in lanes:
                ax.barh(lanes.index(lane), min(end, last) - begin, left=begin, height=0.72,
                        color=color, edgecolor=palette.INK if waits else "none",
                        hatch="////" if waits else None, linewidth=0.3)
        end = max(end for *_, end, _ in bars)
        over = f"all over after {end:.1f} µs" if end <= last else f"goes on to {end:.0f} µs"
        ax.set_title(f"{title}: {over}")
        names = [lane if lane != "kernels 0" or len(lanes) > 4 else "kernels" for lane in lanes]
        names = [f"stream {name[8:]}" if name.startswith("kernels ") else name for name in names]
        ax.set(xlim=(0, last), ylim=(len(lanes) - 0.4, -0.6), yticks=range(len(lanes)))
        ax.set_yticklabels(names)
        ax.grid(axis="y", visible=False)
        if ax is not axes[-1][0]:
            ax.set_xticklabels([])
    axes[-1][0].set_xlabel("µs on the virtual clock; hatched: the host waits")
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata={"Software": None}, transparent=False,
                   facecolor="white")
    print(f"{path}: drawn")


def main():
    return palette.main("gantt.py PICTURE.png US TIMELINE.json:TITLE ...",
                        lambda of: len(of) >= 3 and all(":" in panel for panel in of[2:]), picture)

if __name__ == "__main__":
    sys.exit(main())
