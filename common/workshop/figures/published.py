#!/usr/bin/env python3
"""How far predicted kernel times are from published ones, and the picture of both.

    published.py PUBLISHED.json [STEM]

PUBLISHED.json (data/results/published.json) holds tables of kernel times that others published,
each for tuning the predictor's constants or only for judging it, and the times that the virtual GPU
predicts. For both halves: mean and worst absolute error in percent of the published time, and in
each table Kendall's tau between published and predicted times, over all pairs of its kernels and
over those whose published times are more than 5% apart (what is closer, a second measurement may
turn round). Kernels without a prediction are listed with the reason.

STEM.svg shows predicted over published times, a colour and a shape for each table,
filled where it judges and hollow where it tuned. Without any prediction nothing is drawn. Needs
matplotlib (Debian: python3-matplotlib) for the picture.

Exit status: 0 printed, and drawn where a STEM was given and something is predicted; 2 bad usage or
input; 3 no matplotlib.
"""
import json
import math
import sys

import palette
from results import Refused

HALVES = ("tuning", "judging")
CLOSE = 0.05
# Of a kernel with that `published` and, for a rate, that `flop`.
MICROSECONDS = {"us": lambda value, flop: value, "ms": lambda value, flop: value * 1e3,
                "gflops": lambda value, flop: flop / value / 1e3,
                "tflops": lambda value, flop: flop / value / 1e6}


def number_of(entry, name, where, none=False):
    """A positive number; with `none`, null will do, too."""
    value = entry.get(name)
    if value is None and none:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise Refused(f"{where}: {name} is {json.dumps(value)}: must be a number above 0"
                      + (" or null" if none else ""))
    return value


def check_kernel(kernel, where):
    if kernel.get("unit") not in MICROSECONDS:
        raise Refused(f"{where}: unit is {json.dumps(kernel.get('unit'))}: must be one of "
                      + " ".join(MICROSECONDS))
    rate = kernel["unit"].endswith("flops")
    flop = number_of(kernel, "flop", where) if rate else None
    right = MICROSECONDS[kernel["unit"]](number_of(kernel, "published", where), flop)
    stated = number_of(kernel, "published_us", where)
    if abs(stated - right) > 1e-4 * right:
        raise Refused(f"{where}: published_us is {stated:g}: {kernel['published']:g} "
                      f"{kernel['unit']} are {right:.6g}")
    if number_of(kernel, "predicted_us", where, none=True) is None and not kernel.get("reason"):
        raise Refused(f"{where}: predicted_us is null without a reason")


def tables_of(content):
    """The tables, each of them and of their kernels checked."""
    tables = content.get("tables") if isinstance(content, dict) else None
    if not isinstance(tables, list) or not tables:
        raise Refused("has no list of tables")
    for table in tables:
        missing = [name for name in ("name", "use", "gpu", "source", "kernels")
                   if not isinstance(table, dict) or not table.get(name)]
        if missing:
            raise Refused(f"a table without {' '.join(missing)}")
        if table["use"] not in HALVES:
            raise Refused(f"{table['name']}: use is {json.dumps(table['use'])}: must be tuning or "
                          "judging")
        for kernel in table["kernels"]:
            if not isinstance(kernel, dict) or not kernel.get("kernel"):
                raise Refused(f"{table['name']}: a kernel without a name")
            check_kernel(kernel, f"{table['name']}: {kernel['kernel']}")
    for names in ([table["name"] for table in tables],
                  *([kernel["kernel"] for kernel in table["kernels"]] for table in tables)):
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise Refused(f"{min(twice)}: stands there twice")
    return tables


def predicted(table):
    """[(published, predicted)], in microseconds."""
    return [(kernel["published_us"], kernel["predicted_us"]) for kernel in table["kernels"]
            if kernel["predicted_us"] is not None]


def error_percent(published, prediction):
    return 100 * abs(prediction - published) / published


def kendall_tau(pairs, apart=0.0):
    """Kendall's tau-b of (published, predicted); with `apart`, over those pairs alone whose
    published times differ by more than that share of the smaller one. None where it has no value."""
    agreement, untied_x, untied_y = 0, 0, 0
    for i, (x, y) in enumerate(pairs):
        for other_x, other_y in pairs[:i]:
            if apart and abs(x - other_x) <= apart * min(x, other_x):
                continue
            sign_x, sign_y = (x > other_x) - (x < other_x), (y > other_y) - (y < other_y)
            agreement += sign_x * sign_y
            untied_x += sign_x != 0
            untied_y += sign_y != 0
    return agreement / math.sqrt(untied_x * untied_y) if untied_x and untied_y else None


def written(tau):
    return "-" if tau is None else f"{tau:.2f}"


