#!/usr/bin/env python3
"""Draws what `make bench` found: ladder, speed-ups, roofline, memory, throughput by lines.

    measured.py FOLDER...      data/results/nvidia_h200, data/results/virtual_h200

reads FOLDER/chapterN.json (of the virtual GPU also ladder.json, which has more tokens, and gains.json,
larger problems, which its roofline shows) and writes FOLDER/ladder, roofline, and for the chapters of
each page speedup, memory and lines, as .svg, from nothing else: speedup_1-6 is of chapters 1
to 6. PAGES says which chapters share a page, so that each picture fits a screen. What was measured is
drawn full. Of the virtual GPU times are predicted: hollow, with a thin mark at the modelled limit, a
lower bound on the time. Where a step has no prediction, all steps beside it are drawn hollow at the
speed that the limit would allow, and the title says so. Of gains.json also waits is drawn, by pages:
why the warps of each step wait, in shares of their time. A GPU's times are of launches back to back. Beside
peers they are those replayed from a CUDA graph where they were, since a call of PyTorch costs the host more than
many kernels take.

Exit status: 0 drawn, 2 bad input, 3 no matplotlib.
"""
import dataclasses
import glob
import os
import sys
import textwrap

import palette
import beside
import gains
import labels
import ladder
import predictions
import problems
import results
from results import Refused


@dataclasses.dataclass
class Step:
    """A chapter's own step on one problem."""
    chapter: int
    name: str
    us: float
    measured: bool       # else us is predicted, or the modelled limit where `error` is 0
    flops: float
    dram_bytes: float    # of the launches, on the virtual GPU; else the least
    sectors: float       # loaded and stored, bulk copies' too; 0 where nobody counted
    memory_bytes: float  # arrays and scratch
    lines: int
    peer: bool = False   # PyTorch's, measured beside the chapter's
    error: float = 0     # of a predicted time, as a share of it
    limit_us: float = 0  # the modelled limit beside a predicted time
    stalls: dict = dataclasses.field(default_factory=dict)  # why its warps wait, in shares
    graph_us: float = 0  # a measured time, replayed from a CUDA graph where it was


@dataclasses.dataclass
class Chapter:
    number: int
    title: str
    problem: str
    device: dict
    measured: bool
    steps: list
    peers: list  # steps of others' on the same problem


def shared_tokens(contents):
    """The numbers of tokens that every chapter of attention ran with: bars side by side are of one
    problem."""
    of_chapters = [{run["problem"]["tokens"] for run in content["runs"]
                    if "tokens" in run["problem"]} for content in contents
                   if results.number_of(content["chapter"]) in problems.ATTENTION]
    return set.intersection(*[tokens for tokens in of_chapters if tokens] or [set()])


def foretold(folder):
    """{chapter: problems} of the predictions that stand beside this folder's times: those of virtual_h200."""
    found = gains.load(os.path.join(os.path.dirname(os.path.abspath(folder)), "virtual_h200"))
    problems_of = {}
    for run in found["runs"] if found else []:
        for step in run["steps"]:
            problems_of.setdefault(step["chapter"], []).append(run["problem"])
    return problems_of


def chosen(runs, shared=(), predicted=()):
    """The run that pictures show: of a problem in `predicted` where there is one; the largest attention, of
    the sizes in `shared` where there is one; else the first with the most steps."""
    return max(runs, key=lambda run: (any(beside.same_problem(of, run["problem"]) for of in predicted),
                                      run["problem"].get("tokens", 0) in shared,
                                      run["problem"].get("tokens", 0),
                                      sum("kernel_lines" in of for of in run.get("kernels", []))))


