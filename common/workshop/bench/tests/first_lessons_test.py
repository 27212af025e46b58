"""Lessons 2 to 4: what their prose says of counters and predicted times is what the results say."""
import unittest

from lessons import RESULTS, Lessons, folder_of, prose, result

import quoted

# Chapter 2's loads, and the barrier behind them.
LOADS = [f"chapters/02_tiling/kernel.cuh: {line}" for line in (
    "tiles.q[row][d] = first_row", "row_tile[d] = first_key", "__syncthreads(); #1")]


def kernel(chapter, name):
    """Of one photo."""
    return next(of for of in result(f"chapter{chapter}.json")["runs"][0]["kernels"] if of["name"] == name)


def micros(chapter, name):
    return kernel(chapter, name)["predicted"]["us"]


def sized(name):
    """The predicted time with 32 photos of 577 tokens, of a step or a variant of chapters 1 to 4."""
    run = next(of for of in result("gains.json")["runs"] if of["title"] == "attention" and
               (of["problem"]["batch"], of["problem"]["tokens"]) == (32, 577))
    of_ladder = [folder_of(chapter) for chapter in range(1, 5)]
    return next(of for of in run["steps"] + run["variants"]
                if of["name"] == name and of["chapter"] in of_ladder)["predicted"]["us"]


def sectors_of_a_request(chapter, name, array):
    load = kernel(chapter, name)["allocations"][array]["load"]
    return load["sectors"] / load["requests"]


