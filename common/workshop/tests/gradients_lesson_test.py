"""Lessons 15 and 19: numbers by hand agree with each other, with chapter 13 and with the results."""
import json
import os
import re
import unittest

from support import ROOT, Case

import quoted
import stated

CHAPTERS = os.path.join(ROOT, "chapters")
RESULTS = os.path.join(ROOT, "data", "results", "virtual_h200")
GAINS = os.path.join(RESULTS, "gains.json")


def text_of(chapter):
    """As it is shown: numbers without their markers."""
    with open(os.path.join(CHAPTERS, chapter, "README.md"), encoding="utf-8") as file:
        return stated.MARKED.sub(r"\2", file.read())


def tables(text):
    """[[row of cells]] of each table, its head first."""
    return [[[cell.strip() for cell in row.strip().strip("|").split("|")]
             for row in block.splitlines() if not re.match(r"^ *\|[-:| ]+$", row)]
            for block in re.findall(r"(?:^ *\|.*\n)+", text, flags=re.MULTILINE)]


def number(cell):
    return float(cell.replace(",", "")) if re.fullmatch(r"[\d,.]+", cell) else None


def launches(text):
    """{step and tokens: {launch: µs}}"""
    [(head, *rows)] = [of for of in tables(text) if of[0][0] == "launch"]
    return {name: {row[0]: number(row[i]) for row in rows if number(row[i]) is not None}
            for i, name in enumerate(head) if i}


def naive(text):
    [(head, row)] = [of for of in tables(text) if of[0][0] == "P"]
    return dict(zip(head, map(number, row)))


