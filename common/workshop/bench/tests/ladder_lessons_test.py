"""Chapters 5 and 6: the numbers of their lessons' prose agree with arithmetic and with the results."""
import unittest

from lessons import RESULTS, Lessons, prose, result

import quoted

FIVE, SIX = 5, 6
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
    def test_chapter_5_times(self):
        us, one = large(), small(5)
        names = ("wmma", "4 warps", "8 warps")
        for stated, name in zip(self.stated(FIVE, r"\| 32 photos, 577 tokens, µs ±25% "
                                            r"\| (\d+) \| (\d+) \| (\d+) \|"), names):
            self.near(stated, us[name])
        for stated, name in zip(self.stated(FIVE, r"\| one photo, 197 tokens, µs ±25% "
                                            r"\| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|"), names):
            self.near(stated, one[name][0])
        for stated, name in zip(self.stated(FIVE, r"limit rises from ([\d.]+) to ([\d.]+) "
                                            r"and ([\d.]+) µs"), names):
            self.near(stated, one[name][1])

    def test_chapter_5_ratios(self):
        us, one = large(), small(5)
        first, second = self.stated(FIVE, r"\*\*([\d.]+)\*\*: how many times as fast 4 warps "
                                    r"are as 1 with 32 photos. Then 8 warps are ([\d.]+) times")
        self.near(first, us["wmma"] / us["4 warps"], 2)
        self.near(second, us["4 warps"] / us["8 warps"])
        self.near(self.stated(FIVE, r"8 warps take another (\d+)% off")[0],
                  100 * (1 - us["8 warps"] / us["4 warps"]), 2)
        # By the clocks of L1 and shared memory.
        for stated, clocks in zip(self.stated(FIVE, r"608/320 = \*\*([\d.]+)\*\* times as fast, "
                                              r"then 320/272 = ([\d.]+) times"), (608 / 320, 320 / 272)):
            self.near(stated, clocks, 2 if stated == 1.9 else 3)
        self.near(self.stated(FIVE, r"\*\*([\d.]+)\*\*: on one photo 8 warps \*lose\*")[0],
                  one["4 warps"][0] / one["8 warps"][0], 2)

    def test_chapter_5_clocks(self):
        self.assertEqual(self.stated(FIVE, r"takes (\d+) of the (\d+) clocks that L1 and shared memory work for a "
                                     r"tile: \*\*(\d+)%"), [384, 384 + 224, round(100 * 384 / 608)])
        clocks = {warps: (384 + 224 * warps) / warps for warps in (1, 4, 8, 16)}  # for 16 rows
        self.assertEqual(self.stated(FIVE, r"\| for 16 rows \| (\d+) \| (\d+) \| (\d+) \|"),
                         [clocks[warps] for warps in (1, 4, 8)])
        gain, eight, sixteen = self.stated(FIVE, r"By the clocks it should still gain (\d+)%, (\d+)/(\d+)\.")
        self.assertEqual((eight, sixteen), (clocks[8], clocks[16]))
        self.assertEqual(gain, round(100 * (clocks[8] / clocks[16] - 1)))

    def test_chapter_5_variants(self):
        us, tried = large(), {name: step["predicted"]["us"] for name, step in steps("variants").items()}
        slower, ratio = self.stated(FIVE, r"With 577 tokens it is ([\d.]+) times as slow, but not "
                                    r"because of barriers: .*?48/40 is ([\d.]+)\.")
        self.near(slower, tried["16 warps"] / us["8 warps"])
        self.near(ratio, 48 / 40, 2)
        self.assertEqual((-(-577 // 256) * 16, -(-577 // 128) * 8, -(-577 // 16)), (48, 40, 37))
        self.assertIn("With 512 tokens no warp is empty, and 16 warps take as long as 8", prose(FIVE))
        self.assertEqual((-(-512 // 256) * 16, -(-512 // 128) * 8), (32, 32))
        found = quoted.lines(RESULTS, 5, batch=32, tokens=512)
        if not found:
            raise unittest.SkipTest("no results at 512 tokens: make bench DEVICE=vgpu")
        self.assertAlmostEqual(found["16 warps"]["us"] / found["8 warps"]["us"], 1, delta=0.05)
        gain = self.stated(FIVE, r"Occupancy grows by half, the time falls by (\d)%")[0]
        self.assertEqual(gain, round(100 * (1 - tried["24 resident"] / us["8 warps"])))

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
