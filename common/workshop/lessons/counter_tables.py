"""The counters of a run in a chapter's README.

The text between the lines `<!-- counters:begin -->` and `<!-- counters:end -->` is replaced by what a run
counted: nothing in it is typed by hand, and nothing depends on the host (no wall times).

In front of it the README may say by formula what counters must be: see formulas.py. And which tables it wants:

    <!-- counters:show shared instructions occupancy -->

adds tables of shared memory, of instructions (with tensor multiply-adds), of registers and occupancy;
`distributed` of other blocks' shared memory; `copy-engine` of bulk copies; `hits` of the cache
model's hit rates, which need a run with --profile. `no-arrays` leaves out the table of arrays,
`no-limits` those of limits and predicted times; `all-tokens` adds what chapter 9's steps take for all
tokens; `large-arrays` leaves out lines without a formula that
are less than 1% of their kernel's sectors.

A README may have several blocks, each with its own formulas and tables in front of it, and needs as
many results, in the same order. `<!-- counters:begin --batch 11 -->` wants a run with these flags; so may
a README's only block.
"""
import re

import predictions
from formulas import LETTERS, comment, evaluate, pretty, read_formulas, wrong_counters
from results import Refused

BLOCK = re.compile(r"^<!-- counters:begin(?P<flags>(?: [^ >]+)*?) -->\n(?P<old>.*?)"
                   r"^<!-- counters:end -->\n", re.MULTILINE | re.DOTALL)
SHOW, TABLES = "<!-- counters:show", ("shared", "distributed", "copy-engine", "instructions",
                                        "occupancy", "hits", "no-arrays", "no-limits",
                                        "large-arrays", "all-tokens")
CLASSES = {"fp32": "fp32", "fp16": "fp16", "special": "special functions", "tensor": "tensor",
           "memory": "memory", "shuffle": "shuffle", "barrier": "barrier"}


def read_tables(text):
    """The tables that the README asks for."""
    tables = comment(text, SHOW).split()
    for table in tables:
        if table not in TABLES:
            raise Refused(f"counters:show {table}: there are {', '.join(TABLES)}")
    return tables


def micros(limit):
    return f"{limit:.2f}" if isinstance(limit, (int, float)) and limit > 0 else "-"


def table(head, rows):
    """A table in Markdown, columns of numbers to the right."""
    return ["| " + " | ".join(head) + " |",
            "|" + "".join("--:|" if cell[0].isdigit() else "---|" for cell in rows[0]),
            *("| " + " | ".join(row) + " |" for row in rows)]


def load_sums(result):
    """A line for each step: its launches stand in front of an entry without counters, or it is one launch."""
    steps, stages = [], []
    for i, kernel in enumerate(result["kernels"]):
        if not kernel.get("counters"):
            of_total = predictions.stages_of(result, i)
            steps += [(stage["name"], [stage]) for stage in stages if stage not in of_total]
            steps += [(kernel["name"], of_total)] if of_total else []
            stages = []
        else:
            stages.append(kernel)
    steps += [(kernel["name"], [kernel]) for kernel in stages]
    lines = []
    for name, stages in steps:
        loads = [kernel["counters"]["global"]["load"] for kernel in stages if kernel["counters"].get("global")]
        without = [kernel["name"] for kernel in stages if not kernel["counters"].get("global")]
        requests, sectors, asked = (sum(load[what] for load in loads)
                                    for what in ("requests", "sectors", "bytes_asked"))
        of_name = f" of {name}" if len(steps) > 1 else ""
        lines.append(f"All loads{of_name}{''.join(f' without {of}' for of in without)}: {requests:,} requests, "
                     f"{sectors:,} sectors, {asked:,} bytes asked.")
    return [line if line is lines[-1] else line + "<br>" for line in lines]


