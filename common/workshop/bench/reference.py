"""What counters.py, gains.py, sweeps.py and quoted.py share: a reference in files, written from results or
compared.

Each of them is a command `SCRIPT [--check] [--ptxas PATH] FOLDER RESULT.json...`. Without --check
it writes the reference, with it it says what differs.
"""
import argparse
import sys

import predictions
import results
from results import Refused

NOT_A_SIZE = ("source", "seed", "bytes")  # of a problem
RENEW = "make bench DEVICE=vgpu"


def gathered(paths, ptxas, found_in):
    """({device, nvcc, ptxas}, [found_in(result)]) of result files of the virtual GPU. Throws Refused, with the
    path, for what is none and where they are of several devices or compilers."""
    head, found = None, []
    for path in paths:
        try:
            result = results.read(path)
            if not result["device"]["virtual"]:
                raise Refused("not of the virtual GPU: a GPU's times are measured")
            found.append(found_in(result))
            own = {"device": result["device"], "nvcc": result["nvcc"], **({"ptxas": ptxas} if ptxas else {})}
        except KeyError as missing:
            raise Refused(f"{path}: no {missing} in it: not what ./run --json writes") from None
        except Refused as error:
            raise Refused(error if str(error).startswith(path) else f"{path}: {error}") from None
        if head not in (None, own):
            raise Refused(f"{path}: of another device or compiler than {paths[0]}")
        head = own
    return head, found


def sizes(paths, ptxas, lines_of):
    """{device, ..., runs: [{chapter, problem, lines: lines_of(result)}]} of such files."""
    head, runs = gathered(paths, ptxas, lambda result: {
        "chapter": result["chapter"],
        "problem": {name: value for name, value in result["problem"].items() if name not in NOT_A_SIZE},
        "lines": lines_of(result)})
    return {**head, "runs": runs}


def same(path, old, new):
    """Whether two predicted numbers, or limits beside them, count as equal: times and counts (their
    names end in `us`, `bytes` and `instructions`) within 2%, shares within 0.02, what is no number, stated errors
    and flops exactly."""
    number = (int, float)
    numbers = isinstance(old, number) and isinstance(new, number)
    if path.endswith(("error", "flops")) or not numbers:
        return old == new
    return abs(old - new) <= (predictions.US_TOLERANCE * max(abs(old), abs(new))
                              if path.endswith(("us", "bytes", "instructions")) else predictions.SHARE_TOLERANCE)


def differences(before, after, equal):
    """[(key, path, old, new)] between two {key: {path: value}}. A path that one side lacks counts
    as 0 there. Of a key that one side lacks the path is None, and old and new are whether each has
    it."""
    found = []
    for key in {**before, **after}:
        if key not in before or key not in after:
            found.append((key, None, key in before, key in after))
            continue
        old, new = before[key], after[key]
        found += [(key, path, old.get(path, 0), new.get(path, 0)) for path in {**old, **new}
                  if not equal(path, old.get(path, 0), new.get(path, 0))]
    return found


def of_same_ptxas(where, old, new):
    """Whether the same ptxas made the machine code, from which predictions follow; says so if not."""
    if old.get("ptxas") == new.get("ptxas"):
        return True
    print(f"{where}: predicted times are not compared: the reference is of ptxas "
          f"{old.get('ptxas', 'unknown')}, this run of {new.get('ptxas', 'unknown')}")
    return False


def told(lines, where, words, same_words):
    """Prints what differs, then `words`; or `same_words` where nothing does. The exit status."""
    if not lines:
        print(f"{where}: {same_words}")
        return 0
    for line in lines:
        print(line, file=sys.stderr)
    print(f"{where}: {words} `{RENEW}`", file=sys.stderr)
    return 1


def check_file(path, old, new, leaves, good):
    """Prints what differs between a file's content, None where there is none, and what runs gave.
    leaves(content): {(where, line): numbers}; good: what is said when all is the same. Returns the
    exit status."""
    if old is None:
        print(f"{path}: is not there; `{RENEW}` writes it", file=sys.stderr)
        return 1
    if not of_same_ptxas(path, old, new):
        return 0
    lines = []
    for key, name, x, y in differences(leaves(old), leaves(new), same):
        words = f"{name}: {x} -> {y}" if name else "new" if y else "is in the file, was not run"
        lines.append(f"{key[0]}: {key[1]}: {words}")
    return told(lines, path, f"{len(lines)} values differ; if that is meant, renew it with", good)


def main(name, description, merge, check, write):
    """A whole command. merge(paths, ptxas): what the results say; check(folder, that): the exit
    status; write(folder, that)."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 on differences")
    parser.add_argument("--ptxas", default="", help="that made the machine code, to be asked for "
                        "its version")
    parser.add_argument("folder", help="of the reference: data/results/virtual_h200")
    parser.add_argument("result", nargs="+", help="what ./run --json wrote")
    options = parser.parse_args()
    try:
        found = merge(options.result, predictions.ptxas_version(options.ptxas))
        if options.check:
            return check(options.folder, found)
        write(options.folder, found)
    except Refused as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    return 0
