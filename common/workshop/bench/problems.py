"""What `make bench` measures: the problems, their floors, and the code that each kernel is."""
import dataclasses
import glob
import json
import os
import re
import shlex

from results import Refused

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


@dataclasses.dataclass(frozen=True)
class Problem:
    chapter: int
    name: str       # of the problem among its chapter's
    flags: str      # of the chapter's program
    peers: str = ""  # the family in peers.py that computes what the chapter's last kernel does


LADDER, TOKENS = (1, 2, 3, 4, 5, 6), (197, 577, 1025)
ABOVE = (13, 14)  # attention again, after other chapters
ATTENTION = (*LADDER, *ABOVE)
TABLE = [
    # A whole net and chapters of Part II before the ladder's steps: what has no peers is measured in
    # this order.
    *(Problem(12, f"{model} {batch} photos", f"--model {model} --batch {batch} --embed one_product "
              "--norm rows --mlp epilogue --qkv epilogue", "vit")
      for model, batch in (("tiny", 32), ("base", 8))),
    Problem(11, "photos", "--batch 32", "mlp"),
    # (All problems with peers together are to take less than 30 minutes: some go without.)
    *(Problem(11, shape, f"--preset {shape}") for shape in ("ffn512", "ffn768", "ffn1024")),
    *(Problem(9, name, f"--batch {batch}") for name, batch in (("32 photos", 32), ("1 photo", 1))),
    *(Problem(10, f"{photos} photos{name}", f"--batch {photos}{flag}")
      for photos in (32, 256) for name, flag in (("", ""), (" fp32", " --storage fp32"))),
    *(Problem(15, f"{tokens} tokens", f"--batch 32 --heads 12 --tokens {tokens} --head-dim 64")
      for tokens in TOKENS),
    *(Problem(19, distribution, f"--preset small --distribution {distribution}")
      for distribution in ("local", "uniform")),
    *(Problem(16, f"projection {stage}", f"--component projection --preset cvt13-{stage}")
      for stage in (1, 2, 3)),
    # The fastest step alone beside its peers: all steps take too long to be repeated with them.
    *(Problem(15, f"{tokens} tokens, tensor cores", f"--batch 32 --heads 12 --tokens {tokens} "
              "--head-dim 64 --step 'tensor cores'", "attention_backward") for tokens in TOKENS),
    *(Problem(16, f"projection 1, {name}", f"--component projection --preset cvt13-1 --step "
              f"'{step}'", peers) for name, step, peers in (
                  ("fused", "fused", "projection"), ("fused back", "fused, back", "projection_backward"))),
    Problem(10, "32 photos, vector", "--batch 32 --step vector", "layer_norm"),
    # Attention's peers stand beside the last chapter that a GPU before Hopper runs, and the last of all.
    *(Problem(n, f"{tokens} tokens", f"--batch 32 --heads 12 --tokens {tokens} --head-dim 64",
              "attention") for n in ABOVE for tokens in TOKENS),
    *(Problem(7, distribution, f"--preset full --distribution {distribution}", "deformable")
      for distribution in ("local", "uniform")),
    *(Problem(8, shape, f"--preset {shape}", "conv_norm")
      for shape in ("small", "deep", "wide", "point")),
    # PyTorch has tf32 for arrays in fp32, fp16 for arrays in fp16: the same arithmetic on both
    # sides.
    *(Problem(8, f"{shape} {name}", f"--preset {shape} {flag} {name}",
              "conv_norm" if shape == "deep" else "")
      for flag, name in (("--precision", "tf32"), ("--storage", "fp16"))
      for shape in ("small", "deep", "wide", "point")),
    Problem(0, "2048 pixels", "--size 2048"),
    *(Problem(n, f"{tokens} tokens", f"--batch 32 --heads 12 --tokens {tokens} --head-dim 64")
      for n in LADDER for tokens in TOKENS),
]

# What is worth most when time is short: a headline of each family, then its other sizes.
FIRST = ((14, "577 tokens"), (13, "577 tokens"), (7, "local"), (8, "deep"), (8, "small"),
         (8, "deep fp16"), (14, "1025 tokens"), (13, "1025 tokens"), (7, "uniform"),
         (8, "deep tf32"), (14, "197 tokens"), (13, "197 tokens"),
         (15, "577 tokens, tensor cores"), (15, "197 tokens, tensor cores"), (10, "32 photos, vector"),
         (16, "projection 1, fused"), (16, "projection 1, fused back"))


def by_worth(table):
    """The problems in the order in which they are measured: FIRST, others with peers, the rest."""
    def worth(problem):
        key = (problem.chapter, problem.name)
        return FIRST.index(key) if key in FIRST else len(FIRST) + (not problem.peers)
    return sorted(table, key=worth)


