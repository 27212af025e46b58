#!/usr/bin/env python3
"""Measures the chapters on a GPU: `make bench`.

    measure.py --programs FOLDER --results FOLDER [--only WORDS] [--fresh] [--peers PYTHON]

runs FOLDER/chapterN on each problem of problems.py and writes RESULTS/chapterN.json after each run,
whole or not at all. A second call goes on where the first one stopped: it leaves out what the same
program (by its bytes) has measured on the same GPU with the same driver; --fresh measures all anew.
Each number comes with its check: what a kernel computed wrongly is reported and not kept.

    --only WORDS     only problems with all of these in "chapterN NAME"
    --peers PYTHON   the same problems in PyTorch too, in turns with the chapter's program: an
                     interpreter that has torch
    --table FILE     other problems, as JSON
    --virtual        on the virtual GPU (with --table): for the tests of this script

Exit status: 0 all measured, 1 something is wrong or failed, 2 bad usage or input, 3 what is
missing.
"""
import argparse
import contextlib
import datetime
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time

import machine
import peering
import problems
import results
from results import Lacking, Refused

WARMUP, ITERATIONS, SECONDS, ROUNDS = 5, 50, 300, 2
HEAD = ("chapter", "device", "runtime", "nvcc")
OF_RUN = ("commit", "changed_files", "problem", "warmup", "iterations", "memory_in_use_bytes",
          "notes")
OF_KERNEL = ("name", "clock", "median_us", "min_us", "mean_us", "std_us", "spread", "samples",
             "graph_us", "no_graph", "stages_timed_together", "bytes", "flops", "scratch_bytes",
             "gb_per_s", "tflop_per_s", "max_abs_error", "relative_l2", "pass")


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()[:16]


def run_program(program, problem, warmup, iterations):
    """What the program reports. Throws Lacking at exit status 3, Refused at any other but 0."""
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "result.json")
        command = [program, *problems.arguments(problem), "--warmup", str(warmup), "--iterations",
                   str(iterations), "--json", file]
        try:
            done = subprocess.run(command, text=True, capture_output=True, timeout=SECONDS,
                                  check=False, errors="replace")
        except subprocess.TimeoutExpired:
            raise Refused(f"stopped after {SECONDS} s") from None
        except OSError as error:
            raise Lacking(f"{program}: {error.strerror}: make builds it") from None
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        if done.returncode == 3:
            raise Lacking(said[-1] if said else "exit status 3")
        if done.returncode != 0:
            raise Refused(f"exit status {done.returncode}: {said[-1] if said else 'nothing said'}")
        return results.read(file)


def measured(result, chapter):
    """The kernels of a run: times, what they are worth, their floors, memory and lines of code."""
    lines = []
    own = problems.own_kernels(result)
    for kernel in result["kernels"]:
        line = {name: kernel[name] for name in OF_KERNEL if name in kernel}
        below = problems.floors(result, kernel)
        if below:
            name = max(below, key=below.get)
            line["floor"], line["floor_us"] = name, below[name]
            line["share_of_floor"] = below[name] / kernel["median_us"]
        line["memory_bytes"] = (kernel.get("bytes") or 0) + (kernel.get("scratch_bytes") or 0)
        if kernel["name"] in own:
            lines_of_code = problems.kernel_lines(chapter, kernel["name"])
            if lines_of_code:
                line["kernel_lines"] = lines_of_code
        lines.append(line)
    return lines


class Chapter:
    """The result file of a chapter, and which of its runs still hold."""

    def __init__(self, folder, number, program, driver, fresh):
        self.path = os.path.join(folder, f"chapter{number}.json")
        self.number, self.program, self.driver = number, digest(program), driver
        self.content = {}
        if os.path.exists(self.path) and not fresh:
            try:
                self.content = results.read(self.path)
                if not isinstance(self.content.get("runs"), list):
                    raise Refused(f"{self.path}: no list of runs")
            except Refused as error:
                print(f"{error}; measured anew", file=sys.stderr)
                self.content = {}

    def has(self, problem, peers):
        for run in self.content.get("runs", []):
            if run.get("name") == problem.name and run.get("flags") == problem.flags:
                return (run.get("program") == self.program and "kernels" in run and
                        self.content.get("driver") == self.driver and
                        (not peers or not problem.peers or "peers" in run))
        return False

    def add(self, result, run, order):
        head = {**{name: result[name] for name in HEAD}, "driver": self.driver}
        if {name: self.content.get(name) for name in head} != head:
            if self.content:
                print(f"{self.path}: was of another GPU, driver or compiler, begun anew")
            self.content = {**head, "runs": []}
        runs = [old for old in self.content["runs"] if old["name"] != run["name"]] + [run]
        self.content["runs"] = sorted(
            runs, key=lambda of: order.index(of["name"]) if of["name"] in order else len(order))
        results.write(self.path, results.text_of(self.content))


def shown(run, seconds):
    lines = []
    for line in run["kernels"]:
        share = f"{100 * line['share_of_floor']:5.1f}% of the floor ({line['floor']})" \
            if "share_of_floor" in line else ""
        rate = "".join(f"{line[key]:9.1f} {unit}" for key, unit in (("gb_per_s", "GB/s"),
                       ("tflop_per_s", "TFLOP/s")) if line.get(key))
        graph = f"  in a graph {line['graph_us']:.1f}" if line.get("graph_us") else ""
        mark = "*" if line.get("stages_timed_together", 1) > 1 else ""
        lines.append(f"    {line['name'] + mark:<14} {line['median_us']:10.1f} us{graph}  min "
                     f"{line['min_us']:.1f}  mean {line['mean_us']:.1f}  std "
                     f"{line['std_us'] or 0:.1f} {rate}  {share}")
        if "no_graph" in line:
            lines.append(f"    {'':<14} not in a CUDA graph: {line['no_graph']}")
    if any(line.get("stages_timed_together", 1) > 1 for line in run["kernels"]):
        lines.append("    * a stage among others: the time of an event is in it")
    lines += peering.lines(run.get("peers", []))
    if "no_peers" in run:
        lines.append(f"    PyTorch: {run['no_peers']}")
    return "\n".join(lines) + f"\n    ({seconds:.0f} s)"


