"""The numbers of the front page, from folders of results: what each step bought, and where.

In rows of tables that begin `| 3 | [name](chapters/...) | what it is |` the fourth cell becomes
what the chapter itself bought: of attention its fastest step behind the fastest of the chapter before;
of chapters with several steps of their own each of them in its order, since the last beside the first
would be the sum of different ideas. Of the virtual GPU these are the predicted times in the folder's
gains.json, each with its modelled limit, and which steps do not pay. Without that file they are the
modelled limits alone, at the most tokens, and no ratio of such bounds is shown. Of GPUs it is the
time. A chapter whose steps are timed from the host's first call to its last wait has no limits: its times
are those of the folder's sweeps.json, at the largest batch. The text between `<!-- devices:begin -->` and `<!-- devices:end -->` becomes the
list of devices, then each GPU's times beside predictions, and beside those of libraries.
"""
import glob
import os
import re

import beside
import gain_tables
import gains
import measured
import predictions
import results
import sweeps
from predictions import micros, with_unit
from results import Refused


ROW = re.compile(r"^(\| (\d+) \| \[[^\]]*\]\(chapters/[^)]*\) \| [^|\n]* \|)[^\n]*$", re.MULTILINE)
DEVICES = re.compile(r"(?<=^<!-- devices:begin -->\n).*?(?=^<!-- devices:end -->$)",
                     re.MULTILINE | re.DOTALL)


def in_order(steps):
    """'a 26 → b 8 → c 9 µs': what each step gained over the one before."""
    return " → ".join(f"{step.name} {micros(step.us)}" for step in steps) + " µs"


def bought(folder):
    """{chapter: 'a 1,236 → b 298 µs'} of a folder of results; of GPUs' with the ratio."""
    chapters = measured.load(folder)
    found = {}
    for title, steps in measured.climbed(folder, chapters):
        on_gpu = chapters[0].measured
        problem = title.partition("\n")[2] + ": " if on_gpu and len({step.chapter for step in steps}) == 1 else ""
        before = None  # the fastest step of the chapter before
        for number in sorted({step.chapter for step in steps}):
            own = [step for step in steps if step.chapter == number]
            best = min(own, key=lambda step: step.us)
            if before:
                ratio = f", {predictions.times(before.us, best.us)}" if on_gpu else ""
                found[number] = in_order([before, best]) + ratio
            else:
                name = f"{best.name} " if problem else ""
                found[number] = problem + (in_order(own) if len(own) > 1 else f"{name}{micros(best.us)} µs")
            before = best
    return found


def with_bound(step):
    """'18.4 (limit 3.5)', of one step of gains.json."""
    us = gain_tables.us_of(step)
    return (micros(us) if us else "not predicted") + (f" (limit {micros(step['bound_us'])})" if step["bound"] else "")


def predicted_gain(before, after):
    """'a 298 → b 133 (limit 90) µs, 2.2 times as fast'."""
    us, was = gain_tables.us_of(after), before and gain_tables.us_of(before)
    if not was or not us:
        return f"{with_bound(after)} µs"
    return (f"{before['name']} {micros(was)} → {after['name']} {with_bound(after)} µs, "
            f"{predictions.times(was, us)}")


def predicted_steps(run, steps):
    """'local points ...: a 26 (limit 9) → b 8 (limit 5) µs; do not pay: c'."""
    text = " → ".join(f"{step['name']} {with_bound(step)}" for step in steps)
    lost = [step["name"] for step, _ in gain_tables.losing(steps)]
    verb = "does" if len(lost) == 1 else "do"
    return f"{gains.short(run)}: {text} µs" + (f"; {verb} not pay: {', '.join(lost)}" if lost else "")


def bought_by_prediction(found):
    """{chapter: text} of a gains.json."""
    texts = {}
    for run in found["runs"]:
        if run["title"] == gains.PROJECTION:  # a step that stands in the lesson, over many sizes
            continue
        for number in sorted({gain_tables.number(step) for step in run["steps"]}):
            steps, before = gain_tables.chosen(run, number, number)
            if run["title"] == gains.ATTENTION:
                text = predicted_gain(before, gain_tables.fastest(steps) or steps[-1])
            else:
                text = predicted_steps(run, steps)
            texts.setdefault(number, []).append(text)
    return {number: "<br>".join(text) for number, text in texts.items()}


