#!/usr/bin/env python3
"""Writes the numbers of the front page from result files: what each step bought, and where.

    front_page.py [--check] README.md FOLDER...     data/results/virtual_h200 and others

In rows of tables that begin `| 3 | [name](chapters/...) | what it is |` the fourth cell becomes
what the chapter itself bought: of attention its fastest step behind the fastest of the chapter before,
at the most tokens; of chapters with several steps of their own each of them in its order, since the
last beside the first would be the sum of different ideas. Of the virtual GPU that is the modelled limit, a lower bound, and no ratio
of such bounds is shown; of GPUs the time. The text between `<!-- devices:begin -->` and `<!-- devices:end -->` becomes the
list of devices.

Exit status: 0 written or up to date, 1 stale, 2 bad input.
"""
import argparse
import difflib
import glob
import os
import re
import sys

import results
from results import Refused

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                                "figures"))
import measured  # noqa: E402

ROW = re.compile(r"^(\| (\d+) \| \[[^\]]*\]\(chapters/[^)]*\) \| [^|\n]* \|)[^\n]*$", re.MULTILINE)
DEVICES = re.compile(r"(?<=^<!-- devices:begin -->\n).*?(?=^<!-- devices:end -->$)",
                     re.MULTILINE | re.DOTALL)


def micros(us):
    return f"{us:,.0f}" if us >= 100 else f"{us:.3g}"


def in_order(steps):
    """'a 26 → b 8 → c 9 µs': what each step gained over the one before."""
    return " → ".join(f"{step.name} {micros(step.us)}" for step in steps) + " µs"


def bought(folder):
    """{chapter: '1,236 → 298 µs'} of a folder of results; of GPUs' with the ratio."""
    chapters = measured.load(folder)
    found = {}
    for _, steps in measured.climbed(folder, chapters):
        before = None  # the fastest step of the chapter before
        for number in sorted({step.chapter for step in steps}):
            own = [step for step in steps if step.chapter == number]
            best = min(own, key=lambda step: step.us)
            if before:
                ratio = f", {before.us / best.us:.3g}×" if chapters[0].measured else ""
                found[number] = f"{micros(before.us)} → {micros(best.us)} µs{ratio}"
            else:
                found[number] = in_order(own) if len(own) > 1 else f"{micros(best.us)} µs"
            before = best
    return found


def cells(folders):
    """{chapter: the text of its fourth cell}; GPUs' times are in front of modelled limits."""
    texts = {}
    for folder in sorted(folders, key=lambda of: "virtual" in of):
        chapters = measured.load(folder)
        name = "" if not chapters[0].measured else chapters[0].device["name"] + ": "
        for number, text in bought(folder).items():
            texts.setdefault(number, []).append(name + text)
    return {number: "<br>".join(text) for number, text in texts.items()}


def devices(folders):
    """The table of measured GPUs, or that there is none."""
    rows = []
    for folder in folders:
        found = [results.read(os.path.join(folder, file)) for file in sorted(os.listdir(folder))
                 if re.fullmatch(r"chapter\d+\.json", file)]
        found = [result for result in found if not result["device"]["virtual"]]
        if not found:
            continue
        runs = [run for result in found for run in result["runs"]]
        first = found[0]
        rows.append(f"| {first['device']['name']} | {first['driver']} | {first['nvcc']} | "
                    f"{len(runs)} problems of {len(found)} chapters | "
                    f"{max(run['date'] for run in runs)[:10]} | [results]({folder}) |")
    if not rows:
        return ("No GPU has been measured yet: all numbers on this page are modelled limits of a "
                "virtual H200.\n`make bench` measures one, into `data/results`.\n")
    return "\n".join(["| device | driver | nvcc | measured | last | |", "|---|---|---|---|---|---|",
                      *rows]) + "\n"


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
    return DEVICES.sub(lambda _: devices(folders), new)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when stale")
    parser.add_argument("readme")
    parser.add_argument("folder", nargs="+", help="of results")
    options = parser.parse_args()
    try:
        with open(options.readme, encoding="utf-8") as file:
            text = file.read()
        new = refreshed(text, options.folder, os.path.dirname(os.path.abspath(options.readme)))
    except (OSError, KeyError, Refused) as error:
        words = f"no {error} in a result" if isinstance(error, KeyError) else error
        print(f"front_page: {options.readme}: {words}", file=sys.stderr)
        return 2
    if new == text:
        print(f"{options.readme}: numbers are up to date")
        return 0
    if options.check:
        print(f"{options.readme}: numbers are stale; `make docs` writes these:", file=sys.stderr)
        sys.stderr.writelines(line + "\n" for line in difflib.unified_diff(
            text.splitlines(), new.splitlines(), "README.md", "results", n=0, lineterm=""))
        return 1
    results.write(options.readme, new)
    print(f"{options.readme}: numbers written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
