"""The program's times beside PyTorch's: a PyTorch process to ask, and the ratios."""
import json
import os
import queue
import statistics
import subprocess
import sys
import threading
import time

import problems
from results import Lacking, Refused

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers.py")
ANSWER_SECONDS = 900  # for a problem: backends, compilations, a slow formulation at full size


class Peers:
    """peers.py, started once: importing and compiling take longer than measuring."""

    def __init__(self, python, script=SCRIPT, seconds=ANSWER_SECONDS):
        self.python, self.script, self.seconds = python, script, seconds
        self.process = None
        self._start()

    def _start(self):
        self.process = subprocess.Popen([self.python, self.script], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, errors="replace")
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
    whole = max(kernel.get("flops") or 0 for kernel in rounds[0]["kernels"]
                if kernel["name"] in own)
    times = {}
    for result in rounds:
        for kernel in result["kernels"]:
            if kernel["name"] in own and (kernel.get("flops") or 0) == whole and kernel.get(key):
                times.setdefault(kernel["name"], []).append(kernel[key])
    found = [(statistics.median(us), name) for name, us in times.items() if len(us) == len(rounds)]
    if not found:
        return None
    us, name = min(found)
    return name, us, times[name]


def paired(rounds, peer_rounds):
    """A row for each peer: its time, that of the chapter's fastest own kernel, and their ratio.

    rounds: what the program reported, peer_rounds: the rows of the peers, measured in turns
    with it. A ratio above 1: the kernel is faster. Each round has one of its own, so that their
    spread shows how sure the ratio is; `ratio` is of the medians, both in a stream. graph_ratio and
    so on are the same of both replayed from CUDA graphs, where both were.
    """
    own = problems.own_kernels(rounds[0])
    kernel, kernel_us, kernel_rounds = fastest(rounds, own, "median_us")
    graph = fastest(rounds, own, "graph_us")

    rows = []
    for name in dict.fromkeys(row["name"] for peers in peer_rounds for row in peers):
        found = [row for peers in peer_rounds for row in peers if row["name"] == name]
        lacking = [row["lacking"] for row in found if "lacking" in row]
        if lacking or len(found) != len(rounds):
            rows.append({"name": name, "lacking": lacking[0] if lacking else "not in every round"})
            continue
        if not all(row["pass"] for row in found):
            rows.append({"name": name, "lacking": "its result is wrong: relative L2 "
                         f"{max(row['relative_l2'] for row in found):.1e}"})
            continue
        peer_us = statistics.median(row["median_us"] for row in found)
        rows.append({"name": name, "median_us": peer_us,
                     "min_us": min(row["min_us"] for row in found),
                     "std_us": max(row["std_us"] for row in found),
                     "relative_l2": max(row["relative_l2"] for row in found),
                     "kernel": kernel, "kernel_us": kernel_us, "ratio": peer_us / kernel_us,
                     "ratios": [row["median_us"] / us for row, us in zip(found, kernel_rounds)]})
        refusals = [row["no_graph"] for row in found if "no_graph" in row]
        if refusals:
            rows[-1]["no_graph"] = refusals[0]
        elif all(row.get("graph_us") for row in found):
            peer_us = statistics.median(row["graph_us"] for row in found)
            rows[-1]["graph_us"] = peer_us
            if graph:
                rows[-1].update({
                    "graph_kernel": graph[0], "graph_kernel_us": graph[1],
                    "graph_ratio": peer_us / graph[1],
                    "graph_ratios": [row["graph_us"] / us for row, us in zip(found, graph[2])]})
    return rows


def lines(rows):
    """For people: each peer's times and ratios, the fastest one marked."""
    def line(name, peer_us, kernel, ratio, ratios, mark):
        spread = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        return (f"    PyTorch {name:<30} {peer_us:10.1f} us; {kernel} is {ratio:.2f} times as fast "
                f"(by round: {spread}){mark}")
    best = {key: min((row[key] for row in rows if key in row), default=None)
            for key in ("median_us", "graph_us")}
    text = []
    for row in rows:
        if "lacking" in row:
            text.append(f"    PyTorch {row['name']}: {row['lacking']}")
            continue
        mark = ", the fastest peer" if row["median_us"] == best["median_us"] else ""
        text.append(line(row["name"], row["median_us"], row["kernel"], row["ratio"], row["ratios"],
                         mark))
        if "graph_ratio" in row:
            mark = ", the fastest peer in a graph" if row["graph_us"] == best["graph_us"] else ""
            text.append(line("  in a CUDA graph, as the kernel", row["graph_us"],
                             row["graph_kernel"], row["graph_ratio"], row["graph_ratios"], mark))
        elif "no_graph" in row:
            text.append(f"    PyTorch   in a CUDA graph: {row['no_graph']}")
    return text
