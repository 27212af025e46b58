"""The program's times beside PyTorch's: a PyTorch process to ask, and the ratios."""
import json
import os
import statistics
import subprocess

import problems
from results import Lacking, Refused

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers.py")


class Peers:
    """peers.py, started once: importing and compiling take longer than measuring."""

    def __init__(self, python, script=SCRIPT):
        self.process = subprocess.Popen([python, script], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        try:
            self.about = self._answer()
        except BaseException:
            self.close()
            raise

    def _answer(self):
        line = self.process.stdout.readline()
        try:
            answer = json.loads(line)
        except ValueError:
            self.process.wait(10)
            raise Lacking(f"peers.py ended with {self.process.returncode}, its words are above"
                          if not line else f"peers.py says '{line.strip()}'") from None
        if "lacking" in answer:
            raise Lacking(answer["lacking"])
        if "refused" in answer:
            raise Refused(answer["refused"])
        return answer

    def measure(self, family, problem, warmup, iterations):
        """[{name, median_us, ..., pass}], or with `lacking` why a backend cannot."""
        request = {"family": family, "problem": problem, "warmup": warmup, "iterations": iterations}
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Lacking("peers.py is gone") from None
        return self._answer()["rows"]

    def close(self):
        if self.process.stdin:
            try:
                self.process.stdin.close()
            except BrokenPipeError:
                pass
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def paired(rounds, peer_rounds):
    """A row for each peer: its time, that of the chapter's fastest own kernel, and their ratio.

    rounds: what the program reported, peer_rounds: the rows of the peers, measured in turns
    with it. A ratio above 1: the kernel is faster. Each round has one of its own, so that their
    spread shows how sure the ratio is; `ratio` is of the medians.
    """
    own = problems.own_kernels(rounds[0])
    # The problem as a whole: a chapter may also have lines for a part of it.
    whole = max(kernel.get("flops") or 0 for kernel in rounds[0]["kernels"]
                if kernel["name"] in own)
    times = {}
    for result in rounds:
        for kernel in result["kernels"]:
            if kernel["name"] in own and (kernel.get("flops") or 0) == whole:
                times.setdefault(kernel["name"], []).append(kernel["median_us"])
    kernel = min(times, key=lambda name: statistics.median(times[name]))
    kernel_us = statistics.median(times[kernel])

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
                     "ratios": [row["median_us"] / us for row, us in zip(found, times[kernel])]})
    return rows


def lines(rows):
    """For people: each peer's time and ratio, the fastest one marked."""
    timed = [row for row in rows if "ratio" in row]
    best = min(timed, key=lambda row: row["median_us"])["name"] if timed else None
    text = []
    for row in rows:
        if "lacking" in row:
            text.append(f"    PyTorch {row['name']}: {row['lacking']}")
            continue
        spread = ", ".join(f"{ratio:.2f}" for ratio in row["ratios"])
        text.append(f"    PyTorch {row['name']:<22} {row['median_us']:10.1f} us; {row['kernel']} "
                    f"is {row['ratio']:.2f} times as fast (by round: {spread})"
                    f"{', the fastest peer' if row['name'] == best else ''}")
    return text
