"""Chapter 6: the numbers of their lessons' prose agree with arithmetic and with the results."""
import unittest

from lessons import Lessons, prose, result

SIX = 6
SMALL = {"batch": 1, "tokens": 197}   # the chapter's own run, on one photo
LARGE = {"batch": 32, "tokens": 577}


def steps(kind="steps"):
    """{name: step} of attention at the large problem."""
    found = [run for run in result("gains.json")["runs"] if run["title"] == "attention" and
             all(run["problem"].get(name) == value for name, value in LARGE.items())]
    if not found:
        raise unittest.SkipTest("no results of attention: make bench DEVICE=vgpu")
    return {step["name"]: step for step in found[0].get(kind, [])}


def large():
    return {name: step["predicted"]["us"] for name, step in steps().items()}


def small(chapter):
    """{kernel: (predicted µs, modelled limit in µs)} on one photo."""
    run = next(run for run in result(f"chapter{chapter}.json")["runs"]
               if all(run["problem"].get(name) == value for name, value in SMALL.items()))
    return {kernel["name"]: (kernel["predicted"]["us"], kernel["modelled_limit_us"])
            for kernel in run["kernels"]}


class LadderLessons(Lessons):
    def test_chapter_6_times(self):
        us, one = large(), small(6)
        before, after, by_clocks = self.stated(SIX, r"\| 32 photos, 577 tokens, µs \| (\d+) \| "
                                               r"(\d+) \| (\d+) \|")
        self.near(before, us["8 warps"])
        self.near(after, us["coalesced K"])
        self.near(by_clocks, us["8 warps"] * 256 / 272)
        before, after, by_clocks = self.stated(SIX, r"\| one photo, 197 tokens, µs \| ([\d.]+) \| "
                                               r"([\d.]+) \| ([\d.]+) \|")
        self.near(before, one["multi-warp"][0])
        self.near(after, one["coalesced K"][0])
        self.near(by_clocks, one["multi-warp"][0] * 352 / 416, 2)

    def test_chapter_6_ratios(self):
        us, one = large(), small(6)
        gain, clocks = self.stated(SIX,
                                   r"\*\*([\d.]+)\*\*: how many times as fast the step is with "
                                   r"32 photos. The clocks said ([\d.]+)\.")
        self.near(gain, us["8 warps"] / us["coalesced K"])
        self.near(clocks, 272 / 256)
        gain, clocks = self.stated(SIX,
                                   r"\*\*([\d.]+)\*\*: the same with one photo. The clocks said "
                                   r"([\d.]+)\.")
        self.near(gain, one["multi-warp"][0] / one["coalesced K"][0])
        self.near(clocks, 416 / 352)

    def test_chapter_6_padding_is_worth_more_than_the_step(self):
        self.assertIn("and is half as fast", prose(SIX))
        self.assertAlmostEqual(steps("variants")["no padding"]["predicted"]["us"] / large()["coalesced K"], 2,
                               delta=0.15)

    def test_chapter_6_roof(self):
        step = steps()["coalesced K"]
        rate = step["flops"] / step["predicted"]["us"] / 1e6
        roof = result("gains.json")["device"]["tensor_flop_per_s"] / 1e12
        stated, of, share = self.stated(SIX, r"does (\d+) TFLOP/s under a roof of (\d+)\. That is "
                                        r"\*\*(\d+)%\*\*")
        self.near(stated, rate)
        self.near(of, roof)
        self.near(share, 100 * rate / roof, 2)
        first, last, times = self.stated(SIX, r"fell from ([\d.]+) ms to ([\d.]+) ms, (\d+) times")
        us = large()
        self.near(first, us["attention"] / 1e3)
        self.near(last, us["coalesced K"] / 1e3)
        self.near(times, us["attention"] / us["coalesced K"])
