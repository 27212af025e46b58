#!/usr/bin/env python3
"""The virtual GPU's counters and results beside those of a GPU: `make validate`.

    validate.py --cuda FOLDER --vgpu FOLDER --record FOLDER [--table FILE] [--json FILE]
                [--only 3,6] [--counters] [--minutes N]
    validate.py --cuda FOLDER --record FOLDER       the GPU's side alone
    validate.py --vgpu FOLDER --record FOLDER ...   the virtual GPU's side of what was so recorded
    validate.py --record FOLDER [--table FILE] [--json FILE]

The first form runs each chapter's program on a small problem, on the GPU under Nsight Compute and
on the virtual GPU as the same GPU, and keeps in RECORD what they counted (chapterN.csv,
chapterN.json) and computed (chapterN.cuda.safetensors, chapterN.vgpu.safetensors). Both forms then
compare what is there, the second without a GPU: launches by kernel, grid, block and their order;
counters one by one, each within its bound (see ncu.py); results bit by bit, or within two roundings
of fp16. What cannot be compared is a line that says why, and counts as beyond the bounds.

Then each chapter's program runs on a large problem: on the GPU under ncu, which measures times and
why warps wait (chapterN.time.csv), and on the virtual GPU, which predicts them from a few blocks
(chapterN.time.json). Times must lie within the error that the prediction states, machine
instructions within 8%; what else is compared is for information, see timed.py. --counters leaves this part out.
--minutes: on the GPU no run begins later than that; what was left out is not compared.

--table writes all of it as Markdown, --json both sides of each comparison; {gpu} in their names
becomes the GPU's name.

Exit status: 0 all within the bounds, 1 something is not, 2 bad usage or input, 3 what is missing.
"""
import argparse
import json
import math
import os
import re
import shutil
import struct
import subprocess
import sys
import time

import machine
import ncu
import problems
import results
import timed
from results import Lacking, Refused

SECONDS = 600
OF_GPU = (".csv", ".cuda.safetensors", ".time.csv")
OF_VIRTUAL = (".json", ".vgpu.safetensors", ".time.json")
ROUNDING = 2.0 ** -11  # of fp16


# ---- recording ----------------------------------------------------------------------------------

def run(command, what, environment=None):
    try:
        done = subprocess.run(command, text=True, capture_output=True, timeout=SECONDS, check=False,
                              errors="replace", env=environment)
    except subprocess.TimeoutExpired:
        raise Refused(f"{what}: stopped after {SECONDS} s") from None
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines()
        if any("ERR_NVGPUCTRPERM" in line for line in said):
            ncu.launches("ERR_NVGPUCTRPERM")  # says what to do
        raise Refused(f"{what}: exit status {done.returncode}: "
                      f"{said[-1] if said else 'nothing said'}")


def virtual_device(name):
    """The key of the GPU in common/vgpu/profile/devices, 'h200' of 'NVIDIA H200'."""
    folder = os.path.join(problems.ROOT, "common", "vgpu", "profile", "devices")
    keys = sorted(file.split(".")[0] for file in os.listdir(folder))
    for key in keys:  # "NVIDIA GeForce RTX 4070 Ti SUPER" is an rtx4070tis
        with open(os.path.join(folder, key + ".json"), encoding="utf-8") as file:
            if json.load(file)["name"]["value"].lower() == name.lower():
                return key
    for key in keys:  # "NVIDIA H100 80GB HBM3" is an h100, a GH200 is no h200
        if re.search(rf"(?<![a-z0-9]){key}(?![a-z0-9])", name.lower().replace("rtx ", "rtx")):
            return key
    raise Lacking(f"the virtual GPU cannot be a {name}; it can be: {', '.join(keys)}")