class GradientsLesson(Case):
    def setUp(self):
        super().setUp()
        if not os.path.exists(os.path.join(CHAPTERS, "15_gradients", "README.md")):
            self.skipTest("no lesson of chapter 15")
        self.text = text_of("15_gradients")
        self.of = launches(self.text)

    def bold(self):
        """The numbers that matter: [(number, unit)]"""
        return re.findall(r"^- \*\*([\d.]+)(%?)\*\*:", self.text, flags=re.MULTILINE)

    def test_launches_add_up(self):
        for name, of in [*self.of.items(), ("naive", naive(self.text))]:
            parts = sum(us for launch, us in of.items() if launch != "all")
            self.assertAlmostEqual(parts / of["all"], 1, delta=0.006, msg=name)
        self.assertEqual(len(self.of), 4)

    def test_totals_are_those_of_the_results(self):
        with open(GAINS, encoding="utf-8") as file:
            found = {step["name"]: step["predicted"]["us"] for run in json.load(file)["runs"]
                     if run["title"] == "gradients" and run["problem"].get("tokens") == 197
                     for step in run["steps"]}
        if not found:
            self.skipTest("no results of chapter 15: make bench DEVICE=vgpu")
        stated = {"naive": naive(self.text)["all"],
                  **{step: self.of[f"{step}, 197"]["all"] for step in ("tensor cores",
                                                                       "deterministic")}}
        for step, us in stated.items():
            self.assertAlmostEqual(us / found[step], 1, delta=0.02, msg=f"{step}: {found[step]}")

    def test_the_numbers_that_matter(self):
        forward = {row[0]: min(float(cell.split()[0]) for cell in row[1:])
                   for row in next(of for of in tables(text_of("13_flash_attention"))
                                   if of[0][:2] == ["tokens", "coalesced K"] and "(" in of[1][2])[1:]}
        for tokens in ("197", "1025"):
            self.assertRegex(self.text, rf"\b{forward[tokens]:g} µs for")
        short, long = self.of["tensor cores, 197"], self.of["tensor cores, 1025"]
        small = [100 * (of["D"] + of["dQ in fp16"]) / of["all"] for of in (short, long)]
        self.assertEqual(self.bold(), [
            (f"{short['all'] / forward['197']:.1f}", ""), (f"{small[0]:.0f}", "%"),
            (f"{self.of['deterministic, 197']['all'] / short['all']:.2f}", "")])
        flat = " ".join(self.text.split())
        same = self.of["deterministic, 1025"]["all"]
        self.assertIn(f"chapter 13 needs {float(forward['197']):.0f} µs (predicted)", flat)
        self.assertIn(f"Gradients take {short['all'] / float(forward['197']):.1f} times as long as the forward pass for 197 "
                      f"tokens, {long['all'] / float(forward['1025']):.1f} times for 1025. The products alone take "
                      f"{short['columns'] / float(forward['197']):.1f} and "
                      f"{long['columns'] / float(forward['1025']):.1f} times as long.", flat)
        for words in (f"For 1025 tokens the ratio is {same / long['all']:.2f}",
                      f"is {100 - long['all'] / 11.5:.0f}% below it, *deterministic* "
                      f"{100 - same / 11.5:.0f}%",
                      f"take {short['columns'] / forward['197']:.1f} times as long",
                      f"their share is {small[1]:.0f}%",
                      f"take {long['all'] / forward['1025']:.1f} times as long"):
            self.assertIn(words, flat)

    def test_launches_are_those_of_the_results(self):
        stated = {**{(name.rsplit(", ", 1)[0], int(name.rsplit(", ", 1)[1])): of for name, of in self.of.items()},
                  ("naive", 197): naive(self.text)}
        for (step, tokens), of in stated.items():
            found = quoted.steps(RESULTS, 15, batch=32, tokens=tokens)
            if not found:
                self.skipTest("no results of chapter 15: make bench DEVICE=vgpu")
            for launch, us in of.items():
                self.assertAlmostEqual(us / found[step][launch], 1, delta=0.01,
                                       msg=f"{step}, {tokens} tokens, {launch}: {found[step][launch]}")
        self.assertEqual(len(stated), 5)

    def test_what_is_said_of_launches(self):
        short, same = self.of["tensor cores, 197"], self.of["deterministic, 197"]
        flat = " ".join(self.text.split())
        for words in (f"*rows* costs {same['rows']:.1f} µs.",
                      f"*columns* gets {short['columns'] - same['columns']:.1f} µs shorter",
                      f"clearing and rounding save {short['D'] + short['dQ in fp16'] - same['D']:.1f}.",
                      f"takes {same['all'] / short['all']:.2f} and "
                      f"{self.of['deterministic, 1025']['all'] / self.of['tensor cores, 1025']['all']:.2f} "
                      "times as long"):
            self.assertIn(words, flat)

    def test_sectors_of_the_first_step(self):
        with open(os.path.join(RESULTS, "chapter15.json"), encoding="utf-8") as file:
            kernels = {of["name"]: of for of in json.load(file)["runs"][0]["kernels"]}
        times = re.search(r"(\d+) times as many sectors as needed", " ".join(self.text.split()))
        for name, arrays in (("P", ("Q", "K")), ("dP", ("V", "dO"))):
            loads = [kernels[name]["allocations"][array]["load"] for array in arrays]
            needed = sum(of["requests"] * (2 if array in "KV" else 1) for of, array in zip(loads, arrays))
            self.assertEqual(round(sum(of["sectors"] for of in loads) / needed), int(times[1]), name)

    def test_shares_of_the_first_step(self):
        of = naive(self.text)
        self.assertIn(f"P and dP take {100 * (of['P'] + of['dP']) / of['all']:.0f}%", self.text)
        self.assertLess(of["dS"] / of["all"], 0.01)


class DeformableLesson(Case):
    def test_count_of_planted_mistakes(self):
        folder = "19_deformable_gradients"
        with open(os.path.join(CHAPTERS, folder, "tests", "planted_bugs.h"), encoding="utf-8") as file:
            planted = len(re.findall(r"^    \{\"", file.read(), flags=re.MULTILINE))
        self.assertIn(f"[planted_bugs.h](tests/planted_bugs.h) has {planted} mistakes", text_of(folder))


if __name__ == "__main__":
    unittest.main()
