"""Chapter 8: the numbers of its lesson's prose agree with arithmetic and with the results."""
import unittest

from lessons import Lessons, prose, result

FUSED = 8


def steps(title, **wanted):
    """{name: step}, variants among them, of that problem of gains.json. A value of None: it has none."""
    for run in result("gains.json")["runs"]:
        if run["title"] == title and all(run["problem"].get(name) == value
                                         for name, value in wanted.items()):
            return {step["name"]: step for step in run["steps"] + run.get("variants", [])}
    raise unittest.SkipTest(f"no results of {title}: make bench DEVICE=vgpu")


def micros(of):
    return {name: step["predicted"]["us"] for name, step in of.items()}


class FusedLessons(Lessons):
    def row(self, chapter, name, cells):
        number = r"\| ([\d.,]+) "
        return self.stated(chapter, rf"\| {name} " + number * cells + r"\|")

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