def record_gpu(options, chapters):
    """Runs the programs on the GPU under ncu. Throws Lacking where there is no GPU or no ncu."""
    gpu = machine.state()
    if not shutil.which("ncu"):
        raise Lacking("no ncu here: it comes with the CUDA Toolkit (Nsight Compute)")
    os.makedirs(options.record, exist_ok=True)
    start = time.monotonic()
    done = {"chapters": [], "timed": []}

    def recorded_of(chapter, kind, flags, metrics=None):
        """One run under ncu, while there is time. kind: ".time", or "" for the counters."""
        if options.minutes and time.monotonic() - start > 60 * options.minutes:
            print(f"chapter {chapter}{kind}: left out, {options.minutes:g} minutes are over", flush=True)
            return
        path = os.path.join(options.record, f"chapter{chapter}")
        print(f"chapter {chapter}: {gpu['name']} under ncu, {' '.join(flags)} "
              f"({time.monotonic() - start:.0f} s)", flush=True)
        output = [] if kind else ["--output", f"{path}.cuda.safetensors"]
        program = [os.path.join(options.cuda, f"chapter{chapter}"), *flags, "--warmup", "0",
                   "--iterations", "1", *output]
        attempt(ncu.command(f"{path}{kind}.csv", program, metrics),
                f"chapter {chapter}{kind} under ncu")
        done["timed" if kind else "chapters"].append(chapter)
        # After each run: what is there can be compared when the machine is lost.
        results.write(os.path.join(options.record, "gpu.json"), results.text_of({**gpu, **done}))

    forget(options.record, chapters, OF_GPU)
    results.write(os.path.join(options.record, "gpu.json"), results.text_of({**gpu, **done}))
    for chapter in chapters:
        recorded_of(chapter, "", problems.VALIDATED[chapter].split())
    for chapter in [] if options.counters else chapters:
        recorded_of(chapter, ".time", problems.TIMED[chapter].split(), timed.METRICS)


def record_virtual(options, gpu, chapters):
    """Runs the same programs on the virtual GPU, as that GPU."""
    key = virtual_device(gpu["name"])
    forget(options.record, chapters, OF_VIRTUAL)
    for chapter in chapters:
        path = os.path.join(options.record, f"chapter{chapter}")
        program = os.path.join(options.vgpu, f"chapter{chapter}")
        print(f"chapter {chapter}: virtual {key}", flush=True)
        attempt([program, *problems.VALIDATED[chapter].split(), "--warmup", "0", "--iterations", "1",
                 "--output", f"{path}.vgpu.safetensors"], f"chapter {chapter} on the virtual GPU",
                {"VGPU_DEVICE": key, "VGPU_PROFILE": f"json:{path}.json"})
        if options.counters or chapter not in gpu.get("timed", []):
            continue
        print(f"chapter {chapter}: virtual {key}, predicted", flush=True)
        attempt([program, "--predict", *problems.TIMED[chapter].split()],
                f"chapter {chapter}, predicted",
                {"VGPU_DEVICE": key, "VGPU_PROFILE": f"json:{path}.time.json"})


def forget(folder, chapters, kinds):
    """What an earlier run recorded."""
    for chapter in chapters:
        for kind in kinds:
            path = os.path.join(folder, f"chapter{chapter}{kind}")
            if os.path.exists(path):
                os.remove(path)


