#!/usr/bin/env python3
"""What lessons quote of predictions and other files of results do not hold, into quoted.json.

    quoted.py FOLDER RESULT.json...          writes FOLDER/quoted.json
    quoted.py --check FOLDER RESULT.json...  writes nothing, says what differs
    quoted.py --ptxas PATH ...               of which ptxas the predicted times are

RESULT.json is what a chapter's program writes with --predict --json, at the sizes of which a lesson's prose
speaks. Of each launch, and of each total of several, the file keeps the predicted time with its stated error
and the shares of stall reasons; where a line stands for launches alike, the time of one, and their number. Of
a launch it also keeps how busy each pipe is, how many instructions of machine code there are and how many of
them each pipe takes, and the modelled limits. Where a lesson speaks of source lines, it keeps the share of all
waiting at each line that has 2% of it or more. Such a line is named by its text without comment: its number
changes with every comment. Of a network's layers, chapter 20's, it keeps times and how each was computed.
Lessons' numbers come from this file (stated.py).

--check compares as gains.py does: 2% in times and bytes, 0.02 in shares, nothing where another ptxas made
the machine code.

Exit status: 0 written or the same, 1 something differs, 2 bad usage or input.
"""
import os
import re
import sys

import gains
import predictions
import reference
import results
from results import Refused

FILE = "quoted.json"
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
KEPT = ("us", "error", "issue_share", "stalls")
LEAST_SHARE = 0.02  # of all waiting, at a line that is kept
MADE, VARIANT = re.compile(r"^build/[^/]+/variants/([^/]+)/(\w+)\.cuh$"), r"chapters/\1/variants/\2.diff"
OF_LINES = ("03_coalescing", "14_hopper")  # chapters whose lessons say at which lines warps wait


def text_at(file, number):
    """The source line without blanks around it and without its comment, and which of several alike it is:
    '__syncthreads(); #2'. '' where there is none of that number."""
    if os.path.isabs(file):  # of another checkout, or a header of the toolkit
        return ""
    try:
        with open(os.path.join(ROOT, file), encoding="utf-8") as source:
            lines = [re.sub(r"\s*//.*", "", line).strip() for line in source]
    except OSError:
        return ""
    text = lines[number - 1] if 0 < number <= len(lines) else ""
    return f"{text} #{lines[:number].count(text)}" if lines.count(text) > 1 and text else text


def waits_at(predicted):
    """{'file: text of the line': share of all waiting}, the largest first."""
    found = {}
    for line in predicted.get("lines", ()):
        if text := text_at(line["file"], line["line"]):
            key = f"{MADE.sub(VARIANT, line['file'])}: {text}"
            found[key] = found.get(key, 0) + line["share"]
    return {key: round(share, 4) for key, share in sorted(found.items(), key=lambda of: -of[1])
            if share >= LEAST_SHARE}


def of_launch(counters, with_lines):
    """What is kept of a launch beside its predicted time."""
    predicted = counters["predicted"]
    return {"machine_instructions": predicted["machine_instructions"],
            "pipes": {name: {"instructions": of["instructions"], "share": round(of["share"], 4)}
                      for name, of in predicted["pipes"].items()},
            "limits": {name: {"us": us} for name, us in gains.limits_of(counters).items() if us},
            **({"waits_at": waits_at(predicted)} if with_lines else {})}


def lines_of(result):
    """A line for each launch and each total of a result, or for each layer of a network, in its order."""
    if "layers" in result:
        for layer in result["layers"]:
            if layer["predicted_us"] is None:
                raise Refused(f"{layer['name']}: no predicted time")
        return [{"name": layer["name"], "path": layer["path"], "us": layer["predicted_us"]}
                for layer in result["layers"]]
    lines = []
    for kernel, predicted in zip(result["kernels"], predictions.of_kernels(result)):
        if "us" not in predicted:
            raise Refused(f"{kernel['name']}: no predicted time: {predicted.get('why') or 'no reason given'}")
        lines.append({"name": kernel["name"], **({"launches": kernel["launches"]} if "launches" in kernel else {}),
                      **{name: predicted[name] for name in KEPT},
                      **(of_launch(kernel["counters"], result["chapter"] in OF_LINES)
                         if kernel.get("counters") else {})})
    return lines


def merge(paths, ptxas=None):
    """What quoted.json holds, of these results."""
    found = reference.sizes(paths, ptxas, lines_of)
    leaves(found)  # refuses what is there twice
    return found


def leaves(found):
    """{(run, line): {path: value}}. Lines of one name, as launches of several steps have, are counted."""
    flat = {}
    for run in found["runs"]:
        names = [line["name"] for line in run["lines"]]
        where = f"{run['chapter']} ({results.describe(run['problem'])}; {', '.join(dict.fromkeys(names))})"
        for i, line in enumerate(run["lines"]):
            key = (where, f"line {i + 1}, {line['name']}")
            if key in flat:
                raise Refused(f"{where}: is there twice")
            flat[key] = results.flat(line)
    return flat


def load(folder):
    """quoted.json of the folder, or None."""
    path = os.path.join(folder, FILE)
    return results.read(path) if os.path.exists(path) else None


def lines(folder, chapter, **problem):
    """{name: line} of the runs of a chapter at such a problem: of lines that have one name the last, which
    is a step's total. No lines where there is no such run."""
    found = load(folder) or {"runs": []}
    return {line["name"]: line for run in found["runs"] if results.number_of(run["chapter"]) == chapter and
            all(run["problem"].get(name) == value for name, value in problem.items())
            for line in run["lines"]}


def steps(folder, chapter, **problem):
    """{step: {launch: µs}} of the runs of a chapter at such a problem, of steps of several launches."""
    found, launches = {}, {}
    for run in (load(folder) or {"runs": []})["runs"]:
        if results.number_of(run["chapter"]) != chapter or \
                any(run["problem"].get(name) != value for name, value in problem.items()):
            continue
        for line in run["lines"]:
            if "pipes" in line:
                launches[line["name"]] = line["us"]
            else:
                found[line["name"]] = {**launches, "all": line["us"]}
                launches = {}
    return found


def check(folder, found):
    """Prints what differs. Returns the exit status."""
    return reference.check_file(os.path.join(folder, FILE), load(folder), found, leaves,
                                f"predicted times of {len(leaves(found))} lines are those of the file")


def write(folder, found):
    path = os.path.join(folder, FILE)
    results.write(path, results.text_of(found))
    print(f"{path}: written from {len(leaves(found))} lines")


if __name__ == "__main__":
    sys.exit(reference.main("quoted", __doc__.splitlines()[0], merge, check, write))
