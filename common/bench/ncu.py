"""Nsight Compute's counters, and which of the virtual GPU's they are."""
import csv
import io

from results import Lacking, Refused

# Counter of the virtual GPU: what it is the sum of, and how far apart they may be, as a share of
# the number in the last column. Requests and sectors are a matter of addresses: equal. Wavefronts
# and conflicts of shared memory also count how warps meet at the banks: 2% of the wavefronts.
# A part of a sum is a list of alternatives, since metrics have other names on other GPUs: each one
# or several metrics, best first.
_GLOBAL = "l1tex__t_{what}_pipe_lsu_mem_{space}_op_{op}.sum"
# Asynchronous copies from global to shared memory count as loads.
_COPIES = ("sm__sass_l1tex_t_{what}_pipe_lsu_mem_global_op_{op}.sum", _GLOBAL)


def _copies(what):
    parts = ("ldgsts_cache_access", "ldgsts_cache_bypass")
    return [tuple(name.format(what=what, space="global", op=op) for op in ops)
            for name in _COPIES for ops in (("ldgsts",), parts)]


COUNTERS = {}
for _access, _op in (("load", "ld"), ("store", "st")):
    for _what in ("requests", "sectors"):
        COUNTERS[f"global.{_access}.{_what}"] = (
            [[(_GLOBAL.format(what=_what, space="global", op=_op),)]] +
            ([_copies(_what)] if _op == "ld" else []), 0.0, None)
    COUNTERS[f"local.{_access}.sectors"] = (
        [[(_GLOBAL.format(what="sectors", space="local", op=_op),)]], 0.0, None)
    # ldmatrix is none of the loads from shared memory.
    _ldmatrix = [("smsp__inst_executed_op_ldsm.sum",), ("smsp__sass_inst_executed_op_ldsm.sum",)]
    COUNTERS[f"shared.{_access}.requests"] = (
        [[(f"smsp__sass_inst_executed_op_shared_{_op}.sum",)]] +
        ([_ldmatrix] if _op == "ld" else []), 0.0, None)
    _wavefronts = f"shared.{_access}.wavefronts"
    COUNTERS[_wavefronts] = (
        [[(f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{_op}.sum",)]], 0.02, _wavefronts)
    COUNTERS[f"shared.{_access}.conflicts"] = (
        [[(f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{_op}.sum",)]], 0.02, _wavefronts)
COUNTERS["registers"] = ([[("launch__registers_per_thread",)]], 0.0, None)

METRICS = sorted({metric for parts, _, _ in COUNTERS.values() for alternatives in parts
                  for alternative in alternatives for metric in alternative})


def counted(counter, metrics):
    """(the counter's number by a launch's metrics, or None; [(alternatives, the one taken)]).

    Of each part the first alternative that is there whole, else the first of which anything is;
    () where ncu delivered none. Without its first part there is no number.
    """
    total, taken = 0.0, []
    for alternatives in COUNTERS[counter][0]:
        there = [tuple(metric for metric in alternative if metric in metrics)
                 for alternative in alternatives]
        best = next((some for some, whole in zip(there, alternatives) if some == whole),
                    next((some for some in there if some), ()))
        taken.append((alternatives, best))
        total += sum(metrics[metric] for metric in best)
    return (total if taken[0][1] else None), taken


def command(log, program):
    """The profiler's arguments in front of a program's.

    The clocks stay as they are. A regular expression: what a GPU does not count is left out, where
    a list would fail; it finds hardware's metrics, those of the launch are named.
    """
    hardware = [metric for metric in METRICS if not metric.startswith("launch__")]
    launch = [metric for metric in METRICS if metric.startswith("launch__")]
    return ["ncu", "--clock-control", "none", "--csv", "--page", "raw", "--print-units", "base",
            "--print-kernel-base", "mangled", "-f", "--log-file", log, "--metrics",
            ",".join(["regex:^(" + "|".join(hardware) + ")$", *launch]), *program]


def dims(text):
    """[128, 1, 1] of '(128, 1, 1)'."""
    try:
        found = [int(number) for number in text.strip("() ").split(",")]
    except ValueError:
        found = []
    if len(found) != 3:
        raise Refused(f"'{text}' is no size of a grid or a block")
    return found


def launches(text):
    """[{mangled, grid, block, metrics}] in the order of the launches, of ncu's --csv --page raw."""
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
    found = []
    for row in rows:
        if not row["ID"]:
            continue  # the line of units
        metrics = {}
        for name in METRICS:
            value = (row.get(name) or "").replace(",", "")
            try:
                metrics[name] = float(value)
            except ValueError:
                continue  # not in the table, 'n/a'
        found.append({"mangled": row["Kernel Name"], "grid": dims(row["Grid Size"]),
                      "block": dims(row["Block Size"]), "metrics": metrics})
    if not found:
        raise Refused("ncu's table has no launch")
    return found
