#!/usr/bin/env python3
"""What each step bought at sizes that matter: predicted times of the virtual GPU, into gains.json.

    gains.py FOLDER RESULT.json...          writes FOLDER/gains.json
    gains.py --check FOLDER RESULT.json...  writes nothing, says what differs
    gains.py --ptxas PATH ...               of which ptxas the predicted times are

RESULT.json is what a chapter's program writes with --json at that size; it may come from a run that
executed only the blocks that a prediction needs. The steps of attention's chapters on the same
problem become one ladder. Of each step the file keeps the predicted time with its stated error, or why
there is none, the modelled limit and which, and for what warps wait. What was tried and not kept, which a
program runs with --step alone, stands beside the steps, as the run's `variants`: it is no part of a ladder.

--check allows 2% in a time and 0.02 in a share, and compares nothing where another ptxas made the
machine code; it says so then.

Exit status: 0 written or the same, 1 something differs, 2 bad usage or input.
"""
import os
import sys

import predictions
import problems
import reference
import results
from results import Refused

FILE = "gains.json"
ATTENTION = "attention"
BACKWARD = "_gradients"         # of the same tensors, and no step of attention's ladder
NET = "vision transformer"      # its steps are choices of components
PROJECTION = "q, k and v inside attention's kernel or apart"
CVT = "CvT, "                   # and the component; a net's parts stand beside no step of another chapter
FIRST = "a first kernel"        # grey, sum and blur stand beside no step of one another
CHOICES = ("attention", "embed", "norm", "mlp", "qkv")


def title_of(chapter, problem):
    """'attention' for all its chapters, else 'persistent deformable attention'."""
    if "blocks" in problem:
        return NET
    if "sizes" in problem:
        return PROJECTION
    if "component" in problem:
        return CVT + problem["component"]
    if "tokens" in problem and not chapter.endswith(BACKWARD):
        return ATTENTION
    return chapter.split("_", 1)[1].replace("_", " ")


# Limits that are those of the busiest SM; the others but DRAM's are of all SMs together.
OF_ONE_SM = ("L1/shared", "issue")


def limits_of(counters):
    """{name: µs} of a launch's modelled limits.

    Where only some blocks were executed, limits are scaled by how many more there are, on the
    busiest SM or in the grid; DRAM's is the prediction's, which is of all blocks. Without a prediction
    there are none then."""
    predicted = counters.get("predicted") or {}
    if counters.get("sampled") and not predicted.get("blocks_simulated"):
        return {}
    limits = {name: us for name, us in counters.get("limits", {}).items()
              if isinstance(us, (int, float)) and not isinstance(us, bool)}
    if counters.get("sampled"):
        of_sm = predicted["blocks_of_sm"] / predicted["blocks_simulated"]
        of_all = counters["blocks"] / counters["executed_blocks"]
        limits = {name: us * max(1, of_sm if name in OF_ONE_SM else of_all)
                  for name, us in limits.items()}
        limits["DRAM"] = predicted.get("dram_us", 0)
    return limits


def bound_of(counters):
    """(name, µs) of a launch's largest modelled limit."""
    limits = limits_of(counters)
    if not limits:
        return "", 0.0
    name = max(limits, key=limits.get)
    return name, limits[name]


def choices_of(problem):
    """'coalesced_k, embed one_product, qkv epilogue': attention, and what is not as simple as can be."""
    chosen = [f"{name} {problem[name]}" for name in CHOICES[1:]
              if problem.get(name) not in (None, "simple", "split")]
    return ", ".join([f"{problem.get('attention')} attention", *chosen])