def shared_table(kernels):
    rows = []
    for kernel in kernels:
        for access, counted in kernel["counters"]["shared"].items():
            if counted["requests"]:
                rows.append([kernel["name"], access] +
                            [f"{counted[what]:,}"
                             for what in ("requests", "wavefronts", "ideal", "conflicts")])
    if not rows:
        raise Refused("counters:show shared: no kernel used shared memory")
    return ["Shared memory:", "",
            *table(["kernel", "access", "requests", "wavefronts", "ideal", "conflicts"], rows)]


def distributed_table(kernels):
    rows = []
    for kernel in kernels:
        for access in ("load", "store", "atomic"):
            counted = kernel["counters"].get("distributed_shared", {}).get(access)
            if counted and counted["requests"]:
                rows.append([kernel["name"], access, f"{counted['requests']:,}",
                             f"{counted['bytes']:,}"])
    if not rows:
        raise Refused("counters:show distributed: no kernel reached another block's shared memory")
    return ["Shared memory of other blocks of the cluster:", "",
            *table(["kernel", "access", "requests", "bytes"], rows)]


def copy_engine_table(kernels):
    rows = []
    for kernel in kernels:
        for array, accesses in kernel["counters"]["allocations"].items():
            for access, counted in accesses.get("copy_engine", {}).items():
                if counted["copies"]:
                    rows.append([kernel["name"], array, access] +
                                [f"{counted[what]:,}" for what in ("copies", "bytes", "l2_sectors")])
    if not rows:
        raise Refused("counters:show copy-engine: no kernel copied in bulk")
    return ["Bulk copies, by the copy engine:", "",
            *table(["kernel", "array", "access", "copies", "bytes", "L2 sectors"], rows)]


def hits_table(kernels):
    prefix = "l1_hit_rate_"
    names = [name for name in kernels[0] if name.startswith(prefix)]
    if not names:
        raise Refused("counters:show hits: the result has no hit rates, it needs --profile")
    rows = [[kernel["name"], *(f"{100 * kernel[name]:.1f} %" for name in names)]
            for kernel in kernels]
    return ["Sectors of values found in the L1, by the model of the caches:", "",
            *table(["kernel", *(name.removeprefix(prefix) for name in names)], rows)]


def instructions_table(kernels):
    counted = [kernel["counters"] for kernel in kernels]
    classes = [c for c in CLASSES if any(of["classes"][c]["warp"] for of in counted)]
    tensor = any(of["tensor_macs"] for of in counted)
    rows = [[kernel["name"], *(f"{of['classes'][c]['warp']:,}" for c in classes),
             *([f"{of['tensor_macs']:,}"] if tensor else [])] for kernel, of in zip(kernels, counted)]
    return ["Instructions of warps, in PTX:", "",
            *table(["kernel", *(CLASSES[c] for c in classes),
                    *(["tensor multiply-adds"] if tensor else [])], rows)]


def all_tokens_table(kernels):
    """What a whole problem takes with each step that ran on a part: counts by formula, times."""
    counts = ("launches", "waits", "copies_in", "bytes_in", "copies_out", "device_bytes")
    rows = [[of["name"], *(f"{round(of['all_tokens_' + what]):,}" for what in counts),
             predictions.micros(of["all_tokens_us"]) if of["all_tokens_us"] else "-"]
            for of in kernels if "all_tokens_us" in of]
    if not rows:
        raise Refused("counters:show all-tokens: no step says what all tokens take")
    return ["All tokens:", "", *table(["step", *(what.replace("_", " ") for what in counts),
                                       "predicted µs"], rows)]


def occupancy_table(kernels):
    rows = []
    for kernel in kernels:
        of = kernel["counters"]
        threads, shared = of["threads"] // of["blocks"], of["static_shared"] + of["dynamic_shared"]
        rows.append([kernel["name"], f"{of['blocks']:,}", str(threads), str(of["registers"]),
                     f"{shared:,}", str(of["occupancy"]["blocks_per_sm"]),
                     str(of["occupancy"]["warps_per_sm"]), of["occupancy"]["limiter"]])
    return ["Occupancy, theoretical:", "",
            *table(["kernel", "blocks", "threads/block", "registers/thread", "shared bytes/block",
                    "blocks/SM", "warps/SM", "limited by"], rows)]