def steps_of(number, run, measured):
    steps, stages = [], []
    for kernel in run["kernels"]:
        counted = "global" in kernel
        # A line without counters, on the virtual GPU, is the total of the lines since the last one.
        parts = [kernel] if counted else stages
        # A limit that leaves out other blocks' shared memory is not to be compared with others.
        predicted = {} if measured else kernel.get("predicted", {})
        leaves_out = not measured and "us" not in predicted and "distributed_shared" in kernel \
            and "distributed shared memory" not in kernel.get("limits", {})
        limit = kernel.get("median_us" if measured else "modelled_limit_us")
        # A program of many launches, timed as a whole, is none to compare with kernels: no limit.
        if "kernel_lines" in kernel and not leaves_out and limit is not None:
            dram = sum(part.get("dram_bytes", 0) for part in parts)
            sectors = sum(of.get("sectors", 0) for part in parts for of in part["global"].values())
            sectors += sum(of.get("l2_sectors", 0) for part in parts
                           for of in part.get("copy_engine", {}).values())
            steps.append(Step(
                number, kernel["name"], predicted.get("us", limit), measured, kernel["flops"],
                dram or kernel["bytes"], sectors,
                kernel["bytes"] + (kernel.get("scratch_bytes") or 0), kernel["kernel_lines"],
                error=predicted.get("error", 0), limit_us=0 if measured else limit,
                graph_us=beside.measured_us(kernel) if measured else 0))
        stages = stages + [kernel] if counted else []
    return alike(steps)


def alike(steps):
    """All predicted, or all limits: one is not to be compared with the other."""
    if not all(step.error for step in steps):
        for step in steps:
            if not step.measured:
                step.us, step.error = step.limit_us, 0
    return steps


def climbed(folder, chapters):
    """The groups of ladders(); of the virtual GPU those of gains.json, at sizes that matter, or with
    attention at the most tokens where the folder has a ladder.json."""
    groups = ladders(chapters)
    if not chapters[0].measured and (found := gains.load(folder)):
        return [(f"{run['title']}\n{gains.short(run)}", alike(gained(run)))
                for run in found["runs"] if run["title"] != gains.PROJECTION]
    path = os.path.join(folder, "ladder.json")
    if chapters[0].measured or not os.path.exists(path):
        return groups
    run = chosen(results.read(path)["runs"])
    steps = alike([Step(results.number_of(step["chapter"]), step["name"],
                        step.get("predicted_us") or step["modelled_limit_us"], False,
                        step["flops"], step["bytes"], 0, step["bytes"], 1,
                        error=step.get("predicted_error") or 0,
                        limit_us=step["modelled_limit_us"]) for step in run["steps"]])
    return [(f"attention\n{results.describe(run['problem'])}", steps)] + \
        [group for group in groups if not group[0].startswith("attention\n")]


def gained(run):
    """The steps of a run of gains.json that have a predicted time or a limit."""
    return [gained_step(step) for step in run["steps"] if step["predicted"].get("us") or step["bound_us"]]


def gained_step(step):
    predicted = step["predicted"]
    return Step(results.number_of(step["chapter"]), step["name"],
                predicted.get("us", step["bound_us"]), False, step.get("flops", 0),
                predicted.get("dram_bytes", 0), 0, 0, 0,
                error=predicted.get("error", 0), limit_us=step["bound_us"],
                stalls=predicted.get("stalls", {}))


def load(folder):
    """The chapters of a result folder, in order. Throws Refused for what is no result file."""
    found = []
    files = {path: results.read(path) for path in glob.glob(os.path.join(folder, "chapter*.json"))}
    shared, predicted = None, foretold(folder)
    for path, content in files.items():
        try:
            if shared is None:
                shared = shared_tokens(files.values())
            measured = not content["device"]["virtual"]
            number = results.number_of(content["chapter"])
            run = chosen(content["runs"], shared, predicted.get(content["chapter"], ()) if measured else ())
            title = content["chapter"].split("_", 1)[1].replace("_", " ")
            # Precision and storage stand in the steps' names.
            problem = results.describe({name: value for name, value in run["problem"].items()
                                        if name not in ("precision", "storage", "preset")})
            if measured:  # at sizes that gains.json has, too: in its words
                problem = gains.short({"title": title, "problem": run["problem"]})
            found.append(Chapter(number, title, problem, content["device"],
                                 measured, steps_of(number, run, measured),
                                 peers_of(number, run, content["runs"])))
        except (KeyError, ValueError, TypeError) as error:
            raise Refused(f"{path}: not a result of make bench: {error!r}") from None
    if not found:
        raise Refused(f"{folder}: no chapterN.json in it")
    return sorted((chapter for chapter in found if chapter.steps), key=lambda of: of.number)


