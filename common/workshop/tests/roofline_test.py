"""The picture of a ladder under a GPU's roofs: which steps, where they lie, what is refused."""
import unittest

from support import Case

import roofline
from traces import Refused


def step(chapter, us, flops=8e9):
    return {"chapter": f"{chapter:02}_name", "name": f"step {chapter}", "flops": flops,
            "predicted": {"us": us, "dram_bytes": 4e7, "error": 0.25}}


GAINS = {"device": {"name": "GPU", "tensor_flop_per_s": 800e12},
         "runs": [{"title": "attention", "problem": {"batch": 2},
                   "steps": [step(1, 100.0), step(2, 50.0), step(13, 10.0)]},
                  {"title": "norm", "problem": {"preset": "deep"}, "steps": [step(8, 20.0)]},
                  {"title": "norm", "problem": {"preset": "wide"},
                   "steps": [{**step(8, 1.0), "predicted": {"why": "blocks differ"}}]}]}


class Roofline(Case):
    def test_steps_of_the_chapters(self):
        _, steps = roofline.steps_of(GAINS, "attention", "1-6", {})
        self.assertEqual([of["name"] for of in steps], ["step 1", "step 2"])
        run, _ = roofline.steps_of(GAINS, "norm", "8-8", {"preset": "deep"})
        self.assertEqual(run["problem"], {"preset": "deep"})

    def test_a_point(self):
        self.assertEqual(roofline.point(step(1, 100.0)), (200.0, 80.0))

    def test_refused(self):
        for title, chapters, wanted, why in (("norm", "8-8", {}, "2 problems"),
                                             ("MLP", "1-6", {}, "0 problems"),
                                             ("attention", "3-6", {}, "no step of chapters 3-6"),
                                             ("norm", "8-8", {"preset": "wide"}, "no step")):
            with self.assertRaisesRegex(Refused, why):
                roofline.steps_of(GAINS, title, chapters, wanted)


if __name__ == "__main__":
    unittest.main()
