"""models.py: nets of Hugging Face and timm with our operators in them, and the comparison's own
mistakes."""
import contextlib
import io
import os
import subprocess
import sys
import unittest

from library_test import on_the_host

try:
    import torch
except ImportError:
    torch = None
import models

SCRIPT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "models.py")


def has(module):
    return torch is not None and subprocess.run([sys.executable, "-c", f"import {module}"],
                                                capture_output=True,
                                                check=False).returncode == 0


class Nets(unittest.TestCase):
    def compare(self, name, **options):
        on_the_host(self)
        torch.set_num_threads(1)
        with contextlib.redirect_stdout(io.StringIO()) as said:
            is_right = models.compare(torch, name, 1, "cpu", **options)
        return is_right, said.getvalue()

    @unittest.skipUnless(has("timm"), "no timm in this Python")
    def test_vit(self):
        is_right, said = self.compare("vit")
        self.assertTrue(is_right, said)
        for used in ("attention: 2 calls", "layer_norm: 5 calls", "mlp: 2 calls"):
            self.assertIn(used, said)
        self.assertNotIn("left to PyTorch", said)

    @unittest.skipUnless(has("transformers"), "no transformers in this Python")
    def test_cvt_and_a_wrong_scale(self):
        is_right, said = self.compare("cvt")
        self.assertTrue(is_right, said)
        for used in ("attention: 6 calls", "linear with GELU: 6 calls", "linear: 6 calls",
                     "projection: 6 calls"):
            self.assertIn(used, said)
        self.assertNotIn("left to PyTorch", said)
        is_right, said = self.compare("cvt", scale_error=1.1)
        self.assertFalse(is_right, said)


class Script(unittest.TestCase):
    def run_script(self, *arguments, **variables):
        done = subprocess.run([sys.executable, SCRIPT, *arguments], text=True, capture_output=True,
                              check=False,
                              env=os.environ | variables)
        return done.returncode, done.stderr

    def test_bad_usage(self):
        self.assertEqual(self.run_script("--batch", "0")[0], 2)
        self.assertIn("--batch: 0: must be 1 to 1024", self.run_script("--batch", "0")[1])
        self.assertEqual(self.run_script("--model", "resnet")[0], 2)

    @unittest.skipIf(torch, "PyTorch is here")
    def test_without_torch(self):
        code, said = self.run_script()
        self.assertEqual(code, 3)
        self.assertIn("no PyTorch here", said)

    @unittest.skipUnless(torch, "no PyTorch")
    def test_without_the_library(self):
        code, said = self.run_script("--device", "cpu", VISION_OPERATORS_VGPU="/nowhere.so")
        self.assertEqual(code, 3)
        self.assertIn("/nowhere.so is not there", said)


if __name__ == "__main__":
    unittest.main()