def peers_of(number, run, runs):
    """The peers measured with the run; else with one of its steps alone, where one other run of the problem has any.
    (Several such runs are of several results, such as a forward and a backward pass.)"""
    found = [run] if run.get("peers") else [of for of in runs if of.get("peers") and of["problem"] == run["problem"]]
    return [Step(number, f"{row.get('by', 'PyTorch')} {row['name']}", row["median_us"], True, 0, 0, 0, 0, 0, True,
                 graph_us=beside.measured_us(row))
            for row in (found[0]["peers"] if len(found) == 1 else ()) if "median_us" in row]


def ladder_of(folder):
    """What ladder.py draws: each step of attention over the tokens. None where there is none."""
    path = os.path.join(folder, "ladder.json")
    if os.path.exists(path):
        return results.read(path)
    by_tokens, device = {}, None
    for path in sorted(glob.glob(os.path.join(folder, "chapter*.json"))):
        content = results.read(path)
        if results.number_of(content["chapter"]) not in problems.ATTENTION:
            continue
        for run in content["runs"]:
            if content["device"]["virtual"] or "tokens" not in run["problem"]:
                continue
            device = content["device"]
            at = by_tokens.setdefault(run["problem"]["tokens"], {"problem": run["problem"],
                                                                 "steps": []})
            at["steps"] += [{"chapter": content["chapter"], "name": kernel["name"],
                             "median_us": kernel["median_us"]}
                            for kernel in run["kernels"] if "kernel_lines" in kernel]
    # A step that was not measured at all tokens has no line.
    runs = [by_tokens[tokens] for tokens in sorted(by_tokens)]
    known = [{(step["chapter"], step["name"]) for step in run["steps"]} for run in runs]
    for run in runs:
        run["steps"] = [step for step in run["steps"]
                        if all((step["chapter"], step["name"]) in of for of in known)]
    return {"device": device, "runs": runs} if len(runs) > 1 and runs[0]["steps"] else None


# The first and the last chapter of each page; a chapter behind them has one of its own.
PAGES = ((0, 0), (1, 6), (7, 7), (8, 8), (9, 12), (13, 15), (16, 16))


def page_of(number):
    """The first and the last chapter of the page that this chapter is on."""
    return next(((first, last) for first, last in PAGES if first <= number <= last), (number, number))


def paged(groups):
    """{'1-6': groups}: the steps of each page's chapters. A group that goes on from an earlier page
    begins with the fastest step of its last chapter there, which the others are compared with."""
    found = {}
    for first, last in sorted({page_of(step.chapter) for step in steps_in(groups)}):
        name = str(first) if first == last else f"{first}-{last}"
        for title, steps in groups:
            here = [step for step in steps if first <= step.chapter <= last]
            earlier = [step for step in steps if step.chapter < first]
            if here and earlier:
                previous = max(step.chapter for step in earlier)
                here.insert(0, min((step for step in earlier if step.chapter == previous),
                                   key=lambda step: step.us))
            if here:
                found.setdefault(name, []).append((title, here))
    return found


def ladders(chapters):
    """[(title, steps)]: attention's steps through its chapters, and each other chapter's own."""
    attention = [chapter for chapter in chapters if chapter.number in problems.ATTENTION]
    groups = []
    if attention:
        groups.append((f"attention\n{attention[0].problem}",
                       [step for chapter in attention for step in chapter.steps]))
    groups += [(f"{chapter.title}\n{chapter.problem}", chapter.steps)
               for chapter in chapters if chapter not in attention]
    return groups


def name_of(step):
    """"7  shared"; of a net, whose name is a list of choices, the last of them."""
    if step.peer:
        return step.name
    short = step.name if len(step.name) <= 20 else "…, " + step.name.split(", ")[-1]
    return f"{step.chapter}  {short if ', ' in step.name else step.name}"


