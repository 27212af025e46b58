#!/usr/bin/env python3
"""Draws one SM with its memories, and those that all SMs share, with their sizes and latencies.

    memories.py PICTURE.png DEVICE.json TIMING.cpp

DEVICE.json is a device's file in common/vgpu/profile/devices, TIMING.cpp the table of clocks that
predicted times are made with (common/vgpu/time/timing.cpp): every number of the picture is from these
two. Needs matplotlib (Debian: python3-matplotlib).

Exit status: 0 drawn, 2 bad usage or input, 3 no matplotlib.
"""
import json
import re
import sys

import palette
from results import Refused

PAPER, PART, CHIP, EDGE, TEXT = "#ffffff", "#dbe8f7", "#f2f2f2", "#8a8f98", "#1b1f24"
SCHEDULER, REGISTERS, LANES, SHARED, CACHE, MEMORY = ("#f9d9a8", "#cfe6c9", "#f4c7c3", "#b9d4f1",
                                                      "#d9cdf0", "#e3e3e3")


def device_of(path):
    """{name: value} of a device's file."""
    with open(path, encoding="utf-8") as file:
        try:
            found = json.load(file)
        except ValueError as error:
            raise Refused(f"{path}: no JSON: {error}") from None
    try:
        return {name: of["value"] for name, of in found.items() if "value" in of}
    except (AttributeError, TypeError):
        raise Refused(f"{path}: no device's file, in which names have a value each") from None