def joined_lines(kernels):
    """Which limits are of machine code whose accesses are fewer than PTX's: a line a pipe."""
    by_pipe = {}
    for kernel in kernels:
        for pipe, us in kernel["counters"].get("limits_by_ptx", {}).items():
            by_pipe.setdefault(pipe, []).append((kernel["name"], micros(us)))
    return [line for pipe, found in by_pipe.items()
            for line in ("", f"{pipe} of {', '.join(f'*{name}*' for name, _ in found)} counts the "
                         "accesses of the machine code, where neighbours are joined into wider "
                         f"ones; those of PTX would take {', '.join(us for _, us in found)} µs.")]


def predicted_lines(result):
    """The table of predicted times, and what each step bought; [] where there are none."""
    named = dict(zip((kernel["name"] for kernel in result["kernels"]),
                     predictions.of_kernels(result)))
    found = {name: predicted for name, predicted in named.items() if predicted}
    if not found:
        return []
    error = max((predicted.get("error", 0) for predicted in found.values()))
    rows = [[name, predictions.micros(of["us"]), f"{100 * of['issue_share']:.0f} %" if "issue_share" in of else "-",
             predictions.main_reason(of)] for name, of in found.items() if "us" in of]
    lines = ["", f"Predicted times, ±{100 * error:.0f}%:", "",
             *table(["kernel", "µs", "issue slots used", "warps wait most for"], rows)] if rows else []
    for name, of in found.items():
        if "why" in of:
            lines += ["", f"No predicted time of {name}: {of['why']}"]
    for before, after in dict.fromkeys((ratio["before"], ratio["after"])
                                       for ratio in result.get("ratios", [])):
        a, b = (named.get(name, {}).get("us") for name in (before, after))
        if a and b:
            lines += ["", f"In all, predicted: {before} {predictions.micros(a)} µs, {after} "
                      f"{predictions.micros(b)} µs, {predictions.times(a, b)}."]
    return lines