def time_of(us):
    return f"{us:,.0f} µs" if us >= 100 else f"{us:.3g} µs"


def error_in(steps):
    """'predicted ±25%', or nothing where one step is no prediction."""
    steps = [step for step in steps if not step.peer]
    if not steps or not all(step.error for step in steps):
        return ""
    return f"predicted ±{100 * max(step.error for step in steps):.0f}%"


def device_of(chapters, steps=None):
    """The picture's title: the device, and what its numbers are."""
    name = chapters[0].device["name"]
    if chapters[0].measured:
        return name
    said = error_in(steps if steps is not None else
                    [step for chapter in chapters for step in chapter.steps])
    return f"Virtual {name}, " + (f"{said}, hollow; thin marks: modelled limits" if said
                                  else "modelled limits, hollow")


def steps_in(groups):
    return [step for _, steps in groups for step in steps]


def in_a_line(title, most=84):
    """What a group computes, and its problem; in lines of at most so many letters where one would be longer
    than the picture."""
    if len(title) <= most:
        return title.replace("\n", ", ")
    return "\n".join(textwrap.fill(line, most, break_long_words=False) for line in title.splitlines())


def bars(ax, steps, values, texts, marks=()):
    """A bar a step, downwards, its text behind it; hollow where nothing was measured, `marks` thin lines
    across it. Log scale from the least on."""
    ax.texts_and_marks = []  # for titled()
    for i, mark in enumerate(marks):
        if mark:
            ax.plot([mark, mark], [i - 0.4, i + 0.4], color=palette.INK, linewidth=1.1)
    for i, (step, value, text) in enumerate(zip(steps, values, texts)):
        color = palette.INK if step.peer else palette.of_chapter(step.chapter)
        ax.barh(i, value, height=0.62, color=color if step.measured else color + "26",
                edgecolor=color, linewidth=1.4)
        behind = ax.annotate(text, (value, i), xytext=(5, 0), textcoords="offset points", va="center",
                             fontsize=8.5)
        ax.texts_and_marks.append((behind, marks[i] if marks else None))
    ax.set_yticks(range(len(steps)), [name_of(step) for step in steps])
    ax.set_ylim(len(steps) - 0.4, -0.6)
    ax.grid(False, axis="y")


def clear_of_marks(ax):
    """Moves a bar's text behind the bar's mark where the mark would go through it."""
    renderer = ax.figure.canvas.get_renderer()
    for text, mark in getattr(ax, "texts_and_marks", ()):
        box = text.get_window_extent(renderer)
        at = ax.transData.transform((mark, text.xy[1]))[0] if mark else box.x0 - labels.GAP
        if box.x0 - labels.GAP < at < box.x1 + labels.GAP:
            text.xy = mark, text.xy[1]


def titled(fig, text, below=0):
    """A title above all panels, however tall the picture is; `below`: inches kept free at its foot."""
    height = fig.get_figheight()
    fig.suptitle(text, x=0.01, y=1 - 0.06 / height, ha="left", va="top", fontsize=10)
    fig.tight_layout(rect=(0, below / height, 1, 1))
    for ax in fig.axes:
        clear_of_marks(ax)


PANEL_INCHES, BAR_INCHES = 0.74, 0.3  # a panel's title and axis; each of its bars


def panels(plt, groups, columns=1, width=8.4, below=0.0, panel=PANEL_INCHES):
    """A picture with a row of axes for each group, as tall as its bars need; `below`: inches for a
    legend at the foot."""
    return plt.subplots(len(groups), columns, squeeze=False, figsize=(
        width, 0.75 + below + sum(BAR_INCHES * len(steps) + panel for _, steps in groups)),
        gridspec_kw={"height_ratios": [len(steps) + 1.2 for _, steps in groups]})


def beside_peers(title, steps, peers):
    """A group with its peers, all with their times in CUDA graphs; without peers as it is."""
    if not peers:
        return title, steps
    return f"{title}, in CUDA graphs", [dataclasses.replace(step, us=step.graph_us) for step in steps + peers]


