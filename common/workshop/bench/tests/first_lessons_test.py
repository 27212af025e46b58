"""Lesson 4: what its prose says of counters and predicted times is what the results say."""
import unittest

from lessons import Lessons, folder_of, result


def kernel(chapter, name):
    """Of one photo."""
    return next(of for of in result(f"chapter{chapter}.json")["runs"][0]["kernels"] if of["name"] == name)


def sized(name):
    """The predicted time with 32 photos of 577 tokens, of a step or a variant of chapters 1 to 4."""
    run = next(of for of in result("gains.json")["runs"] if of["title"] == "attention" and
               (of["problem"]["batch"], of["problem"]["tokens"]) == (32, 577))
    of_ladder = [folder_of(chapter) for chapter in range(1, 5)]
    return next(of for of in run["steps"] + run["variants"]
                if of["name"] == name and of["chapter"] in of_ladder)["predicted"]["us"]


class FirstLessons(Lessons):
    def near(self, stated, value, digits):
        """The value rounded to as many digits."""
        self.assertAlmostEqual(stated, float(f"{value:.{digits}g}"), places=9)

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
