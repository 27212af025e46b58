#!/usr/bin/env python3
"""All that `make bench PEERS=torch` and `make validate` do, without a GPU: `make bench-dry`.

    rehearse.py --programs FOLDER [--peers PYTHON] [--arch sm_90] [--chip h100]

So that minutes on a GPU are not spent on what fails anywhere: measure.py runs the virtual GPU's
programs (FOLDER/chapterN) on tiny problems, in turns with PyTorch on the CPU, and writes result
files into a folder that is thrown away; the classic operator is fetched and compiled for the GPU;
ncu is asked for its metrics; predicted times are compared with a table that ncu might have printed.
What this machine lacks is named at the end.

Exit status: 0 all of it works, 1 something fails, 2 bad usage, 3 something is missing here.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import made_up
import ncu
import problems
import results
import timed
import validate
from results import Lacking, Refused

HERE = os.path.dirname(os.path.abspath(__file__))
SECONDS = 900
TOKENS = "--batch 1 --heads 1 --tokens 17 --head-dim 32"
CONV = "--in-channels 5 --out-channels 7 --height 9 --width 12"
TABLE = [
    *({"chapter": n, "name": "small", "flags": TOKENS,
       "peers": "attention" if n == problems.LADDER[-1] else ""} for n in problems.LADDER),
    {"chapter": 7, "name": "small", "peers": "deformable",
     "flags": "--batch 1 --queries 9 --channels 16"},
    *({"chapter": 8, "name": f"small{flags}", "flags": CONV + flags, "peers": "conv_norm"}
      for flags in ("", " --precision tf32", " --storage fp16")),
    {"chapter": 11, "name": "small", "peers": "mlp", "flags": "--tokens 17 --width 24 --hidden 40"},
]
# Problems whose times are predicted and compared.
TIMED = [{"chapter": problems.LADDER[0], "flags": TOKENS}, {"chapter": 7, "flags": "--queries 99"}]
# What PyTorch has on a GPU alone.
GPU_ALONE = ("cudnn", "efficient", "FlashAttention-3", "cuBLASLt",
             "ms_deform_im2col, half")


def measured(options):
    """[what is wrong] with the result files of a small measurement."""
    with tempfile.TemporaryDirectory() as folder:
        table = os.path.join(folder, "table.json")
        results.write(table, json.dumps(TABLE))
        command = [sys.executable, os.path.join(HERE, "measure.py"), "--virtual", "--programs",
                   options.programs, "--results", folder, "--table", table, "--warmup", "1",
                   "--iterations", "2", "--rounds", "3"]
        done = subprocess.run(command + (["--peers", options.peers] if options.peers else []),
                              timeout=SECONDS, check=False)
        if done.returncode == 3:
            raise Lacking("not measured, its words are above")
        if done.returncode != 0:
            return [f"measure.py ended with {done.returncode}, its words are above"]
        wrong = []
        for chapter in sorted({of["chapter"] for of in TABLE}):
            for run in results.read(os.path.join(folder, f"chapter{chapter}.json"))["runs"]:
                title = f"chapter {chapter}, {run['name']}"
                asked = options.peers and any(
                    of["peers"] for of in TABLE
                    if (of["chapter"], of["name"]) == (chapter, run["name"]))
                if asked and "best" not in run:
                    wrong.append(f"{title}: no peer computed it")
                wrong += [f"{title}: {row['name']}: {row['lacking']}"
                          for row in run.get("peers", [])
                          if "lacking" in row and row["name"] not in GPU_ALONE]
        return wrong


def operator(options):
    """[what is wrong] with the classic operator."""
    code = ("import importlib.util as u, os\n"
            "print(os.path.dirname(u.find_spec('torch').origin))")
    found = subprocess.run([options.peers or sys.executable, "-c", code], text=True, check=False,
                           capture_output=True, timeout=60)
    include = os.path.join(found.stdout.strip(), "include") if found.returncode == 0 else ""
    action = ["build", include, options.arch] if include else ["fetch"]
    done = subprocess.run([sys.executable, os.path.join(HERE, "classic.py"), *action], text=True,
                          capture_output=True, timeout=SECONDS, check=False)
    if done.returncode == 3:
        raise Lacking(done.stderr.strip().removeprefix("classic: "))
    if done.returncode != 0:
        return [done.stderr.strip()]
    print(done.stdout.strip())
    if not include:
        raise Lacking("fetched, not compiled: it needs PyTorch's headers (PEERS=torch)")
    return []


def metrics(options):
    """[what is wrong] with the names of metrics."""
    chip = ncu.CHIPS.get(options.chip, options.chip)
    names = ncu.known(chip)
    there = ncu.there_on(names, timed.METRICS)
    missing = [quantity for quantity, (alternatives, _) in timed.QUANTITIES.items()
               if not ncu.chosen(alternatives, there)]
    reasons = [reason for reason in timed.REASONS
               if not any(name in there for form in timed.FORMS
                          for name in timed.STALL_METRICS[reason, form])]
    if missing or reasons:
        print(f"not on {chip}, and not compared there: " +
              ", ".join([*missing, *(f"stall {reason}" for reason in reasons)]))
    return [f"{counter}: ncu knows no metric on {chip}"
            for counter, parts in ncu.of_chip(names) if not parts[0]] + [
        f"{quantity}: ncu knows no metric on {chip}" for quantity in missing
        if quantity in timed.BOUND]


def times(options):
    """[what is wrong] with comparing predicted times: with a GPU that is 5% slower than predicted
    all must be within the bounds, with one that takes twice as long all times beyond them."""
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "chapter")
        for problem in TIMED:
            chapter = f"chapter {problem['chapter']}"
            program = os.path.join(options.programs, f"chapter{problem['chapter']}")
            done = subprocess.run(
                [program, "--predict", *problem["flags"].split()], timeout=SECONDS, check=False,
                text=True, capture_output=True,
                env={**os.environ, "VGPU_PROFILE": f"json:{path}.time.json"})
            if done.returncode != 0:
                said = (done.stdout + done.stderr).strip().splitlines()
                wrong.append(f"{chapter}: --predict ended with {done.returncode}: {said[-1:]}")
                continue
            with open(path + ".time.json", encoding="utf-8") as file:
                launches = [of for of in json.load(file)
                            if (of.get("predicted") or {}).get("us") is not None]
            if not launches:
                raise Lacking(f"{chapter} has no predicted times here")
            for slower, all_within in ((1.05, True), (2.0, False)):
                results.write(path + ".time.csv", made_up.text(
                    [(of, made_up.metrics_of(of, slower)) for of in launches]))
                rows = validate.compare_times(path).data["rows"]
                print(f"{chapter}, {slower} times as long: {timed.summary(rows)}", flush=True)
                found = [row["within"] for row in rows if row["quantity"] == timed.BOUND[0]]
                if len(found) < len({of["mangled"] for of in launches}) or \
                        any(within != all_within for within in found):
                    wrong.append(f"{chapter}: of {len(found)} times {sum(found)} count as within "
                                 f"the bounds on a GPU that takes {slower} times as long")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", required=True, help="of the virtual GPU: chapter1, ...")
    parser.add_argument("--peers", default="", help="a Python that has torch")
    parser.add_argument("--arch", default="sm_90", help="of the GPU to be measured")
    parser.add_argument("--chip", default="h100", help="that GPU for ncu: " + ", ".join(ncu.CHIPS))
    options = parser.parse_args()
    wrong, missing = [], []
    for what, step in (("measuring", measured), ("the classic operator", operator),
                       ("Nsight Compute's metrics", metrics),
                       ("predicted beside made-up times", times)):
        print(f"== {what}" + (" (times of a CPU, which say nothing)" if step is measured else ""),
              flush=True)
        try:
            wrong += [f"{what}: {why}" for why in step(options)]
        except Lacking as error:
            missing.append(f"{what}: {error}")
        except Refused as error:
            wrong.append(f"{what}: {error}")
        except subprocess.TimeoutExpired:
            wrong.append(f"{what}: stopped after {SECONDS} s")
    if not options.peers:
        missing.append("PyTorch: not asked for, PEERS=torch rehearses it too")
    cores = os.cpu_count() or 1
    total = sum(problems.predicted_seconds(problem, 7, options.peers, cores)
                for problem in problems.TABLE)
    for line in missing:
        print(f"not rehearsed: {line}", file=sys.stderr)
    for line in wrong:
        print(f"wrong: {line}", file=sys.stderr)
    print(f"make bench{' PEERS=torch' if options.peers else ''} on a GPU, with {cores} cores: "
          f"{total / 60:.0f} minutes predicted" + ("" if missing or wrong else "; all rehearsed"))
    return 1 if wrong else 3 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