def draw_speedup(plt, chapters, groups):
    from matplotlib import ticker
    peers = {chapter.number: chapter.peers for chapter in chapters}
    shown = [beside_peers(title, steps, peers.get(steps[-1].chapter, [])) for title, steps in groups]
    shown = [of for of in shown if len(of[1]) > 1] or shown  # one bar is compared with nothing
    fig, axes = panels(plt, shown)
    for ax, (title, steps) in zip(axes[:, 0], shown):
        factors = [steps[0].us / step.us for step in steps]
        marks = [steps[0].us / step.limit_us if step.error and step.limit_us else None for step in steps]
        texts = [f"{factor:.3g}×, {time_of(step.us)}" for factor, step in zip(factors, steps)]
        bars(ax, steps, factors, texts, marks)
        ax.set_xscale("log")
        ax.set_xlim(min(factors) * 0.8, max(factors + [mark for mark in marks if mark]) * 3.2)
        ax.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        ax.xaxis.set_major_formatter(lambda x, _: f"{x:g}×")
        ax.xaxis.set_minor_formatter(ticker.NullFormatter())
        ax.set_title(in_a_line(title), fontsize=9)
    said = device_of(chapters, steps_in(groups))
    axes[-1, 0].set_xlabel("times as fast as the first step" if "limits, hollow" not in said else
                           "ratio of the first step's limit to the step's")
    titled(fig, said)
    return fig


def sized(chapters, folder):
    """(steps, the problems in words): of the virtual GPU those of gains.json that know their bytes,
    of each title the run with the most of them; else those of the chapters. A table over sizes is no
    ladder and is left out."""
    found = None if chapters[0].measured else gains.load(folder)
    chosen_runs = {}
    for run in found["runs"] if found else []:
        if run["title"] == gains.PROJECTION:
            continue
        steps = [step for step in alike(gained(run))
                 if step.flops and step.dram_bytes]
        if len(steps) > len(chosen_runs.get(run["title"], ([], ""))[0]):
            chosen_runs[run["title"]] = steps, f"{run['title']}: {gains.short(run)}"
    steps = alike([step for steps, _ in chosen_runs.values() for step in steps])
    if steps:
        return steps, "\n".join(words for _, words in chosen_runs.values())
    return [step for chapter in chapters for step in chapter.steps if step.flops], ""


def draw_roofline(plt, chapters, folder):
    device = chapters[0].device
    dram = device["dram_bytes_per_s"] / 1e12
    peaks = [("fp32", device["fp32_flop_per_s"] / 1e12),
             ("tensor cores, fp16", device["tensor_flop_per_s"] / 1e12)]
    steps, problems = sized(chapters, folder)
    xs = [step.flops / step.dram_bytes for step in steps]
    ys = [step.flops / step.us / 1e6 for step in steps]
    left = min(min(xs) / 2.5, peaks[0][1] / dram / 5)
    right = max(max(xs) * 2.5, peaks[1][1] / dram * 2.2)
    fig, ax = plt.subplots(figsize=(8.4, 5.4 if len(steps) <= 40 else 7.6))
    ax.plot([left, peaks[1][1] / dram], [left * dram, peaks[1][1]], color=palette.INK,
            linewidth=1.6)
    for name, peak in peaks:
        ax.plot([peak / dram, right], [peak, peak], color=palette.INK, linewidth=1.6)
        ax.annotate(f"{name}, {peak:,.0f} TFLOP/s", (peak / dram, peak), xytext=(-2, 5), ha="right",
                    textcoords="offset points", fontsize=8.5)
    corner = left * 1.25
    ax.annotate(f"DRAM, {dram:.3g} TB/s", (corner, corner * dram), xytext=(12, -3), fontsize=8.5,
                textcoords="offset points", va="top")
    marks = []  # what no label may cover
    for x, y, step in zip(xs, ys, steps):
        color = palette.of_chapter(step.chapter)
        ax.plot([x], [y], marker="o", markersize=8, markeredgewidth=1.8, markeredgecolor=color,
                markerfacecolor=color if step.measured else "none", linestyle="none", zorder=3)
        if step.error:
            limit = step.flops / step.limit_us / 1e6
            marks += ax.plot([x], [limit], marker="_", markersize=9, markeredgewidth=1.1,
                             markeredgecolor=color, linestyle="none")
            ax.plot([x, x], [y, limit], color=color, linewidth=0.5, linestyle=":")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(left, right)
    ax.set_ylim(min(ys + [left * dram]) / 2, peaks[1][1] * 2)
    ax.set_xlabel("FLOP for each byte that must move to or from DRAM" if chapters[0].measured else
                  "FLOP for each byte moved to or from DRAM")
    said = device_of(chapters, steps)
    ax.set_ylabel("TFLOP/s at the modelled limit, hollow: an upper bound" if "limits, hollow" in said
                  else "TFLOP/s" if chapters[0].measured else "TFLOP/s, predicted")
    ax.set_title(said)
    if problems:
        ax.annotate(problems, (1, 0), xycoords="axes fraction", xytext=(-6, 6), ha="right",
                    va="bottom", textcoords="offset points", fontsize=8)
    fig.tight_layout()
    labels.place(ax, [(x, y, name_of(step), palette.of_chapter(step.chapter))
                      for x, y, step in zip(xs, ys, steps)], [*marks, *ax.texts])
    return fig


