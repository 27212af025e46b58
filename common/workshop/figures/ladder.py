#!/usr/bin/env python3
"""Puts runs of the whole ladder together, one a number of tokens, and draws them.

    ./run --all --tokens 197 --json 197.json; ...
    ladder.py LADDER.json STEM 197.json 577.json 1025.json
    ladder.py LADDER.json STEM                                 draws what LADDER.json holds
    ladder.py --check LADDER.json 197.json 577.json 1025.json  writes nothing, says what differs
    ladder.py ... --ptxas PATH                                 of which ptxas predicted times are

LADDER.json gets what was measured on a GPU, or of the virtual GPU what does not depend on the host:
predicted times, modelled limits and counters. --check allows 2% in a predicted time, and compares none
that another ptxas made. STEM.svg shows the steps' times over the tokens: measured ones full,
predicted ones hollow with their modelled limits as thin lines; hollow the limits where there is no
prediction. Dash-dotted, of heads of 64, are rates that others published for an H100: named as such, and not
measured here. Both scales are logarithmic, with a line of slope 2: attention's work grows with the square
of the tokens. Needs matplotlib (Debian: python3-matplotlib) for the picture; without it the
file is written and the exit status is 3.

Exit status: 0 written or the same, 1 another file than the runs give, 2 bad usage or input, 3 no
matplotlib, or no room for the file.
"""
import difflib
import errno
import json
import math
import sys

import labels
import palette
import predictions
import results
from results import Refused

# Of each step: what a run of the virtual GPU gives again on every machine, and what a GPU gives.
PREDICTED = ("predicted_us", "predicted_error", "predicted_why")
SAME_EVERYWHERE = ("chapter", "name", *PREDICTED, "modelled_limit_us", "bytes", "flops", "pass")
MEASURED = ("chapter", "name", "median_us", "min_us", "mean_us", "std_us", "spread", "samples",
            "bytes", "flops", "gb_per_s", "tflop_per_s", "bound", "share_of_bound", "relative_l2", "pass")
COUNTED = ("limits", "limit", "global", "shared", "tensor_macs", "occupancy")
HEAD = ("device", "nvcc")
# TFLOP/s of useful arithmetic by tokens, forward, heads of 64, no mask, H100, 16k tokens in a batch:
# J. Shah et al., FlashAttention-3, 2024.
PUBLISHED = {"FlashAttention-2": {512: 282, 1024: 306}, "cuDNN": {512: 335, 1024: 373},
             "FlashAttention-3": {512: 333, 1024: 392}}
HEAD_MEASURED = HEAD + ("time", "commit", "driver", "runtime", "clocks", "warmup", "iterations")


def is_run(run):
    """Whether it has the parts of a ladder's JSON, each of its kind."""
    def has(table, **kinds):
        return isinstance(table, dict) and all(
            isinstance(table.get(name), kind) for name, kind in kinds.items())
    return (has(run, problem=dict, device=dict, steps=list) and has(run["problem"], tokens=int)
            and has(run["device"], name=str, virtual=bool) and all(
                has(step, chapter=str, name=str) and isinstance(step.get("counters", {}), dict)
                for step in run["steps"]))


def merge(paths, ptxas=None):
    """One ladder of several runs of --all."""
    runs = []
    for path in paths:
        runs.append(results.read(path))
        if not is_run(runs[-1]):
            raise Refused(f"{path}: is no result of ./run --all --json")
    runs.sort(key=lambda run: run["problem"]["tokens"])
    virtual = runs[0]["device"]["virtual"]
    for run in runs:
        if run["device"] != runs[0]["device"]:
            raise Refused("the runs are of different devices")
    ladder = {name: runs[0][name] for name in (HEAD if virtual else HEAD_MEASURED)}
    if virtual and ptxas:
        ladder["ptxas"] = ptxas
    ladder["runs"] = []
    for run in runs:
        steps = []
        for step in run["steps"]:
            kept = {name: step[name] for name in (SAME_EVERYWHERE if virtual else MEASURED)
                    if name in step and not (name in PREDICTED and step[name] in (None, ""))}
            counters = step.get("counters", {})
            kept.update({name: counters[name] for name in COUNTED if name in counters})
            steps.append(kept)
        ladder["runs"].append({"problem": run["problem"], "steps": steps})
    return ladder


