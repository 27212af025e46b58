"""The notebook, and what executes it."""
import json
import os
import re

from support import ROOT, Case, script

NOTEBOOK = os.path.join(ROOT, "chapters", "notebook.ipynb")
PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 8


class Executor(Case):
    def run_cells(self, *sources, flags=(), **more):
        cells = [{"cell_type": "code", "metadata": {}, "source": source.splitlines(True)}
                 for source in sources]
        cells.insert(0, {"cell_type": "markdown", "metadata": {}, "source": ["no code"]})
        cells[-1]["metadata"] = {"tags": ["slow"]} if "slow" in more else {}
        with open(self.path("n.ipynb"), "w", encoding="utf-8") as file:
            json.dump({"nbformat": 4, "cells": cells, **more.get("top", {})}, file)
        status, out, err = script("lessons/notebook.py", *flags, "n.ipynb", cwd=self.folder)
        return status, out + err

    def test_cells_share_names_and_the_shell_is_there(self):
        status, out = self.run_cells("x = 20", "print(x + 1)\n!echo one | tr a-z A-Z",
                                     "import os\nif x:\n    !touch made\n"
                                     "os.path.exists('made') or 1/0")
        self.assertEqual(status, 0, out)
        self.assertIn("21\n$ echo one", out)
        self.assertIn("ONE", out)
        self.assertIn("3 cells ran", out)

    def test_what_fails_ends_it(self):
        for source in ("1/0", "!exit 3", "!false && ./run", "raise SystemExit('no')",
                       "from IPython.display import Image\nImage('none.png')", "x ="):
            status, out = self.run_cells(source, "print('reached')")
            self.assertEqual(status, 1, source)
            self.assertIn("cell 2 failed", out)
            self.assertNotIn("reached", out.replace("print('reached')", ""))

    def test_pictures_are_looked_at(self):
        for name, content in (("a.png", PNG), ("b.png", b"no picture")):
            with open(self.path(name), "wb") as file:
                file.write(content)
        show = "from IPython.display import Image, display\ndisplay(Image('{}'))"
        self.assertEqual(self.run_cells(show.format("a.png"))[0], 0)
        status, out = self.run_cells(show.format("b.png"))
        self.assertEqual(status, 1)
        self.assertIn("holds no PNG", out)

    def test_a_page_in_a_frame_must_be_whole(self):
        show = ("import html\nfrom IPython.display import HTML, display\n"
                "display(HTML('<iframe srcdoc=\"{}\"></iframe>'.format(html.escape('<html>\"a\"%s'))))")
        self.assertEqual(self.run_cells(show % "</html>\\n")[0], 0)
        status, out = self.run_cells(show % "")
        self.assertEqual(status, 1)
        self.assertIn("the page in the frame has no end", out)

    def test_cells_that_are_left_out(self):
        status, out = self.run_cells("print('a')", "1/0", flags=("--skip", "slow"), slow=True)
        self.assertEqual(status, 0)
        self.assertIn("1 cells ran", out)

    def test_what_is_no_notebook_is_named(self):
        self.assertEqual(self.run_cells("%cd x"), (2, "notebook: '%cd x': only ! is known here\n"))
        self.assertIn("variables are not put", self.run_cells("x = 1\n!echo {x}")[1])
        self.assertIn("format 3", self.run_cells("1", top={"nbformat": 3})[1])
        self.assertIn("no cell to run", self.run_cells()[1])
        status, _, err = script("lessons/notebook.py", self.path("none.ipynb"))
        self.assertEqual(status, 2)
        self.assertIn("No such file", err)


class Committed(Case):
    def test_it_is_clean_and_has_the_two_commands_of_the_front_page(self):
        with open(NOTEBOOK, encoding="utf-8") as file:
            notebook = json.load(file)
        self.assertEqual((notebook["nbformat"], notebook["nbformat_minor"]), (4, 5))
        names = [cell["id"] for cell in notebook["cells"]]
        self.assertEqual(len(set(names)), len(names))
        commands = []
        for cell in notebook["cells"]:
            self.assertRegex(cell["id"], "^[a-z0-9-]+$")
            if cell["cell_type"] == "code":
                self.assertEqual((cell["outputs"], cell["execution_count"]), ([], None))
                commands += re.findall(r"^!(.*)$", "".join(cell["source"]), re.MULTILINE)
        with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
            section = file.read().split("## Two commands")[1]
        self.assertEqual(commands[:2], re.findall("^    (.*)$", section, re.MULTILINE)[:2])
