"""What counts as a difference from a reference, for all that compare with one."""
import unittest

import support  # noqa: F401

import reference


class Same(unittest.TestCase):
    def test_times_shares_and_what_must_be_equal(self):
        for path, old, new, same in (
                ("predicted.us", 100.0, 101.9, True), ("predicted.us", 100.0, 102.1, False),
                ("predicted.dram_bytes", 1e6, 1.019e6, True), ("flops", 1e6, 1e6 + 1, False),
                ("predicted.dram_bytes", 1e6, 1.03e6, False), ("bound_us", 0.0, 0.1, False),
                ("predicted.issue_share", 0.10, 0.119, True),
                ("predicted.issue_share", 0.10, 0.121, False),
                ("predicted.stalls.barrier", 0, 0.019, True),
                ("predicted.error", 0.25, 0.26, False), ("predicted.error", 0.25, 0.25, True),
                ("bound", "issue", "issue", True), ("bound", "issue", "DRAM", False),
                ("predicted.us", 100.0, "none", False)):
            with self.subTest(path=path, old=old, new=new):
                self.assertEqual(reference.same(path, old, new), same)

    def test_differences(self):
        before = {"a": {"us": 100.0, "share": 0.5}, "gone": {}}
        after = {"a": {"us": 110.0, "error": 0.25}, "new": {}}
        self.assertEqual(reference.differences(before, after, reference.same), [
            ("a", "us", 100.0, 110.0), ("a", "share", 0.5, 0), ("a", "error", 0, 0.25),
            ("gone", None, True, False), ("new", None, False, True)])
        self.assertEqual(reference.differences(before, before, reference.same), [])


if __name__ == "__main__":
    unittest.main()
