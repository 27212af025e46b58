"""Result files: read, written whole or not at all, and the numbers in them by path."""
import json
import os


class Refused(Exception):
    """Bad input, in words."""


class Lacking(Exception):
    """What this machine does not have, in words."""


def read(path):
    """The object in a JSON file. Throws Refused when there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from None
    except ValueError as error:  # no JSON, or no UTF-8
        raise Refused(f"{path}: not JSON: {error}") from None
    if not isinstance(found, dict):
        raise Refused(f"{path}: holds no JSON object")
    return found


def text_of(result):
    return json.dumps(result, indent=1, ensure_ascii=False) + "\n"


def write(path, text):
    """All of it or nothing, also when the machine stops in the middle."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    part = f"{path}.{os.getpid()}.part"
    try:
        with open(part, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        if os.path.exists(part):
            os.remove(part)


def number_of(chapter):
    """7 of '07_persistent_deformable_attention'."""
    digits = chapter.split("_")[0]
    if not digits.isdigit():
        raise Refused(f"'{chapter}': a chapter's name begins with its number, as in 03_coalescing")
    return int(digits)


def describe(problem):
    """'batch 1, heads 12, tokens 197, head_dim 64': what tells problems of a chapter apart."""
    return ", ".join(f"{name} {value}" for name, value in problem.items()
                     if name not in ("source", "seed", "scale", "bytes"))


def flat(tree, prefix=""):
    """{'shared.load.conflicts': 3, ...} of nested objects; lists are values."""
    leaves = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            leaves.update(flat(value, f"{prefix}{name}."))
        else:
            leaves[prefix + name] = value
    return leaves
