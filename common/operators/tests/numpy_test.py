"""NumPy's arrays through the virtual GPU: each pair of functions once against the formula in
double."""
import os
import unittest

from library_test import on_the_host

try:
    import numpy
except ImportError:
    numpy = None
import vision_operators as ops


def near(case, got, expected, bound):
    """|got - expected| <= bound rms(expected) everywhere."""
    case.assertEqual(got.shape, expected.shape)
    rms = float(numpy.sqrt((expected ** 2).mean()))
    case.assertGreater(rms, 0)
    worst = float(numpy.abs(got.astype(numpy.float64) - expected).max())
    case.assertLessEqual(worst, bound * rms)  # false for NaN


@unittest.skipUnless(numpy, "no NumPy")
class Numpy(unittest.TestCase):
    def setUp(self):
        on_the_host(self)
        self.random = numpy.random.default_rng(1)

    def normal(self, *shape, dtype="float16"):
        return self.random.standard_normal(shape).astype(dtype)

    def test_attention(self):
        q, k, v, d_o = (self.normal(1, 2, 19, 32) for _ in range(4))
        wide = [x.astype(numpy.float64) for x in (q, k, v, d_o)]
        scores = 32 ** -0.5 * wide[0] @ wide[1].swapaxes(-1, -2)
        weights = numpy.exp(scores)
        sums = weights.sum(-1, keepdims=True)
        weights /= sums
        o, log_sum_exp = ops.attention_forward(q, k, v, with_log_sum_exp=True)
        near(self, o, weights @ wide[2], 1e-2)
        near(self, log_sum_exp, numpy.log(sums)[..., 0], 1e-4)
        d_weights = wide[3] @ wide[2].swapaxes(-1, -2)
        d_scores = 32 ** -0.5 * weights * (d_weights - (weights * d_weights).sum(-1, keepdims=True))
        dq, dk, dv = ops.attention_backward(q, k, v, o, log_sum_exp, d_o)
        near(self, dq, d_scores @ wide[1], 1e-2)
        near(self, dk, d_scores.swapaxes(-1, -2) @ wide[0], 1e-2)
        near(self, dv, weights.swapaxes(-1, -2) @ wide[3], 1e-2)

    def test_linear_and_mlp(self):
        x, w = self.normal(9, 16), self.normal(8, 16)
        near(self, ops.linear_forward(x, w), x.astype(float) @ w.astype(float).T, 1e-2)
        y = ops.mlp_forward(x, w, None, self.normal(16, 8), None, residual=x)
        self.assertTrue(numpy.isfinite(y).all())

    def test_conv_norm_of_ones_is_beta(self):
        """Each plane of a constant picture under a filter of one pixel is constant: its norm is
        0."""
        x = numpy.full((1, 2, 5, 5), 3, "float32")
        beta = numpy.array([0.5, -1], "float32")
        weight, gamma = self.normal(2, 2, 1, 1, dtype="float32"), numpy.ones(2, "float32")
        y = ops.conv_norm_forward(x, weight, gamma, beta, padding=0)
        self.assertTrue((y[:, 0] == 0.5).all() and (y[:, 1] == 0).all())  # ReLU

    def test_refused_by_name(self):
        q = self.normal(1, 2, 8, 32)
        for k, words in ((q[:, :, :7],
                          r"k has shape \[1, 2, 7, 32\], must be \[batch 1, heads 2, tokens 8, "
                          r"head_dim 32\]"),
                         (q.astype("float32"), "k has type float32, must be float16"),
                         (q.astype(">f2"), "k has type another type, must be float16"),
                         (q.swapaxes(0, 1).copy().swapaxes(0, 1)[:, ::-1],
                          r"k has strides \[\d+, -256, 32, 1\], must be contiguous: \[512, 256, "
                          r"32, 1\]"),
                         ("k", "k is a str, must be a torch tensor or a NumPy array")):
            with self.assertRaisesRegex(ops.BadArgument, "^attention_forward: " + words):
                ops.attention_forward(q, k, q)


if __name__ == "__main__":
    unittest.main()