def steps_by_name(ladder):
    return {(str(run["problem"]), step["chapter"], step["name"]): step
            for run in ladder["runs"] for step in run["steps"]}


def compared(old, ladder):
    """The new ladder with the old one's predicted times where those are not to be told apart: within
    2%, or made by another ptxas. Says so then."""
    if old.get("ptxas") != ladder.get("ptxas"):
        print(f"predicted times are not compared: the file is of ptxas {old.get('ptxas', 'unknown')}, "
              f"these runs of {ladder.get('ptxas', 'unknown')}")
    other, before = old.get("ptxas") != ladder.get("ptxas"), steps_by_name(old)
    ladder = json.loads(json.dumps(ladder))
    for run in ladder["runs"]:
        for i, step in enumerate(run["steps"]):
            was = before.get((str(run["problem"]), step["chapter"], step["name"]), {})
            a, b = was.get("predicted_us"), step.get("predicted_us")
            if other or (a and b and abs(a - b) <= predictions.US_TOLERANCE * max(a, b)):
                run["steps"][i] = {name: of[name] for name in (*SAME_EVERYWHERE, *COUNTED)
                                   for of in (was if name in PREDICTED else step,) if name in of}
    if not other:
        return ladder
    head = {name: of[name] for name in (*HEAD, "ptxas")
            for of in (old if name == "ptxas" else ladder,) if name in of}
    return {**head, "runs": ladder["runs"]}


def check(path, ladder):
    """0 when the file holds what the runs give, else 1 and the lines that differ."""
    with open(path, encoding="utf-8") as file:
        old = file.read()
    try:
        ladder = compared(json.loads(old), ladder)
    except (ValueError, LookupError, TypeError, AttributeError):
        pass  # no ladder: all of it differs
    if old == results.text_of(ladder):
        print(f"{path}: up to date")
        return 0
    print(f"{path}: stale; `make ladder` writes these:", file=sys.stderr)
    sys.stderr.writelines(line + "\n" for line in difflib.unified_diff(
        old.splitlines(), results.text_of(ladder).splitlines(), "committed", "this run", n=0, lineterm=""))
    return 1


def published_us(problem):
    """{name: {tokens: µs}} of this problem's arithmetic at published rates, for heads of 64."""
    if problem["head_dim"] != 64:
        return {}
    flops = {n: 4.0 * problem["batch"] * problem["heads"] * n * n * 64 for n in (512, 1024)}
    return {name: {n: flops[n] / rate / 1e6 for n, rate in rates.items()}
            for name, rates in PUBLISHED.items()}


def published(ax, problem, chapters):
    """Draws these behind a ladder that has chapter 13's steps, and returns the ends of the lines."""
    ends = []
    if not any(chapter.startswith("13_") for chapter in chapters):
        return ends
    for name, us in published_us(problem).items():
        ax.plot(list(us), list(us.values()), color=palette.INK, linestyle="-.", linewidth=0.9)
        ends.append([us[1024], f"{name}, published, H100: {us[1024]:.3g} µs", palette.INK])
    return ends