def host_to_host(found):
    """{chapter: text} of a sweeps.json: of chapters of which some steps ran on a part, the run with the
    largest batch."""
    texts = {}
    for number in sorted({results.number_of(run["chapter"]) for run in found["runs"]}):
        runs = [run for run in sweeps.runs_of(found, number)
                if any("share_run" in line for line in run["lines"])]
        if not runs:
            continue
        run = max(runs, key=lambda run: (run["problem"]["batch"], -run["problem"]["height"]))
        problem = run["problem"]
        steps = [{"name": line["name"], "predicted": line} for line in run["lines"]]
        parts = [line["name"] for line in run["lines"] if "share_run" in line]
        lost = [step["name"] for step, _ in gain_tables.losing(steps)]
        verb = "does" if len(lost) == 1 else "do"
        texts[number] = (
            f"batch {problem['batch']}, {problem['height']} x {problem['width']} pixels, from the host's "
            "first call to its last wait: " +
            " → ".join(f"{line['name']} {with_unit(line['us'])}" for line in run["lines"]) +
            f" ({parts[0]} to {parts[-1]}: a part of the outputs ran, extended in a straight line)" +
            (f"; {verb} not pay: {', '.join(lost)}" if lost else ""))
    return texts


def cells(folders):
    """{chapter: the text of its fourth cell}; GPUs' times are in front of modelled limits."""
    texts = {}
    for folder in sorted(folders, key=lambda of: "virtual" in of):
        chapters = measured.load(folder)
        name = "" if not chapters[0].measured else chapters[0].device["name"] + ": "
        predicted = gains.load(folder) if name == "" else None
        found = bought(folder)
        if predicted:
            found = {**found, **bought_by_prediction(predicted)}
        swept = sweeps.load(folder) if name == "" else None
        if swept:
            found = {**found, **host_to_host(swept)}
        for number, text in found.items():
            by = "predicted: " if not name and number in texts else ""
            texts.setdefault(number, []).append(name + by + text)
    return {number: "<br>".join(text) for number, text in texts.items()}


def devices(folders, root):
    """The table of measured GPUs, or that there is none."""
    rows = []
    for folder in folders:
        found = [results.read(os.path.join(folder, file)) for file in sorted(os.listdir(folder))
                 if re.fullmatch(r"chapter\d+\.json", file)]
        found = [result for result in found if not result["device"]["virtual"]]
        if not found:
            continue
        runs = [run for result in found for run in result["runs"]]
        # A step alone, as beside its peers, is measured on a problem that all steps have, too.
        distinct = {(result["chapter"], results.describe(run["problem"])) for result in found for run in result["runs"]}
        first = found[0]
        rows.append(f"| {first['device']['name']} | {first['driver']} | {first['nvcc']} | "
                    f"{len(distinct)} problems of {len(found)} chapters | "
                    f"{max(run['date'] for run in runs)[:10]} | [results]({os.path.relpath(folder, root)}) |")
    if not rows:
        return ("No GPU has been measured yet: all numbers on this page are of a virtual H200, "
                f"{virtual_numbers(folders)}.\n`make bench` measures one, into `data/results`.\n")
    return "\n".join(["| device | driver | nvcc | measured | last | |", "|---|---|---|---|---|---|",
                      *rows, *predicted_beside(folders), *libraries_beside(folders)]) + "\n"


def predicted_beside(folders):
    """Lines that hold each GPU's times against the virtual H200's predictions, where it is an H200."""
    text = []
    for virtual in (of for of in folders if os.path.basename(of).startswith("virtual_")):
        found = gains.load(virtual)
        for folder in folders if found else []:
            device = os.path.basename(virtual).removeprefix("virtual_")
            if os.path.basename(folder) == f"nvidia_{device}":
                text += beside.lines(beside.pairs(virtual, folder), gains.error_of(found),
                                     measured.load(folder)[0].device["name"])
    return text