# Small and ragged: what `make validate` runs under a profiler, every kernel of a chapter.
VALIDATED = {
    0: "--height 31 --width 45",
    **{n: "--batch 1 --heads 2 --tokens 197 --head-dim 64" for n in LADDER},
    7: "--batch 1 --queries 999",
    8: "--in-channels 5 --out-channels 33 --height 31 --width 45",
    10: "--rows 67 --columns 264",
    11: "--tokens 150 --width 40 --hidden 136",
    12: "--batch 1",
    13: "--batch 1 --heads 2 --tokens 197 --head-dim 64",
    14: "--batch 1 --heads 2 --tokens 197 --head-dim 64",
    15: "--batch 1 --heads 2 --tokens 197 --head-dim 64",
    16: "--component projection --batch 2 --height 30 --width 29 --channels 40 --class-tokens 1",
    19: "--batch 1 --queries 999",
}


# For `make validate`: problems whose predicted times are compared with measured ones. They have
# work for every SM, and are those of gains.json (`sized` in common/make/reference.mk).
TIMED = {
    0: "--size 2048",
    **{n: "--batch 32 --tokens 577" for n in LADDER},
    7: "--batch 2 --distribution local --heads 8",
    8: "--preset deep --precision tf32,fp16 --storage fp16",
    10: "--batch 32",
    11: "--batch 32",
    12: "--batch 32",
    13: "--batch 32 --tokens 577",
    14: "--batch 32 --tokens 577",
    15: "--batch 32 --tokens 197",
    16: "--component projection --preset cvt13-1",
    19: "--preset small --distribution local --step packed",
}


def table_of(path):
    """A table from a JSON file, [{"chapter": 3, "name": "small", "flags": "--tokens 17"}, ...]."""
    try:
        with open(path, encoding="utf-8") as file:
            return [Problem(**line) for line in json.load(file)]
    except (OSError, ValueError, TypeError) as error:
        raise Refused(f"{path}: no table of problems: {error}") from None


def arguments(problem):
    return shlex.split(problem.flags)


# ---- how long measuring takes ------------------------------------------------------------------

# A program's start, inputs, copies and samples; the CPU's reference in seconds of one core, seen on
# a desktop's cores at the full size; PyTorch's preparations and compilations, and a round of it.
# Guesses where no GPU has measured yet: a result file's own `seconds` take their place.
RUN_S, PREPARE_S, ROUND_S = 3.0, 25.0, 3.0
REFERENCE_CORE_S = {7: 2.0, 8: 1.0, 11: 3.0}
ATTENTION_CORE_S, ATTENTION_TOKENS = 19.0, 1025  # with the square of the tokens
PRODUCTS = {15: 2.5}  # over those of attention's forward pass


def predicted_seconds(problem, rounds, peers, cores):
    """How long the problem takes, so many rounds of it, perhaps with its peers."""
    tokens = re.search(r"--tokens (\d+)", problem.flags)
    core_s = REFERENCE_CORE_S.get(problem.chapter, 0.0) if not tokens else \
        PRODUCTS.get(problem.chapter, 1.0) * ATTENTION_CORE_S * \
        (int(tokens.group(1)) / ATTENTION_TOKENS) ** 2
    run_s = RUN_S + core_s / cores
    return rounds * (run_s + ROUND_S) + PREPARE_S if peers and problem.peers else run_s


# ---- floors -------------------------------------------------------------------------------------

EXP_PER_CLOCK = 16       # special functions that an SM begins in a clock, sm_75 to sm_120
L1_BYTES_PER_CLOCK = 128  # of an SM


def floors(run, line):
    """{name: us} below which the problem cannot take, whatever the kernel does.

    Of the program's own bound (compulsory bytes at the DRAM's speed, arithmetic at that of the
    units that do it); of attention, an exponential for each score; of deformable attention, the
    four pixels of each sample through the L1.
    """
    found = {}
    bound = line.get("bound") or {}
    if bound.get("us"):
        found[bound["name"]] = bound["us"]
    problem, device = run["problem"], run["device"]
    clocks_per_us = device["sm_count"] * run["clocks"]["peak_sm_hz"] / 1e6
    if clocks_per_us <= 0:
        return found
    if "tokens" in problem and line.get("flops"):
        scores = problem["batch"] * problem["heads"] * problem["tokens"] ** 2
        found["exponentials"] = scores / (EXP_PER_CLOCK * clocks_per_us)
    if "queries" in problem:
        samples = (problem["batch"] * problem["queries"] * problem["heads"] * problem["levels"] *
                   problem["points"])
        corners = samples * 4 * problem["channels"] * 2  # fp16
        # A multiply-add for each number there: a stage with less reads no pixels of samples.
        if line.get("flops", 0) >= corners:
            found["L1"] = corners / (L1_BYTES_PER_CLOCK * clocks_per_us)
    return found


# ---- lines of code ------------------------------------------------------------------------------

