#!/usr/bin/env python3
"""Draws the steps of one problem under the roofs of a GPU, from predicted times.

    roofline.py PICTURE.png GAINS.json TITLE FIRST-LAST [NAME=VALUE]...

TITLE is a problem of gains.json, as 'attention', FIRST and LAST are chapters; NAME=VALUE chooses among
several problems of that title, as preset=deep. Along is how many operations a step does for each byte
that DRAM moves, up how many it does in a second. Needs matplotlib (Debian: python3-matplotlib).

Exit status: 0 drawn, 2 bad usage or input, 3 no matplotlib.
"""
import json
import re
import sys

import palette
import gains
import labels
import results
from results import Refused


def steps_of(found, title, chapters, wanted):
    """(run, its steps of these chapters)."""
    first, last = map(int, chapters.split("-"))
    runs = [run for run in found["runs"] if run["title"] == title and
            all(str(run["problem"].get(name)) == value for name, value in wanted.items())]
    if len(runs) != 1:
        raise Refused(f"'{title}' {wanted or ''}: {len(runs)} problems are called so, must be one")
    steps = [step for step in runs[0]["steps"]
             if first <= results.number_of(step["chapter"]) <= last and "us" in step["predicted"]]
    if not steps:
        raise Refused(f"'{title}': no step of chapters {chapters} has a predicted time")
    return runs[0], steps


def point(step):
    """(FLOP for each byte of DRAM, TFLOP/s)."""
    predicted = step["predicted"]
    return step["flops"] / predicted["dram_bytes"], step["flops"] / predicted["us"] / 1e6


def draw(plt, found, run, steps, to):
    device = found["device"]
    dram = device["dram_bytes_per_s"] / 1e12
    roofs = [("fp32 units", device["fp32_flop_per_s"] / 1e12),
             ("tensor cores, fp16", device["tensor_flop_per_s"] / 1e12)]
    points = [point(step) for step in steps]
    left = min(min(x for x, _ in points) / 2.5, roofs[0][1] / dram / 5)
    right = max(max(x for x, _ in points) * 6, roofs[1][1] / dram * 4)
    fig, ax = plt.subplots(figsize=(8.4, 4.6))
    ax.plot([left, roofs[1][1] / dram], [left * dram, roofs[1][1]], color=palette.INK, linewidth=1.6)
    for name, roof in roofs:
        ax.plot([roof / dram, right], [roof, roof], color=palette.INK, linewidth=1.6)
        ax.annotate(f"{name}: {roof:,.0f} TFLOP/s", (roof / dram, roof), xytext=(-2, 5), ha="right",
                    textcoords="offset points", fontsize=8.5)
    ax.annotate(f"DRAM: {dram:.3g} TB/s", (left * 1.3, left * 1.3 * dram), xytext=(12, -3),
                va="top", textcoords="offset points", fontsize=8.5)
    colors = [palette.of_chapter(results.number_of(step["chapter"])) if len(
        {of["chapter"] for of in steps}) > 1 else palette.CHAPTERS[i] for i, step in enumerate(steps)]
    for (x, y), color in zip(points, colors):
        ax.plot([x], [y], marker="o", markersize=8, markeredgewidth=1.8, markeredgecolor=color,
                markerfacecolor="none", linestyle="none", zorder=3)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(left, right)
    ax.set_ylim(min(y for _, y in points) / 2, roofs[1][1] * 2)
    ax.set_xlabel("operations for each byte that DRAM moves")
    ax.set_ylabel("TFLOP/s, predicted")
    error = gains.error_of(found)
    ax.set_title(f"Virtual {device['name']}, predicted ±{100 * error:.0f}%: {run['title']}, "
                 f"{gains.short(run)}")
    fig.tight_layout()
    labels.place(ax, [(x, y, f"{step['name']}, {y:.3g}", color)
                      for (x, y), step, color in zip(points, steps, colors)], ax.texts)
    fig.savefig(to, dpi=120, metadata={"Software": None}, transparent=False, facecolor="white")
    print(f"{to}: drawn")


def picture(to, path, title, chapters, *wanted):
    plt = palette.plot()
    with open(path, encoding="utf-8") as file:
        found = json.load(file)
    run, steps = steps_of(found, title, chapters, dict(of.split("=", 1) for of in wanted))
    draw(plt, found, run, steps, to)


def main():
    return palette.main("roofline.py PICTURE.png GAINS.json TITLE FIRST-LAST [NAME=VALUE]...",
                        lambda of: len(of) >= 4 and re.fullmatch(r"\d+-\d+", of[3]) and
                        all("=" in name for name in of[4:]), picture)

if __name__ == "__main__":
    sys.exit(main())
