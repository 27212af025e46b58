"""Chapters 7 and 8: the numbers of their lessons' prose agree with arithmetic and with the results."""
import unittest

from lessons import Lessons, prose, result

SAMPLING, FUSED = 7, 8


def steps(title, **wanted):
    """{name: step}, variants among them, of that problem of gains.json. A value of None: it has none."""
    for run in result("gains.json")["runs"]:
        if run["title"] == title and all(run["problem"].get(name) == value
                                         for name, value in wanted.items()):
            return {step["name"]: step for step in run["steps"] + run.get("variants", [])}
    raise unittest.SkipTest(f"no results of {title}: make bench DEVICE=vgpu")


def sampled(distribution):
    return steps("persistent deformable attention", distribution=distribution, heads=8)


def micros(of):
    return {name: step["predicted"]["us"] for name, step in of.items()}


class FusedLessons(Lessons):
    def row(self, chapter, name, cells):
        number = r"\| ([\d.,]+) "
        return self.stated(chapter, rf"\| {name} " + number * cells + r"\|")

    def test_chapter_7_times(self):
        for distribution in ("local", "uniform"):
            us = micros(sampled(distribution))
            for stated, name in zip(self.row(SAMPLING, distribution, 6),
                                    ("simple", "vectorized", "shared", "persistent", "cluster", "bulk")):
                self.near(stated, us[name])

    def test_chapter_7_question(self):
        us, busy = self.stated(SAMPLING,
                               r"predicted to take (\d+) µs, and its schedulers issue in \*\*(\d+)%\*\*")
        simple = sampled("local")["simple"]["predicted"]
        self.near(us, simple["us"])
        self.near(busy, 100 * simple["issue_share"], 2)

    def test_chapter_7_ratios(self):
        local, uniform = micros(sampled("local")), micros(sampled("uniform"))
        self.near(self.stated(SAMPLING,
                              r"\*\*([\d.]+)\*\*: how many times as fast `vectorized` is")[0],
                  local["simple"] / local["vectorized"], 2)
        gain, less = self.stated(SAMPLING,
                                 r"\*\*([\d.]+)\*\*: what `shared` gains over `vectorized` with uniform "
                                 r"points. With local points it is ([\d.]+),")
        self.near(gain, uniform["vectorized"] / uniform["shared"])
        self.near(less, local["vectorized"] / local["shared"])
        self.near(self.stated(SAMPLING,
                              r"\*\*([\d.]+)\*\*: how many times as fast `persistent` is as")[0],
                  local["shared"] / local["persistent"], 2)

    def test_chapter_7_what_was_wrong(self):
        shared, persistent, planes = self.stated(SAMPLING,
                                                 r"`shared` stages (\d+) times, `persistent` at most (\d+) "
                                                 r"\+ (\d+) times")
        self.assertEqual((shared, persistent, planes), (2 * 8 * -(-15422 // 256), 132, 2 * 8))
        kernels = {kernel["name"]: kernel for kernel in result("chapter7.json")["runs"][0]["kernels"]}
        values = kernels["shared"]["allocations"]["value"]["load"]["bytes_asked"]
        share = self.stated(SAMPLING, r"staging was only (\d+)% of the bytes")[0]
        self.near(share, 100 * 2 * -(-15422 // 256) * 74240 / values, 1)
        for distribution in ("local", "uniform"):
            us = micros(sampled(distribution))
            # The counter costs a third of the time; without it the step is level with shared.
            self.assertAlmostEqual(us["even shares"] / us["persistent"], 2 / 3, delta=0.03)
            self.assertAlmostEqual(us["even shares"] / us["shared"], 1, delta=0.03)

    def test_chapter_7_single_copies(self):
        self.assertIn("it takes 1,160 single copies", prose(SAMPLING))
        self.assertIn("brings a plane by five boxes", prose(SAMPLING))
        levels = (23 * 40, 12 * 20)  # those that are staged, each in boxes of up to 256 pixels
        self.assertEqual((sum(levels), sum(-(-level // 256) for level in levels)), (1160, 5))
        for distribution in ("local", "uniform"):
            us = micros(sampled(distribution))
            self.assertAlmostEqual(us["single copies"] / us["bulk"], 1, delta=0.03)

    def photo(self):
        return {kernel["name"]: kernel for kernel in result("chapter8.json")["runs"][0]["kernels"]}

    def test_chapter_8_question_and_prediction(self):
        large, least = self.stated(FUSED, r"DRAM moves ([\d.]+) MB where ([\d.]+) MB would do")
        all_of = steps("fused conv norm", preset=None)
        self.near(large, all_of["three passes"]["predicted"]["dram_bytes"] / 1e6)
        self.near(least, all_of["fused"]["predicted"]["dram_bytes"] / 1e6, 2)
        for pattern in (r"That is \*\*([\d.]+)\*\* times as much",
                        r"\*\*([\d.]+)\*\*: how many times less DRAM"):
            self.near(self.stated(FUSED, pattern)[0], large / least, 2)
        total, *each = self.stated(FUSED,
                                   r"three passes take ([\d.]+) µs by prediction .*? convolution ([\d.]+), "
                                   r"instance norm ([\d.]+) and ReLU ([\d.]+)\.")
        for stated, name in zip((total, *each), ("three passes", "convolution", "instance norm", "ReLU")):
            kernel = self.photo()[name]
            self.near(stated, kernel["predicted"]["us"] if "predicted" in kernel else sum(
                self.photo()[of]["predicted"]["us"] for of in ("convolution", "instance norm", "ReLU")))
        self.near(self.stated(FUSED, r"So 72.4/43 = ([\d.]+) times")[0], total / 43, 2)

    def test_chapter_8_times(self):
        photo, deep = (micros(steps("fused conv norm", preset=of)) for of in (None, "deep"))
        names = ("three passes", "fused", "two passes", "fused tf32", "fused fp16", "half storage")
        for stated, name in zip(self.row(FUSED, "photo", 3), names):
            self.near(stated, photo[name])
        for stated, name in zip(self.row(FUSED, "deep", 6), names):
            self.near(stated, deep[name])
        self.near(self.stated(FUSED,
                              r"\*\*([\d.]+)\*\*: how many times as fast it is on the photo")[0],
                  photo["three passes"] / photo["fused"])
        self.near(self.stated(FUSED,
                              r"\*\*([\d.]+)\*\*: how many times as long `fused` takes as two passes")[0],
                  photo["fused"] / photo["two passes"])
        self.near(self.stated(FUSED,
                              r"tensor cores and numbers in fp16 make it ([\d.]+) times as fast")[0],
                  deep["fused"] / deep["half storage"], 2)
        self.assertAlmostEqual(deep["fused"] / deep["three passes"], 1, delta=0.02)  # no faster

    def test_chapter_8_what_was_wrong(self):
        fused = steps("fused conv norm", preset=None)["fused"]["predicted"]
        launch, launch_and_more, barrier = self.stated(
            FUSED, r"two cost 2 · ([\d.]+) µs by prediction, a cooperative one with its barrier ([\d.]+) \+ "
            r"([\d.]+)\.")
        self.assertEqual((launch_and_more, barrier), (fused["launch_us"], fused["barrier_us"]))
        self.assertEqual(2 * launch, launch_and_more + barrier)
        bytes_moved, most = self.stated(FUSED,
                                        r"DRAM moves ([\d.]+) MB in less than (\d+) µs, of 72")
        rate = result("gains.json")["device"]["dram_bytes_per_s"]
        self.assertLess(bytes_moved * 1e6 / rate * 1e6, most)
        blocks, planes = self.stated(FUSED,
                                     r"Its second pass has (\d+) blocks for the same (\d+) planes")
        self.assertEqual((blocks, planes), (32 * -(-224 * 224 // (512 * 16)), 32))
        self.assertEqual(self.photo()["instance norm"]["blocks"], planes)

    def test_chapter_8_roof(self):
        deep, device = steps("fused conv norm", preset="deep"), result("gains.json")["device"]
        rate = {name: step["flops"] / step["predicted"]["us"] / 1e6 for name, step in deep.items()}
        fused, of_fp32, best, of_tensor = self.stated(
            FUSED, r"In fp32 `fused` does (\d+) of (\d+) TFLOP/s on `deep`. On tensor cores the best step "
            r"does (\d+) of (\d+), a tenth")
        self.near(fused, rate["fused"], 2)
        self.near(best, rate["half storage"], 2)
        self.near(of_fp32, device["fp32_flop_per_s"] / 1e12, 2)
        self.near(of_tensor, device["tensor_flop_per_s"] / 1e12)
        self.assertAlmostEqual(best / of_tensor, 0.1, delta=0.01)
        saved = self.stated(FUSED, r"Fusing saved what it promised, (\d+)% of DRAM's bytes")[0]
        photo = steps("fused conv norm", preset=None)
        self.near(saved, 100 * (1 - photo["fused"]["predicted"]["dram_bytes"] /
                                photo["three passes"]["predicted"]["dram_bytes"]), 2)
