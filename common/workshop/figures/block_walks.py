#!/usr/bin/env python3
"""Draws which rows of its arrays a block reads, writes and adds to, from traces of the virtual GPU.

    VGPU_TRACE=recompute_kernel:1:trace.json ./run --step recompute --tokens 96 --heads 1
    block_walks.py PICTURE.png 96 Q+dO:load:128 K+V:load:128 workspace:atomic:256:dQ dK+dV:store:128 -- \\
        trace.json:title ...

After the picture and the number of rows that an array has for one head come the kinds of accesses that
are drawn: arrays, load, store or atomic, the bytes of a row, and perhaps another name for the arrays. An
access beyond these rows is left out, such as one to another array in the same allocation. Then follows a
panel for each trace, whose title has _ for blanks. Needs matplotlib (Debian: python3-matplotlib).

Exit status: 0 drawn, 2 bad usage or input, 3 no matplotlib.
"""
import re
import sys

import palette
import traces
from results import Refused

ACCESSES = ("load", "store", "atomic")


class Kind:
    """Accesses of one colour: to these arrays, in this way."""

    def __init__(self, argument):
        match = re.fullmatch(rf"([\w+]+):({'|'.join(ACCESSES)}):([1-9]\d*)(?::(\w+))?", argument)
        if not match:
            raise Refused(f"'{argument}': must be ARRAYS:load, store or atomic:ROW_BYTES[:NAME]")
        self.arrays, self.access, self.row_bytes = match[1].split("+"), match[2], int(match[3])
        self.name = match[4] or " and ".join(self.arrays)

    def rows(self, access):
        """The rows that the access touches, of all heads."""
        if access["space"] != "global" or access["access"] != self.access:
            return []
        return [offset // self.row_bytes
                for of, offset in zip(allocations(access), access["offsets"])
                if offset is not None and of in self.arrays]

    def words(self):
        are = "are" if len(self.arrays) > 1 else "is"
        return f"{self.name} {are} " + {"load": "loaded", "store": "stored",
                                        "atomic": "added to"}[self.access]


def allocations(access):
    """The allocation of each lane."""
    of = access.get("allocation")
    return of if isinstance(of, list) else [of] * len(access["offsets"])


def spans(trace, wanted, rows):
    """[(n, kind, first row, last row)]: access n of those drawn touches these rows, of one head. The
    head is that of the first access."""
    found, first = [], None
    for access in trace["accesses"]:
        for kind in wanted:
            touched = kind.rows(access)
            if touched and first is None:
                first = min(touched) // rows * rows
            touched = [row - first for row in touched if 0 <= row - first < rows]
            if touched:
                found.append((len(found), kind, min(touched), max(touched)))
    if len(trace["accesses"]) < trace["accesses_executed"]:
        raise Refused(f"the trace has {len(trace['accesses'])} of {trace['accesses_executed']} "
                      "accesses: a smaller problem fits")
    if not found:
        raise Refused("the trace has none of these accesses")
    return found


def summary(found):
    """'32 additions to dQ, 16 stores to dK and dV': how many accesses there are that write."""
    parts = []
    for how, word in (("atomic", "addition"), ("store", "store")):
        for kind in dict.fromkeys(of for _, of, *_ in found if of.access == how):
            count = sum(of is kind for _, of, *_ in found)
            parts.append(f"{count} {word}{'s' * (count != 1)} to {kind.name}")
    return ", ".join(parts)


def color_of(i):
    return palette.CHAPTERS[(5, 1, 0, 3, 6)[i % 5]]


def draw(ax, title, found, wanted, rows):
    width, height = max(1, len(found) / 250), rows / 100  # what can be seen
    for i, kind in enumerate(wanted):
        for n, of, low, high in found:
            if of is kind:
                ax.broken_barh([(n, width)], (low, max(height, high - low + 1)), linewidth=0,
                               facecolor=color_of(i))
    ax.set_title(f"{title}: {summary(found)}", fontsize=9.5)
    ax.set(xlim=(0, len(found) + width), ylim=(rows, 0), ylabel="token")


def fits(arguments):
    kinds, panels = parted(arguments)
    return len(kinds) > 2 and kinds[1].isdigit() and int(kinds[1]) > 0 and panels and all(":" in of for of in panels)


def parted(arguments):
    """The arguments in front of -- and those behind it."""
    split = list(arguments).index("--") if "--" in arguments else len(arguments)
    return arguments[:split], arguments[split + 1:]


def picture(*arguments):
    plt = palette.plot()
    from matplotlib.patches import Patch
    (path, rows, *of_kinds), panels = parted(arguments)
    wanted, rows = [Kind(argument) for argument in of_kinds], int(rows)
    fig, axes = plt.subplots(len(panels), 1, figsize=(10.5, 0.6 + 2.3 * len(panels)), dpi=110,
                             squeeze=False, layout="constrained")
    for panel, (ax,) in zip(panels, axes):
        file, title = panel.rsplit(":", 1)
        draw(ax, title.replace("_", " "), spans(traces.read(file), wanted, rows), wanted, rows)
    axes[-1][0].set_xlabel("the block's accesses to these arrays, in their order")
    axes[-1][0].legend(handles=[Patch(color=color_of(i), label=kind.words())
                                for i, kind in enumerate(wanted)],
                       loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=len(wanted))
    fig.savefig(path, metadata={"Software": None}, transparent=False, facecolor="white")
    print(f"{path}: drawn")


def main():
    return palette.main("block_walks.py PICTURE.png ROWS ARRAY:ACCESS:ROW_BYTES ... -- TRACE.json:TITLE ...",
                        fits, picture)


if __name__ == "__main__":
    sys.exit(main())
