"""Lesson 12: the numbers of its prose are those of the results."""
import unittest

from lessons import RESULTS, Lessons, folder_of, result

import quoted

FAST = {"embed": "one_product", "norm": "rows", "mlp": "epilogue", "qkv": "epilogue"}


def gained(title):
    """{step: µs} of the first run of that title in gains.json."""
    run = next(of for of in result("gains.json")["runs"] if of["title"] == title)
    return {step["name"]: step["predicted"]["us"] for step in run["steps"]}


def swept(chapter, **problem):
    """{line: µs of all its launches} of sweeps.json."""
    run = next(of for of in result("sweeps.json")["runs"] if of["chapter"] == folder_of(chapter) and
               all(of["problem"].get(name) == value for name, value in problem.items()))
    return {line["name"]: line["us"] for line in run["lines"]}


def net(**problem):
    """{launch: µs of all launches of its kind} of quoted.json."""
    found = quoted.lines(RESULTS, 12, **problem)
    if not found:
        raise unittest.SkipTest("no runs of chapter 12: make bench DEVICE=vgpu")
    return {name: line["us"] * line.get("launches", 1) for name, line in found.items()}


class NetLessons(Lessons):
    def near(self, stated, *values):
        """Each of the numbers is its value, rounded to as many digits behind the point."""
        self.assertEqual(len(stated), len(values))
        for number, value in zip(stated, values):
            digits = len(f"{number:g}".partition(".")[2])
            self.assertAlmostEqual(number, value, delta=0.5 * 10 ** -digits + 1e-9)

    def test_chapter_12_components(self):
        one, many = swept(12, batch=1, size=224, mlp="simple"), swept(12, batch=32, size=224, mlp="simple")
        ratio, fc2, fc1 = self.stated(12, r"\*\*fc2 takes ([\d.]+) times as long as fc1:\*\* (\d+) µs and (\d+)\.")
        self.near([ratio, fc2, fc1], one["fc2"] / one["fc1"], one["fc2"] / 12, one["fc1"] / 12)
        self.near(self.stated(12, r"There fc2 takes ([\d.]+) times as long as fc1"), many["fc2"] / many["fc1"])
        moved, attention = self.stated(12, r"Together they take (\d+) µs a block, attention (\d+),")
        self.near([moved, attention], sum(one[name] for name in ("norm1", "norm2", "split", "merge")) / 12,
                  one["attention"] / 12)
        before = net(batch=1, attention="coalesced_loads")
        self.near(self.stated(12, r"Attention falls from (\d+) µs to (\d+), but the net only from ([\d.]+) ms to "
                              r"([\d.]+)\."),
                  before["attention"], one["attention"], before["net"] / 1e3, one["net"] / 1e3)
        naive = net(batch=1, attention="naive")
        self.near(self.stated(12, r"its softmax, one thread a row, takes (\d+) % of the net"),
                  100 * naive["softmax"] / naive["net"])

    def test_chapter_12_projection(self):
        found = gained("q, k and v inside attention's kernel or apart")
        us = {(name.split()[0], name.split(" ", 1)[1]): of for name, of in found.items()}
        for (way, sizes), of in us.items():
            if way == "inside":
                self.assertGreater(of, us["apart", sizes], "Inside loses at every size")
        times, inside, apart = self.stated(12, r"With 512 tokens it takes ([\d.]+) times as long \((\d+) µs, (\d+)\)")
        self.near([times, inside, apart], us["inside", "512 x 512"] / us["apart", "512 x 512"],
                  us["inside", "512 x 512"], us["apart", "512 x 512"])
        large = net(batch=32, tokens=64, width=512)
        self.near(self.stated(12, r"as in the second command \((\d+) µs, (\d+)\)"), large["inside"], large["apart"])

    def test_chapter_12_conclusion(self):
        one, many = (net(batch=batch, **FAST) for batch in (1, 32))
        slow = [swept(12, batch=batch, size=224, mlp="simple")["net"] / 1e3 for batch in (1, 32)]
        fast, was, fast_32, was_32 = self.stated(12, r"One photo takes ([\d.]+) ms in place of ([\d.]+), 32 photos "
                                                 r"([\d.]+) in place of ([\d.]+)\.")
        for number, value in ((fast, one["net"] / 1e3), (was, slow[0]), (fast_32, many["net"] / 1e3), (was_32, slow[1])):
            self.assertAlmostEqual(number, value, delta=0.0051)

        def share(of, name):
            return 100 * of[name] / of["net"]
        attention, fc2, attention_32 = self.stated(12, r"attention now has the largest share, (\d+) %; for 32 fc2 has "
                                                   r"(\d+) %, attention (\d+)\.")
        self.near([attention, fc2, attention_32], share(one, "attention"), share(many, "fc2"),
                  share(many, "attention"))
        self.assertEqual(max((name for name in one if name != "net"), key=one.get), "attention")
        self.assertEqual(max((name for name in many if name != "net"), key=many.get), "fc2")
        self.near(self.stated(12, r"`merge` still only moves numbers, (\d+) % of one photo's time"),
                  share(one, "merge"))


if __name__ == "__main__":
    unittest.main()
