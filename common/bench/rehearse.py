#!/usr/bin/env python3
"""All that `make bench PEERS=torch` and `make validate` do, without a GPU: `make bench-dry`.

    rehearse.py --programs FOLDER [--peers PYTHON] [--arch sm_90] [--chip h100]

So that minutes on a GPU are not spent on what fails anywhere: measure.py runs the virtual GPU's
programs (FOLDER/chapterN) on tiny problems, in turns with PyTorch on the CPU, and writes result
files into a folder that is thrown away; the classic operator is fetched and compiled for the GPU;
ncu is asked for its metrics. What this machine lacks is named at the end.

Exit status: 0 all of it works, 1 something fails, 2 bad usage, 3 something is missing here.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import ncu
import problems
import results
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
]
# What PyTorch has on a GPU alone.
GPU_ALONE = ("cudnn", "efficient", "FlashAttention-3", "ms_deform_im2col, half")


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
    return [f"{counter}: ncu knows no metric on {chip}"
            for counter, parts in ncu.of_chip(ncu.known(chip)) if not parts[0]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", required=True, help="of the virtual GPU: chapter1, ...")
    parser.add_argument("--peers", default="", help="a Python that has torch")
    parser.add_argument("--arch", default="sm_90", help="of the GPU to be measured")
    parser.add_argument("--chip", default="h100", help="that GPU for ncu: " + ", ".join(ncu.CHIPS))
    options = parser.parse_args()
    wrong, missing = [], []
    for what, step in (("measuring", measured), ("the classic operator", operator),
                       ("Nsight Compute's metrics", metrics)):
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
