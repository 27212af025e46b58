#!/usr/bin/env python3
"""Executes the code cells of a notebook, without Jupyter.

    notebook.py [--skip TAG] FILE.ipynb

In the current folder, one cell after the other, in one namespace; lines that begin with ! go to the
shell. Pictures (IPython.display.Image and SVG) must be there and be pictures, a page in a frame
(IPython.display.HTML) must have its end. Unlike in a notebook, a command that fails ends it. Cells with
the tag are left out.

Exit status: 0 all cells ran, 1 one failed, 2 no notebook.
"""
import argparse
import html
import json
import re
import subprocess
import sys
import traceback
import types


class Refused(Exception):
    """What is wrong with the notebook, in words."""


def shell(command):
    print(f"$ {command}", flush=True)
    status = subprocess.run(["bash", "-c", command], check=False).returncode
    if status != 0:
        raise RuntimeError(f"exit status {status}: {command}")


class Picture:
    """A file that holds a picture of the kind that its name says."""

    def __init__(self, filename=None, **_):
        beginnings = {"png": b"\x89PNG\r\n", "jpg": b"\xff\xd8\xff", "svg": b"<?xml"}
        ending = str(filename).rsplit(".", 1)[-1]
        if ending not in beginnings:
            raise ValueError(f"'{filename}': no .png, .jpg or .svg")
        with open(filename, "rb") as file:
            if not file.read(8).startswith(beginnings[ending]):
                raise ValueError(f"{filename}: holds no {ending.upper()}")
        print(f"[picture {filename}]", flush=True)


class Markup:
    """HTML whose frame, where it has one, holds a whole page."""

    def __init__(self, data=None, **_):
        frame = re.search(r'<iframe[^>]* srcdoc="([^"]*)"', data or "")
        if frame and not html.unescape(frame[1]).rstrip().endswith("</html>"):
            raise ValueError("the page in the frame has no end")
        print(f"[HTML of {len(data or '')} characters]", flush=True)


def display_module():
    """What stands in for IPython.display."""
    package, module = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    module.Image = module.SVG = Picture
    module.HTML = Markup
    module.display = lambda *_: None
    package.display = module
    return {"IPython": package, "IPython.display": module}


def translated(source):
    """Python of a cell: `!command` is a call of the shell. Throws Refused for other magic."""
    lines = []
    for line in source.splitlines():
        if match := re.match(r"(\s*)!(.*)$", line):
            if re.search(r"\{\w+\}|(?<![\\$])\$\{?[a-z]\w*", match[2]):
                raise Refused(
                    f"'{line.strip()}': Python's variables are not put into commands here")
            line = f"{match[1]}shell({match[2].strip()!r})"
        elif re.match(r"\s*%", line):
            raise Refused(f"'{line.strip()}': only ! is known here")
        lines.append(line)
    return "\n".join(lines)


def cells(path):
    """[(number, source, tags)] of the code cells. Throws Refused for what is no notebook."""
    try:
        with open(path, encoding="utf-8") as file:
            notebook = json.load(file)
        if notebook["nbformat"] != 4:
            raise Refused(f"{path}: format {notebook['nbformat']}, 4 is known here")
        return [(number, "".join(cell["source"]), cell["metadata"].get("tags", []))
                for number, cell in enumerate(notebook["cells"], 1) if cell["cell_type"] == "code"]
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refused(f"{path}: no notebook: {error!r}") from None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--skip", default="", help="tag of cells that are left out")
    parser.add_argument("notebook")
    options = parser.parse_args()
    try:
        found = [(number, translated(source)) for number, source, tags in cells(options.notebook)
                 if options.skip not in tags]
        if not found:
            raise Refused(f"{options.notebook}: no cell to run")
    except Refused as error:
        print(f"notebook: {error}", file=sys.stderr)
        return 2
    sys.modules.update(display_module())
    names = {"__name__": "__main__", "shell": shell}
    for number, source in found:
        try:
            exec(compile(source, f"cell {number}", "exec"), names)  # pylint: disable=exec-used
        except (Exception, SystemExit):  # pylint: disable=broad-except
            traceback.print_exc()
            print(f"{options.notebook}: cell {number} failed", file=sys.stderr)
            return 1
    print(f"{options.notebook}: {len(found)} cells ran")
    return 0


if __name__ == "__main__":
    sys.exit(main())
