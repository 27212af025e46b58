"""Predicted times of the virtual GPU in a chapter's result: of a launch, of a step of several."""
import re
import subprocess

from results import Refused

# Of "predicted" in a launch's counters, what a result file keeps. Stalls become shares above 0.
KEPT = ("us", "error", "launch_us", "sm_us", "dram_us", "dram_bytes", "barrier_us", "issue_share")
US_TOLERANCE = 0.02     # of the predicted time, where the same ptxas made the machine code
SHARE_TOLERANCE = 0.02  # of shares, absolute

# Nsight Compute's stall reasons in words, in the order in which pictures stack them.
REASONS = {
    "selected": "issues",
    "not_selected": "another warp issues",
    "wait": "fixed latency of arithmetic",
    "math_pipe_throttle": "arithmetic unit busy",
    "short_scoreboard": "shared memory, special functions",
    "mio_throttle": "queue of shared memory full",
    "long_scoreboard": "global memory",
    "lg_throttle": "queue of global memory full",
    "barrier": "barrier of the block",
    "branch_resolving": "branch",
    "no_instructions": "instructions not there yet",
}


def of_launch(counters):
    """What a result file keeps of a launch's prediction; {} where nobody asked for one."""
    predicted = (counters or {}).get("predicted")
    if not predicted:
        return {}
    if predicted.get("us") is None:
        return {"why": predicted.get("why") or "no reason given"}
    clocks = predicted.get("stalls", {})
    total = sum(clocks.values())
    return {**{name: predicted[name] for name in KEPT if name in predicted},
            "stalls": {name: round(value / total, 4) for name, value in clocks.items()
                       if total and value / total >= 0.00005}}


def total(launches):
    """The prediction for launches one after the other; {} where one of them has none."""
    if not launches or any(not launch for launch in launches):
        return {}
    whys = [launch["why"] for launch in launches if "why" in launch]
    if whys:
        return {"why": whys[0]}
    us = sum(launch["us"] for launch in launches)
    # What several kernels of a library take together is known without why their warps wait.
    known = [launch for launch in launches if launch["stalls"]]
    names = dict.fromkeys(name for launch in known for name in launch["stalls"])
    known_us = sum(launch["us"] for launch in known)

    def mean(value):
        return round(sum(value(launch) * launch["us"] for launch in known) / known_us, 4)
    bytes_of = [launch.get("dram_bytes") for launch in launches]
    return {"us": us, "error": max(launch["error"] for launch in launches),
            **({"dram_bytes": sum(bytes_of)} if all(of is not None for of in bytes_of) else {}),
            **({"issue_share": mean(lambda launch: launch.get("issue_share", 0))} if known else {}),
            "stalls": {name: mean(lambda launch: launch["stalls"].get(name, 0)) for name in names}}


def stages_of(result, at):
    """The launches that line `at` of a result, a total, is of: the lines since the total before, but for steps
    of one launch, which ratios compare with others."""
    compared = {ratio.get(side) for ratio in result.get("ratios", []) for side in ("before", "after")}
    stages = []
    for kernel in reversed(result["kernels"][:at]):
        if not kernel.get("counters") or kernel["name"] in compared:
            break
        stages.insert(0, kernel)
    return stages


def of_kernels(result):
    """[prediction] of the lines of a result: a line without counters is a total. A line that stands for
    several launches alike has the prediction of one."""
    found = []
    for i, kernel in enumerate(result["kernels"]):
        if kernel.get("counters"):
            found.append(of_launch(kernel["counters"]))
        else:
            found.append(total([of_launch(stage["counters"]) for stage in stages_of(result, i)
                                for _ in range(stage.get("launches", 1))]))
    return found


def waits(stalls):
    """[(Nsight's name, share)] of the reasons for which warps wait, largest first."""
    return sorted(((name, share) for name, share in stalls.items() if name != "selected"),
                  key=lambda of: -of[1])


def main_reason(predicted):
    """'long_scoreboard 61%', or nothing."""
    found = waits(predicted.get("stalls", {}))
    return f"{found[0][0]} {100 * found[0][1]:.0f}%" if found else ""


def micros(us):
    return f"{us:,.0f}" if us >= 100 else f"{us:.3g}"


def with_unit(us):
    """'648 s', '14.8 s', '3.2 ms', '241 µs'."""
    size, unit = next(of for of in ((1e6, "s"), (1e3, "ms"), (1, "µs")) if us >= of[0] or of[0] == 1)
    return f"{micros(us / size)} {unit}"


def times(before, after):
    """'2.1 times as fast', '1.03 times as slow', 'no faster': what a step bought."""
    ratio = before / after
    if 0.98 < ratio < 1.02:
        return "no faster"
    word, ratio = ("fast", ratio) if ratio > 1 else ("slow", 1 / ratio)
    text = f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2g}" if ratio >= 2 else f"{ratio:.3g}"
    return f"{text} times as {word}"


def ptxas_version(path):
    """'V13.0.88' of `ptxas --version`. None without a path; throws Refused where it does not run."""
    if not path:
        return None
    try:
        said = subprocess.run([path, "--version"], text=True, capture_output=True, timeout=30,
                              check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise Refused(f"{path} --version: {error}") from None
    versions = re.findall(r"\bV\d+\.\d+\.\d+", said)
    if not versions:
        raise Refused(f"{path} --version: says no version, as V13.0.88")
    return versions[-1]