def clocks_of(path, architecture):
    """{name: clocks} of the latencies in the table, for an architecture such as 90."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    known = re.search(r"kArchitectures = \{([\d, ]+)\}", text)
    if not known:
        raise Refused(f"{path}: no kArchitectures in it")
    column = [int(of) for of in known[1].split(",")].index(architecture)
    found = {}
    for row in re.finditer(r'"(\w+_latency)",\s*(all\(\d+|\{\{.*?\}\}\})', text, re.DOTALL):
        # (A source in quotes may have braces and numbers of its own.)
        numbers = re.findall(r"\{(\d+(?:\.\d+)?),", re.sub(r'"[^"]*"', "", row[2]))
        found[row[1]] = float(row[2][4:] if row[2].startswith("all") else numbers[column])
    return found


def in_bytes(count):
    """'256 KiB' of 262144."""
    for unit, size in (("GiB", 2 ** 30), ("MiB", 2 ** 20), ("KiB", 2 ** 10)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} bytes"


def facts(device, clocks):
    """[(memory, whose, size, clocks from asking to having, bytes a clock for each SM)] for people."""
    sm_hz = device["sm_count"] * device["sm_clock_mhz"] * 1e6
    shared = device["shared_per_sm"] - device["shared_reserved"]
    return [("registers", "of a thread", f"{in_bytes(4 * device['registers_per_sm'])} an SM", "at hand", ""),
            ("shared memory", "of a block", f"up to {in_bytes(shared)} of the L1",
             f"{clocks['shared_latency']:.0f}", f"{device['l1_bytes_per_clock_sm']}"),
            ("L1", "of an SM", f"{in_bytes(device['l1_bytes'])} an SM",
             f"{clocks['l1_latency']:.0f}", f"{device['l1_bytes_per_clock_sm']}"),
            ("L2", "of all SMs", in_bytes(device["l2_bytes"]), f"{clocks['l2_latency']:.0f}", ""),
            ("DRAM", "of all SMs", in_bytes(device["memory_bytes"]),
             f"{clocks['dram_latency']:.0f}", f"{device['dram_gb_s'] * 1e9 / sm_hz:.0f}"),
            ("host's memory", "of the program", "outside the card", "",
             f"{device['pcie_gb_s'] * 1e9 / sm_hz:.2f}")]


def box(ax, x, y, width, height, color, text="", size=9.5, **more):
    from matplotlib.patches import FancyBboxPatch
    ax.add_patch(FancyBboxPatch((x, y), width, height, boxstyle="round,pad=0,rounding_size=0.08",
                                facecolor=color, edgecolor=EDGE, linewidth=1))
    ax.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=size, color=TEXT,
            **more)


def draw_sm(ax, device):
    """An SM of 8 x 4.4 with its lower left corner at (0.4, 3.9): four quarters and the shared part."""
    box(ax, 0.4, 3.9, 8, 4.5, PART)
    ax.text(0.6, 8.12, f"one SM: up to {device['max_blocks_per_sm']} blocks, "
            f"{device['max_warps_per_sm']} warps of 32 threads", fontsize=9.5, color=TEXT, va="center",
            weight="bold")
    quarters = device["schedulers_per_sm"]
    width = (8 - 0.2) / quarters - 0.2
    lanes = device["fp32_fma_per_clock_sm"] // quarters
    for i in range(quarters):
        x = 0.6 + i * (width + 0.2)
        box(ax, x, 7.1, width, 0.75, SCHEDULER, "scheduler: an\ninstruction a clock", 7.5)
        box(ax, x, 6.2, width, 0.75, LANES, f"{lanes} lanes\nthat compute", 8)
        box(ax, x, 5.3, width, 0.75, REGISTERS,
            f"registers,\n{in_bytes(4 * device['registers_per_sm'] // quarters)}", 8)
    box(ax, 0.6, 4.1, 7.6, 1.0, SHARED,
        f"shared memory and L1, together {in_bytes(device['l1_bytes'])}\n"
        f"{device['l1_bytes_per_clock_sm']} bytes a clock", 9)


def draw(path, device_path, timing_path):
    plt = palette.pyplot()
    device = device_of(device_path)
    clocks = clocks_of(timing_path, 10 * device["major"] + device["minor"])
    fig = plt.figure(figsize=(11.4, 5.6), dpi=100, facecolor=PAPER)
    ax = fig.add_axes((0, 0, 1, 1))
    ax.set_xlim(0, 18.2)
    ax.set_ylim(0, 9)
    ax.axis("off")
    # The edges of two more SMs behind it.
    for back in (0.3, 0.15):
        box(ax, 0.4 + back, 3.9 + back, 8, 4.5, CHIP)
    draw_sm(ax, device)
    ax.text(8.85, 6.2, f"x {device['sm_count']}", fontsize=11, color=TEXT, va="center")
    box(ax, 0.4, 2.65, 8, 0.85, CACHE, f"L2: {in_bytes(device['l2_bytes'])} for all SMs")
    box(ax, 0.4, 1.4, 8, 0.85, MEMORY, f"DRAM: {in_bytes(device['memory_bytes'])}, "
        f"{device['dram_gb_s'] / 1000:.1f} TB/s")
    box(ax, 0.4, 0.15, 8, 0.85, PAPER, f"the host's memory, behind {device['pcie_gb_s']:.0f} GB/s")
    for y in (3.9, 2.65, 1.4):
        ax.annotate("", (4.4, y), (4.4, y - 0.4),
                    arrowprops={"arrowstyle": "<->", "color": EDGE, "shrinkA": 0, "shrinkB": 0})
    columns = (9.7, 11.75, 13.55, 16.35, 17.95)
    heads = ("memory", "whose", "size", "latency,\nclocks", "bytes a clock\nfor each SM")
    for x, head, align in zip(columns, heads, ("left", "left", "left", "right", "right")):
        ax.text(x, 7.7, head, fontsize=8.5, color=TEXT, ha=align, va="bottom", weight="bold")
    for i, row in enumerate(facts(device, clocks)):
        y = 7.25 - 0.85 * i
        ax.plot([9.7, 17.95], [y + 0.42] * 2, color=EDGE, linewidth=0.6)
        for x, cell, align in zip(columns, row, ("left", "left", "left", "right", "right")):
            ax.text(x, y, cell, fontsize=8.5, color=TEXT, ha=align, va="center")
    ax.text(9.7, 1.6, f"{device['name']}: sizes from NVIDIA's documents, latencies from\n"
            f"measurements or guessed, as the virtual GPU has them.\nA clock is "
            f"{1000 / device['sm_clock_mhz']:.2f} ns.", fontsize=8, color=TEXT, va="center")
    fig.savefig(path, metadata={"Software": None}, facecolor=PAPER)
    print(f"{path}: drawn")


def main():
    return palette.main("memories.py PICTURE.png DEVICE.json TIMING.cpp", lambda of: len(of) == 3, draw)


if __name__ == "__main__":
    sys.exit(main())
