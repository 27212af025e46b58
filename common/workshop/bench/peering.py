"""The program's times beside PyTorch's: a PyTorch process to ask, and the ratios."""
import contextlib
import json
import os
import queue
import statistics
import subprocess
import sys
import threading
import time

import problems
import ratios
from results import Lacking, Refused

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers.py")
ANSWER_SECONDS = 240  # for a round: backends, compilations, a slow formulation at full size


class Peers:
    """peers.py, started once: importing and compiling take longer than measuring."""

    def __init__(self, python, script=SCRIPT, seconds=ANSWER_SECONDS, flags=()):
        self.python, self.script, self.seconds, self.flags = python, script, seconds, flags
        self.process = None
        self._start()

    def _start(self):
        self.process = subprocess.Popen([self.python, self.script, *self.flags],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        errors="replace")
        self.lines = queue.Queue()  # what it says, and None where it has ended

        def read(stream, lines):
            for line in stream:
                lines.put(line)
            lines.put(None)
            stream.close()
        threading.Thread(target=read, args=(self.process.stdout, self.lines), daemon=True).start()
        try:
            self.about = self._answer()
        except BaseException:
            self.close()
            raise

    def _answer(self):
        """The next line that is an object. Throws Lacking where the process ends or is too slow,
        and ends it then: what it says later would be the answer to another question."""
        until = time.monotonic() + self.seconds
        while True:
            try:
                line = self.lines.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                self.close(at_once=True)
                raise Lacking(f"peers.py did not answer within {self.seconds} s") from None
            if line is None:
                status = self.close()
                raise Lacking(f"peers.py ended with {status}, its words are above")
            try:
                answer = json.loads(line)
            except ValueError:
                answer = None
            if isinstance(answer, dict):
                break
            print(f"peers.py: {line.rstrip()}", file=sys.stderr)  # a library's words
        if "lacking" in answer:
            raise Lacking(answer["lacking"])
        if "refused" in answer:
            raise Refused(answer["refused"])
        return answer

    def measure(self, family, problem, warmup, iterations):
        """[{name, median_us, ..., pass}], or with `lacking` why a backend cannot.

        Throws Lacking and Refused; the next call starts the process again where it has ended.
        """
        if self.process is None:
            self._start()
        request = {"family": family, "problem": problem, "warmup": warmup, "iterations": iterations}
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except OSError:
            self.close()
            raise Lacking("peers.py is gone") from None
        answer = self._answer()
        if not isinstance(answer.get("rows"), list):
            raise Refused("peers.py's answer has no rows")
        return answer["rows"]

    def forget(self):
        """The last problem's arrays, so that the GPU is the next program's alone."""
        if self.process is not None:
            with contextlib.suppress(Lacking, Refused):
                self.measure("forget", {}, 0, 0)

    def close(self, at_once=False):
        """Ends the process. Returns its exit status."""
        process, self.process = self.process, None
        if process is None:
            return None
        if at_once:
            process.kill()
        try:
            process.stdin.close()
        except OSError:
            pass
        try:
            return process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


def fastest(rounds, own, key):
    """(name of the chapter's fastest kernel by the medians of `key`, that, its rounds), or None.

    Of the problem as a whole: a chapter may also have lines for a part of it.
    """
    lines = [kernel for kernel in rounds[0]["kernels"] if kernel["name"] in own]
    whole = max(kernel.get("flops") or 0 for kernel in lines)
    steps = [kernel["name"] for kernel in lines if (kernel.get("flops") or 0) == whole]
    # A stage may do all of a step's arithmetic. Ratios are of steps; of a step alone there are none, and
    # its line stands behind its stages'.
    compared = {ratio.get(side) for ratio in rounds[0].get("ratios", []) for side in ("before", "after")}
    steps = [name for name in steps if name in compared] or steps[-1:]
    times = {}
    for result in rounds:
        for kernel in result["kernels"]:
            if kernel["name"] in steps and kernel.get(key):
                times.setdefault(kernel["name"], []).append(kernel[key])
    found = [(statistics.median(us), name) for name, us in times.items() if len(us) == len(rounds)]
    if not found:
        return None
    us, name = min(found)
    return name, us, times[name]