class FirstLessons(Lessons):
    def near(self, stated, value, digits):
        """The value rounded to as many digits."""
        self.assertAlmostEqual(stated, float(f"{value:.{digits}g}"), places=9)

    def test_chapter_2(self):
        ratio, before, after = self.stated(2, r"\*\*([\d.]+)\*\* times as fast: ([\d.]+) → ([\d.]+) µs")
        self.near(before, micros(2, "naive"), 3)
        self.near(after, micros(2, "tiling"), 3)
        self.near(ratio, micros(2, "naive") / micros(2, "tiling"), 2)
        fewer, million, millions = self.stated(2, r"\*\*(\d+)\*\* times fewer bytes: ([\d.]+) MB of loads "
                                               r"instead of (\d+)")
        asked = kernel(2, "tiling")["global"]["load"]["bytes_asked"]
        naive = sum(kernel(2, name)["global"]["load"]["bytes_asked"]
                    for name in ("scores", "softmax", "values"))
        self.near(million, asked / 1e6, 2)
        self.near(millions, naive / 1e6, 3)
        self.near(fewer, naive / asked, 2)
        self.near(self.stated(2, r"\*\*(\d+)\*\* sectors a request for K")[0],
                  sectors_of_a_request(2, "tiling", "K"), 2)
        self.assertIn("the online softmax saves a third of the time", prose(2))
        self.assertAlmostEqual(1 - sized("tiling") / sized("two passes"), 1 / 3, delta=0.03)

    def test_chapter_3(self):
        gained = self.stated(3, r"\*\*([\d.]+)\*\* times as fast: step one gains")[0]
        self.near(gained, sized("tiling") / sized("coalesced loads"), 2)
        lost = self.stated(3, r"\*\*([\d.]+)\*\* times as \*slow\*: by prediction step two loses")[0]
        self.near(lost, sized("4 rows a warp") / sized("coalesced loads"), 3)
        self.near(self.stated(3, r"the predicted time is ([\d,]+) µs before")[0], sized("tiling"), 4)
        loads = {name: kernel(3, name)["allocations"]["K"]["load"] for name in ("tiling", "coalesced loads")}
        for word, of in (("sectors", 16), ("requests", 9)):
            self.assertIn(f"**1/{of}** of", prose(3))
            self.assertEqual(round(loads["tiling"][word] / loads["coalesced loads"][word]), of)
        one = kernel(3, "coalesced loads")
        machine, ptx = self.stated(3, r"the unit needs ([\d.]+) µs at one photo instead of ([\d.]+)")
        self.near(machine, one["limits"]["L1/shared"], 3)
        self.near(ptx, one["limits_by_ptx"]["L1/shared"], 4)
        self.assertLess(abs(micros(3, "4 rows a warp") / micros(3, "coalesced loads") - 1), 0.03)
        self.assertGreater(sized("no padding"), sized("coalesced loads"))
        self.assertIn("warps wait most for each other: `not_selected`", prose(3))
        line = quoted.lines(RESULTS, 3, batch=32, tokens=577)
        if not line:
            raise unittest.SkipTest("no waits of chapter 3: make bench DEVICE=vgpu")
        stalls = {name: share for name, share in line["coalesced loads"]["stalls"].items() if name != "selected"}
        self.assertEqual(max(stalls, key=stalls.get), "not_selected")

    def test_shares_of_clocks(self):
        """Clocks of L1 and shared memory for a block, as lessons 2 and 3 sum them up; `make docs` compares the
        sums with the counters."""
        before = {"q": 64, "load": 6304, "tiles": 1024, "scores": 4736, "softmax": 272, "o": 9344, "write": 68}
        two = {"q": 32, "load": 394, "tiles": 512, "scores": 3072, "softmax": 128, "o": 6144, "write": 32}
        share = round(100 * before["load"] / sum(before.values()))
        for pattern in (r"Loading K and V was (\d+)% of the clocks", r"far more than the (\d+)% that we saw",
                        r"The (\d+)% are the clocks of one unit"):
            self.assertEqual(self.stated(3, pattern), [share])
        self.assertEqual(self.stated(3, r"Loading K and V took (\d+)% of the L1's clocks and takes (\d+)% now"),
                         [share, round(100 * two["load"] / sum(two.values()))])
        read, of = two["scores"] + two["o"], sum(two.values())
        self.assertEqual(self.stated(3, r"By PTX, (\d+)% of step two's clocks, ([\d,]+) of ([\d,]+), now read"),
                         [round(100 * read / of), read, of])
        self.assertEqual(self.stated(4, r"Such reads take \*\*(\d+)%\*\* of the L1's clocks"), [round(100 * read / of)])
        self.near(self.stated(3, r"its ([\d.]+) µs stay")[0], kernel(3, "4 rows a warp")["limits"]["L1/shared"], 4)

    def test_where_chapter_2_waits(self):
        """Lesson 3 says it: at the loads of Q, K and V and at the barrier behind them."""
        self.assertIn("In chapter 2 more than half of all waiting is at the loads of Q, K and V and at the barrier "
                      "behind them", prose(3))
        line = quoted.lines(RESULTS, 3, batch=32, tokens=577)
        if not line:
            raise unittest.SkipTest("no waits of chapter 3: make bench DEVICE=vgpu")
        self.assertGreater(sum(share for at, share in line["tiling"]["waits_at"].items()
                               if at.startswith(tuple(LOADS))), 0.5, line["tiling"]["waits_at"])

    def test_chapter_4(self):
        gained = self.stated(4, r"\*\*([\d.]+)\*\* times as fast as chapter 3's fastest kernel")[0]
        self.near(gained, min(sized("coalesced loads"), sized("4 rows a warp")) / sized("wmma"), 2)
        waves = {name: kernel(4, name)["shared"]["load"]["wavefronts"] for name in ("coalescing", "wmma")}
        self.assertEqual(round(waves["coalescing"] / waves["wmma"]),
                         self.stated(4, r"\*\*1/(\d+)\*\* of the wavefronts")[0])
        limits = kernel(4, "wmma")["limits"]
        for stated, unit in zip(self.stated(4, r"\*\*([\d.]+) µs\*\* is the tensor cores' limit for one photo, "
                                            r"\*\*([\d.]+) µs\*\*"), ("tensor", "L1/shared")):
            self.assertEqual(stated, round(limits[unit], 2))
        self.assertEqual(kernel(4, "wmma")["registers"], self.stated(4, r"is registers, (\d+) a thread")[0])
        self.assertGreater(sized("4 loads at a time"), sized("wmma"))


if __name__ == "__main__":
    unittest.main()
