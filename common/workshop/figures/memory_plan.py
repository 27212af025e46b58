#!/usr/bin/env python3
"""Draws which array of chapter 12's net lies where, and from which launch to which.

    memory_plan.py PICTURE.png RESULT.json

RESULT.json is what the chapter's program writes with --json; its `memory_plan` has all arrays. Above: the
bytes that each stage of the net needs, beside those of the plan. Below: the plan itself over the first two
blocks, a rectangle an array. Needs matplotlib (Debian: python3-matplotlib).

Exit status: 0 drawn, 2 bad usage or input, 3 no matplotlib.
"""
import sys

import palette
import results
from results import Refused

KIB = 1024
SHOWN_BLOCKS = 2


def of_block(name):
    """(block, name in it) of 'blocks.3.qkv'; (None, name) of others."""
    parts = name.split(".")
    return (int(parts[1]), parts[2]) if len(parts) == 3 and parts[0] == "blocks" else (None, name)


def alive(plan):
    """Bytes of the arrays that each stage needs."""
    return [sum(of["bytes"] for of in plan["buffers"] if of["first"] <= stage <= of["last"])
            for stage in range(len(plan["stages"]))]


def shown_stages(plan):
    """How many stages from the first one on belong to the blocks that are drawn."""
    last = max((i for i, name in enumerate(plan["stages"])
                if of_block(name)[0] in range(SHOWN_BLOCKS)), default=None)
    if last is None:
        raise Refused("the memory plan has no stage of a block")
    return last + 1


def overlap(plan):
    """Two arrays that lie in the same place at the same time, or None."""
    buffers = plan["buffers"]
    for i, a in enumerate(buffers):
        for b in buffers[:i]:
            if a["first"] <= b["last"] and b["first"] <= a["last"] and \
                    a["offset"] < b["offset"] + b["bytes"] and b["offset"] < a["offset"] + a["bytes"]:
                return a["name"], b["name"]
    return None


def draw_plan(ax, plan, stages):
    from matplotlib.patches import Rectangle
    kinds = {}
    for of in plan["buffers"]:
        if of["first"] >= stages:
            continue
        kind = of_block(of["name"])[1]
        color = palette.CHAPTERS[kinds.setdefault(kind, len(kinds)) % len(palette.CHAPTERS)]
        end = min(of["last"] + 1, stages)
        high = of["bytes"] / KIB
        ax.add_patch(Rectangle((of["first"], of["offset"] / KIB), end - of["first"], high,
                               facecolor=color, alpha=0.32, edgecolor=color, linewidth=1))
        if high > 20:
            ax.text((of["first"] + end) / 2, of["offset"] / KIB + high / 2, kind, ha="center",
                    va="center", fontsize=7.6, color="#303338")
    ax.set_xlim(0, stages)
    ax.set_ylim(0, plan["bytes"] / KIB)
    ax.set_xticks([i + 0.5 for i in range(stages)], [of_block(name)[1] for name in
                                                      plan["stages"][:stages]],
                  rotation=55, ha="right", rotation_mode="anchor", fontsize=8)
    ax.grid(axis="x", visible=False)
    for i, name in enumerate(plan["stages"][:stages]):
        if i and of_block(name)[0] != of_block(plan["stages"][i - 1])[0]:
            ax.axvline(i, color=palette.INK, linewidth=1, linestyle=":")
    ax.set_ylabel("place in the allocation, KiB")
    ax.set_xlabel("stage, in the order of the launches; dotted: where a block begins")


def draw_alive(ax, plan):
    needed = [of / KIB for of in alive(plan)]
    ax.stairs(needed, range(len(needed) + 1), fill=True, color=palette.CHAPTERS[5], alpha=0.4)
    ax.axhline(plan["bytes"] / KIB, color=palette.CHAPTERS[0], linewidth=1.4)
    ax.set_xlim(0, len(needed))
    ax.set_ylim(0, plan["bytes"] / KIB * 1.16)
    ax.set_ylabel("KiB")
    ax.set_xlabel("stage, of the whole net; line: the plan's high-water mark")


def picture(path, file):
    plt = palette.plot()
    result = results.read(file)
    plan, problem = result["memory_plan"], result["problem"]
    both = overlap(plan)
    if both:
        raise Refused(f"'{both[0]}' lies where '{both[1]}' does, at the same time")
    stages = shown_stages(plan)
    fig, (above, below) = plt.subplots(2, 1, figsize=(9.6, 7.4), dpi=110, layout="constrained",
                                       gridspec_kw={"height_ratios": [1, 3]})
    draw_alive(above, plan)
    draw_plan(below, plan, stages)
    above.set_title(f"{len(plan['buffers'])} arrays of {plan['separate_bytes'] / KIB:,.0f} KiB fit "
                    f"into {plan['bytes'] / KIB:,.0f} KiB; no stage needs more than "
                    f"{max(alive(plan)) / KIB:,.0f} KiB of them\n(ViT {problem['model']}, batch "
                    f"{problem['batch']}, {problem['tokens']} tokens)")
    below.set_title("The same places hold other arrays as soon as the last reader is done")
    fig.savefig(path, metadata={"Software": None}, transparent=False, facecolor="white")
    print(f"{path}: drawn")


def main():
    return palette.main("memory_plan.py PICTURE.png RESULT.json", lambda of: len(of) == 2, picture)

if __name__ == "__main__":
    sys.exit(main())
