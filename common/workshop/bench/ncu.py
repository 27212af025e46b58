#!/usr/bin/env python3
"""Nsight Compute's counters, and which of the virtual GPU's they are.

    ncu.py CHIP...    asks ncu, which needs no GPU for it, whether it knows the metrics on these
                      chips, as h100 or gh100; says which name is taken for each counter

Exit status: 0 every counter has a metric, 1 one has none, 2 bad usage, 3 no ncu.
"""
import csv
import io
import math
import shutil
import subprocess
import sys

from results import Lacking, Refused

# Counter of the virtual GPU: what it is the sum of, and how far apart they may be, as a share of
# the number in the last column. Requests and sectors are a matter of addresses: equal. Wavefronts
# and conflicts of shared memory also count how warps meet at the banks: 2% of the wavefronts.
# A part of a sum is a list of alternatives, since metrics have other names on other GPUs: each one
# or several metrics, best first; what a minus stands before is taken off.
_GLOBAL = "l1tex__t_{what}_pipe_lsu_mem_{space}_op_{op}.sum"
# Shared memory, by the instructions' own addresses. The counters of the hardware (l1tex__data_...)
# also count conflicts with others who want the data stage at that moment.
_WAVEFRONTS = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum"
_CONFLICTS = "smsp__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum"