def block(result, formulas, checked, tables):
    """The lines of the block, and what is wrong with the formulas."""
    problem, device = result["problem"], result["device"]
    names = {short: problem[name] for name, short in LETTERS.items() if name in problem}
    kernels = [k for k in result["kernels"] if k.get("counters", {}).get("global")]
    whole_runs = all_tokens_table(result["kernels"]) if "all-tokens" in tables else []
    if not device.get("virtual") or not (kernels or whole_runs):
        raise Refused("the result has no counters: it must come from the virtual GPU")

    shape = ", ".join(f"{key} {problem[key]}" for key in LETTERS if key in problem)
    head = [f"Virtual {device['name']}, [{shape}], nvcc {result['nvcc']}."]
    lines = ["", "| kernel | array | access | requests | sectors | sectors/request | ideal "
             "| bytes asked | by formula |",
             "|---|---|---|--:|--:|--:|--:|--:|---|"]
    wrong, unused, left_out = [], dict(formulas), 0
    for kernel in kernels:
        arrays = kernel["counters"]["allocations"]
        least = 0.01 * sum(counted["sectors"] for of in arrays.values() for counted in of.values()
                           if isinstance(counted, dict) and "sectors" in counted) \
            if "large-arrays" in tables else 0
        for array, accesses in arrays.items():
            for access in ("load", "store", "atomic"):
                counted = accesses[access]
                if not counted["requests"]:
                    continue
                formula = unused.pop((kernel["name"], array, access), None)
                if formula and evaluate(formula, names) != counted["bytes_asked"]:
                    wrong.append(f"{kernel['name']} {array} {access}: {formula} = "
                                 f"{evaluate(formula, names):,}, counted {counted['bytes_asked']:,}")
                if not formula and counted["sectors"] < least:
                    left_out += 1
                    continue
                name = array.rsplit("::", 1)[-1]  # a variable of the module has its namespace
                lines.append(
                    f"| {kernel['name']} | {name} | {access} | {counted['requests']:,} "
                    f"| {counted['sectors']:,} | {counted['sectors_per_request']:.2f} "
                    f"| {counted['ideal_sectors_per_request']:.2f} "
                    f"| {counted['bytes_asked']:,} | {pretty(formula) if formula else ''} |")
    wrong += [f"{' '.join(key)}: nothing of that name was counted" for key in unused]

    wrong += wrong_counters(checked, kernels, names, result["clocks"]["peak_sm_hz"])

    letters = {letter for formula in formulas.values() for letter in re.findall(r"\b[A-Z]\b", formula)}
    meaning = ", ".join(f"{short} {name}" for name, short in LETTERS.items()
                        if name in problem and short in letters)
    if meaning:
        lines += ["", f"(By formula: {meaning}.)"]
    if left_out:
        lines += ["", f"({left_out} lines of less than 1% of their kernel's sectors are left out.)"]
    lines += ["", *load_sums(result)] if kernels else []
    lines = head + ([] if "no-arrays" in tables or not kernels else lines)
    lines += ["", *whole_runs] if whole_runs else []
    for name, lines_of in (("shared", shared_table), ("distributed", distributed_table),
                           ("copy-engine", copy_engine_table), ("instructions", instructions_table),
                           ("occupancy", occupancy_table), ("hits", hits_table)):
        if name in tables:
            lines += ["", *lines_of(kernels)]

    if "no-limits" in tables or not kernels:
        return lines, wrong
    # Pipes that have something to do in at least one kernel.
    limits = [kernel["counters"]["limits"] for kernel in kernels]
    pipes = [p for p in limits[0] if any(micros(of.get(p)) != "-" for of in limits)]
    lines += ["", "Modelled limits, lower bounds in µs:", "",
              "| kernel | " + " | ".join(pipes) + " | the largest |",
              "|---|" + "--:|" * len(pipes) + "---|"]
    for kernel, of in zip(kernels, limits):
        lines.append(f"| {kernel['name']} | " + " | ".join(micros(of.get(p)) for p in pipes) +
                     f" | {kernel['counters']['limit']['name']} |")
    predicted = predicted_lines(result)
    lines += [*joined_lines(kernels), *predicted]
    for ratio in result.get("ratios", []):
        if ratio["of"] == "modelled limits" and not predicted:
            lines += ["", f"In all, lower bounds: {ratio['before']} {micros(ratio['before_us'])} µs, "
                      f"{ratio['after']} {micros(ratio['after_us'])} µs."]
    return lines, wrong


def refreshed(text, results):
    """(the README with the blocks that these runs give, the formulas that are wrong)."""
    blocks = list(BLOCK.finditer(text))
    if len(blocks) != len(results) or len(blocks) != text.count("<!-- counters:begin"):
        raise Refused(f"{len(results)} results, but {len(blocks)} times a line '<!-- counters:begin "
                      "-->' and after it one '<!-- counters:end -->'")
    new_text, wrong, end = "", [], 0
    for found, result in zip(blocks, results):
        flags = found["flags"].removesuffix(" --profile").split()
        for flag, value in zip(flags[::2], flags[1::2]):
            has = result["problem"].get(flag.removeprefix("--").replace("-", "_"))
            if str(has) != value:
                raise Refused(f"the block wants {flag} {value}, the result has {has}")
        before = text[end:found.start()]
        lines, bad = block(result, *read_formulas(before), read_tables(before))
        new_text += before + text[found.start():found.start("old")] + "\n" + "\n".join(lines) + "\n\n"
        new_text += "<!-- counters:end -->\n"
        wrong += bad
        end = found.end()
    return new_text + text[end:], wrong
