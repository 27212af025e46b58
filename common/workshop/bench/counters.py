#!/usr/bin/env python3
"""Limits and counters of all chapters on the virtual GPU: the reference, and what differs from it.

    counters.py FOLDER RESULT.json...          writes FOLDER/chapterN.json of each chapter
    counters.py --check FOLDER RESULT.json...  writes nothing, says what differs
    counters.py --ptxas PATH ...               of which ptxas the predicted times are

RESULT.json is what a chapter's program writes with --json on the virtual GPU. The reference keeps
what every machine gives again: no wall times, no host. What is 0 is left out, and counts as 0 when
compared. All counters are deterministic, so each must be equal: one that got worse fails with both
numbers, and so does one that got better, with the command that renews the reference.

Predicted times may differ by 2%, and the shares in which warps wait by 0.02: a table of the simulator
may have been refined. They follow from machine code, so they are compared only where the same ptxas
made it; otherwise one line says that they were not.

A kernel is known by chapter, problem and name. Worse is more requests, sectors, bytes, wavefronts,
conflicts, instructions, registers, memory or time (at the limit or predicted), and less occupancy; a
difference in anything else (grid, tensor multiply-adds, the limit's name) is no better and no worse.

Exit status: 0 written or the same, 1 something differs, 2 bad usage or input.
"""
import os
import sys

import predictions
import problems
import reference as references
import results
from results import Refused

# Of a kernel's counters. The rest are quotients of these, or name lines of source.
KEPT = ("kernel", "grid", "block", "blocks", "warps", "threads", "static_shared", "dynamic_shared",
        "registers", "local_bytes_per_thread", "warp_instructions", "thread_instructions",
        "classes", "global", "local", "copy_engine", "shared", "distributed_shared", "allocations",
        "dram_bytes", "tensor_macs", "async_copied_bytes", "occupancy", "limits",
        "limits_by_ptx", "limit")
QUOTIENTS = ("sectors_per_request", "ideal_sectors_per_request", "efficiency", "waves", "fraction")
SAME = ("name", "bytes", "flops", "scratch_bytes", "modelled_limit_us", "pass")
HEAD = ("chapter", "device", "nvcc")

LESS_IS_WORSE = ("blocks_per_sm", "warps_per_sm")
NEITHER = ("kernel", "grid", "block", "blocks", "warps", "threads", "ideal", "tensor_macs",
           "async_copied_bytes", "limiter", "name", "flops")


def kept(tree):
    """The tree without quotients and without what is 0, null or empty."""
    result = {}
    for name, value in tree.items():
        if name in QUOTIENTS:
            continue
        if isinstance(value, dict):
            value = kept(value)
        if value is False or value not in (0, None, "", {}, "not modelled", "unknown"):
            result[name] = value
    return result


def reference_of(result):
    """(what a reference says of the chapter, of this run of it)."""
    if not result.get("device", {}).get("virtual"):
        raise Refused("the result is not of the virtual GPU: it has no counters")
    kernels, own = [], problems.own_kernels(result)
    for kernel, predicted in zip(result["kernels"], predictions.of_kernels(result)):
        line = {name: kernel[name] for name in SAME if name in kernel}
        if kernel["name"] in own:
            lines = problems.kernel_lines(results.number_of(result["chapter"]), kernel["name"])
            line.update({"kernel_lines": lines} if lines else {})
        counters = kernel.get("counters", {})
        line.update(kept({name: counters[name] for name in KEPT if name in counters}))
        line.update(kept({"predicted": predicted}))
        kernels.append(line)
    return {name: result[name] for name in HEAD}, {"problem": result["problem"], "kernels": kernels}


def merge(paths, ptxas=None):
    """{chapter's number: reference} of the results, runs in their order."""
    chapters = {}
    for path in paths:
        try:
            head, run = reference_of(results.read(path))
            if ptxas:
                head["ptxas"] = ptxas
            number = results.number_of(head["chapter"])
        except KeyError as missing:
            raise Refused(f"{path}: no {missing} in it: not what ./run --json writes") from None
        except Refused as error:
            raise Refused(error if str(error).startswith(path) else f"{path}: {error}") from None
        reference = chapters.setdefault(number, {**head, "runs": []})
        if {name: reference[name] for name in head} != head:
            raise Refused(f"{path}: of another device or compiler than the chapter's other runs")
        reference["runs"].append(run)
    return chapters