def steps_of(result):
    """The chapter's own steps, in the order of the result. Of a net one: with these components."""
    own, title = problems.own_kernels(result), title_of(result["chapter"], result["problem"])
    own_total = title in (NET, PROJECTION) or title.startswith(CVT)  # no file is the step's
    if own_total:
        own = [kernel["name"] for kernel in result["kernels"] if not kernel.get("counters")]
    number = results.number_of(result["chapter"])
    steps = []
    for i, (kernel, predicted) in enumerate(zip(result["kernels"], predictions.of_kernels(result))):
        if kernel["name"] not in own or not (own_total or kernel.get("variant") or
                                             problems.kernel_lines(number, kernel["name"])):
            continue
        if not predicted:
            raise Refused(f"{result['chapter']}: {kernel['name']}: the run predicted no times")
        parts = [kernel] if kernel.get("counters") else predictions.stages_of(result, i)
        bounds = [bound_of(part["counters"]) for part in parts for _ in range(part.get("launches", 1))]
        if not all(name for name, _ in bounds):  # a limit of some launches is none of the step
            bounds = [("", 0.0)]
        name = choices_of(result["problem"]) if title == NET else kernel["name"]
        step = {"chapter": result["chapter"], "name": name,
                **({"flops": kernel["flops"]} if "flops" in kernel else {}),
                "bound_us": sum(us for _, us in bounds),
                "bound": max(bounds, key=lambda of: of[1])[0],
                **({"variant": True} if kernel.get("variant") else {})}
        steps.append({**step, "predicted": predicted})
    return steps


def ladders(title, result, steps):
    """[(title, steps)]: of a component's steps those that the result compares with each other are a
    ladder, forward ones and those back; each other one stands by itself. Of first kernels those are a
    ladder whose names begin with the same word."""
    if title == FIRST:
        words = dict.fromkeys(step["name"].split()[0] for step in steps)
        return [(f"{title}, {word}", [step for step in steps if step["name"].split()[0] == word])
                for word in words]
    if not title.startswith(CVT):
        return [(title, steps)]
    ladder_of = {step["name"]: step["name"] for step in steps}
    for ratio in result.get("ratios", []):
        if "before" in ratio and {ratio["before"], ratio["after"]} <= set(ladder_of):
            old, new = ladder_of[ratio["after"]], ladder_of[ratio["before"]]
            ladder_of = {name: new if of == old else of for name, of in ladder_of.items()}
    found = {}
    for step in steps:
        found.setdefault(ladder_of[step["name"]], []).append(step)
    return [(f"{title}, backward" if i else title, ladder)
            for i, ladder in enumerate(found.values())]


def speeds_of(result):
    """The chapter's own steps of one of CvT's products: what they compute, and their predicted times."""
    steps = []
    for kernel, predicted in zip(result["kernels"], predictions.of_kernels(result)):
        if kernel["name"].split(",")[0] in ("naive", "patches"):
            continue
        if not predicted:
            raise Refused(f"{result['chapter']}: {kernel['name']}: the run predicted no times")
        steps.append({"chapter": result["chapter"], "name": kernel["name"], "flops": kernel["flops"],
                      "predicted": predicted})
    return steps


def is_product(title):
    """Whether a run is of one of CvT's dense components, of which only the speed is told."""
    return title.startswith(CVT) and title != CVT + "projection"


def run_of(result):
    """(title, problem, result, steps): which run of gains.json the result is of."""
    problem = {name: value for name, value in result["problem"].items() if name not in ("bytes", "seed")}
    title = title_of(result["chapter"], problem)
    if title == ATTENTION:
        problem.pop("source", None)
    if title == NET:
        problem = {name: of for name, of in problem.items() if name not in CHOICES}
    return title, problem, result, speeds_of(result) if is_product(title) else steps_of(result)


def merge(paths, ptxas=None):
    """What gains.json holds, of these results."""
    head, found = reference.gathered(paths, ptxas, run_of)
    gains = {**head, "runs": []}
    for title, problem, result, steps in found:
        if is_product(title):
            gains.setdefault("products", []).append(
                {"title": title, "problem": problem, "steps": steps})
            continue
        for of, own in ladders(title, result, steps):
            for run in gains["runs"]:
                if (run["title"], run["problem"]) == (of, problem):
                    run["steps"] += own
                    break
            else:
                gains["runs"].append({"title": of, "problem": problem, "steps": own})
    for run in gains["runs"]:
        every = sorted(run["steps"], key=lambda of: results.number_of(of["chapter"]))  # stable
        run["steps"] = [step for step in every if not step.get("variant")]
        if variants := [step for step in every if step.get("variant")]:
            run["variants"] = variants
    return gains