def draw_memory(plt, chapters, groups):
    counted = any(step.sectors for step in steps_in(groups))  # on the virtual GPU
    fig, axes = panels(plt, groups, columns=2, width=9.4) if counted else panels(plt, groups)
    for row, (title, steps) in zip(axes, groups):
        memory = [step.memory_bytes / 2 ** 20 for step in steps]
        bars(row[0], steps, memory, [f"{value:.3g}" for value in memory])
        row[0].set_xlim(0, 1.25 * max(memory))
        row[0].set_title(in_a_line(title), fontsize=9)
        if not counted:
            continue
        sectors = [step.sectors for step in steps]
        bars(row[1], steps, sectors, [f"{value:,.0f}" for value in sectors])
        row[1].set_yticks([])
        row[1].set_xscale("log")
        row[1].set_xlim(min(sectors) / 3, max(sectors) * 12)
    axes[-1, 0].set_xlabel("device memory in use, MiB")
    if counted:
        axes[-1, 1].set_xlabel("transactions: sectors of 32 bytes, loaded and stored")
    titled(fig, chapters[0].device["name"] if chapters[0].measured else
           f"Virtual {chapters[0].device['name']}, counted")
    return fig


def draw_lines(plt, chapters, groups):
    """None without a step that computes with floating-point numbers: chapter 0's have whole ones."""
    groups = [(title, steps) for title, steps in groups if any(step.flops for step in steps)]
    if not groups:
        return None
    fig, axes = panels(plt, groups)
    for ax, (title, steps) in zip(axes[:, 0], groups):
        values = [step.flops / step.us / 1e3 / step.lines for step in steps]
        marks = [step.flops / step.limit_us / 1e3 / step.lines if step.error else None
                 for step in steps]
        bars(ax, steps, values, [(f"{value:,.0f}" if value >= 100 else f"{value:.3g}") + f" from {step.lines} lines"
                                 for value, step in zip(values, steps)], marks)
        ax.set_xlim(0, 1.35 * max(values + [mark for mark in marks if mark]))
        ax.set_title(in_a_line(title), fontsize=9)
    said = device_of(chapters, steps_in(groups))
    axes[-1, 0].set_xlabel("GFLOP/s" + (" at the modelled limit" if "limits, hollow" in said else "") +
                           " for each line of kernel code (no comments, no blanks)")
    titled(fig, said)
    return fig


