#!/usr/bin/env python3
"""Measures the chapters on a GPU: `make bench`.

    measure.py --programs FOLDER --results FOLDER [--only WORDS] [--fresh] [--peers PYTHON]

runs FOLDER/chapterN on each problem of problems.py and writes RESULTS/chapterN.json after each run,
whole or not at all. What is worth most comes first (problems.FIRST), so that an hour cut short is
not lost. A second call goes on where the first one stopped: it leaves out what the same
program (by its bytes) has measured on the same GPU with the same driver; --fresh measures all anew.
Each number comes with its check: what a kernel computed wrongly is reported and not kept.

    --only WORDS     only problems with all of these in "chapterN NAME"
    --peers PYTHON   the same problems in PyTorch too, in turns with the chapter's program: an
                     interpreter that has torch
    --rounds N       turns of program and PyTorch, 7; their ratios give the interval
    --minutes N      begin no problem that is not expected to end within them
    --table FILE     other problems, as JSON
    --virtual        on the virtual GPU (with --table), PyTorch on the CPU: for rehearsals

Exit status: 0 all measured, 1 something is wrong or failed, 2 bad usage or input, 3 what is
missing.
"""
import argparse
import contextlib
import datetime
import hashlib
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import machine
import peering
import problems
import results
from results import Lacking, Refused

WARMUP, ITERATIONS, SECONDS, ROUNDS = 5, 50, 300, 7
HEAD = ("chapter", "device", "runtime", "nvcc")
OF_ROUNDS = {"median_us": statistics.median, "graph_us": statistics.median,
             "mean_us": statistics.fmean, "min_us": min, "std_us": max, "spread": max}
OF_RUN = ("commit", "changed_files", "problem", "warmup", "iterations", "memory_in_use_bytes",
          "notes")
OF_KERNEL = ("name", "clock", "median_us", "min_us", "mean_us", "std_us", "spread", "samples",
             "rounds_us", "graph_us", "no_graph", "stages_timed_together", "bytes", "flops",
             "scratch_bytes", "gb_per_s", "tflop_per_s", "max_abs_error", "relative_l2", "pass")


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


def merged(rounds):
    """The first round's result, its kernels' times those of all rounds, their medians a list."""
    if len(rounds) == 1:
        return rounds[0]
    kernels = []
    for i, kernel in enumerate(rounds[0]["kernels"]):
        line = dict(kernel)
        for key, of in OF_ROUNDS.items():
            values = [result["kernels"][i].get(key) for result in rounds]
            if all(value is not None for value in values):
                line[key] = of(values)
        for key in ("gb_per_s", "tflop_per_s"):
            if line.get(key):
                line[key] *= kernel["median_us"] / line["median_us"]
        line["rounds_us"] = [result["kernels"][i]["median_us"] for result in rounds]
        line["pass"] = all(result["kernels"][i]["pass"] for result in rounds)
        kernels.append(line)
    return {**rounds[0], "kernels": kernels, "pass": all(result["pass"] for result in rounds)}


class Plan:
    """How long the problems will take, and how far the prediction was off so far."""

    def __init__(self, seconds, minutes):
        self.waiting, self.minutes = list(seconds), minutes
        self.expected = self.took = 0.0
        self.start = time.monotonic()

    def factor(self):
        return self.took / self.expected if self.expected else 1.0

    def left(self):
        return self.factor() * sum(self.waiting)

    def fits(self):
        """Whether the next problem is expected to end in time."""
        so_far = time.monotonic() - self.start
        return not self.minutes or so_far + self.factor() * self.waiting[0] <= 60 * self.minutes

    def next(self, took=None):
        """The next one is over: it took so long, or was left out."""
        predicted = self.waiting.pop(0)
        if took is not None:
            self.expected += predicted
            self.took += took


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

    def seconds(self, problem, peers):
        """What the same took in an earlier call, of another program perhaps, or None."""
        for run in self.content.get("runs", []):
            if run.get("name") == problem.name and run.get("flags") == problem.flags and \
                    ("peers" in run) == bool(peers and problem.peers):
                return run.get("seconds")
        return None

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
    lines += peering.lines(run)
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
        for _ in range(options.rounds if peers and problem.peers else 1):
            rounds.append(run_program(program, problem, options.warmup, options.iterations))
            if not peers or not problem.peers:
                continue
            try:
                peer_rounds.append(peers.measure(problem.peers, rounds[-1]["problem"],
                                                 options.warmup, options.iterations))
            except (Lacking, Refused) as error:  # the chapter's own times are none the worse
                no_peers = str(error)
                break
    result = merged(rounds)
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
        run.update({"rounds": len(rounds), "versions": peers.about.get("versions", {}),
                    **peering.paired(rounds, peer_rounds)})
    run["seconds"] = round(time.monotonic() - start, 1)
    chapter.add(result, run, order)
    print(shown(run, run["seconds"]), flush=True)
    return not no_peers