def row_of(name, found, count):
    """What the rounds say of one peer; found: its rows, of `count` rounds."""
    row = {"name": name, **{key: found[0][key] for key in ("by", "library") if key in found[0]}}
    lacking = [of["lacking"] for of in found if "lacking" in of]
    if lacking or len(found) != count:
        return {**row, "lacking": lacking[0] if lacking else "not in every round"}
    if not all(of["pass"] for of in found):
        return {**row, "lacking": "its result is wrong: relative L2 "
                f"{max(of['relative_l2'] for of in found):.1e}"}
    row.update({"median_us": statistics.median(of["median_us"] for of in found),
                "rounds_us": [of["median_us"] for of in found],
                "min_us": min(of["min_us"] for of in found),
                "std_us": max(of["std_us"] for of in found),
                "relative_l2": max(of["relative_l2"] for of in found)})
    refusals = [of["no_graph"] for of in found if "no_graph" in of]
    if refusals:
        row["no_graph"] = refusals[0]
    elif all(of.get("graph_us") for of in found):
        row.update({"graph_us": statistics.median(of["graph_us"] for of in found),
                    "graph_rounds_us": [of["graph_us"] for of in found]})
    return row


def beside(own, rows, key, rounds_key):
    """The fastest peer by `key` over the chapter's fastest kernel, or None where either lacks.

    own: (kernel, its median, its rounds). `ratio` is the median of the rounds' ratios, `interval`
    that median's by bootstrap. A ratio above 1: the kernel is faster.
    """
    peer = ratios.best(rows, key)
    if peer is None or own is None:
        return None
    kernel, kernel_us, kernel_rounds = own
    by_round = [a / b for a, b in zip(peer[rounds_key], kernel_rounds)]
    found = {"peer": peer["name"], "peer_us": peer[key], "kernel": kernel, "kernel_us": kernel_us,
             "ratio": statistics.median(by_round), "ratios": by_round}
    around = ratios.interval(by_round)
    if around:
        found.update({"interval": list(around), "confidence": ratios.CONFIDENCE,
                      "resamples": ratios.RESAMPLES, "seed": ratios.SEED})
    return found


def paired(rounds, peer_rounds):
    """{"peers": a row for each, "best": the fastest one beside the chapter's fastest own kernel,
    "best_in_graphs": the same, both replayed from CUDA graphs}.

    rounds: what the program reported, peer_rounds: the rows of the peers, measured in turns
    with it.
    """
    own = problems.own_kernels(rounds[0])
    rows = [row_of(name, [row for peers in peer_rounds for row in peers if row["name"] == name],
                   len(rounds))
            for name in dict.fromkeys(row["name"] for peers in peer_rounds for row in peers)]
    found = {"peers": rows}
    for name, key, rounds_key in (("best", "median_us", "rounds_us"),
                                  ("best_in_graphs", "graph_us", "graph_rounds_us")):
        of = beside(fastest(rounds, own, key), rows, key, rounds_key)
        if of:
            found[name] = of
    return found


def lines(run):
    """For people: each peer's times, and the ratio to the fastest one."""
    text = []
    for row in run.get("peers", []):
        name = f"    {row.get('by', 'PyTorch')} {row['name']}"
        if "lacking" in row:
            text.append(f"{name}: {row['lacking']}")
            continue
        graph = f"  in a graph {row['graph_us']:.1f}" if "graph_us" in row else ""
        text.append(f"{name:<44} {row['median_us']:10.1f} us{graph}")
        if "no_graph" in row:
            text.append(f"    {'':<40} not in a CUDA graph: {row['no_graph']}")
    for key, where in (("best", "in a stream"), ("best_in_graphs", "in CUDA graphs")):
        if key in run:
            of = run[key]
            sure = "" if "interval" not in of else " ({:.0f}%: {:.2f} to {:.2f})".format(
                100 * of["confidence"], *of["interval"])
            text.append(f"    {of['kernel']} is {of['ratio']:.2f} times as fast{sure} as the "
                        f"fastest peer {where}, {of['peer']}")
    if run.get("peers") and "best" not in run:
        text.append("    no peer to compare with: none of them computed it")
    return text