def code_lines(text):
    """Lines with code on them: no comments, no blanks."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    return sum(bool(line.split("//")[0].strip()) for line in text.splitlines())


# The file of a step that is not named after it, in the chapter's folder; so are all of a chapter with
# components. (Other naive steps than the projection's have none: their files take types from the others'.)

STEP_FILES = {
    "4 rows a warp": "2_coalescing.cuh",
    "projection naive": "conv_projection/1_naive.cuh", "projection fused": "conv_projection/2_fused.cuh",
    "projection naive, back": "conv_projection/3_naive_backward.cuh",
    "projection fused, back": "conv_projection/4_fused_backward.cuh",
    **dict.fromkeys(("linear tiled", "linear tiled, back"), "operations/linear_layers/linear.cuh"),
    **dict.fromkeys(("layer_norm rows", "layer_norm rows, back"), "operations/token_norm/layer_norm.cuh"),
    "attention fused": "operations/fewer_keys/forward.cuh",
    "attention fused, back": "operations/fewer_keys/backward.cuh",
    **dict.fromkeys(("embedding implicit", "embedding implicit, back"),
                    "operations/token_embedding/embed.cuh"),
}


def step_file(folder, step):
    """The chapter's file of a step or variant, "2_wide_loads.cuh" of "wide loads"; None where it has none."""
    name = re.sub("[ -]", "_", step) + ".cuh"
    return next(iter(glob.glob(os.path.join(folder, "[0-9]_" + name)) +
                     glob.glob(os.path.join(folder, "variants", name)) +
                     glob.glob(os.path.join(folder, name))), None)


def kernel_texts(chapter, kernel, root=ROOT):
    """The files that the kernel's step consists of: its own, and what it includes of chapters: of another
    chapter than its own only parts.

    A chapter of several steps has a numbered .cuh named after each, a variant has one in variants/, or
    STEP_FILES names it; a step without one is in kernel.cuh. None where a chapter has neither: the
    line is of another chapter's kernel, or of a part of a step.
    """
    folders = glob.glob(os.path.join(root, "chapters", f"{chapter:02}_*"))
    if len(folders) != 1:
        return None
    own = os.path.join(folders[0], "kernel.cuh")
    words = kernel.replace("-", " ").split()
    # A step that is another one with other operands is in the file of those.
    named = [step_file(folders[0], name) for name in (
        kernel, *(["tensor"] if words[-1] in ("tf32", "fp16") else []), words[0])]
    if kernel in STEP_FILES:
        named.append(os.path.join(folders[0], STEP_FILES[kernel]))
    start = next((path for path in [*named, own] if path and os.path.exists(path)), None)
    if start is None:
        return None
    texts, waiting, seen = [], [start], set()
    while waiting:
        path = waiting.pop()
        if path in seen or not os.path.exists(path):
            continue
        seen.add(path)
        with open(path, encoding="utf-8") as file:
            texts.append(file.read())
        for name in re.findall(r'^#include "([^"]+)"', texts[-1], re.MULTILINE):
            included = os.path.normpath(os.path.join(os.path.dirname(path), name))
            of_chapter = included.startswith(folders[0] + os.sep)
            part = os.path.basename(os.path.dirname(path)) in ("parts", "variants")
            others_part = os.path.basename(os.path.dirname(included)) == "parts"
            if of_chapter and (included.endswith(".cuh") or part) or others_part or "/" not in name:
                waiting.append(included)
    return texts


def kernel_lines(chapter, kernel, root=ROOT):
    """Lines of code of these files, or None."""
    texts = kernel_texts(chapter, kernel, root)
    return None if texts is None else sum(code_lines(text) for text in texts)


def uses_tiles(chapter, kernel, root=ROOT):
    """Whether the step is written with common/tile/tile.cuh."""
    texts = kernel_texts(chapter, kernel, root) or []
    return any(re.search(r'#include "(?:\.\./)+common/tile/tile\.cuh"', text) for text in texts)


def own_kernels(result):
    """Names of the chapter's own steps among the lines of its report.

    Of a chapter with one kernel.cuh what its ratios lead to; else its last line: the others are stages,
    or another chapter's. Of a chapter with several steps all lines but stages, which have no bytes of
    their own that must move, and but another chapter's step, from which its ratios begin.
    """
    kernels, folder = result["kernels"], os.path.join(ROOT, "chapters", result["chapter"])
    ratios = result.get("ratios", [])
    after, before = ({ratio.get(side) for ratio in ratios} for side in ("after", "before"))
    if os.path.exists(os.path.join(folder, "kernel.cuh")):
        return [kernel["name"] for kernel in kernels if kernel["name"] in after] or \
            [kernels[-1]["name"]]
    return [kernel["name"] for kernel in kernels if kernel.get("bytes") != 0 and
            (kernel["name"] not in before - after or step_file(folder, kernel["name"]))]
