#!/usr/bin/env python3
"""What the README of this folder says of the lists and of data/results/mutants.json, between two marks.

    report.py [--check]     a part of `make docs`; exit status 1: --check found it stale
"""
import collections
import json
import os
import sys

from lists import read_lists

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
README = os.path.join(HERE, "README.md")
RESULTS = os.path.join(ROOT, "data", "results", "mutants.json")
VERDICTS = {"killed": "killed", "survived": "survived", "equivalent": "equivalent", None: "not run"}

BEGIN, END = "<!-- mutants:begin -->\n", "<!-- mutants:end -->\n"


def percent(killed, survived):
    """Downwards: 100.0 is all of them."""
    return f"{1000 * killed // (killed + survived) / 10:.1f} %" if killed + survived else "-"


def part_of(entry):
    """common/vgpu/core/access.cpp: core; chapters/02_tiling/kernel.cuh: 02_tiling."""
    folders = entry["file"].split("/")
    return folders[1] if folders[0] == "chapters" else os.path.basename(os.path.dirname(entry["file"]))


def score_line(results):
    count = collections.Counter(entry["verdict"] for entry in results)
    return (f"{count['killed']} mutants killed, {count['survived']} survived, "
            f"{count['equivalent']} equivalent, {count['error']} errors: "
            f"{percent(count['killed'], count['survived'])}")


def with_unrun(listed, results):
    """Results of the mutants in the lists; one that has not been run has the verdict None."""
    of_id = {entry["id"]: entry for entry in results}
    return [of_id.get(mutant["id"]) or {"id": mutant["id"], "group": group, "file": mutant["file"],
                                        "verdict": "equivalent" if "equivalent" in mutant else None,
                                        "why": mutant.get("equivalent")} for group, mutant in listed]


def lines_of(results):
    """The generated part of the README."""
    results = sorted(results, key=lambda entry: (entry["group"], part_of(entry), entry["id"]))
    rows = collections.defaultdict(collections.Counter)
    for entry in results:
        for row in ((entry["group"], part_of(entry)), (entry["group"], "all")):
            rows[row][entry["verdict"]] += 1
    lines = [f"| | part | {' | '.join(VERDICTS.values())} | killed, of those run |", f"|---|---|{'--:|' * (len(VERDICTS) + 1)}"]
    for group in sorted({entry["group"] for entry in results}):
        parts = sorted(part for of, part in rows if of == group and part != "all")
        for part in [*parts, "all"]:
            count = rows[group, part]
            lines.append(f"| {group.replace('_', ' ')} | {part} | "
                         f"{' | '.join(str(count[verdict]) for verdict in VERDICTS)} "
                         f"| {percent(count['killed'], count['survived'])} |")
    for verdict, words in (("survived", "Survivors"), ("equivalent", "Equivalent"),
                           ("error", "Mistakes in the lists")):
        found = [entry for entry in results if entry["verdict"] == verdict]
        if found:
            lines += ["", f"{words}:", ""]
            lines += [f"- `{entry['id']}` in {entry['file']}" +
                      (f": {entry['why']}" if entry.get("why") else "") for entry in found]
    return lines


def refreshed(text, listed, results):
    """The README's text with the part between the marks as these lists and results have it."""
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    lines = lines_of(with_unrun(listed, results))
    return before + BEGIN + "\n" + "\n".join(lines) + "\n\n" + END + after


def refresh(path, listed, results, check=False):
    """Whether the README was as it must be. With check it is not written."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    new = refreshed(text, listed, results)
    if new != text and not check:
        with open(path, "w", encoding="utf-8") as file:
            file.write(new)
    return new == text


def main():
    check = sys.argv[1:] == ["--check"]
    with open(RESULTS, encoding="utf-8") as file:
        results = json.load(file)["mutants"]
    if not refresh(README, read_lists(ROOT), results, check) and check:
        print(f"{README}: the table is stale; `make docs` writes it", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