def kernels_of(reference):
    """{(problem, kernel): {path of a counter: value}}; a name that comes twice gets a number."""
    found = {}
    for run in reference["runs"]:
        problem, names = results.describe(run["problem"]), {}
        for kernel in run["kernels"]:
            name = kernel["name"]
            names[name] = names.get(name, 0) + 1
            if names[name] > 1:
                name += f" #{names[name]}"
            key = (problem, name)
            if key in found:
                raise Refused(f"{reference['chapter']}: two runs of the problem {problem}")
            found[key] = results.flat(kernel)
            found[key].pop("kernel_lines", None)  # for pictures: a kernel may be written otherwise
    return found


def is_predicted(path):
    return path.startswith("predicted.")


def verdict(path, old, new):
    """'worse', 'better' or 'changed', of two unequal values."""
    if is_predicted(path) and not path.endswith("us"):
        return "changed"
    last = path.split(".")[-1]
    if path == "pass":
        return "better" if new else "worse"
    number = (int, float)
    if last in NEITHER or not isinstance(old, number) or not isinstance(new, number):
        return "changed"
    return "worse" if (new > old) != (last in LESS_IS_WORSE) else "better"


def equal(path, old, new):
    """Limits are computed, by another compiler perhaps with other roundings; predictions modelled."""
    if is_predicted(path):
        return references.same(path, old, new)
    if isinstance(old, float) and isinstance(new, (int, float)):
        return abs(old - new) <= 1e-9 * max(abs(old), abs(new))
    return old == new


def shown(value, digits=4):
    if isinstance(value, float) and value != int(value):
        return f"{value:.{digits}g}"
    return f"{int(value):,}" if isinstance(value, (int, float)) else str(value)


def change(old, new):
    """'17.7 -> 17.5'; with all digits where fewer look the same."""
    digits = 4 if shown(old) != shown(new) else 12
    return f"{shown(old, digits)} -> {shown(new, digits)}"


def differences(old, new, with_predicted):
    """[(verdict, line)] between two references of a chapter."""
    def same(path, x, y):
        return equal(path, x, y) or (is_predicted(path) and not with_predicted)
    lines = []
    for key, path, x, y in references.differences(kernels_of(old), kernels_of(new), same):
        where = f"{old['chapter']}: {key[1]} ({key[0]})"
        if path is None:
            words = "new, no reference" if y else "is in the reference, was not run"
            lines.append(("changed", f"{where}: {words}"))
            continue
        what = verdict(path, x, y)
        lines.append((what, f"{where}: {path}: {change(x, y)}, {what}"))
    return lines


def check(folder, chapters):
    """Prints what differs from the folder's files. Returns the exit status."""
    lines = []
    for number, new in sorted(chapters.items()):
        path = os.path.join(folder, f"chapter{number}.json")
        if not os.path.exists(path):
            lines.append(("changed", f"{new['chapter']}: no reference, {path}"))
            continue
        old = results.read(path)
        found = differences(old, new, references.of_same_ptxas(new["chapter"], old, new))
        if found and old["nvcc"] != new["nvcc"]:
            lines.append(("changed", f"{new['chapter']}: the reference is of nvcc {old['nvcc']}, "
                          f"this run of {new['nvcc']}: compilers differ in "
                          "registers and instructions"))
        lines += found
    count = sum(len(run["kernels"]) for of in chapters.values() for run in of["runs"])
    worse = sum(kind == "worse" for kind, _ in lines)
    return references.told(
        [line for what in ("worse", "changed", "better") for kind, line in lines if kind == what],
        folder, f"{worse} counters are worse than the reference, {len(lines) - worse} differ "
        "otherwise; if all of that is meant, renew it with",
        f"limits, predicted times and counters of {count} kernels are those of the reference")


def checked(paths, ptxas):
    """What merge() says, where each name stands for one kernel."""
    chapters = merge(paths, ptxas)
    for of in chapters.values():
        kernels_of(of)
    return chapters


def write(folder, chapters):
    for number, of in sorted(chapters.items()):
        path = os.path.join(folder, f"chapter{number}.json")
        results.write(path, results.text_of(of))
        print(f"{path}: written from {len(of['runs'])} runs")


if __name__ == "__main__":
    sys.exit(references.main("counters", __doc__.splitlines()[0], checked, check, write))