def summary(tables, half):
    """The lines about one half."""
    of = [table for table in tables if table["use"] == half]
    lines = [f"{half}: {len(of)} tables, {sum(len(table['kernels']) for table in of)} kernels",
             f"  {'table':38} {'gpu':10} {'kernels':>8} {'mean':>6} {'worst':>6} {'tau':>5} "
             f"{'>5%':>5}"]
    errors = []
    for table in of:
        pairs = predicted(table)
        count = f"{len(pairs)}/{len(table['kernels'])}"
        if not pairs:
            lines.append(f"  {table['name']:38} {table['gpu']:10} {count:>8}")
            continue
        own = [(error_percent(kernel["published_us"], kernel["predicted_us"]),
                f"{table['name']}, {kernel['kernel']}")
               for kernel in table["kernels"] if kernel["predicted_us"] is not None]
        errors += own
        mean = sum(error for error, _ in own) / len(own)
        lines.append(f"  {table['name']:38} {table['gpu']:10} {count:>8} {mean:5.1f}% "
                     f"{max(own)[0]:5.1f}% {written(kendall_tau(pairs)):>5} "
                     f"{written(kendall_tau(pairs, CLOSE)):>5}")
    if errors:
        worst, where = max(errors)
        lines.append(f"  all: mean {sum(error for error, _ in errors) / len(errors):.1f}%, worst "
                     f"{worst:.1f}% ({where})")
        within = [100 * sum(error <= most for error, _ in errors) / len(errors)
                  for most in (25, 40)]
        lines.append(f"  within 25%: {within[0]:.0f}% of them, within 40%: {within[1]:.0f}%")
    else:
        lines.append("  nothing is predicted")
    return lines


def not_predicted(tables):
    """The lines about kernels without a prediction: one for each table and reason."""
    lines = []
    for table in tables:
        by_reason = {}
        for kernel in table["kernels"]:
            if kernel["predicted_us"] is None:
                by_reason.setdefault(kernel["reason"], []).append(kernel["kernel"])
        for reason, names in by_reason.items():
            which = "all" if len(names) == len(table["kernels"]) else "; ".join(names)
            lines.append(f"  {table['name']}: {which}: {reason}")
    return ["not predicted:", *lines] if lines else []


def draw(stem, tables):
    plt = palette.plot()

    shapes = "os^Dv"
    shown = [table for table in tables if predicted(table)]
    fig, ax = plt.subplots(figsize=(9.4, 5.6))
    for i, table in enumerate(tables):
        if table not in shown:
            continue
        pairs = predicted(table)
        color = palette.CHAPTERS[i % len(palette.CHAPTERS)]
        ax.plot([x for x, _ in pairs], [y for _, y in pairs], linestyle="", markersize=6,
                marker=shapes[i // len(palette.CHAPTERS) % len(shapes)], color=color,
                markerfacecolor=color if table["use"] == "judging" else "none",
                label=f"{table['name']} ({table['gpu']})")
    both = [value for table in shown for pair in predicted(table) for value in pair]
    ends = [min(both) / 1.5, max(both) * 1.5]
    ax.plot(ends, ends, color=palette.INK, linewidth=1.2)
    for factor in (0.6, 1.4):
        ax.plot(ends, [end * factor for end in ends], color=palette.INK, linewidth=0.8,
                linestyle=":")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(*ends)
    ax.set_ylim(*ends)
    ax.set_xlabel("published time, µs")
    ax.set_ylabel("predicted time, µs")
    ax.set_title("Kernels of others: filled tables only judge, hollow ones tuned; dotted: ±40%")
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
    fig.tight_layout()
    palette.save(fig, stem)
    plt.close(fig)


def main():
    if len(sys.argv) not in (2, 3):
        print("usage: published.py PUBLISHED.json [STEM]", file=sys.stderr)
        return 2
    path, stem = sys.argv[1], sys.argv[2] if len(sys.argv) == 3 else None
    try:
        with open(path, encoding="utf-8") as file:
            tables = tables_of(json.load(file))
        if not any(predicted(table) for table in tables):
            kernels = sum(len(table["kernels"]) for table in tables)
            print(f"{path}: {len(tables)} tables, {kernels} kernels, nothing is predicted yet"
                  + ("; no picture" if stem else ""))
            return 0
        for half in HALVES:
            print("\n".join(summary(tables, half)))
        print("\n".join(not_predicted(tables)) or "every kernel is predicted")
        if stem:
            draw(stem, tables)
    except ImportError as missing:
        print(f"published: no picture: {missing}; on Debian or Ubuntu: apt-get install "
              "python3-matplotlib", file=sys.stderr)
        return 3
    except (Refused, OSError, json.JSONDecodeError, UnicodeDecodeError) as error:
        print(f"published: {'' if isinstance(error, OSError) else path + ': '}{error}",
              file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
