"""Predicted times of gains.json beside the times of a GPU, where both have the same problem."""
import collections
import os
import re

import gains
import results

# Of a problem, what changes no time.
NAMES = ("source", "seed", "preset", "scale")


def same_problem(ours, theirs):
    """Whether what both say of the problem is the same. Several precisions of one run are a list."""
    for name in set(ours) & set(theirs) - set(NAMES):
        if ours[name] != theirs[name] and not (
                name == "precision" and str(theirs[name]) in str(ours[name]).split(",")):
            return False
    return True


def measured_us(kernel):
    """As predictions have it: without the host's pace, where it was replayed from a CUDA graph."""
    return kernel.get("graph_us") or kernel["median_us"]


def pairs(virtual, gpu):
    """[(chapter, step, predicted us, measured us, problem)] of two folders, in the order of gains.json; of a
    step that was measured several times on a problem the first. The problem is in words where the step has
    several, else empty."""
    found = gains.load(virtual)
    times = {}  # chapter: [(problem, {step: us})]
    for file in os.listdir(gpu):
        if re.fullmatch(r"chapter\d+\.json", file):
            content = results.read(os.path.join(gpu, file))
            times[content["chapter"]] = [
                (run["problem"], {kernel["name"]: measured_us(kernel) for kernel in run["kernels"]})
                for run in content["runs"]]
    rows = []
    for run in found["runs"] if found else []:
        for step in run["steps"]:
            us = step["predicted"].get("us")
            there = [of[step["name"]] for problem, of in times.get(step["chapter"], [])
                     if step["name"] in of and same_problem(run["problem"], problem)]
            if us and there:
                rows.append((step["chapter"], step["name"], us, there[0], gains.short(run)))
    several = collections.Counter(row[:2] for row in rows)
    return [(*row[:4], row[4] if several[row[:2]] > 1 else "") for row in rows]


def error_of(row):
    _, _, predicted, measured, _ = row
    return predicted / measured - 1


def cells(row):
    chapter, step, predicted, measured, problem = row
    return (str(results.number_of(chapter)), f"{step} ({problem})" if problem else step, f"{predicted:,.1f}", f"{measured:,.1f}", f"{100 * error_of(row):+.0f}%")


def lines(rows, stated, device):
    """For people: how far off predictions are, and each of them."""
    if not rows:
        return []
    errors = [abs(error_of(row)) for row in rows]
    beyond = [cells(row) for row in rows if abs(error_of(row)) > stated]
    text = (f"{len(rows)} steps were measured on the problem for which they were predicted. The prediction is off by "
            f"{100 * sum(errors) / len(rows):.0f}% on average, and by no more than {100 * stated:.0f}% for "
            f"{len(rows) - len(beyond)}.")
    if beyond:
        text += " Further off are " + ", ".join(
            f"{step} of chapter {chapter} ({error})" for chapter, step, _, _, error in beyond) + "."
    return ["", text, "",
            f"<details><summary>Predicted and measured on the {device}, step by step</summary>", "",
            "Where a launch was also timed in a CUDA graph, its time is that one: it leaves out what the host takes, as "
            "predictions do.", "",
            "| chapter | step | predicted, µs | measured, µs | difference |", "|---|---|--:|--:|--:|",
            *("| " + " | ".join(cells(row)) + " |" for row in rows), "", "</details>"]