# The colours in which reasons are stacked, arithmetic's beside each other, then memory's.
REASON_COLORS = {
    "selected": palette.INK, "not_selected": palette.INK + "80", "wait": palette.CHAPTERS[5],
    "math_pipe_throttle": palette.CHAPTERS[6], "short_scoreboard": palette.CHAPTERS[2],
    "mio_throttle": palette.CHAPTERS[1], "long_scoreboard": palette.CHAPTERS[0],
    "lg_throttle": palette.CHAPTERS[7], "barrier": palette.CHAPTERS[3],
    "branch_resolving": palette.CHAPTERS[4], "no_instructions": palette.CHAPTERS[4] + "70"}


def stacked(stalls):
    """[(Nsight's name, share)] in the order in which they are stacked; what is left is 'other'."""
    parts = [(name, stalls.get(name, 0)) for name in REASON_COLORS]
    return parts + [("other", max(0.0, sum(stalls.values()) - sum(share for _, share in parts)))]


def draw_waits(plt, chapters, groups):
    """Why warps wait, of the steps of gains.json; None where no step says it."""
    groups = [(title, shown) for title, steps in groups
              if (shown := [step for step in steps if step.stalls])]
    if not groups:
        return None
    fig, axes = panels(plt, groups, below=1.3, panel=0.52)
    used = {}
    for ax, (title, steps) in zip(axes[:, 0], groups):
        for i, step in enumerate(steps):
            start = 0.0
            for name, share in stacked(step.stalls):
                color = REASON_COLORS.get(name, palette.INK + "30")
                bar = ax.barh(i, 100 * share, left=start, height=0.66, color=color, linewidth=0)
                start += 100 * share
                if share >= 0.005:
                    used.setdefault(name, bar)
        ax.set_yticks(range(len(steps)), [name_of(step) for step in steps])
        ax.set_ylim(len(steps) - 0.4, -0.6)
        ax.set_xlim(0, 100)
        ax.tick_params(labelbottom=ax is axes[-1, 0])
        ax.grid(False, axis="y")
        ax.set_title(in_a_line(title), fontsize=9)
    axes[-1, 0].set_xlabel("share of the warps' time in which they issue or wait, %")
    names = [name for name in (*REASON_COLORS, "other") if name in used]
    fig.legend([used[name] for name in names],
               [f"{name}: {predictions.REASONS[name]}" if name in predictions.REASONS else name
                for name in names], loc="lower center", ncols=2, fontsize=8)
    said = error_in(steps_in(groups))
    titled(fig, f"Virtual {chapters[0].device['name']}: why warps wait, simulated" +
           (f" (times {said})" if said else ""), below=0.2 + 0.19 * ((len(names) + 1) // 2))
    return fig


# Drawn for each page, from the groups of chapters' own runs or of runs at sizes that matter.
OF_CHAPTERS = {"memory": draw_memory, "lines": draw_lines}
OF_SIZES = {"speedup": draw_speedup, "waits": draw_waits}


def pictures(plt, chapters, folder):
    """(name, figure) of each picture of a folder but the ladder's, one at a time."""
    yield "roofline", draw_roofline(plt, chapters, folder)
    for drawn, groups in ((OF_CHAPTERS, ladders(chapters)), (OF_SIZES, climbed(folder, chapters))):
        for page, shown in paged(groups).items():
            for name, draw in drawn.items():
                if (fig := draw(plt, chapters, shown)) is not None:
                    yield f"{name}_{page}", fig


def main():
    if len(sys.argv) < 2:
        print("usage: measured.py FOLDER...", file=sys.stderr)
        return 2
    try:
        plt = palette.plot()
        for folder in sys.argv[1:]:
            chapters = load(folder)
            if over_tokens := ladder_of(folder):
                ladder.draw(os.path.join(folder, "ladder"), over_tokens)
            for name, fig in pictures(plt, chapters, folder):
                palette.save(fig, os.path.join(folder, name))
                plt.close(fig)
    except ImportError as missing:
        print(f"measured: no pictures: {missing}; on Debian or Ubuntu: apt-get install "
              "python3-matplotlib", file=sys.stderr)
        return 3
    except Refused as error:
        print(f"measured: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
