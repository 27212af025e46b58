#!/usr/bin/env python3
"""Predicted times and planned memory over batch and size, on the virtual GPU, into sweeps.json.

    sweeps.py FOLDER RESULT.json...          writes FOLDER/sweeps.json
    sweeps.py --check FOLDER RESULT.json...  writes nothing, says what differs
    sweeps.py --ptxas PATH ...               of which ptxas the predicted times are

RESULT.json is what a chapter's program writes with --predict --json at one size. Of each line the file
keeps the predicted time of all its launches together, with its stated error, and the numbers that a
picture needs: bytes of memory, and the share of the work that ran. A share below 1 says that the time is
extended from that share in a straight line.

--check compares as gains.py does: 2% in times and bytes, nothing where another ptxas made the machine
code.

Exit status: 0 written or the same, 1 something differs, 2 bad usage or input.
"""
import os
import sys

import reference
import results
from results import Refused

FILE = "sweeps.json"
# Numbers of a line, beside its time.
KEPT = ("weights_bytes", "activations_bytes", "separate_bytes", "attention_bytes")


def line_of(kernel):
    """{name, us, error, ...} of a line of a result."""
    whole = "all_tokens_us" in kernel
    us = kernel["all_tokens_us" if whole else "predicted_us"]
    if us is None:
        raise Refused(f"{kernel['name']}: no predicted time: "
                      f"{kernel.get('predicted_why') or 'no reason given'}")
    line = {"name": kernel["name"], "us": us, "error": kernel["predicted_error"]}
    if whole and kernel["all_tokens_share_run"] < 1:
        line["share_run"] = kernel["all_tokens_share_run"]
    return {**line, **{name: kernel[name] for name in KEPT if name in kernel}}


def merge(paths, ptxas=None):
    """What sweeps.json holds, of these results."""
    return reference.sizes(paths, ptxas, lambda result: [line_of(kernel) for kernel in result["kernels"]])


def load(folder):
    """sweeps.json of the folder, or None. Throws Refused for what is none."""
    path = os.path.join(folder, FILE)
    if not os.path.exists(path):
        return None
    sweeps = results.read(path)
    try:
        for run in sweeps["runs"]:
            _ = run["chapter"], run["problem"], [(of["name"], of["us"]) for of in run["lines"]]
    except (KeyError, TypeError) as error:
        raise Refused(f"{path}: not what sweeps.py writes: {error!r}") from None
    return sweeps


def runs_of(sweeps, chapter):
    """The runs of the chapter of that number."""
    found = [run for run in sweeps["runs"] if results.number_of(run["chapter"]) == chapter]
    if not found:
        raise Refused(f"{FILE} has no run of chapter {chapter}; `{reference.RENEW}` writes it")
    return found


def leaves(sweeps):
    """{(run, line): {path: value}}"""
    found = {}
    for run in sweeps["runs"]:
        where = f"{run['chapter']} ({results.describe(run['problem'])})"
        for line in run["lines"]:
            key = (where, line["name"])
            if key in found:
                raise Refused(f"{where}: {line['name']} is there twice")
            found[key] = results.flat(line)
    return found


def check(folder, sweeps):
    """Prints what differs. Returns the exit status."""
    return reference.check_file(os.path.join(folder, FILE), load(folder), sweeps, leaves,
                                f"predicted times of {len(sweeps['runs'])} sizes are those of the file")


def checked(paths, ptxas):
    """What merge() says, where each name stands for one line."""
    sweeps = merge(paths, ptxas)
    leaves(sweeps)
    return sweeps


def write(folder, sweeps):
    path = os.path.join(folder, FILE)
    results.write(path, results.text_of(sweeps))
    print(f"{path}: written from {len(sweeps['runs'])} runs")


if __name__ == "__main__":
    sys.exit(reference.main("sweeps", __doc__.splitlines()[0], checked, check, write))