def attempt(command, what, more=None):
    """A chapter that fails is no end of the others."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("VGPU_")}
    try:
        run(command, what, {**clean, **(more or {})})
    except Refused as error:
        print(f"validate: {error}", file=sys.stderr)


# ---- comparing ----------------------------------------------------------------------------------

def kind_of(launch):
    return launch["mangled"], tuple(launch["grid"]), tuple(launch["block"])


def aligned(ours, theirs):
    """[(i, j)]: which of our elements is which of theirs, both in order: as many as possible, and of
    those alignments the one in which most neighbours have neighbours."""
    many = len(ours) + 1  # worth more than all neighbours
    best = [[0] * (len(theirs) + 1) for _ in range(len(ours) + 1)]  # of the first i and j
    last = [[-1] * (len(theirs) + 1) for _ in range(len(ours) + 1)]  # with i and j a pair
    for i, kind in enumerate(ours, 1):
        for j, other in enumerate(theirs, 1):
            best[i][j] = max(best[i - 1][j], best[i][j - 1])
            if kind != other:
                continue
            before = last[i - 1][j - 1]
            last[i][j] = many + max(best[i - 1][j - 1], before + 1 if before >= 0 else 0)
            best[i][j] = max(best[i][j], last[i][j])
    pairs, i, j = [], len(ours), len(theirs)
    neighbour = False  # (i, j) is a pair, the neighbour of the one found last
    while i and j:
        if not neighbour and best[i][j] == best[i][j - 1]:
            j -= 1
        elif not neighbour and best[i][j] == best[i - 1][j]:
            i -= 1
        else:
            before = last[i - 1][j - 1]
            neighbour = before >= 0 and last[i][j] == many + before + 1
            i, j = i - 1, j - 1
            pairs.append((i, j))
    return pairs[::-1]


def paired(counted, profiled):
    """([(name, virtual launch, GPU's launch)], [(name, virtual launches, GPU's launches)]): each
    kernel, grid and block that both have, and the numbers of those that one side has not at all.

    A program launches kernels again to measure its time, one by one or in whole rounds, so numbers
    of launches differ. A net launches one kernel with one grid for layers that count otherwise: the
    order of all launches says which is which. The i-th of several alike in a row is paired with the
    i-th, and what one side alone has of a kind is left out. So are kernels of CUB: its sort asks again and again
    what the blocks before have found, and how often depends on chance.
    """
    counted, profiled = ([launch for launch in launches if not kind_of(launch)[0].startswith("_ZN3cub")]
                         for launches in (counted, profiled))

    def runs_of(launches):
        runs = []
        for launch in launches:
            if not runs or kind_of(runs[-1][0]) != kind_of(launch):
                runs.append([])
            runs[-1].append(launch)
        return runs
    ours, theirs = runs_of(counted), runs_of(profiled)
    kinds = [[kind_of(run[0]) for run in runs] for runs in (ours, theirs)]
    alone = []
    for kind in dict.fromkeys([*kinds[0], *kinds[1]]):
        if kind not in kinds[0] or kind not in kinds[1]:
            numbers = [[launch for launch in launches if kind_of(launch) == kind]
                       for launches in (counted, profiled)]
            first = (numbers[0] or numbers[1])[0]
            sizes = ", ".join(f"{what} {'x'.join(map(str, of))}"
                              for what, of in (("grid", kind[1]), ("block", kind[2])))
            alone.append((f"{first.get('kernel', kind[0])} ({sizes})", len(numbers[0]),
                          len(numbers[1])))
    partner = {i: theirs[j] for i, j in aligned(*kinds)}
    found = {}  # kind: its pairs, and those that count otherwise than the ones before
    for i, run in enumerate(ours):
        # A run without a partner: the order differs. The first of its kind will do.
        others = partner.get(i) or next(
            (of for of, kind in zip(theirs, kinds[1]) if kind == kinds[0][i]), [])
        for a, b in zip(run, others):
            found.setdefault(kinds[0][i], []).append((a, b))
    pairs = []
    for kind, of_kind in found.items():
        seen = []
        for i, (a, b) in enumerate(of_kind):
            if flat_counts(a) in seen:
                continue
            seen.append(flat_counts(a))
            pairs.append((a.get("kernel", kind[0]) + (f", launch {i + 1}" if i else ""), a, b))
    return pairs, alone


def flat_counts(launch):
    counters = ncu.with_sums(results.flat(launch))
    return {name: counters.get(name) for name in ncu.COUNTERS}


class Taken:
    """Which metrics the comparisons rest on, and which ncu did not deliver."""

    def __init__(self):
        self.names = {}  # {counter: {(alternatives, the one taken)}}

    def add(self, counter, parts):
        self.names.setdefault(counter, set()).update(
            (tuple(alternatives), best) for alternatives, best in parts)

    def lines(self):
        """For people: counters without a metric, and what was chosen of several names."""
        text = []
        for counter, parts in self.names.items():
            first = tuple(ncu.COUNTERS[counter][0][0])
            for alternatives, best in sorted(parts):
                listed = [" + ".join(f"`{metric}`" for metric in metrics)
                          for metrics in alternatives]
                if not best:
                    words = "not compared" if alternatives == first else "compared without it"
                    text.append(f"- {counter}: ncu did not deliver {', nor '.join(listed)}: "
                                f"{words} where it is missing")
                elif len(alternatives) > 1:
                    whole = "" if best in alternatives else ", the rest of it was not delivered"
                    text.append(f"- {counter}: with " +
                                " + ".join(f"`{metric}`" for metric in best) + whole)
        return ["", "## Metrics", "", *text] if text else []


def compare_launch(ours, theirs, taken=None):
    """[{counter, virtual, gpu, within}] of what both count; taken: a Taken to add to."""
    rows = []
    counters = ncu.with_sums(results.flat(ours))
    for name, (_, share, of) in ncu.COUNTERS.items():
        if name not in counters:
            continue
        gpu, parts = ncu.counted(name, theirs["metrics"])
        if taken is not None:
            taken.add(name, parts)
        if gpu is None:
            continue
        virtual = counters[name]
        allowed = share * max(gpu, counters.get(of, 0)) if of else 0
        rows.append({"counter": name, "virtual": virtual, "gpu": gpu,
                     "within": abs(virtual - gpu) <= allowed})
    return rows


def tensors(path):
    """{name: [numbers]} of a safetensors file of F16 and F32."""
    try:
        with open(path, "rb") as file:
            content = file.read()
        length = struct.unpack("<Q", content[:8])[0]
        header = json.loads(content[8:8 + length])
        found = {}
        for name, of in header.items():
            if name == "__metadata__":
                continue
            begin, end = of["data_offsets"]
            layout, size = {"F16": ("e", 2), "F32": ("f", 4)}[of["dtype"]]
            data = content[8 + length + begin:8 + length + end]
            found[name] = struct.unpack(f"<{len(data) // size}{layout}", data)
        return found
    except (OSError, ValueError, KeyError, struct.error) as error:
        raise Refused(f"{path}: no safetensors file: {error!r}") from None


def compare_results(ours, theirs):
    """(words, whether within the bound): of 12 numbers 2 differ, at most by so much."""
    if {n: len(v) for n, v in ours.items()} != {n: len(v) for n, v in theirs.items()}:
        raise Refused("the two results have other tensors or sizes")
    count = differ = 0
    worst, within = 0.0, True
    for name, values in ours.items():
        largest = max((abs(v) for v in values if v == v), default=0.0)
        for a, b in zip(values, theirs[name]):
            count += 1
            if a == b or (a != a and b != b):
                continue
            differ += 1
            worst = max(worst, abs(a - b)) if a == a and b == b else float("inf")
            within = within and abs(a - b) <= 2 * ROUNDING * max(abs(a), abs(b)) + \
                2 * ROUNDING * largest
    if not count:
        raise Refused("the results are empty")
    if not differ:
        return f"all {count:,} numbers of the result have the same bits", True
    return f"{differ:,} of {count:,} numbers differ, by at most {worst:.2g}", within


def row_of(kernel, counter, virtual, gpu, within):
    difference = virtual - gpu
    far = f"{difference:+,.0f}" if difference else "0"
    if difference and gpu:
        far += f" ({100 * difference / gpu:+.1f}%)"
    return (f"| {kernel} | {counter} | {virtual:,.0f} | {gpu:,.0f} | {far} "
            f"|{'' if within else ' beyond'} |")


def recorded(path, metrics=None):
    """(launches that the virtual GPU counted, those in ncu's table)"""
    try:
        with open(path + ".json", encoding="utf-8") as file:
            counted = json.load(file)
        with open(path + ".csv", encoding="utf-8", errors="replace") as file:
            profiled = ncu.launches(file.read(), metrics)
    except (OSError, ValueError) as error:
        raise Refused(f"nothing recorded: {error}") from None
    return counted if isinstance(counted, list) else counted.get("launches", [counted]), profiled


class Compared:
    """What a comparison says: lines of the table, both sides for the JSON file, how many it makes
    and how many of them are beyond their bounds."""

    def __init__(self, lines=(), data=None, beyond=0, count=0):
        self.lines, self.data, self.beyond, self.count = list(lines), data, beyond, count

    def add(self, other):
        self.lines += other.lines
        self.beyond += other.beyond
        self.count += other.count

    @staticmethod
    def none(error):
        return Compared([f"**Not compared**: {error}"], {"not_compared": str(error)}, 1, 1)


def compare_counters(path, taken):
    counted, profiled = recorded(path)
    words, within = compare_results(tensors(path + ".vgpu.safetensors"),
                                    tensors(path + ".cuda.safetensors"))
    pairs, alone = paired(counted, profiled)
    found = Compared([f"Results: {words}{'' if within else ', **beyond the bound**'}.", "",
                      "| kernel | counter | virtual GPU | GPU | difference | |",
                      "|---|---|--:|--:|--:|---|"],
                     {"results": words, "results_within": within, "counters": []},
                     (not within) + len(alone), 1 + len(alone))
    for name, ours, theirs in pairs:
        rows = compare_launch(ours, theirs, taken)
        found.count += max(1, len(rows))
        found.data["counters"] += [{"kernel": name, **row} for row in rows]
        if not rows:
            found.beyond += 1
            found.lines.append(f"| {name} | none of the metrics is in ncu's table | | | | beyond |")
        for row in rows:
            found.beyond += not row["within"]
            if row["virtual"] or row["gpu"]:
                found.lines.append(row_of(name, row["counter"], row["virtual"], row["gpu"],
                                          row["within"]))
    found.lines += [row_of(name, "launches", ours, theirs, False) for name, ours, theirs in alone]
    found.data["alone"] = alone_data(alone)
    return found


def alone_data(alone):
    return [{"kernel": name, "virtual": ours, "gpu": theirs} for name, ours, theirs in alone]


def compare_times(path):
    counted, profiled = recorded(path + ".time", timed.METRICS)
    rows, alone = timed.compare(counted, profiled, paired)
    bound = [row for row in rows if not row["information"]]
    if not bound and not alone:
        raise Refused("no launch has a predicted time: " +
                      (rows[0]["why"] if rows else "there is none on both sides"))
    return Compared([*timed.lines(rows),
                     *(row_of(name, "launches", ours, theirs, False)
                       for name, ours, theirs in alone)],
                    {"rows": rows, "alone": alone_data(alone)},
                    sum(not row["within"] for row in bound) + len(alone), len(bound) + len(alone))


def compare(folder, chapters, times):
    """All chapters, with their times where these were recorded. Throws Refused where there is
    nothing to compare in any."""
    found, refused, taken, rows = Compared(data=[]), [], Taken(), []
    for chapter in chapters:
        path = os.path.join(folder, f"chapter{chapter}")
        flags = problems.VALIDATED.get(chapter, "")
        data = {"chapter": chapter, "flags": flags}
        try:
            of = compare_counters(path, taken)
        except Refused as error:
            refused.append(f"chapter {chapter}: {error}")
            of = Compared.none(error)
        found.lines += ["", f"## Chapter {chapter}, `{flags}`", ""]
        found.add(of)
        data.update(of.data)
        if chapter in times:
            flags = problems.TIMED.get(chapter, "")
            try:
                of = compare_times(path)
            except Refused as error:
                of = Compared.none(error)
            found.lines += ["", f"Predicted and measured, `{flags}`:", ""]
            found.add(of)
            data["times"] = {"flags": flags, **of.data}
            rows += of.data.get("rows", [])
        found.data.append(data)
    if len(refused) == len(chapters):
        raise Refused(refused[0] if refused else "no chapter to compare")
    found.lines += taken.lines()
    return found, timed.summary(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cuda", default="", help="folder of the programs for the GPU")
    parser.add_argument("--vgpu", default="", help="folder of those for the virtual GPU")
    parser.add_argument("--record", required=True, help="folder of what was counted and computed")
    parser.add_argument("--table", default="", help="Markdown file to write; {gpu}: its name")
    parser.add_argument("--json", default="", help="file for both sides of all that is compared; "
                        "{gpu}: its name")
    parser.add_argument("--only", default="", help="chapters, as 3,6; else all recorded ones")
    parser.add_argument("--minutes", type=float, default=0, help="on the GPU; 0: as long as it takes")
    parser.add_argument("--counters", action="store_true", help="no times")
    options = parser.parse_args()
    try:
        if options.only and not re.fullmatch(r"\d+(,\d+)*", options.only):
            raise Refused(f"--only {options.only}: chapters, as 3,6")
        if not 0 <= options.minutes < math.inf:
            raise Refused(f"--minutes {options.minutes:g}: a number above 0 is needed")
        chapters = [int(n) for n in options.only.split(",")] if options.only else [
            n for n in problems.VALIDATED if not options.cuda or
            os.path.exists(os.path.join(options.cuda, f"chapter{n}"))]
        unknown = [n for n in chapters if n not in problems.VALIDATED]
        if unknown:
            raise Refused(f"chapter {unknown[0]} has no line in problems.VALIDATED")
        if options.cuda and options.vgpu:
            virtual_device(machine.state()["name"])  # before anything is run
        if options.cuda:
            record_gpu(options, chapters)
        gpu = results.read(os.path.join(options.record, "gpu.json"))
        if not options.only:
            chapters = gpu.get("chapters", chapters)
        if options.vgpu:
            record_virtual(options, gpu, chapters)
        elif options.cuda:
            print(f"recorded in {options.record}, to be compared with --vgpu")
            return 0
        found, summary = compare(options.record, chapters,
                                 [] if options.counters else gpu.get("timed", []))
        lines = [f"# The virtual GPU beside a {gpu['name']}", "", f"Driver {gpu['driver']}, "
                 f"{found.count} comparisons, {found.beyond} beyond their bounds. Requests, sectors "
                 "and registers must be equal, wavefronts and conflicts",
                 "of shared memory within 2% of the wavefronts, results within two roundings of "
                 "fp16, predicted times within the error that they state, machine instructions "
                 f"within {100 * timed.INSTRUCTIONS:.0f}%.",
                 *(["", summary] if summary else []), *found.lines]
        print("\n".join(lines))
        name = gpu["name"].lower().replace(" ", "_")
        if options.table:
            results.write(options.table.replace("{gpu}", name), "\n".join(lines) + "\n")
        if options.json:
            results.write(options.json.replace("{gpu}", name), results.text_of(
                {"gpu": gpu, "comparisons": found.count, "beyond": found.beyond,
                 "summary": summary, "chapters": found.data}))
    except Lacking as error:
        print(f"make validate: {error}", file=sys.stderr)
        return 3
    except Refused as error:
        print(f"validate: {error}", file=sys.stderr)
        return 2
    return 1 if found.beyond else 0


if __name__ == "__main__":
    sys.exit(main())