COUNTERS = {}
for _access, _op in (("load", "ld"), ("store", "st")):
    for _what in ("requests", "sectors"):
        # Asynchronous copies from global to shared memory are among the loads (as an H200 counts them).
        COUNTERS[f"global.{_access}.{_what}"] = (
            [[(_GLOBAL.format(what=_what, space="global", op=_op),)]], 0.0, None)
    COUNTERS[f"local.{_access}.sectors"] = (
        [[(_GLOBAL.format(what="sectors", space="local", op=_op),)]], 0.0, None)
    # ldmatrix is none of the loads from shared memory.
    _ldmatrix = [("smsp__inst_executed_op_ldsm.sum",), ("smsp__sass_inst_executed_op_ldsm.sum",)]
    COUNTERS[f"shared.{_access}.requests"] = (
        [[(f"smsp__sass_inst_executed_op_shared_{_op}.sum",)]] +
        ([_ldmatrix] if _op == "ld" else []), 0.0, None)
    _wavefronts = f"shared.{_access}.wavefronts"
    # ldmatrix, and stmatrix where there is one.
    _both = tuple(_WAVEFRONTS.format(op=op) for op in (_op, _op + "sm" if _op == "st" else "ldsm"))
    COUNTERS[_wavefronts] = (
        [[_both, _both[:1], (f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{_op}.sum",)]], 0.02,
        _wavefronts)
    # Of ordinary loads no chip has them by instructions, of stores those before Hopper.
    COUNTERS[f"shared.{_access}.conflicts"] = (
        [([(_CONFLICTS.format(op=_op),)] if _op == "st" else []) +
         [(f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{_op}.sum",)]], 0.02, _wavefronts)
# Loads, stores and atomics together by instructions, on all chips: what is beyond the ideal.
COUNTERS["shared.conflicts"] = (
    [[("memory_l1_wavefronts_shared", "-memory_l1_wavefronts_shared_ideal")]], 0.02,
    "shared.wavefronts")
COUNTERS["registers"] = ([[("launch__registers_per_thread",)]], 0.0, None)

# Counters of the virtual GPU that are sums of others.
SUMS = {f"shared.{what}": [f"shared.{access}.{what}" for access in ("load", "store", "atomic")]
        for what in ("wavefronts", "conflicts")}

METRICS = sorted({metric.lstrip("-") for parts, _, _ in COUNTERS.values() for alternatives in parts
                  for alternative in alternatives for metric in alternative})


# What ncu works out itself; --query-metrics lists the hardware's alone.
OF_NCU = ("launch__", "memory_")
CHIPS = {"h100": "gh100", "h200": "gh100", "a100": "ga100", "a100_40gb": "ga100", "a6000": "ga102", "rtx3090": "ga102",
         "rtx4070tis": "ad103", "rtx4090": "ad102", "rtx5090": "gb202", "t4": "tu104"}


def with_sums(counters):
    """The virtual GPU's counters, and SUMS of those of them that are there."""
    sums = {name: sum(counters.get(part, 0) for part in parts) for name, parts in SUMS.items()
            if any(part in counters for part in parts)}
    return {**counters, **sums}


def counted(counter, metrics):
    """(the counter's number by a launch's metrics, or None; [(alternatives, the one taken)]).

    Of each part the first alternative that is there whole, else the first of which anything is;
    () where ncu delivered none. Without its first part there is no number.
    """
    total, taken = 0.0, []
    for alternatives in COUNTERS[counter][0]:
        best = chosen(alternatives, metrics)
        taken.append((alternatives, best))
        total += sum(-metrics[metric[1:]] if metric.startswith("-") else metrics[metric]
                     for metric in best)
    return (total if taken[0][1] else None), taken


def chosen(alternatives, metrics):
    """The first alternative that is there whole, else the first of which anything is, else ()."""
    there = [tuple(metric for metric in alternative if metric.lstrip("-") in metrics)
             for alternative in alternatives]
    # A difference of which a half is missing is no number.
    there = [some if some == whole or not any(metric.startswith("-") for metric in whole) else ()
             for some, whole in zip(there, alternatives)]
    return next((some for some, whole in zip(there, alternatives) if some == whole),
                next((some for some in there if some), ()))


def command(log, program, metrics=None):
    """The profiler's arguments in front of a program's. metrics: other ones than METRICS.

    The clocks stay as they are. A regular expression: what a GPU does not count is left out, where
    a list would fail; it finds hardware's metrics, ncu's own are named.
    """
    metrics = METRICS if metrics is None else metrics
    hardware = [metric for metric in metrics if not metric.startswith(OF_NCU)]
    own = [metric for metric in metrics if metric.startswith(OF_NCU)]
    return ["ncu", "--clock-control", "none", "--csv", "--page", "raw", "--print-units", "base",
            "--print-kernel-base", "mangled", "-f", "--log-file", log, "--metrics",
            ",".join(["regex:^(" + "|".join(hardware) + ")$", *own]), *program]


def dims(text):
    """[128, 1, 1] of '(128, 1, 1)'."""
    try:
        found = [int(number) for number in text.strip("() ").split(",")]
    except ValueError:
        found = []
    if len(found) != 3:
        raise Refused(f"'{text}' is no size of a grid or a block")
    return found


def launches(text, wanted=None):
    """[{mangled, grid, block, metrics, units}] in the order of launches, of ncu's --csv --page raw.

    wanted: other metrics than METRICS. What is no finite number ('n/a', 'nan') is left out.
    units: of each metric as ncu says them in the line under its head."""
    wanted = METRICS if wanted is None else wanted
    lines = text.splitlines()
    for line in lines:
        if "ERR_NVGPUCTRPERM" in line:
            raise Lacking("ncu may not read the GPU's counters: run as root, or let the driver "
                          "allow it (NVreg_RestrictProfilingToAdminUsers=0)")
    table = [line for line in lines if line.startswith('"')]
    if not table:
        said = [line for line in lines if line.strip()]
        raise Refused(f"ncu printed no table: {said[-1] if said else 'nothing at all'}")
    rows = csv.DictReader(io.StringIO("\n".join(table)))
    missing = [name for name in ("ID", "Kernel Name", "Block Size", "Grid Size")
               if name not in (rows.fieldnames or [])]
    if missing:
        raise Refused(f"ncu's table has no column '{missing[0]}'")
    found, units = [], {}
    for row in rows:
        if not row["ID"]:
            units = {name: row[name] for name in wanted if row.get(name)}
            continue
        metrics = {}
        for name in wanted:
            value = (row.get(name) or "").replace(",", "")
            try:
                value = float(value)
            except ValueError:
                continue  # not in the table, 'n/a'
            if math.isfinite(value):
                metrics[name] = value
        found.append({"mangled": row["Kernel Name"], "grid": dims(row["Grid Size"]),
                      "block": dims(row["Block Size"]), "metrics": metrics, "units": units})
    if not found:
        raise Refused("ncu's table has no launch")
    return found


# ---- which metrics a chip has, without a GPU -----------------------------------------------------

def known(chip, ncu="ncu"):
    """The names, without their suffix, that ncu knows on the chip. Throws Lacking without ncu."""
    try:
        done = subprocess.run([ncu, "--query-metrics", "--chips", chip], text=True, check=False,
                              capture_output=True, timeout=120, errors="replace")
    except OSError:
        raise Lacking("no ncu here: it comes with the CUDA Toolkit (Nsight Compute)") from None
    except subprocess.TimeoutExpired:
        raise Refused(f"ncu --query-metrics --chips {chip}: stopped after 120 s") from None
    names = {line.split()[0] for line in done.stdout.splitlines() if "__" in line.split(" ")[0]}
    if done.returncode != 0 or not names:
        said = (done.stderr + done.stdout).strip().splitlines()
        raise Refused(f"ncu --query-metrics --chips {chip}: {said[-1] if said else 'no metric'}")
    return names


def there_on(names, metrics):
    """Those of the metrics that the hardware with these names has, and those that ncu works out."""
    return {metric for metric in metrics
            if metric.startswith(OF_NCU) or metric.rsplit(".", 1)[0] in names}


def of_chip(names):
    """[(counter, the metrics taken for each part)] where the hardware has these names."""
    there = there_on(names, METRICS)
    return [(counter, [chosen(alternatives, there) for alternatives in parts])
            for counter, (parts, _, _) in COUNTERS.items()]


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        print("usage: ncu.py CHIP..., as h100 or gh100", file=sys.stderr)
        return 2
    missing = 0
    try:
        for chip in dict.fromkeys(CHIPS.get(name, name) for name in sys.argv[1:]):
            print(f"{chip}:")
            for counter, parts in of_chip(known(chip, shutil.which("ncu") or "ncu")):
                missing += not parts[0]
                text = [" ".join(part) if part else "no metric" for part in parts]
                print(f"  {counter:<26} {', '.join(text)}")
    except Lacking as error:
        print(f"ncu: {error}", file=sys.stderr)
        return 3
    except Refused as error:
        print(f"ncu: {error}", file=sys.stderr)
        return 2
    if missing:
        print(f"ncu: {missing} counters have no metric", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
