"""Numbers that sentences state.

A number that comes from a result file stands between two markers, in a sentence as in a table. The first
says what it is, in Python:

    With 4 warps it is <!--=us["wmma"] / us["4 warps"]-->2.1<!----> times as fast.

The number is written with as many decimals as it has in the text, and a comma where it has one. A marker
straight behind a backtick is an example, and stays as it is. Names that expressions use, and what sentences
say in words, stand in a comment of the same file:

    <!-- numbers
    us = predicted("attention", batch=32, tokens=577)
    gain = us["4 warps"] / us["8 warps"]
    true: us["16 warps"] > us["8 warps"]  # and 16 warps lose again
    -->

No line of text begins with a marker: Markdown takes such a line for HTML, and the paragraph ends there.

A line of the comment that is indented goes on with the line before. Whatever follows `true:` must hold. A name
that nothing uses is an error. The functions that expressions may call are those of `Known` below, Python's own
for numbers and lists, and `table("operation")`: the numbers of the text's own table whose first head that is,
{first cell of a row: {head: number}}, where another script writes it from a result that is no file of data/.
"""
import builtins
import functools
import json
import math
import os
import re

import beside
import ncu
import quoted
import results
from results import Refused

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
RESULTS = os.path.join(ROOT, "data", "results")
MARKED = re.compile(r"(?<!`)<!--=(.*?)-->(.*?)<!---->", re.DOTALL)
BEGINS_LINE = re.compile(r"^[ >]*(?:[-*+] +|\d+[.)] +)*<!--=.*", re.MULTILINE)
BLOCK = re.compile(r"^ *<!-- numbers\n(.*?)^ *-->$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"-?\d{1,3}(,\d{3})+(\.\d+)?|-?\d+(\.\d+)?")
PYTHON = ("abs", "all", "any", "dict", "float", "int", "len", "list", "max", "min", "range", "round", "set",
          "sorted", "str", "sum", "tuple", "zip")


class Fields(dict):
    """A JSON object whose fields are also attributes: of.predicted.us."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"no field '{name}': there are {', '.join(self)}") from None


@functools.cache
def load(device, name):
    try:
        with open(os.path.join(RESULTS, device, name), encoding="utf-8") as file:
            return json.load(file, object_hook=Fields)
    except OSError as error:
        raise Refused(f"{device}/{name}: {error.strerror}") from None


def the_run(runs, what, problem):
    """The first run at such a problem. A value of None: the problem has no such field."""
    for run in runs:
        if all(run["problem"].get(name) == value for name, value in problem.items()):
            return run
    raise Refused(f"no run of {what} with {results.describe(problem) or 'any problem'}")


class Known:
    """What expressions may call. Steps, kernels and launches go by their names; times are in µs."""

    @staticmethod
    def steps(title, chapter=None, **problem):
        """{step or variant: its object} of gains.json. title: how the run's title begins. chapter: only its own,
        where several chapters have a variant of the name."""
        run = the_run([of for of in load("virtual_h200", "gains.json").runs if of.title.startswith(title)], title, problem)
        return {step.name: step for step in run.steps + run.get("variants", [])
                if chapter in (None, results.number_of(step.chapter))}

    @staticmethod
    def predicted(title, chapter=None, **problem):
        """{step or variant: its predicted time}."""
        return {name: step.predicted.us for name, step in Known.steps(title, chapter, **problem).items()}

    @staticmethod
    def photo(chapter, **problem):
        """{kernel: its object} of a chapter's own run, on one photo."""
        run = the_run(load("virtual_h200", f"chapter{chapter}.json").runs, f"chapter {chapter}", problem)
        return {kernel.name: kernel for kernel in run.kernels}

    @staticmethod
    def photo_us(chapter, **problem):
        """{kernel: its predicted time} of a chapter's own run, of those that have one."""
        return {name: kernel.predicted.us for name, kernel in Known.photo(chapter, **problem).items()
                if kernel.get("predicted")}

    @staticmethod
    def launches(chapter, **problem):
        """{launch or total: its object} of quoted.json."""
        found = quoted.lines(os.path.join(RESULTS, "virtual_h200"), chapter, **problem)
        if not found:
            raise Refused(f"quoted.json has no run of chapter {chapter} with {results.describe(problem)}")
        return json.loads(json.dumps(found), object_hook=Fields)

    @staticmethod
    def launches_of_steps(chapter, **problem):
        """{step: {launch: its predicted time}} of quoted.json, the step's total as 'all'."""
        return quoted.steps(os.path.join(RESULTS, "virtual_h200"), chapter, **problem)

    @staticmethod
    def swept(chapter, **problem):
        """{step or component: its predicted time} of sweeps.json."""
        runs = [of for of in load("virtual_h200", "sweeps.json").runs if results.number_of(of.chapter) == chapter]
        return {line.name: line.us for line in the_run(runs, f"chapter {chapter}", problem).lines}

    @staticmethod
    def gpu_run(chapter, name, device="nvidia_h200"):
        """A run of `make bench` on a GPU."""
        for run in load(device, f"chapter{chapter}.json").runs:
            if run.name == name:
                return run
        raise Refused(f"{device}/chapter{chapter}.json has no run '{name}'")

    @staticmethod
    def measured(chapter, name, device="nvidia_h200"):
        """{kernel: its measured time}, replayed from a graph where it was."""
        return {kernel.name: beside.measured_us(kernel) for kernel in Known.gpu_run(chapter, name, device).kernels}

    @staticmethod
    def launched(chapter, name, device="nvidia_h200"):
        """{kernel: its measured time}, launched one after the other, not from a graph."""
        return {kernel.name: kernel.median_us for kernel in Known.gpu_run(chapter, name, device).kernels}

    @staticmethod
    def peers(chapter, name, device="nvidia_h200"):
        """{peer: its object} of a run on a GPU."""
        return {peer.name: peer for peer in Known.gpu_run(chapter, name, device).peers}

    @staticmethod
    def validated(chapter, device="nvidia_h200"):
        """What validation.json has of a chapter: counters and times.rows, each with both sides."""
        for of in load(device, "validation.json").chapters:
            if of.chapter == chapter:
                return of
        raise Refused(f"{device}/validation.json has no chapter {chapter}")

    @staticmethod
    def profiled(chapter, *metrics, device="nvidia_h200"):
        """[{"kernel": its mangled name, metric: value}] of the launches that Nsight Compute timed."""
        path = os.path.join(RESULTS, device, "recorded", f"chapter{chapter}.time.csv")
        with open(path, encoding="utf-8") as file:
            return [{"kernel": of["mangled"], **of["metrics"]} for of in ncu.launches(file.read(), metrics)]

    @staticmethod
    def near(value, other, share):
        """Whether two numbers differ by no more than that share of the second."""
        return abs(value - other) <= share * abs(other)

    @staticmethod
    def digits(value, count):
        """The value rounded to so many digits."""
        return float(f"{value:.{count}g}")


def written(value, old):
    """The value as the old text has it: its decimals, its comma."""
    if not NUMBER.fullmatch(old):
        raise Refused(f"'{old}' is no number such as 12, 3.4 or 1,234")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Refused(f"is no number but {value!r}")
    comma = "," if "," in old or len(old.partition(".")[0]) < 4 else ""
    return f"{value + 0:{comma}.{len(old.partition('.')[2])}f}"


def definitions(text):
    """[(name or 'true', expression)] of the comments."""
    lines = []
    for line in "".join(BLOCK.findall(text)).splitlines():
        if line.startswith(" ") and lines:
            lines[-1] += " " + line.strip()
        elif line.strip():
            lines.append(line.strip())
    found = []
    for line in lines:
        match = re.fullmatch(r"(true): (.+)|(\w+) = (.+)", line)
        if not match:
            raise Refused(f"'{line}': a line reads 'name = expression' or 'true: expression'")
        found.append((match[1] or match[3], match[2] or match[4]))
    return found


def table(text, first):
    """{first cell of a row: {head: number}} of the table whose first head is `first`."""
    found = []
    for block in re.findall(r"(?:^ *\|.*\n)+", MARKED.sub(r"\2", text), flags=re.MULTILINE):
        head, *rows = [[cell.strip() for cell in row.strip().strip("|").split("|")] for row in block.splitlines()]
        if head[0] == first:
            found.append({row[0]: Fields({name: float(cell.replace(",", "")) for name, cell in zip(head, row)
                                          if NUMBER.fullmatch(cell)}) for row in rows[1:]})
    if len(found) != 1:
        raise Refused(f"{len(found)} tables whose first head is '{first}', not one")
    return found[0]


class Text:
    """A file with its numbers. wrong: what does not hold, in words."""

    def __init__(self, text):
        self.wrong = [f"a line must not begin with a marker: {line.strip()}" for line in BEGINS_LINE.findall(text)]
        self.used = set()
        self.names = {name: getattr(Known, name) for name in vars(Known) if not name.startswith("_")}
        self.names.update({name: getattr(builtins, name) for name in PYTHON}, ceil=math.ceil,
                          table=functools.partial(table, text), device=load("virtual_h200", "gains.json").device,
                          __builtins__={})
        defined = []
        for name, expression in definitions(text):
            value = self.value(expression)
            if name == "true":
                if value is not True:
                    self.wrong.append(f"does not hold ({value!r}): {expression}")
                continue
            if name in self.names:
                raise Refused(f"'{name}' is defined twice, or a function's name")
            self.names[name] = value
            defined.append(name)
        self.new = MARKED.sub(self.marked, text)
        if unused := [name for name in defined if name not in self.used]:
            raise Refused(f"nothing uses {', '.join(unused)}")

    def value(self, expression):
        try:
            code = compile(f"({expression}\n)", "numbers", "eval")
            self.used.update(names_in(code))
            return eval(code, self.names)  # pylint: disable=eval-used # the project's own lessons
        except (SyntaxError, NameError, LookupError, AttributeError, TypeError, ValueError, ArithmeticError,
                Refused) as error:
            words = f"there is no {error}" if isinstance(error, KeyError) else error
            raise Refused(f"{expression}: {words}") from None

    def marked(self, match):
        expression, old = match.groups()
        try:
            return f"<!--={expression}-->{written(self.value(expression), old)}<!---->"
        except Refused as error:
            raise Refused(f"<!--={expression}-->{old}: {error}") from None


def names_in(code):
    """The names that code uses, in its comprehensions too."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if hasattr(constant, "co_names"):
            found |= names_in(constant)
    return found
