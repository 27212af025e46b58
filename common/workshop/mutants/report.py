"""What the README of this folder says of the results, between two marks."""
import collections
import os

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


def lines_of(results):
    """The generated part of the README."""
    results = sorted(results, key=lambda entry: (entry["group"], part_of(entry), entry["id"]))
    rows = collections.defaultdict(collections.Counter)
    for entry in results:
        for row in ((entry["group"], part_of(entry)), (entry["group"], "all")):
            rows[row][entry["verdict"]] += 1
    lines = ["| | part | killed | survived | equivalent | score |", "|---|---|--:|--:|--:|--:|"]
    for group in sorted({entry["group"] for entry in results}):
        parts = sorted(part for of, part in rows if of == group and part != "all")
        for part in [*parts, "all"]:
            count = rows[group, part]
            lines.append(f"| {group.replace('_', ' ')} | {part} | {count['killed']} "
                         f"| {count['survived']} | {count['equivalent']} "
                         f"| {percent(count['killed'], count['survived'])} |")
    for verdict, words in (("survived", "Survivors"), ("equivalent", "Equivalent"),
                           ("error", "Mistakes in the lists")):
        found = [entry for entry in results if entry["verdict"] == verdict]
        if found:
            lines += ["", f"{words}:", ""]
            lines += [f"- `{entry['id']}` in {entry['file']}" +
                      (f": {entry['why']}" if entry.get("why") else "") for entry in found]
    return lines


def refreshed(text, results):
    """The README's text with the part between the marks as these results have it."""
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    return before + BEGIN + "\n" + "\n".join(lines_of(results)) + "\n\n" + END + after


def refresh(path, results):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    with open(path, "w", encoding="utf-8") as file:
        file.write(refreshed(text, results))
