"""Predicted times, and why warps wait, beside what Nsight Compute measures: for `make validate`.

What has a bound, and counts as beyond it or not:

    time                  of a launch, gpu__time_duration, within the error that the prediction
                          states
    machine instructions  smsp__inst_executed, within 8%: where PTX and machine code disagree by
                          more, there is no prediction

All else is for information: which share of the issue slots is used, what each pipe executes and how
busy it is, the SMs' clock, and for what warps wait, by Nsight's names. The model states no error
for these.
"""
import ncu

INSTRUCTIONS = 0.08  # as kMostDiffering in common/vgpu/time/kernel_time.cpp

# What a number in such a unit is multiplied by. With --print-units base it is the first one.
TIMES = {"nsecond": 1e-3, "ns": 1e-3, "usecond": 1.0, "us": 1.0, "msecond": 1e3, "ms": 1e3,
         "second": 1e6, "s": 1e6}  # into microseconds
CLOCKS = {"cycle/second": 1e-6, "hz": 1e-6, "Hz": 1e-6, "cycle/usecond": 1.0, "MHz": 1.0,
          "cycle/nsecond": 1e3, "Ghz": 1e3, "GHz": 1e3, "cycle/us": 1.0, "cycle/ns": 1e3,
          "cycle/s": 1e-6}  # into MHz
COUNTS = {"inst": 1, "": 1, "warp": 1}
SHARES = {"%": 0.01}
RATES = {"": 1.0, "inst/cycle": 1.0, "1/cycle": 1.0, "warp": 1.0, "warp/cycle": 1.0}

PIPES = ("alu", "fma", "fp16", "fp64", "lsu", "tensor", "uniform", "xu")
# Metrics of a pipe that other chips and versions have instead.
PARTS = {"fma": ("fmaheavy", "fmalite"), "tensor": ("tensor_op_hmma", "tensor_op_imma",
                                                    "tensor_op_dmma")}


def _pipe(pipe, suffix):
    whole = [(f"{unit}__inst_executed_pipe_{pipe}.{suffix}",) for unit in ("sm", "smsp")]
    return whole + ([tuple(f"sm__inst_executed_pipe_{part}.{suffix}" for part in PARTS[pipe])]
                    if pipe in PARTS else [])


# Quantity: alternatives of metrics, best first, the sum of each is meant; and their units. What no
# alternative has whole is not compared, but for pipes, of whose parts a chip may have some.
QUANTITIES = {
    "time, µs": ([("gpu__time_duration.sum",), ("gpu__time_duration.avg",),
                  ("gpu__time_active.sum",)], TIMES),
    "machine instructions": ([("smsp__inst_executed.sum",), ("sm__inst_executed.sum",)], COUNTS),
    "clock, MHz": ([("smsp__cycles_elapsed.avg.per_second",),
                    ("gpc__cycles_elapsed.avg.per_second",)], CLOCKS),
    "issue slots": ([("smsp__issue_active.avg.pct_of_peak_sustained_active",),
                     ("smsp__issue_active.avg.per_cycle_active",),
                     ("smsp__inst_issued.avg.per_cycle_active",)], {**RATES, **SHARES}),
    **{f"pipe {pipe}": (_pipe(pipe, "avg.pct_of_peak_sustained_active"), SHARES) for pipe in PIPES},
    **{f"pipe {pipe}, instructions": (_pipe(pipe, "sum"), COUNTS) for pipe in PIPES},
}
BOUND = ("time, µs", "machine instructions")
IN_SHARES = ("issue slots", *(f"pipe {pipe}" for pipe in PIPES))

# The virtual GPU's reasons, and names that Nsight Compute has for them: counters of the hardware,
# and samples of program counters. Shares are of the sum, so either will do, and units do not
# matter.
REASONS = ("barrier", "branch_resolving", "dispatch", "drain", "gmma", "imc_miss", "lg_throttle",
           "long_scoreboard", "math_pipe_throttle", "membar", "mio_throttle", "misc",
           "no_instructions", "not_selected", "selected", "short_scoreboard", "sleeping",
           "tex_throttle", "wait")
SPELLED = {"dispatch": ("dispatch_stall", "dispatch"),
           "no_instructions": ("no_instruction", "no_instructions")}
FORMS = ("smsp__average_warps_issue_stalled_{}_per_issue_active.ratio",
         "smsp__average_warp_latency_issue_stalled_{}.ratio",
         "smsp__pcsamp_warps_issue_stalled_{}")
LEAST = 0.02  # of the warps' time: reasons below it on both sides are not listed

STALL_METRICS = {(reason, form): tuple(form.format(name) for name in SPELLED.get(reason, (reason,)))
                 for reason in REASONS for form in FORMS}
METRICS = sorted({metric for alternatives, _ in QUANTITIES.values() for some in alternatives
                  for metric in some} | {metric for names in STALL_METRICS.values()
                                         for metric in names})


def measured(quantity, launch):
    """(the number in our unit or None, why there is none) of a launch in ncu's table."""
    alternatives, units = QUANTITIES[quantity]
    best = ncu.chosen(alternatives, launch["metrics"])
    if not best:
        return None, "ncu did not deliver " + ", nor ".join(
            " + ".join(f"`{metric}`" for metric in some) for some in alternatives)
    total = 0.0
    for metric in best:
        unit = launch["units"].get(metric, "")
        if unit not in units:
            return None, (f"`{metric}` is in '{unit}', known are " +
                          ", ".join(f"'{name}'" for name in units))
        total += launch["metrics"][metric] * units[unit]
    return total, ""