def compared(run):
    """What a run says of its fastest peer beside the chapter's fastest step, or None: both in CUDA graphs, unless
    a peer that no graph takes is faster."""
    stream, graph = run.get("best"), run.get("best_in_graphs")
    if stream and graph and stream["peer_us"] < graph["peer_us"]:
        in_graphs = {peer["name"] for peer in run["peers"] if "graph_us" in peer}
        return graph if stream["peer"] in in_graphs else stream
    return graph or stream


def libraries_beside(folders):
    """Lines that hold each GPU's times against those of libraries on the same problems."""
    text = []
    for folder in folders:
        found = [results.read(os.path.join(folder, file)) for file in os.listdir(folder)
                 if re.fullmatch(r"chapter\d+\.json", file)]
        rows = [(*library_row(results.number_of(result["chapter"]), run), run)
                for result in sorted(found, key=lambda of: results.number_of(of["chapter"]))
                for run in result["runs"] if compared(run)]
        if not rows:
            continue
        slower = [f"chapter {number}'s `{name}` ({ratio})" for number, name, *_, ratio, run in rows
                  if compared(run)["ratio"] < 1]
        text += ["", f"On {len(rows)} problems the chapter's fastest step was measured in turns with libraries. It is "
                 f"faster than the fastest of them on {len(rows) - len(slower)}" +
                 (f", slower on {', '.join(slower)}." if slower else "."), "",
                 f"<details><summary>Beside libraries on the {found[0]['device']['name']}</summary>", "",
                 "Both are replayed from a CUDA graph where that is possible. A ratio above 1: the step is faster." +
                 versions_of([run for *_, run in rows]), "",
                 "| chapter | problem | step | µs | library | µs | ratio |", "|---|---|---|--:|---|--:|--:|",
                 *("| " + " | ".join(cells_of) + " |" for *cells_of, _ in rows), "", "</details>"]
    return text


def versions_of(runs):
    """' PyTorch 2.11.0 with cuDNN 9.19.0.', or nothing where the runs do not say it alike."""
    found = {(of["versions"]["torch"], of["versions"]["cudnn"]) for of in runs if "versions" in of}
    return " PyTorch {} with cuDNN {}.".format(*found.pop()) if len(found) == 1 else ""


def library_row(number, run):
    """The cells of a run whose peers were measured."""
    of = compared(run)
    by = next(peer.get("by", "PyTorch") for peer in run["peers"] if peer["name"] == of["peer"])
    return (str(number), run["name"], of["kernel"], f"{of['kernel_us']:,.1f}", f"{by} {of['peer']}",
            f"{of['peer_us']:,.1f}", f"{of['ratio']:.2f}")


def virtual_numbers(folders):
    for folder in folders:
        found = gains.load(folder)
        if found and gains.error_of(found) is not None:
            return f"predicted ±{100 * gains.error_of(found):.0f}%"
    return "modelled limits"


def has_lesson(root, number):
    return bool(glob.glob(os.path.join(root, "chapters", f"{number:02}_*", "README.md")))


def refreshed(text, folders, root):
    """The page in `root` with the numbers of these results. Throws Refused where it lacks a row."""
    texts = cells(folders)

    def row(match):
        return f"{match[1]} {texts.get(int(match[2]), '')} |".replace("  |", " |")
    if not DEVICES.search(text):
        raise Refused("no lines '<!-- devices:begin -->' and '<!-- devices:end -->'")
    new = ROW.sub(row, text)
    listed = {int(match[2]) for match in ROW.finditer(text)}
    missing = sorted(number for number in set(texts) - listed if has_lesson(root, number))
    if missing:
        raise Refused(f"no row for chapter {missing[0]}: '| {missing[0]} | [name](chapters/...) | "
                      "what it is |'")
    return DEVICES.sub(lambda _: devices(folders, root), new)
