#!/usr/bin/env python3
"""Draws which component of chapter 12's net takes which share of its predicted time, as bars.

    component_shares.py PICTURE.png SWEEPS.json

SWEEPS.json is data/results/virtual_h200/sweeps.json, which `make bench DEVICE=vgpu` writes. A bar is a
choice of components at the smallest and at the largest batch, at the smallest image size; its pieces are
all launches of a component together. Needs matplotlib (Debian: python3-matplotlib).

Exit status: 0 drawn, 2 bad usage or input, 3 no matplotlib.
"""
import sys

import palette
import results
import sweeps
from predictions import with_unit
from results import Refused

CHOICES = ("embed", "norm", "mlp", "attention")
SMALL = 0.03  # pieces below this share have no label; below a third of it they are `other`


def bars(runs):
    """[(what, {component: us})], the slowest choice first, its smallest batch first."""
    size = min(run["problem"]["size"] for run in runs)
    found = {}
    for run in runs:
        problem = run["problem"]
        if problem["size"] == size:
            found.setdefault(tuple(problem[name] for name in CHOICES), {})[problem["batch"]] = run
    result = []
    for choice, by_batch in found.items():
        for batch in sorted({min(by_batch), max(by_batch)}):
            lines = {line["name"]: line["us"] for line in by_batch[batch]["lines"]}
            net = lines.pop("net", None)
            if net is None or abs(sum(lines.values()) - net) > 0.01 * net:
                raise Refused(f"batch {batch}: the components' times do not add up to the net's")
            result.append((choice, batch, lines))
    return sorted(result, key=lambda bar: (-max(sum(other[2].values()) for other in result
                                                if other[0] == bar[0]), bar[1]))


def pieces(lines):
    """[(component, share)], in the net's order; small ones together as `other`, last."""
    total = sum(lines.values())
    shares = [(name, us / total) for name, us in lines.items()]
    large = [of for of in shares if of[1] >= SMALL / 3]
    return large + [("other", 1 - sum(share for _, share in large))]


def label_of(choice, batch):
    names = dict(zip(CHOICES, choice))
    if {names["embed"], names["norm"], names["mlp"]} == {"simple"}:
        return f"simple components\nbatch {batch}"
    return f"{names['embed']}, {names['norm']}, {names['mlp']}\nbatch {batch}"


def largest(lines):
    """(component, share) of the longest."""
    return max(pieces(lines)[:-1], key=lambda of: of[1])


def title_of(found):
    """What the bars show, in their own numbers."""
    choice, batch, lines = found[0]
    name, share = largest(lines)
    best = [largest(lines)[1] for other, _, lines in found if other == found[-1][0]]
    if choice == found[-1][0]:
        raise Refused("needs two choices of components")
    return (f"{name} takes {100 * share:.0f} % of the slowest net at batch {batch}; in the fastest no "
            f"component takes more than {100 * max(best):.0f} %")


def draw(plt, found, path, words):
    fig, ax = plt.subplots(figsize=(10.4, 0.72 * len(found) + 1.7), dpi=110, layout="constrained")
    names = list(dict.fromkeys(name for _, _, lines in found for name, _ in pieces(lines)))
    names = [name for name in names if name != "other"] + ["other"]
    colors = {name: palette.CHAPTERS[i % len(palette.CHAPTERS)] for i, name in enumerate(names)}
    colors["other"] = palette.INK
    for y, (_, _, lines) in enumerate(found):
        left = 0
        for name, share in pieces(lines):
            ax.barh(y, 100 * share, left=100 * left, height=0.66, color=colors[name], alpha=0.38,
                    edgecolor=colors[name], linewidth=1)
            if share >= SMALL:
                narrow = share < 0.075
                ax.text(100 * (left + share / 2), y, name if narrow else
                        f"{name}\n{100 * share:.0f} %", ha="center", va="center",
                        fontsize=6.8 if narrow else 8, rotation=90 if narrow else 0, color="#303338")
            left += share
        ax.text(101, y, with_unit(sum(lines.values())), va="center", fontsize=9)
    ax.set_yticks(range(len(found)), [label_of(choice, batch) for choice, batch, _ in found])
    ax.set_ylim(len(found) - 0.5, -0.5)
    ax.set_xlim(0, 109)
    ax.set_xticks(range(0, 101, 20))
    ax.grid(axis="y", visible=False)
    ax.set_xlabel("share of the net's predicted time, %; behind each bar the time")
    ax.set_title(title_of(found))
    fig.supxlabel(words, fontsize=8.5, color=palette.INK)
    fig.savefig(path, metadata={"Software": None}, transparent=False, facecolor="white")
    print(f"{path}: drawn")


def picture(path, file):
    plt = palette.plot()
    swept = results.read(file)
    runs = sweeps.runs_of(swept, 12)
    error = max(line["error"] for run in runs for line in run["lines"])
    problem = runs[0]["problem"]
    draw(plt, bars(runs), path,
         f"Virtual {swept['device']['name']}, ViT {problem['model']}, "
         f"{min(run['problem']['size'] for run in runs)} pixels, ±{100 * error:.0f} %. "
         f"Grey: components below {100 * SMALL / 3:.0f} %. No label: below {100 * SMALL:.0f} %, "
         "coloured as in the other bars.")


def main():
    return palette.main("component_shares.py PICTURE.png SWEEPS.json", lambda of: len(of) == 2, picture)

if __name__ == "__main__":
    sys.exit(main())
