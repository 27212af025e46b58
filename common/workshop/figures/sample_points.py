#!/usr/bin/env python3
"""Draws where one query of deformable attention samples, level by level, from the kernel's own trace.

    VGPU_TRACE=simple_kernel:960:trace.json ./run --batch 1
    sample_points.py PICTURE.png 92x160,46x80,23x40,12x20 CHANNELS local.json uniform.json ...

Each trace is a row of panels, a panel a level; the title is the file's name. Warp 0 of simple_kernel
has one query of 32 channels (or a part of 64): each of its loads of `value` is one pixel of a sample,
four loads a sample. The pixels are drawn as squares; everything comes from the trace's offsets.
Needs matplotlib (Debian: python3-matplotlib).

Exit status: 0 drawn, 2 bad usage or input, 3 no matplotlib.
"""
import os
import sys

import palette
import traces
from results import Refused


def read_pixels(file_name, channels):
    """The pixels of image 0 that warp 0 loads, in order."""
    trace = traces.read(file_name)
    loads = [a for a in trace["accesses"] if a["warp"] == 0 and a["space"] == "global" and
             a["allocation"] == "value" and a["access"] == "load"]
    if not loads or len(loads) % 4:
        raise Refused(f"'{file_name}': {len(loads)} loads of value by warp 0, four a sample expected")
    return [min(o for o in a["offsets"] if o is not None) // (2 * channels) for a in loads]


def picture(path, level_text, channels, *files):
    plt = palette.pyplot()
    from matplotlib.patches import Rectangle
    levels = [tuple(map(int, level.split("x"))) for level in level_text.split(",")]
    figure, rows = plt.subplots(len(files), len(levels), figsize=(11, 2.1 * len(files)),
                                squeeze=False)
    for panels, file_name in zip(rows, files):
        pixels, start = read_pixels(file_name, int(channels)), 0
        inside = 0
        for ax, (height, width) in zip(panels, levels):
            here = [p - start for p in pixels if start <= p < start + height * width]
            inside += len(here)
            for pixel in here:
                ax.add_patch(Rectangle((pixel % width, pixel // width), 1, 1, facecolor="#7a1f1f",
                                       edgecolor="#f6b26b", linewidth=0.4))
            ax.set(xlim=(0, width), ylim=(height, 0), xticks=[], yticks=[], aspect="equal")
            ax.set_facecolor("#f2f2f2")
            ax.set_title(f"{height} x {width}: {len(here) // 4} samples, {len(set(here))} pixels",
                         fontsize=8)
            start += height * width
        if inside != len(pixels):
            raise Refused(f"'{file_name}': {len(pixels) - inside} loads outside of these levels")
        panels[0].set_ylabel(os.path.basename(file_name).split("_")[-1].removesuffix(".json"))
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata={"Software": None})


def main():
    return palette.main("sample_points.py PICTURE.png LEVELS CHANNELS TRACE...", lambda of: len(of) >= 4,
                        picture)

if __name__ == "__main__":
    sys.exit(main())
