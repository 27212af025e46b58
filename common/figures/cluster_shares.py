#!/usr/bin/env python3
"""Draws which pixels one block of a cluster stages, and what one query asks for, from traces.

    VGPU_TRACE=cluster_kernel:3:share.json ./run --step cluster --batch 1
    VGPU_TRACE=simple_kernel:960:query.json ./run --batch 1
    cluster_shares.py PICTURE.png 92x160,46x80,23x40,12x20 CHANNELS share.json query.json

A panel a level: the pixels that the block loads in cluster.cuh, and those that the query of the
other trace samples (see sample_points.py). Needs matplotlib (Debian: python3-matplotlib).

Exit status: 0 drawn, 2 bad usage or input, 3 no matplotlib.
"""
import sys

import palette
import sample_points
import traces
from traces import Refused


def staged_pixels(file_name, channels):
    """The pixels of image 0 that the traced block stages, as a set."""
    trace = traces.read(file_name)
    staging = {i for i, instruction in enumerate(trace["instructions"])
               if instruction["file"].endswith("cluster.cuh")}
    loads = [a for a in trace["accesses"] if a["instruction"] in staging and
             a["space"] == "global" and a["access"] == "load"]
    if not loads:
        raise Refused(f"'{file_name}': nothing is staged")
    return {o // (2 * channels) for a in loads for o in a["offsets"] if o is not None}


def picture(path, level_text, channels, share, query):
    plt = palette.pyplot()
    from matplotlib.patches import Rectangle
    levels = [tuple(map(int, level.split("x"))) for level in level_text.split(",")]
    staged = staged_pixels(share, int(channels))
    asked = sample_points.read_pixels(query, int(channels))
    figure, panels = plt.subplots(1, len(levels), figsize=(11, 2.3), squeeze=False)
    start = 0
    for ax, (height, width) in zip(panels[0], levels):
        inside = range(start, start + height * width)
        own = {pixel - start for pixel in staged if pixel in inside}
        reads = [pixel - start for pixel in asked if pixel in inside]
        for pixel in sorted(own):
            ax.add_patch(Rectangle((pixel % width, pixel // width), 1, 1, facecolor="#6fa8a0",
                                   linewidth=0))
        for pixel in sorted(set(reads)):
            ax.add_patch(Rectangle((pixel % width, pixel // width), 1, 1, facecolor="none",
                                   edgecolor="#7a1f1f", linewidth=0.8))
        ax.set(xlim=(0, width), ylim=(height, 0), xticks=[], yticks=[], aspect="equal")
        ax.set_facecolor("#f2f2f2")
        ax.set_title(f"{height} x {width}: {len(own)} of {height * width} pixels,\n"
                     f"{sum(pixel in own for pixel in reads)} of the query's {len(reads)} "
                     "reads", fontsize=8)
        start += height * width
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata={"Software": None})


def main():
    return palette.main("cluster_shares.py PICTURE.png LEVELS CHANNELS SHARE.json QUERY.json",
                        lambda of: len(of) == 5, picture, Refused)

if __name__ == "__main__":
    sys.exit(main())
