"""The classic operator: fetched by its hash, compiled, and right on the virtual GPU."""
import hashlib
import http.server
import importlib.util
import json
import math
import os
import shutil
import subprocess
import sys
import threading
import unittest
from unittest import mock

from support import BENCH, ROOT, Case, fixture

import classic
from results import Lacking, Refused

LIBRARIES = os.path.join(ROOT, "build", "vgpu-lib")


def torch_headers():
    found = importlib.util.find_spec("torch")
    return os.path.join(os.path.dirname(found.origin), "include") if found else ""


def can_compile():
    try:
        classic.compiler()
    except Lacking:
        return False
    return os.path.exists(os.path.join(LIBRARIES, "libcudart.so.13"))


class Fetching(Case):
    FILES = {classic.HEADER: ("a/header.cuh", hashlib.sha256(b"foo").hexdigest())}

    def site(self, content, status=200):
        asked = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                asked.append(self.path)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_):
                pass
        server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        proxies = mock.patch.dict(os.environ, no_proxy="*")
        proxies.start()
        self.addCleanup(proxies.stop)
        return f"http://127.0.0.1:{server.server_port}/", asked

    def test_what_was_fetched_is_known_by_its_hash_and_not_fetched_again(self):
        site, asked = self.site(b"foo")
        header = classic.fetch(self.path("peers"), site, self.FILES)
        with open(header, "rb") as file:
            self.assertEqual(file.read(), b"foo")
        self.assertEqual(classic.fetch(self.path("peers"), site, self.FILES), header)
        self.assertEqual(asked, ["/a/header.cuh"])
        self.assertEqual(os.listdir(self.path("peers")), [classic.HEADER])

    def test_other_content_is_refused_and_not_kept(self):
        site, _ = self.site(b"bar")
        with self.assertRaisesRegex(Refused, "its SHA-256 is fcde2b.*of the pinned file is 2c26b4"):
            classic.fetch(self.path("peers"), site, self.FILES)
        self.assertFalse(os.path.exists(self.path("peers")))
        os.mkdir(self.path("peers"))
        with open(self.path("peers/" + classic.HEADER), "wb") as file:
            file.write(b"bar")
        with self.assertRaisesRegex(Refused, "im2col_cuda.cuh: its SHA-256 is fcde"):
            classic.fetch(self.path("peers"), site, self.FILES)

    def test_no_network_is_named_with_the_way_out(self):
        site, _ = self.site(b"", 404)
        for where in (site, "http://127.0.0.1:9/"):
            with self.assertRaisesRegex(Lacking, "cannot be fetched: http.*put that file into"):
                classic.fetch(self.path("peers"), where, self.FILES)

    def test_the_pinned_files_are_those_of_a_commit(self):
        self.assertRegex(classic.SITE, r"^https://raw.githubusercontent.com/.*/[0-9a-f]{40}/$")
        for _, wanted in classic.FILES.values():
            self.assertRegex(wanted, "^[0-9a-f]{64}$")

    def test_usage_and_no_compiler(self):
        done = subprocess.run([sys.executable, os.path.join(BENCH, "classic.py"), "build"],
                              text=True, capture_output=True, timeout=60, check=False)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        with mock.patch.object(os.path, "exists", lambda path: False):
            with self.assertRaisesRegex(Lacking, "needs nvcc"):
                classic.compiler()


@unittest.skipUnless(can_compile(), "no nvcc, or no virtual GPU in build/")
class OnTheVirtualGpu(Case):
    """Compiled by nvcc, called as from PyTorch, executed on the virtual GPU."""

    def built(self, header, include):
        return classic.build(header, include, "sm_90", self.folder, more=("-cudart", "shared"))

    def errors(self, library):
        """{case of data/golden: relative L2}, by a process that finds the virtual GPU."""
        done = subprocess.run(
            [sys.executable, fixture("classic_on_vgpu.py"), BENCH, library,
             os.path.join(ROOT, "data", "golden")], text=True, capture_output=True, timeout=200,
            check=False, env={**os.environ, "LD_LIBRARY_PATH": LIBRARIES})
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        return json.loads(done.stdout.splitlines()[-1])

    def test_a_kernel_of_that_interface_is_called_rightly(self):
        os.makedirs(self.path("c10/util"))
        shutil.copy(fixture("classic_stand_in.inc"), self.path(classic.HEADER))
        with open(self.path("c10/util/Half.h"), "w", encoding="utf-8") as file:
            file.write("#include <cuda_fp16.h>\nnamespace c10 { using Half = __half; }\n")
        library = self.built(self.path(classic.HEADER), self.folder)
        self.assertEqual(self.built(self.path(classic.HEADER), self.folder), library)  # kept
        errors = self.errors(library)
        self.assertGreaterEqual(len(errors), 5)
        for case, error in errors.items():
            self.assertLess(error, 1e-3, case)
        with open(self.path(classic.HEADER), "a", encoding="utf-8") as file:
            file.write("int wrong = 'x;\n")
        with self.assertRaisesRegex(Lacking, "does not compile: .*error"):
            self.built(self.path(classic.HEADER), self.folder)

    def test_the_operator_itself(self):
        header = os.path.join(classic.FOLDER, classic.HEADER)
        if not os.path.exists(header):
            self.skipTest(f"the classic operator was not fetched: {header} is not there")
        if not os.path.exists(os.path.join(torch_headers(), "c10", "util", "Half.h")):
            self.skipTest("no PyTorch and its headers")
        classic.check(header, open(header, "rb").read(), classic.FILES[classic.HEADER][1])
        errors = self.errors(self.built(header, torch_headers()))
        # Coordinates up to 160 are rounded to 1/8 pixel: far from right, within what peers may be.
        full = errors.pop("full levels")
        self.assertGreater(full, 0.01)
        self.assertLess(full, 0.04)
        for case, error in errors.items():
            # Sums in fp16; coordinates of these small levels are off by 1/256 pixel at most.
            self.assertLess(error, 5e-3, case)
            self.assertTrue(math.isfinite(error))


if __name__ == "__main__":
    unittest.main()