def stalls(launch):
    """({reason: share of the warps' time}, which form of the names); {} where ncu has none."""
    for form in FORMS:
        found = {}
        for reason in REASONS:
            there = [launch["metrics"][name] for name in STALL_METRICS[reason, form]
                     if name in launch["metrics"]]
            if there:
                found[reason] = there[0]
        total = sum(found.values())
        if total > 0:
            return {reason: value / total for reason, value in found.items()}, form
    return {}, ""


def predictions_of(predicted):
    """{quantity: number} of a launch's `predicted`."""
    found = {"time, µs": predicted["us"],
             "machine instructions": predicted["machine_instructions"],
             "issue slots": predicted["issue_share"]}
    if predicted.get("sm_us"):
        found["clock, MHz"] = predicted["clocks"] / predicted["sm_us"]
    for pipe in PIPES:
        of = predicted.get("pipes", {}).get(pipe, {"share": 0.0, "instructions": 0.0})
        found[f"pipe {pipe}"] = of["share"]
        found[f"pipe {pipe}, instructions"] = of["instructions"]
    return found


def row(kernel, quantity, predicted, gpu, allowed=None, why=""):
    """allowed: how far apart they may be; None: no bound. A bound without a number is not kept."""
    within = allowed is None or (gpu is not None and abs(predicted - gpu) <= allowed)
    return {"kernel": kernel, "quantity": quantity, "predicted": predicted, "gpu": gpu,
            "allowed": allowed, "within": within, "information": allowed is None,
            **({"why": why} if why else {})}


def compare_launch(name, ours, theirs):
    """[row] of one launch. Without a prediction one row that says why, which breaks no bound."""
    predicted = ours.get("predicted") or {"why": "nobody asked for one"}
    if predicted.get("us") is None:
        return [{**row(name, "time, µs", None, measured("time, µs", theirs)[0]),
                 "why": f"no prediction: {predicted.get('why') or 'no reason given'}"}]
    rows = []
    for quantity, number in predictions_of(predicted).items():
        gpu, why = measured(quantity, theirs)
        if quantity not in BOUND and (gpu is None or (not gpu and not number)):
            if why.startswith("`"):  # a unit that nobody knows
                rows.append(row(name, quantity, number, None, None, why))
            continue
        share = predicted["error"] if quantity == BOUND[0] else INSTRUCTIONS
        allowed = share * (gpu or 0.0) if quantity in BOUND else None
        rows.append(row(name, quantity, number, gpu, allowed, why))
    theirs_shares, _ = stalls(theirs)
    if not theirs_shares:
        return rows + [row(name, "stalls", None, None, None,
                           "ncu delivered no reasons for which warps wait")]
    total = sum(predicted["stalls"].values()) or 1.0
    shares = {reason: value / total for reason, value in predicted["stalls"].items()}
    apart = 0.0
    for reason in dict.fromkeys((*REASONS, *shares)):
        a, b = shares.get(reason, 0.0), theirs_shares.get(reason, 0.0)
        apart += abs(a - b) / 2
        if max(a, b) >= LEAST:
            rows.append(row(name, f"stall {reason}", a, b))
    return rows + [row(name, "stalls, share that differs", 0.0, apart)]


def compare(counted, profiled, paired):
    """([row], [(name, launches of the virtual GPU, of the GPU)]) of what both launched."""
    pairs, alone = paired(counted, profiled)
    rows = [row_of for name, ours, theirs in pairs for row_of in compare_launch(name, ours, theirs)]
    return rows, alone


# ---- for people ---------------------------------------------------------------------------------

def number(quantity, value):
    if value is None:
        return "-"
    if quantity in IN_SHARES or quantity.startswith("stall"):
        return f"{100 * value:.0f}%"
    return f"{value:,.1f}" if quantity == "time, µs" and value < 100 else f"{value:,.0f}"


def difference(of):
    predicted, gpu, quantity = of["predicted"], of["gpu"], of["quantity"]
    if predicted is None or gpu is None or quantity == "stalls, share that differs":
        return ""
    if quantity in IN_SHARES or quantity.startswith("stall"):
        return f"{100 * (predicted - gpu):+.0f} points"
    return f"{100 * (predicted / gpu - 1):+.1f}%" if gpu else ""


def lines(rows):
    """The table, each row marked: beyond its bound, or for information."""
    text = ["| kernel | quantity | predicted | GPU | difference | |", "|---|---|--:|--:|--:|---|"]
    for of in rows:
        mark = "information" if of["information"] else "" if of["within"] else "beyond"
        if of.get("why"):
            mark += f"{': ' if mark else ''}{of['why']}"
        both = (number(of["quantity"], of[side]) for side in ("predicted", "gpu"))
        text.append("| " + " | ".join((of["kernel"], of["quantity"], *both, difference(of), mark)) +
                    " |")
    return text


def summary(rows):
    """'Predicted times of 12 launches: ...': how good they are; '' without any."""
    errors = [(abs(of["predicted"] / of["gpu"] - 1), of["kernel"], of["within"]) for of in rows
              if of["quantity"] == "time, µs" and of["predicted"] and of["gpu"]]
    if not errors:
        return ""
    apart = [of["gpu"] for of in rows if of["quantity"] == "stalls, share that differs"]
    words = (f"Predicted times of {len(errors)} launches: mean error "
             f"{100 * sum(error for error, _, _ in errors) / len(errors):.0f}%, worst "
             f"{100 * max(errors)[0]:.0f}% ({max(errors)[1]}), "
             f"{sum(within for _, _, within in errors)} within the stated error.")
    return words + (f" Of the warps' time {100 * sum(apart) / len(apart):.0f}% is told under "
                    "another reason, on the average." if apart else "")

