"""Formulas of counters in a lesson, and whether a run counted what they say.

In front of a block of counters (counter_tables.py) a README may say what they must be:

    <!-- counters:formulas
    scores K load = 2*B*H*N*N*D
    coalesced K: shared.load.conflicts = 0
    tiling: clocks.L1/shared = 2*(64*ceil(N/64) + 16)
    -->

with the letters of LETTERS for the problem's sizes, whole numbers, + - * //, brackets, and ceil(a/b).

The first form speaks of bytes asked, by names of kernel and array. The second form, with a colon, of
any number of the kernel's counters in RESULT.json, a dot between names; `clocks.PIPE` is a modelled
limit in clocks of an SM, by PTX: machine code that has joined accesses may need fewer. Such lines are
only checked, not shown. A formula that does not give exactly the number counted is an error.
"""
import ast
import operator
import re

from results import Refused

LETTERS = {"batch": "B", "heads": "H", "tokens": "N", "head_dim": "D",  # attention
           "queries": "Q", "channels": "C", "levels": "L", "points": "P", "pixels": "S",
           "part_patches": "part patches", "part_channels": "part channels", "hidden": "F",
           "in_channels": "I", "out_channels": "O", "height": "H", "width": "W", "kernel": "K",
           "stride": "S", "rows": "R", "columns": "C"}
FORMULAS = "<!-- counters:formulas"
OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
             ast.FloorDiv: operator.floordiv}


def evaluate(formula, names):
    """A formula of whole numbers, names, + - * //, ceil(a/b) and brackets."""
    def value(node):
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.Name) and node.id in names:
            return names[node.id]
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            return OPERATORS[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and \
                node.func.id == "ceil" and len(node.args) == 1 and \
                isinstance(node.args[0], ast.BinOp) and isinstance(node.args[0].op, ast.Div):
            return -(-value(node.args[0].left) // value(node.args[0].right))
        raise Refused(f"formula '{formula}': only whole numbers, {', '.join(names)}, + - * // and "
                      "ceil(a/b)")
    try:
        return value(ast.parse(formula, mode="eval").body)
    except SyntaxError as error:
        raise Refused(f"formula '{formula}': {error.msg}") from None


def pretty(formula):
    """2*B*H*ceil(N/16)*N*N*D as 2BH⌈N/16⌉N²D."""
    formula = re.sub(r"ceil\(([^()]*)\)", r"⌈\1⌉", formula)
    formula = re.sub(r"\bN\*N\b", "N²", formula).replace("//", "/")
    return re.sub(r"(?<=\d)\*(?=\d)", "·", formula).replace("*", "")


def comment(text, opening):
    """What stands between `opening` and the end of the comment, or nothing."""
    return text.split(opening, 1)[1].split("-->", 1)[0] if opening in text else ""


def read_formulas(text):
    """{(kernel, array, access): formula} and [(kernel, path, formula)] of the comment."""
    shown, checked = {}, []
    for line in filter(None, map(str.strip, comment(text, FORMULAS).splitlines())):
        if match := re.fullmatch(r"([^:=]+) (\w+) (load|store|atomic) = (.+)", line):
            shown[match.group(1, 2, 3)] = match.group(4)
        elif match := re.fullmatch(r"([^:=]+): (\S+) = (.+)", line):
            checked.append(match.group(1, 2, 3))
        else:
            raise Refused(f"'{line}': a formula reads 'kernel array load = 2*B*H*N*D' or "
                          "'kernel: shared.load.conflicts = 0'")
    return shown, checked


def wrong_counters(checked, kernels, names, sm_hz):
    """What is wrong with formulas of the second form."""
    wrong = []
    for kernel, path, formula in checked:
        counted = {k["name"]: k["counters"] for k in kernels}.get(kernel)
        pipe = path.removeprefix("clocks.")
        if counted and pipe != path:
            counted = {**counted["limits"], **counted.get("limits_by_ptx", {})}.get(pipe)
            counted = round(counted * sm_hz / 1e6, 3) if isinstance(counted, float) else None
        elif counted:
            for name in path.split("."):
                counted = counted.get(name) if isinstance(counted, dict) else None
        if isinstance(counted, bool) or not isinstance(counted, (int, float)):
            wrong.append(f"{kernel}: {path}: nothing of that name was counted")
        elif evaluate(formula, names) != counted:
            wrong.append(f"{kernel}: {path}: {formula} = {evaluate(formula, names):,}, "
                         f"counted {counted:,}")
    return wrong