def all_steps(run):
    return run["steps"] + run.get("variants", [])


def load(folder):
    """gains.json of the folder, or None. Throws Refused for what is none."""
    path = os.path.join(folder, FILE)
    if not os.path.exists(path):
        return None
    gains = results.read(path)
    try:
        for run in gains["runs"]:
            _ = run["title"], run["problem"], [
                (of["chapter"], of["name"], of["bound_us"], of["predicted"])
                for of in all_steps(run)]
        for run in gains.get("products", []):
            _ = run["title"], run["problem"], [
                (of["chapter"], of["name"], of["flops"], of["predicted"]) for of in run["steps"]]
    except (KeyError, TypeError) as error:
        raise Refused(f"{path}: not what gains.py writes: {error!r}") from None
    return gains


def error_of(gains):
    """The stated error of the predictions in it, as a share; None where there are none."""
    return max((step["predicted"]["error"] for run in gains["runs"] for step in run["steps"]
                if "error" in step["predicted"]), default=None)


def short(run):
    """'batch 32, 577 tokens', '8 heads, uniform', 'deep': what tells the runs of a title apart."""
    problem = run["problem"]
    if run["title"] == ATTENTION:
        return f"batch {problem['batch']}, {problem['tokens']} tokens"
    if run["title"] == BACKWARD[1:] and "tokens" in problem:
        return f"batch {problem['batch']}, {problem['heads']} heads, {problem['tokens']:,} tokens"
    if run["title"].startswith(FIRST):
        return f"{problem['height']:,} x {problem['width']:,} pixels"
    if run["title"] == NET:
        return (f"{problem['model']}, batch {problem['batch']}, {problem['size']} pixels, "
                f"{problem['blocks']} blocks")
    if run["title"] == PROJECTION:
        return f"fp32, batch {problem['batch']}"
    if "distribution" in problem:
        heads = problem["heads"]
        return (f"{problem['distribution']} points, batch {problem['batch']}, "
                f"{problem['queries']:,} queries, {heads} head{'s' * (heads != 1)}")
    if run["title"].startswith(CVT) and "channels" in problem:
        return (f"batch {problem['batch']}, {problem['height']} x {problem['width']} tokens, "
                f"{problem['channels']} channels, {problem['dtype']}")
    if "part_patches" in problem:
        return (f"batch {problem['batch']}, {problem['height']} x {problem['width']} pixels, from the "
                "host's first call to its last wait")
    if "columns" in problem:
        return f"{problem['rows']:,} rows of {problem['columns']}"
    if "hidden" in problem:
        return f"{problem['rows']:,} rows, {problem['width']} to {problem['hidden']}"
    if "preset" in problem:
        return f"preset {problem['preset']}"
    return "photo" if not str(problem.get("source", "")).startswith("random") else \
        results.describe(problem)


def leaves(gains):
    """{(run, step): {path: value}}"""
    found = {}
    for run in gains["runs"] + gains.get("products", []):
        where = f"{run['title']} ({results.describe(run['problem'])})"
        for step in all_steps(run):
            key = (where, f"{step['chapter']} {step['name']}")
            if key in found:
                raise Refused(f"{where}: {key[1]} is there twice")
            found[key] = results.flat(step)
    return found


def check(folder, gains):
    """Prints what differs. Returns the exit status."""
    return reference.check_file(os.path.join(folder, FILE), load(folder), gains, leaves,
                                f"predicted times of {len(leaves(gains))} steps are those of the file")


def checked(paths, ptxas):
    """What merge() says, where each name stands for one step."""
    gains = merge(paths, ptxas)
    leaves(gains)
    return gains


def write(folder, gains):
    path = os.path.join(folder, FILE)
    results.write(path, results.text_of(gains))
    print(f"{path}: written from {len(leaves(gains))} steps")


if __name__ == "__main__":
    sys.exit(reference.main("gains", __doc__.splitlines()[0], checked, check, write))