def state(options, result=None):
    """The GPU's clocks; the virtual one has none."""
    if options.virtual:
        return {"driver": "virtual", **({"name": result["device"]["name"]} if result else {})}
    return machine.state()


def measure(problem, program, chapter, peers, order, options):
    """One problem: the program, in turns with its peers; kept when it is right.

    Returns whether its peers were measured, too, where that was asked for."""
    start, before, during = time.monotonic(), state(options), {}
    rounds, peer_rounds, no_peers = [], [], ""
    with contextlib.nullcontext() if options.virtual else machine.watched(during):
        for _ in range(ROUNDS if peers and problem.peers else 1):
            rounds.append(run_program(program, problem, options.warmup, options.iterations))
            if not peers or not problem.peers:
                continue
            try:
                peer_rounds.append(peers.measure(problem.peers, rounds[-1]["problem"],
                                                 options.warmup, options.iterations))
            except (Lacking, Refused) as error:  # the chapter's own times are none the worse
                no_peers = str(error)
                break
    result = rounds[0]
    if result["device"]["virtual"] != options.virtual:
        raise Refused(f"{program} ran on " + ("the virtual GPU" if result["device"]["virtual"]
                                              else "a GPU, and not on the virtual one"))
    wrong = [kernel["name"] for kernel in result["kernels"] if not kernel["pass"]]
    if wrong or not result["pass"]:
        raise Refused(f"wrong results: {', '.join(wrong) or 'see its output'}")
    run = {"name": problem.name, "flags": problem.flags, "program": chapter.program,
           "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
           **{name: result[name] for name in OF_RUN if name in result},
           "clocks": {"before": before, "after": state(options),
                      **({"during": during} if during else {})},
           "kernels": measured(result, problem.chapter), "ratios": result.get("ratios", [])}
    if no_peers:
        run["no_peers"] = no_peers
        print(f"chapter {problem.chapter}, {problem.name}: measured without PyTorch: {no_peers}",
              file=sys.stderr)
    elif peer_rounds:
        run["peers"] = peering.paired(rounds, peer_rounds)
    chapter.add(result, run, order)
    print(shown(run, time.monotonic() - start), flush=True)
    return not no_peers


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", required=True, help="folder with chapter1, chapter2, ...")
    parser.add_argument("--results", required=True, help="folder of chapterN.json")
    parser.add_argument("--only", default="", help="words of the problems to measure")
    parser.add_argument("--fresh", action="store_true", help="keep nothing of earlier runs")
    parser.add_argument("--peers", default="", help="a Python that has torch")
    parser.add_argument("--table", default="", help="JSON file of other problems")
    parser.add_argument("--virtual", action="store_true", help="on the virtual GPU, with --table")
    parser.add_argument("--warmup", type=int, default=WARMUP)
    parser.add_argument("--iterations", type=int, default=ITERATIONS)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    start, failed, alone, peers = time.monotonic(), 0, 0, None
    try:
        if options.virtual and not options.table:
            raise Refused("--virtual needs --table: wall times of the host are no results")
        if options.warmup < 0 or options.iterations < (1 if options.virtual else ITERATIONS):
            raise Refused(f"--iterations {options.iterations}: at least {ITERATIONS} are needed")
        table = problems.table_of(options.table) if options.table else problems.TABLE
        wanted = [problem for problem in table if all(
            word in f"chapter{problem.chapter} {problem.name}".split() or
            word in problem.name for word in options.only.split())]
        if not wanted:
            raise Refused(f"no problem has the words '{options.only}'")
        driver = state(options)["driver"]
        if options.peers:
            peers = peering.Peers(options.peers)
        chapters = {}
        for problem in wanted:
            number = problem.chapter
            program = os.path.join(options.programs, f"chapter{number}")
            title = f"chapter {number}, {problem.name}"
            if not os.path.exists(program):
                raise Refused(f"{program} is not there: make chapter{number} builds it")
            if number not in chapters:
                chapters[number] = Chapter(options.results, number, program, driver, options.fresh)
            if chapters[number].has(problem, peers):
                print(f"{title}: measured before, kept", flush=True)
                continue
            print(title, flush=True)
            order = [of.name for of in table if of.chapter == number]
            try:
                alone += not measure(problem, program, chapters[number], peers, order, options)
            except (Lacking, Refused) as error:
                print(f"{title}: not measured: {error}", file=sys.stderr)
                failed += 1
    except Lacking as error:
        print(f"make bench: {error}", file=sys.stderr)
        return 3
    except Refused as error:
        print(f"measure: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nstopped; the next call goes on from here", file=sys.stderr)
        return 130
    finally:
        if peers:
            peers.close()
    print(f"{len(wanted) - failed} of {len(wanted)} problems are measured, in {options.results} "
          f"({time.monotonic() - start:.0f} s)" +
          (f"; {alone} of them without PyTorch" if alone else ""))
    return 1 if failed or alone else 0


if __name__ == "__main__":
    sys.exit(main())
