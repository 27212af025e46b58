#!/usr/bin/env python3
"""Makes the files that students fill in from our solutions: exercise.cuh from solution.cuh, task2.cuh from
solution2.cuh.

    starters.py [--check] solution.cuh...

A solution says what its starter has instead:

    // STARTER
    //| // HOLE 1: which row of Q belongs to this score?
    //| const int64_t query_row = 0;
    // SOLUTION
    const int64_t query_row = index / keys;
    // END

The starter has the lines behind //|, indented as the markers are, and all lines outside such blocks, but
never two blank ones. Either part of a block may be missing.

A starter that a student has edited is never overwritten: one that differs from what is committed is left
alone, and the script says so. Delete it to have it made again.

Exit status: 0 written or up to date, 1 --check found one that differs, 2 bad input.
"""
import argparse
import difflib
import os
import re
import subprocess
import sys

NAMES = {"solution.cuh": "exercise.cuh", "solution2.cuh": "task2.cuh"}
MARKER = re.compile(r"( *)// (STARTER|SOLUTION|END)")
KEPT = re.compile(r"( *)//\|(?: (.*))?")


class Refused(Exception):
    """Bad input, in words."""


def starter_of(solution):
    """The starter's text. Throws Refused where the blocks are not as above."""
    lines, part, indent = [], None, ""
    for number, line in enumerate(solution.splitlines(), 1):
        marker, kept = MARKER.fullmatch(line), KEPT.fullmatch(line)
        if marker:
            allowed = {"STARTER": (None,), "SOLUTION": (None, "STARTER"), "END": ("STARTER", "SOLUTION")}
            if part not in allowed[marker[2]]:
                raise Refused(f"line {number}: '// {marker[2]}' {f'behind // {part}' if part else 'alone'}")
            part, indent = (None if marker[2] == "END" else marker[2]), marker[1]
        elif part == "STARTER":
            if not kept:
                raise Refused(f"line {number}: between // STARTER and // SOLUTION each line begins with //|")
            lines.append((indent + kept[2]) if kept[2] else "")
        elif kept:
            raise Refused(f"line {number}: '//|' stands behind // STARTER only")
        elif part is None:
            lines.append(line)
    if part:
        raise Refused(f"'// {part}' has no // END")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)) + "\n"


def is_committed(path, text):
    """Whether the text is what is committed of the file."""
    folder, name = os.path.split(os.path.abspath(path))
    done = subprocess.run(["git", "-C", folder, "show", f"HEAD:./{name}"], capture_output=True, check=False)
    return done.returncode == 0 and done.stdout == text.encode()


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def refresh(path, check):
    """Returns the exit status."""
    folder, name = os.path.split(path)
    if name not in NAMES:
        raise Refused(f"is none of {', '.join(NAMES)}")
    starter = os.path.join(folder, NAMES[name])
    new = starter_of(read(path))
    old = read(starter) if os.path.exists(starter) else None
    if old == new:
        return 0
    if check:
        print(f"{starter}: is not what {name} says; `make starters` writes these lines:", file=sys.stderr)
        sys.stderr.writelines(line + "\n" for line in difflib.unified_diff(
            (old or "").splitlines(), new.splitlines(), NAMES[name], name, n=0, lineterm=""))
        return 1
    if old is not None and not is_committed(starter, old):
        print(f"{starter}: has been edited and is left alone; delete it to have it made again")
        return 0
    with open(starter, "w", encoding="utf-8") as file:
        file.write(new)
    print(f"{starter}: written")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when one differs")
    parser.add_argument("solution", nargs="+")
    options = parser.parse_args()
    status = 0
    for path in options.solution:
        try:
            status = max(status, refresh(path, options.check))
        except (OSError, UnicodeDecodeError, Refused) as error:
            print(f"starters: {path}: {error}", file=sys.stderr)
            status = 2
    return status


if __name__ == "__main__":
    sys.exit(main())
