#!/usr/bin/env python3
"""Draws what one training step of chapter 18 moves, operation by operation, forward and backward.

    step_bytes.py PICTURE.png PROFILE.json
    step_bytes.py --table [--check] README.md PROFILE.json

PROFILE.json is what VGPU_PROFILE=json:PROFILE.json writes of a run of chapter 18's program. The first step
in it is drawn: launches up to the loss are forward, those behind it backward, the optimizer's are neither.
A bar is what all launches of an operation ask for and store. Needs matplotlib (Debian: python3-matplotlib).
--table writes the same numbers between the lines `<!-- bytes:begin -->` and `<!-- bytes:end -->` of a lesson;
with --check it only compares.

Exit status: 0 drawn or written, 1 the lesson is stale, 2 bad usage or input, 3 no matplotlib.
"""
import difflib
import json
import re
import sys

import palette
from results import Refused

# The first that fits a kernel's name is its operation; a product's operands tell whose it is.
OPERATIONS = (("convolutional projection", r"conv_projection::"),
              ("embedding", r"Gathered|TapWeights|pack_weights"),
              ("attention", r"attention|dots_kernel|keys_kernel|queries_kernel"),
              ("LayerNorm", r"norm"), ("loss", r"cross_entropy|mean_kernel"), ("AdamW", r"adamw"),
              ("class token", r"token"), ("linear layers", r"product_kernel"))
FINISHES = r"finish_weights_kernel"  # it adds up the shares of the product before it
LOSS, OPTIMIZER = "loss", "AdamW"
LEAST = 0.01  # of all bytes; operations with less have no bar
TABLE = re.compile(r"(^<!-- bytes:begin -->\n)(.*?)(^<!-- bytes:end -->\n)", re.MULTILINE | re.DOTALL)
PHASES = ("forward", "backward", "update")


def operation_of(kernel, before=None):
    if before and re.search(FINISHES, kernel):
        return before
    for name, pattern in OPERATIONS:
        if re.search(pattern, kernel):
            return name
    raise Refused(f"kernel {kernel}: of no operation that is known; there are "
                  f"{', '.join(name for name, _ in OPERATIONS)}")


def bytes_of(launch):
    moved = sum(launch["global"][access]["bytes_asked"] for access in ("load", "store", "atomic"))
    return moved + sum(launch["copy_engine"][access]["bytes"] for access in ("load", "store", "atomic"))


def first_step(launches):
    """{operation: {phase: bytes, "launches": number}} of the launches up to the end of the first optimizer's."""
    found, phase, operation = {}, 0, None
    for launch in launches:
        operation = operation_of(launch["kernel"], operation)
        if operation == OPTIMIZER:
            phase = 2
        elif phase == 2:
            break  # the next step's
        elif operation == LOSS:
            phase = 1
        of = found.setdefault(operation, dict.fromkeys((*PHASES, "launches"), 0))
        of["launches"] += 1
        of["forward" if operation == LOSS else PHASES[phase]] += bytes_of(launch)
    if phase < 2:
        raise Refused("no whole training step in it: neither loss nor optimizer" if phase == 0 else
                      "no whole training step in it: no optimizer behind the loss")
    return found


def moved(of):
    return sum(of[phase] for phase in PHASES)


def draw(plt, found, path):
    sizes = {name: moved(of) for name, of in found.items()}
    names = sorted((name for name, size in sizes.items() if size >= LEAST * sum(sizes.values())),
                   key=lambda name: -sizes[name])
    fig, ax = plt.subplots(figsize=(8.6, 0.46 * len(names) + 1.2), dpi=100)
    ax.set_axisbelow(True)
    colors = dict(zip(PHASES, (palette.CHAPTERS[0], palette.CHAPTERS[5], palette.INK)))
    for at, name in enumerate(names):
        start = 0.0
        for phase in PHASES:
            size = found[name][phase] / 2**20
            ax.barh(at, size, left=start, height=0.62, color=colors[phase])
            start += size
        forward, backward = found[name]["forward"], found[name]["backward"]
        words = f"{start:.1f}" + (f", {backward / forward:.1f} times as much back"
                                  if forward and backward else "")
        ax.annotate(words, (start, at), xytext=(5, 0), textcoords="offset points", va="center",
                    fontsize=8.5)
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.margins(x=0.25)
    ax.set_xlabel("MiB that loads ask for or that are stored, in one training step")
    handles = [plt.Rectangle((0, 0), 1, 1, color=color) for color in colors.values()]
    ax.legend(handles, PHASES, ncol=3, loc="lower center", bbox_to_anchor=(0.4, 1.0), fontsize=8.5)
    fig.savefig(path, dpi=140, bbox_inches="tight", metadata={"Software": None})
    return fig


def table(found):
    """The lines of a Markdown table, an operation a row, the largest first, and all of them last."""
    def row(name, of):
        mebibytes = [f"{of[phase] / 2**20:.1f}" if of[phase] else "" for phase in PHASES]
        times = f"{of['backward'] / of['forward']:.1f}" if of["forward"] and of["backward"] else ""
        return "| " + " | ".join([name, str(of["launches"]), *mebibytes, times]) + " |"
    largest_first = sorted(found.items(), key=lambda of: -moved(of[1]))
    everything = {key: sum(of[key] for of in found.values()) for key in (*PHASES, "launches")}
    return ["| operation | launches | forward, MiB | backward, MiB | update, MiB | backward / forward |",
            "|---|--:|--:|--:|--:|--:|", *(row(name, of) for name, of in largest_first),
            row("all", everything)]


def step_in(profile):
    with open(profile, encoding="utf-8") as file:
        launches = json.load(file)
    try:
        return first_step(launches)
    except Refused as error:
        raise Refused(f"{profile}: {error}") from None


def picture(path, profile):
    draw(palette.plot(), step_in(profile), path)
    print(f"{path}: drawn")


def write_table(readme, profile, check=False):
    """Writes the table into the lesson; with `check` says what differs. Returns the exit status."""
    with open(readme, encoding="utf-8") as file:
        text = file.read()
    if len(TABLE.findall(text)) != 1:
        raise Refused(f"{readme}: no lines '<!-- bytes:begin -->' and '<!-- bytes:end -->', or several")
    lines = "\n" + "\n".join(table(step_in(profile))) + "\n\n"
    new = TABLE.sub(lambda of: of[1] + lines + of[3], text)
    if new == text:
        print(f"{readme}: bytes of a step are up to date")
    elif check:
        print(f"{readme}: bytes of a step are stale; `make docs` writes these:", file=sys.stderr)
        sys.stderr.writelines(line + "\n" for line in difflib.unified_diff(
            text.splitlines(), new.splitlines(), "README.md", "this run", n=0, lineterm=""))
        return 1
    else:
        with open(readme, "w", encoding="utf-8") as file:
            file.write(new)
        print(f"{readme}: bytes of a step written")
    return 0


def main():
    words = sys.argv[1:]
    if words[:1] != ["--table"]:
        return palette.main("step_bytes.py PICTURE.png PROFILE.json", lambda of: len(of) == 2, picture)
    check = words[1:2] == ["--check"]
    files = words[2:] if check else words[1:]
    if len(files) != 2:
        print("usage: step_bytes.py --table [--check] README.md PROFILE.json", file=sys.stderr)
        return 2
    try:
        return write_table(*files, check)
    except (OSError, json.JSONDecodeError, Refused) as error:
        print(f"step_bytes: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
