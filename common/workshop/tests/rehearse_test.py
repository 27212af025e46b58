"""What can be tried without a GPU, tried: `make bench-dry`."""
import os
import subprocess
import sys
import unittest

from support import BENCH, ROOT, Case, fixture

import ncu
import timed


@unittest.skipUnless(os.environ.get("BENCH_PROGRAMS"), "BENCH_PROGRAMS: of the virtual GPU")
class Rehearsal(Case):
    OLD = "pipe_uniform"  # metrics that this ncu does not know

    def rehearse(self, *flags, names=True):
        os.makedirs(self.path("bin"), exist_ok=True)
        if names:
            self.write("bin/ncu", "#!/bin/sh\ncat <<END\n" + "".join(
                metric.rsplit(".", 1)[0] + " Counter\n" for metric in
                (*ncu.METRICS, *timed.METRICS) if self.OLD not in metric) + "END\n")
        done = subprocess.run(
            [sys.executable, os.path.join(BENCH, "rehearse.py"), "--programs",
             os.path.join(ROOT, os.environ["BENCH_PROGRAMS"]), *flags], text=True,
            capture_output=True, timeout=300, check=False,
            env={**os.environ, "PATH": self.path("bin") + ":" + os.environ["PATH"],
                 "https_proxy": "http://127.0.0.1:9"})
        return done.returncode, done.stdout + done.stderr

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(self.path(name), 0o755)

    def test_what_is_missing_is_named(self):
        status, out = self.rehearse()
        self.assertEqual(status, 3, out)
        self.assertIn("11 of 11 problems are measured", out)
        self.assertIn("not rehearsed: PyTorch: not asked for", out)
        self.assertRegex(out, "make bench on a GPU, with [0-9]+ cores: [0-9]+ minutes predicted")
        self.assertNotIn("not rehearsed: Nsight", out)
        self.assertIn("not on gh100, and not compared there: pipe uniform, "
                      "pipe uniform, instructions\n", out)
        for chapter in (1, 7):
            self.assertRegex(out, f"chapter {chapter}, 1.05 times as long: Predicted times of "
                                  "[0-9]+ launches: mean error 5%, ")
        self.assertNotIn("wrong:", out)

    def test_what_fails_is_an_error(self):
        # Peers of attention alone, one of them wrong; the other families are refused.
        os.makedirs(self.path("bin"), exist_ok=True)
        self.write("bin/torch", f"#!/bin/sh\n[ \"$1\" != -c ] || exit 1\n"
                   f"exec '{sys.executable}' '{fixture('peers.py')}'\n")
        self.write("bin/ncu", "#!/bin/sh\necho l1tex__other Counter\n")
        status, out = self.rehearse("--peers", self.path("bin/torch"), names=False)
        self.assertEqual(status, 1, out)
        self.assertIn("wrong: measuring: measure.py ended with 1", out)
        self.assertIn("wrong: Nsight Compute's metrics: global.load.requests: ncu knows no metric "
                      "on gh100", out)
        self.assertIn("wrong: Nsight Compute's metrics: time, µs: ncu knows no metric on gh100",
                      out)
        self.assertNotIn("all rehearsed", out)


if __name__ == "__main__":
    unittest.main()