def draw(stem, ladder):
    plt = palette.plot()
    from matplotlib.ticker import NullLocator

    virtual = ladder["device"]["virtual"]
    steps = [step for run in ladder["runs"] for step in run["steps"]]
    predicted = virtual and all(step.get("predicted_us") for step in steps)
    value = "predicted_us" if predicted else "modelled_limit_us" if virtual else "median_us"
    tokens = [run["problem"]["tokens"] for run in ladder["runs"]]
    lines, limits = {}, {}
    for run in ladder["runs"]:
        for step in run["steps"]:
            key = (step["chapter"], step["name"])
            lines.setdefault(key, []).append(step[value])
            limits.setdefault(key, []).append(step["modelled_limit_us"] if predicted else None)
    fig, ax = plt.subplots(figsize=(8.4, 5.8))
    ends = []
    for i, ((chapter, name), values) in enumerate(lines.items()):
        if len(values) != len(tokens):
            raise Refused(f"{chapter} {name}: not in every run")
        number = chapter.split("_")[0].lstrip("0")
        color = palette.of_chapter(int(number))
        # A chapter's second line is dashed.
        again = any(key[0] == chapter for key in list(lines)[:i])
        ax.plot(tokens, values, marker="o", markersize=5, color=color, linewidth=1.8,
                markerfacecolor="none" if virtual else color, linestyle="--" if again else "-")
        if predicted:
            ax.plot(tokens, limits[chapter, name], color=color, linewidth=0.7, alpha=0.7,
                    linestyle="--" if again else "-")
        label = chapter.split("_", 1)[1].replace("_", " ") if i == 0 else name
        us = f"{values[-1]:,.0f}" if values[-1] >= 100 else f"{values[-1]:.3g}"
        ends.append([values[-1], f"{number}: {label}, {us} µs", color])
    ends += published(ax, ladder["runs"][0]["problem"], {key[0] for key in lines})
    # Labels at the ends of the lines, pushed apart where lines end close to each other.
    places = labels.spread([math.log(at) for at, _, _ in ends], math.log(1.31))
    for (at, text, color), place in zip(ends, places):
        ax.annotate(text, (tokens[-1], at), xytext=(tokens[-1] * 1.15, math.exp(place)), color=color,
                    fontsize=8.5, va="center",
                    arrowprops={"arrowstyle": "-", "color": color, "linewidth": 0.6,
                                "relpos": (0, 0.5)})
    # The square of the tokens, above the highest line.
    top = max(values[0] for values in lines.values()) * 1.5
    ax.plot(tokens, [top * (n / tokens[0]) ** 2 for n in tokens], color=palette.INK, linestyle=":",
            linewidth=1.4)
    ax.annotate("slope of N²", (tokens[1], top * (tokens[1] / tokens[0]) ** 2), xytext=(-8, 8),
                textcoords="offset points", ha="right", fontsize=8.5)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(tokens[0] * 0.93, tokens[-1] * 2.7)
    ax.set_xticks(tokens)
    ax.set_xticklabels([str(n) for n in tokens])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("tokens N")
    error = max((step.get("predicted_error") or 0 for step in steps), default=0)
    ax.set_ylabel(f"predicted time ±{100 * error:.0f}%, µs; thin: modelled limits" if predicted else
                  "modelled limit, µs (a lower bound)" if virtual else "median time, µs")
    problem = ladder["runs"][0]["problem"]
    ax.set_title(f"{'Virtual ' if virtual else ''}{ladder['device']['name']}: batch "
                 f"{problem['batch']}, {problem['heads']} heads of {problem['head_dim']}, fp16")
    fig.tight_layout()
    palette.save(fig, stem)


def main():
    arguments, ptxas = sys.argv[1:], None
    try:
        if arguments[-2:-1] == ["--ptxas"]:
            ptxas = predictions.ptxas_version(arguments[-1])
            arguments = arguments[:-2]
        if len(arguments) < 2:
            print("usage: ladder.py LADDER.json STEM [RUN.json...] [--ptxas PATH]", file=sys.stderr)
            return 2
        if arguments[0] == "--check":
            return check(arguments[1], merge(arguments[2:], ptxas))
        path, stem, runs = arguments[0], arguments[1], arguments[2:]
        if runs:
            results.write(path, results.text_of(merge(runs, ptxas)))
            print(f"{path}: written from {len(runs)} runs")
        draw(stem, results.read(path))
    except ImportError as missing:
        print(f"ladder: no picture: {missing}; on Debian or Ubuntu: apt-get install "
              "python3-matplotlib", file=sys.stderr)
        return 3
    except OSError as error:
        no_room = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        print(f"ladder: {path}: cannot be written: {error.strerror}" if no_room else f"ladder: {error}", file=sys.stderr)
        return 3 if no_room else 2
    except (KeyError, IndexError, TypeError, Refused) as error:
        print(f"ladder: {error!r}" if isinstance(error, (KeyError, TypeError)) else
              f"ladder: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
