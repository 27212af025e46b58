"""What the tests of several lessons share: a lesson's prose, the results, and the numbers that prose states."""
import glob
import json
import os
import re

from support import ROOT, Case

RESULTS = os.path.join(ROOT, "data", "results", "virtual_h200")


def folder_of(chapter):
    """'03_coalescing' of 3."""
    found, = glob.glob(os.path.join(ROOT, "chapters", f"{chapter:02}_*"))
    return os.path.basename(found)


def prose(chapter):
    """The lesson in one line, without what `make docs` writes."""
    with open(os.path.join(ROOT, "chapters", folder_of(chapter), "README.md"), encoding="utf-8") as file:
        found = re.sub(r"<!-- (counters|gains):begin.*?<!-- \1:end -->", "", file.read(), flags=re.DOTALL)
    return " ".join(found.split())


def result(name):
    """A file of the virtual H200's results."""
    with open(os.path.join(RESULTS, name), encoding="utf-8") as file:
        return json.load(file)


class Lessons(Case):
    def stated(self, chapter, pattern):
        """The numbers of the pattern's groups in the lesson's prose."""
        match = re.search(pattern, prose(chapter))
        self.assertTrue(match, f"no '{pattern}' in the lesson of chapter {chapter}")
        return [float(group.strip(".,").replace(",", "")) for group in match.groups()]

    def near(self, stated, value, digits=3):
        """Stated is the value, rounded to so many digits."""
        self.assertEqual(float(f"{stated:.{digits}g}"), float(f"{value:.{digits}g}"))
