"""Machine code of the chapters' kernels that a GPU showed to be wrong, though PTX and the virtual GPU are right.

ptxas 13.0 makes one instruction, VIMNMX.RELU, of max(0, min(x, limit)) and a comparison of the result, and takes the
comparison from a predicate of it that an H200 sets otherwise: where x is above the limit, `== limit` was false.
"""
import glob
import os
import re
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
# 16 bytes. The lowest 12 bits are the opcode, 0x248 or 0x848; bit 76 is .RELU. Bits 81 to 86 name two predicates that
# it writes, all ones where it writes none. (Read off cuobjdump's listing of what was wrong, and of others. The other
# bytes are as all listed ones have them, so that text in the same file is not taken for an instruction.)
# Its guard, any predicate, is bits 12 to 15.
SECOND = b"".join(b"\\x%02x" % (guard << 4 | form) for guard in range(16) for form in (2, 8))
CANDIDATE = re.compile(rb"\x48[" + SECOND + rb"].{6}\x00[\x10\x11].[\x03\x07]...\x00", re.DOTALL)


def told_by_a_clamp(code):
    """Where instructions stand in the bytes that clamp to 0 and to a limit, and tell by a predicate which it was."""
    return [found.start() for found in CANDIDATE.finditer(code)
            if found.start() % 8 == 0 and int.from_bytes(found[0][8:], "little") >> 17 & 0x3f != 0x3f]


def instruction(low, high):
    return low.to_bytes(8, "little") + high.to_bytes(8, "little")


class MachineCode(unittest.TestCase):
    def test_the_instruction_that_was_wrong_is_found_and_others_are_not(self):
        wrong = instruction(0x00000002030b7848, 0x000fe20003921100)   # VIMNMX.RELU R11, P1, P1, R3, 0x2, PT
        plain = instruction(0x000000080c0b7848, 0x000fe20003fe1100)   # VIMNMX.RELU R11, R12, 0x8, PT
        least = instruction(0x0000000203007848, 0x000fc80003fe0100)   # VIMNMX R0, R3, 0x2, PT
        guarded = instruction(0x00000002030b9848, 0x000fe20003921100)  # @!P1 and the first one
        self.assertEqual(told_by_a_clamp(plain + wrong + least + guarded), [16, 48])
        self.assertEqual(told_by_a_clamp(plain + least), [])

    @unittest.skipUnless(os.environ.get("BENCH_PROGRAMS"), "BENCH_PROGRAMS: of the virtual GPU")
    def test_no_kernel_has_it(self):
        folder = os.path.join(ROOT, os.environ["BENCH_PROGRAMS"], "chapters")
        objects = sorted(glob.glob(os.path.join(folder, "*", "kernels*.o")) +
                         glob.glob(os.path.join(folder, "*", "kernels", "*.o")) +
                         glob.glob(os.path.join(folder, "*", "main.o")))
        self.assertGreater(len(objects), 16)
        for path in objects:
            with open(path, "rb") as file:
                self.assertEqual(told_by_a_clamp(file.read()), [], path)


if __name__ == "__main__":
    unittest.main()
