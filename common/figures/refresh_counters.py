#!/usr/bin/env python3
"""Writes the counters of one run into a chapter's README, or says that they are stale.

    refresh_counters.py [--check] RESULT.json README.md

RESULT.json is what `./run --json` writes on the virtual GPU. The text between the lines
`<!-- counters:begin -->` and `<!-- counters:end -->` is replaced by what the run counted: nothing
in it is typed by hand, and nothing depends on the host (no wall times). `make docs` calls this for
every chapter, `make docs CHECK=1` with --check.

In front of it the README may say what each array's bytes must be, by formula:

    <!-- counters:formulas
    scores K load = 2*B*H*N*N*D
    -->

with the names of kernel and array, and B, H, N, D for batch, heads, tokens and head_dim. A formula
that does not give exactly the number counted is an error.

Exit status: 0 written or up to date, 1 stale or a formula is wrong, 2 bad input.
"""
import argparse
import ast
import difflib
import json
import operator
import re
import sys

BEGIN, END, FORMULAS = "<!-- counters:begin -->", "<!-- counters:end -->", "<!-- counters:formulas"
OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
             ast.FloorDiv: operator.floordiv}


class Refused(Exception):
    """Bad input, in words."""


def evaluate(formula, names):
    """A formula of whole numbers, names, + - * // and brackets."""
    def value(node):
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.Name) and node.id in names:
            return names[node.id]
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            return OPERATORS[type(node.op)](value(node.left), value(node.right))
        raise Refused(f"formula '{formula}': only whole numbers, {', '.join(names)} and + - * //")
    try:
        return value(ast.parse(formula, mode="eval").body)
    except SyntaxError as error:
        raise Refused(f"formula '{formula}': {error.msg}") from None


def pretty(formula):
    """2*B*H*N*N*D as 2BHN²D."""
    return re.sub(r"\bN\*N\b", "N²", formula).replace("*", "").replace("//", "/")


def read_formulas(text):
    """{(kernel, array, access): formula} of the comment in front of the block."""
    formulas = {}
    if FORMULAS in text:
        comment = text.split(FORMULAS, 1)[1].split("-->", 1)[0]
        for line in filter(None, map(str.strip, comment.splitlines())):
            match = re.fullmatch(r"(\w+) (\w+) (load|store|atomic) = (.+)", line)
            if not match:
                raise Refused(f"'{line}': a formula reads 'kernel array load = 2*B*H*N*D'")
            formulas[match.group(1, 2, 3)] = match.group(4)
    return formulas


def micros(limit):
    return f"{limit:.2f}" if isinstance(limit, (int, float)) and limit > 0 else "-"


def block(result, formulas):
    """The lines of the block, and what is wrong with the formulas."""
    problem, device = result["problem"], result["device"]
    names = {"B": "batch", "H": "heads", "N": "tokens", "D": "head_dim"}
    names = {short: problem[name] for short, name in names.items() if name in problem}
    kernels = [k for k in result["kernels"] if k.get("counters")]
    if not device.get("virtual") or not kernels:
        raise Refused("the result has no counters: it must come from the virtual GPU")

    shape = ", ".join(f"{key} {problem[key]}" for key in ("batch", "heads", "tokens", "head_dim")
                      if key in problem)
    lines = [f"Virtual {device['name']}, [{shape}], nvcc {result['nvcc']}.", "",
             "| kernel | array | access | requests | sectors | sectors/request | ideal "
             "| bytes asked | by formula |",
             "|---|---|---|--:|--:|--:|--:|--:|---|"]
    wrong, unused = [], dict(formulas)
    loads = {"requests": 0, "sectors": 0, "bytes_asked": 0}
    for kernel in kernels:
        for array, accesses in kernel["counters"]["allocations"].items():
            for access in ("load", "store", "atomic"):
                counted = accesses[access]
                if not counted["requests"]:
                    continue
                if access == "load":
                    loads = {what: loads[what] + counted[what] for what in loads}
                formula = unused.pop((kernel["name"], array, access), None)
                if formula and evaluate(formula, names) != counted["bytes_asked"]:
                    wrong.append(f"{kernel['name']} {array} {access}: {formula} = "
                                 f"{evaluate(formula, names):,}, counted {counted['bytes_asked']:,}")
                lines.append(
                    f"| {kernel['name']} | {array} | {access} | {counted['requests']:,} "
                    f"| {counted['sectors']:,} | {counted['sectors_per_request']:.2f} "
                    f"| {counted['ideal_sectors_per_request']:.2f} "
                    f"| {counted['bytes_asked']:,} | {pretty(formula) if formula else ''} |")
    wrong += [f"{' '.join(key)}: nothing of that name was counted" for key in unused]

    lines += ["", f"All loads: {loads['requests']:,} requests, {loads['sectors']:,} sectors, "
              f"{loads['bytes_asked']:,} bytes asked."]

    # Pipes that have something to do in at least one kernel.
    limits = [kernel["counters"]["limits"] for kernel in kernels]
    pipes = [p for p in limits[0] if any(micros(of.get(p)) != "-" for of in limits)]
    lines += ["", "Modelled limits, lower bounds in µs:", "",
              "| kernel | " + " | ".join(pipes) + " | the largest |",
              "|---|" + "--:|" * len(pipes) + "---|"]
    for kernel, of in zip(kernels, limits):
        lines.append(f"| {kernel['name']} | " + " | ".join(micros(of.get(p)) for p in pipes) +
                     f" | {kernel['counters']['limit']['name']} |")
    return lines, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when stale")
    parser.add_argument("result", help="what ./run --json wrote")
    parser.add_argument("readme")
    options = parser.parse_args()

    try:
        with open(options.result, encoding="utf-8") as file:
            result = json.load(file)
        with open(options.readme, encoding="utf-8") as file:
            text = file.read()
        if [line for line in text.splitlines() if line in (BEGIN, END)] != [BEGIN, END]:
            raise Refused(f"{options.readme}: one line '{BEGIN}' and after it one '{END}' is needed")
        before, rest = text.split(BEGIN + "\n", 1)
        old, after = rest.split(END + "\n", 1)
        lines, wrong = block(result, read_formulas(before))
    except (OSError, json.JSONDecodeError, KeyError, Refused) as error:
        print(f"refresh_counters: {error!r}" if isinstance(error, KeyError)
              else f"refresh_counters: {error}", file=sys.stderr)
        return 2

    for line in wrong:
        print(f"{options.readme}: formula: {line}", file=sys.stderr)
    if wrong:
        return 1
    new = "\n" + "\n".join(lines) + "\n\n"
    if new == old:
        print(f"{options.readme}: counters are up to date")
        return 0
    if options.check:
        print(f"{options.readme}: counters are stale; `make docs` writes these:", file=sys.stderr)
        sys.stderr.writelines(line + "\n" for line in difflib.unified_diff(
            old.splitlines(), new.splitlines(), "README.md", "this run", n=0, lineterm=""))
        if f"nvcc {result['nvcc']}." not in old:
            print("(another nvcc may compile to other instructions)", file=sys.stderr)
        return 1
    with open(options.readme, "w", encoding="utf-8") as file:
        file.write(before + BEGIN + "\n" + new + END + "\n" + after)
    print(f"{options.readme}: counters written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