def measure_all(wanted, table, peers, driver, options):
    """Measures what is missing. Returns how many problems failed, were measured without their
    peers, and did not fit into the time."""
    failed = alone = left = 0
    chapters, missing = {}, []
    for problem in wanted:
        number = problem.chapter
        program = os.path.join(options.programs, f"chapter{number}")
        if not os.path.exists(program):
            raise Refused(f"{program} is not there: make chapter{number} builds it")
        if number not in chapters:
            chapters[number] = Chapter(options.results, number, program, driver, options.fresh)
        if chapters[number].has(problem, peers):
            print(f"chapter {number}, {problem.name}: measured before, kept", flush=True)
        else:
            missing.append(problem)
    plan = Plan([chapters[problem.chapter].seconds(problem, peers) or problems.predicted_seconds(
        problem, options.rounds, peers, os.cpu_count() or 1) for problem in missing],
        options.minutes)
    print(f"{len(missing)} of {len(wanted)} problems to measure, predicted: {minutes(plan.left())}",
          flush=True)
    for i, problem in enumerate(missing):
        number = problem.chapter
        title = f"chapter {number}, {problem.name}"
        if not plan.fits():
            print(f"{title}: left out, {minutes(plan.factor() * plan.waiting[0])} are more than "
                  "the time that is left", flush=True)
            left += 1
            plan.next()
            continue
        print(f"{title} ({i + 1} of {len(missing)}; about {minutes(plan.left())} to go)",
              flush=True)
        order = [of.name for of in table if of.chapter == number]
        start = time.monotonic()
        try:
            alone += not measure(problem, os.path.join(options.programs, f"chapter{number}"),
                                 chapters[number], peers, order, options)
        except (Lacking, Refused) as error:
            print(f"{title}: not measured: {error}", file=sys.stderr)
            failed += 1
        if peers and problem.peers:
            peers.forget()
        plan.next(time.monotonic() - start)
    return failed, alone, left


def minutes(seconds):
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", required=True, help="folder with chapter1, chapter2, ...")
    parser.add_argument("--results", required=True, help="folder of chapterN.json")
    parser.add_argument("--only", default="", help="words of the problems to measure")
    parser.add_argument("--fresh", action="store_true", help="keep nothing of earlier runs")
    parser.add_argument("--peers", default="", help="a Python that has torch")
    parser.add_argument("--table", default="", help="JSON file of other problems")
    parser.add_argument("--virtual", action="store_true", help="on the virtual GPU, with --table")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--minutes", type=float, default=0, help="0: as long as it takes")
    parser.add_argument("--warmup", type=int, default=WARMUP)
    parser.add_argument("--iterations", type=int, default=ITERATIONS)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    start, peers = time.monotonic(), None
    try:
        if options.virtual and not options.table:
            raise Refused("--virtual needs --table: wall times of the host are no results")
        if options.warmup < 0 or options.iterations < (1 if options.virtual else ITERATIONS):
            raise Refused(f"--iterations {options.iterations}: at least {ITERATIONS} are needed")
        if options.rounds < 1:
            raise Refused(f"--rounds {options.rounds}: at least 1 is needed, {ROUNDS} are usual")
        if not 0 <= options.minutes < math.inf:
            raise Refused(f"--minutes {options.minutes:g}: a number above 0 is needed")
        table = problems.table_of(options.table) if options.table else problems.TABLE
        wanted = [problem for problem in table if all(
            word in f"chapter{problem.chapter} {problem.name}".split() or
            word in problem.name for word in options.only.split())]
        if not wanted:
            raise Refused(f"no problem has the words '{options.only}'")
        driver = state(options)["driver"]
        if options.peers:
            peers = peering.Peers(options.peers,
                                  flags=["--device", "cpu"] if options.virtual else [])
            print("PyTorch's side: " + ", ".join(
                f"{name} {version or 'is not there'}"
                for name, version in peers.about.get("versions", {}).items()), flush=True)
        failed, alone, left = measure_all(problems.by_worth(wanted), table, peers, driver, options)
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
    print(f"{len(wanted) - failed - left} of {len(wanted)} problems are measured, in "
          f"{options.results} ({time.monotonic() - start:.0f} s)" +
          (f"; {alone} of them without PyTorch" if alone else "") +
          (f"; {left} did not fit into {options.minutes:g} minutes: the same call goes on with them"
           if left else ""))
    return 1 if failed or alone or left else 0


if __name__ == "__main__":
    sys.exit(main())
