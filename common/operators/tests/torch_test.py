"""The operators with gradients, against PyTorch's own in double. On a GPU where there is one and a
library for it, else on the CPU."""
import copy
import os
import pickle
import unittest

from library_test import on_the_host

try:
    import torch
except ImportError:
    torch = None
import vision_operators as ops
from vision_operators import library

if torch:
    torch.set_num_threads(1)
    ON_GPU = torch.cuda.is_available() and os.path.exists(library.path_of("cuda"))
    DEVICE = "cuda" if ON_GPU else "cpu"
    F = torch.nn.functional


@unittest.skipUnless(torch, "no PyTorch")
class Case(unittest.TestCase):
    def setUp(self):
        if not ON_GPU:
            on_the_host(self)
        self.seed = torch.Generator().manual_seed(1)

    def normal(self, *shape, dtype=None, scale=1.0):
        numbers = torch.randn(shape, generator=self.seed) * scale
        return numbers.half().to(dtype or torch.float16).to(DEVICE)

    def near(self, got, expected, bound, name="result"):
        """|got - expected| <= bound rms(expected) everywhere."""
        self.assertEqual(tuple(got.shape), tuple(expected.shape), name)
        rms = float((expected.double() ** 2).mean().sqrt())
        self.assertGreater(rms, 0, name)
        worst = float((got.double() - expected.double()).abs().max())
        self.assertLessEqual(worst, bound * rms, name)  # false for NaN

    def compare(self, ours, theirs, inputs, bound):
        """Outputs and all gradients of ours(*inputs) beside theirs(*inputs in double)."""
        own = [x.clone().requires_grad_() for x in inputs]
        wide = [x.double().cpu().requires_grad_() for x in inputs]
        got, expected = ours(*own), theirs(*wide)
        many = isinstance(got, tuple)
        arrived = [torch.randn(y.shape, generator=self.seed).half()
                   for y in (expected if many else (expected,))]
        for index, (a, b) in enumerate(zip(got if many else (got,),
                                           expected if many else (expected,))):
            self.near(a.detach().cpu(), b.detach(), bound, f"output {index}")
        torch.autograd.backward(got, [g.to(y.dtype).to(DEVICE)
                                      for g, y in zip(arrived, got if many else (got,))])
        torch.autograd.backward(expected, [g.double() for g in arrived])
        for index, (a, b, x) in enumerate(zip(own, wide, inputs)):
            self.assertEqual(a.grad.dtype, x.dtype)
            self.near(a.grad.cpu(), b.grad, bound, f"gradient {index}")


# Bounds: float16 rounds by 2^-11 (5e-4) of each number, and a result has a few such errors; the
# largest of some thousand elements is 4 rms of them. So 1e-2 of the rms of what is compared, and
# where a type has fp32 in it throughout, 1e-4.
class Gradients(Case):
    def test_attention(self):
        inputs = [self.normal(1, 2, 37, 32) for _ in range(3)]

        def theirs(q, k, v):
            return torch.softmax(0.3 * q @ k.transpose(-1, -2), -1) @ v
        for deterministic in (True, False):
            self.compare(lambda q, k, v, d=deterministic: ops.attention(q, k, v, 0.3, d), theirs,
                         inputs, 1e-2)

    def test_attention_of_float32_with_small_gradients(self):
        """Gradients below what float16 holds come back, since they are scaled on the way."""
        inputs = [self.normal(1, 1, 20, 32, dtype=torch.float32) for _ in range(3)]
        self.compare(lambda *x: ops.attention(*x, cast=True), F.scaled_dot_product_attention,
                     inputs, 1e-2)
        self.compare(lambda *x: ops.attention(*x, cast=True) * 1e-9,
                     lambda *x: F.scaled_dot_product_attention(*x) * 1e-9, inputs, 1e-2)

    def test_cross_attention(self):
        for queries, keys, head_dim in ((33, 9, 32), (5, 18, 24), (7, 7, 64)):
            inputs = [self.normal(1, 2, queries, head_dim),
                      *(self.normal(1, 2, keys, head_dim) for _ in range(2))]
            self.compare(ops.cross_attention, F.scaled_dot_product_attention, inputs, 1e-2)

    def test_deformable_attention(self):
        sizes = [(6, 4), (3, 2)]
        value = self.normal(2, 30, 2, 16)
        # Numbers with eight bits behind the point: a location in fp16 is the one in double.
        locations = (torch.randint(-40, 296, (2, 7, 2, 2, 4, 2),
                                   generator=self.seed) / 256).half().to(DEVICE)
        weights = self.normal(2, 7, 2, 2, 4, scale=0.3)

        def theirs(value, locations, weights):
            first, levels = 0, []
            for height, width in sizes:
                part = value[:, first:first + height * width].permute(0, 2, 3, 1)
                part = part.reshape(4, 16, height, width)
                first += height * width
                grid = locations[:, :, :, len(levels)].transpose(1, 2).reshape(4, 7, 4, 2) * 2 - 1
                levels.append(F.grid_sample(part, grid, align_corners=False))
            samples = torch.stack(levels, -2).reshape(2, 2, 16, 7, 2, 4)
            weighted = samples * weights.transpose(1, 2).unsqueeze(2)
            return weighted.sum((-1, -2)).permute(0, 3, 1, 2).flatten(2)

        self.compare(lambda v, l, w: ops.deformable_attention(v, sizes, l, w), theirs,
                     [value, locations, weights],
                     2e-2)
        self.compare(lambda v, l, w: ops.deformable_attention(v, torch.tensor(sizes), l, w,
                                                              deterministic=False),
                     theirs, [value, locations, weights], 2e-2)

    def test_layer_norm(self):
        for dtype, bound in ((torch.float32, 1e-4), (torch.float16, 1e-2)):
            x = self.normal(2, 3, 72, dtype=dtype)
            scale, bias = (self.normal(72, dtype=dtype) for _ in range(2))
            self.compare(lambda x, s, b: ops.layer_norm(x, s, b, 1e-3),
                         lambda x, s, b: F.layer_norm(x, (72,), s, b, 1e-3), [x, scale, bias],
                         bound)

            def theirs(x, r, s, b):
                return F.layer_norm(x + r, (72,), s, b, 1e-3), x + r
            self.compare(lambda x, r, s, b: ops.layer_norm_residual(x, r, s, b, 1e-3), theirs,
                         [x, self.normal(2, 3, 72, dtype=dtype), scale, bias], bound)

    def test_linear(self):
        x, weight, bias, residual = (self.normal(3, 7, 24), self.normal(20, 24, scale=0.2),
                                     self.normal(20),
                                     self.normal(3, 7, 20))
        self.compare(lambda x, w, b, r: ops.linear(x, w, b, r, gelu=True),
                     lambda x, w, b, r: F.gelu(F.linear(x, w, b)) + r, [x, weight, bias, residual],
                     1e-2)
        self.compare(ops.linear, F.linear, [x, weight], 1e-2)
        self.compare(lambda x, w, b: ops.linear(x, w, b, cast=True), F.linear,
                     [x.float(), weight.float(), bias.float()], 1e-2)

    def test_mlp(self):
        inputs = [self.normal(2, 9, 24), self.normal(40, 24, scale=0.2), self.normal(40),
                  self.normal(24, 40, scale=0.2), self.normal(24), self.normal(2, 9, 24)]

        def theirs(x, w1, b1, w2, b2, r):
            return F.linear(F.gelu(F.linear(x, w1, b1)), w2, b2) + r
        self.compare(ops.mlp, theirs, inputs, 2e-2)
        self.compare(lambda *x: ops.mlp(*x, cast=True), theirs, [x.float() for x in inputs], 2e-2)

    def projections(self, x, w, scale, shift, height, width, running_mean, running_variance,
                    training):
        """What PyTorch makes of it."""
        class_tokens, found = x.shape[1] - height * width, []
        photo = x[:, class_tokens:].transpose(1, 2).unflatten(2, (height, width))
        for i, stride in enumerate((1, 2, 2)):
            y = F.conv2d(photo, w[i].unsqueeze(1), stride=stride, padding=1, groups=w.shape[1])
            y = F.batch_norm(y, running_mean[i], running_variance[i], scale[i], shift[i], training)
            found.append(torch.cat((x[:, :class_tokens], y.flatten(2).transpose(1, 2)), 1))
        return tuple(found)

    def test_projection(self):
        single = torch.float32
        for dtype, bound, class_tokens, training in ((single, 1e-4, 1, True),
                                                     (single, 1e-4, 0, False),
                                                     (torch.float16, 2e-2, 1, True)):
            height, width, channels = 7, 6, 24
            arrays = [self.normal(2, class_tokens + height * width, channels, dtype=dtype),
                      self.normal(3, channels, 3, 3, dtype=single, scale=0.4),
                      1 + self.normal(3, channels, dtype=single, scale=0.2),
                      self.normal(3, channels, dtype=single)]
            running = (self.normal(3, channels, dtype=single),
                       self.normal(3, channels, dtype=single).abs() + 0.1)
            before, wide = [r.clone() for r in running], [r.double().cpu() for r in running]
            self.compare(lambda *a: ops.projection(*a, height, width, *running, training),
                         lambda *a: self.projections(*a, height, width, *wide, training), arrays,
                         bound)
            for own, expected, first in zip(running, wide, before):
                self.near(own.cpu(), expected, 1e-3 if dtype == torch.float16 else 1e-5)
                self.assertEqual(torch.equal(own, first), not training)

    def test_batch_norm_in_a_linear_layer(self):
        weight, bias, factor, offset = (self.normal(*shape, dtype=torch.float32)
                                        for shape in ((10, 24), (10,), (24,), (24,)))
        x = self.normal(5, 24, dtype=torch.float32)
        for given in (bias, None):
            folded = ops.fold_batch_norm(weight, given, factor, offset)
            self.near(F.linear(x, *folded).cpu(),
                      F.linear(x * factor + offset, weight, given).double().cpu(), 1e-5)

    def test_conv_norm(self):
        arrays = [self.normal(*shape, dtype=torch.float32)
                  for shape in ((2, 3, 9, 8), (4, 3, 3, 3), (4,), (4,))]
        wide = [array.double().cpu() for array in arrays]
        convolved = F.conv2d(F.pad(wide[0], (1, 1, 1, 1), "reflect"), wide[1], stride=2)
        expected = F.relu(F.instance_norm(convolved, weight=wide[2], bias=wide[3]))
        x, weight, gamma, beta = arrays
        self.near(ops.conv_norm(x, weight, gamma, beta, stride=2, reflect=True).cpu(), expected,
                  1e-4)
        with self.assertRaisesRegex(ops.BadArgument,
                                    r"weight requires a gradient, .* torch.no_grad\(\)"):
            ops.conv_norm(x, weight.requires_grad_(), gamma, beta)

    def test_sums_beyond_float16(self):
        """The scaled gradient has sums over rows that float16 does not hold; float32 has."""
        rows = 16384
        x = torch.ones(rows, 8, device=DEVICE)
        weight = torch.ones(8, 8, device=DEVICE).requires_grad_()
        ops.linear(x, weight, cast=True).sum().backward()
        self.assertTrue((weight.grad == rows).all())

    def test_largest_gradients_of_float32(self):
        v = self.normal(1, 1, 4, 32, dtype=torch.float32).requires_grad_()
        q = torch.zeros_like(v)
        ops.attention(q, q, v, cast=True).backward(torch.full_like(v, 1e38))
        self.near(v.grad.cpu(), torch.full(v.shape, 1e38), 1e-2)

    def test_residual_of_another_shape(self):
        """Its rows are what counts, and its gradient has its shape."""
        x, flat = self.normal(3, 2, 64), self.normal(6, 64).requires_grad_()
        ones = torch.ones_like(x[0, 0])
        for y in (ops.linear(x, self.normal(64, 64), None, flat),
                  ops.layer_norm_residual(x, flat, ones, ones)[1],
                  ops.mlp(x, self.normal(8, 64), None, self.normal(64, 8), None, flat)):
            flat.grad = None
            y.sum().backward()
            self.assertTrue(torch.equal(flat.grad, torch.ones_like(flat)))

    def test_a_second_derivative_is_refused(self):
        x = self.normal(1, 1, 8, 32).requires_grad_()
        first, = torch.autograd.grad(ops.attention(x, x, x).sum(), x, create_graph=True)
        with self.assertRaisesRegex(RuntimeError, "have no second derivatives"):
            (x.sum() + (first ** 2).sum()).backward()

    def test_gradients_of_nothing_and_of_half_of_it(self):
        """An input that needs no gradient gets none, and no log-sum-exp is kept where none needs
        one."""
        q, k, v = (self.normal(1, 1, 8, 32) for _ in range(3))
        self.assertFalse(ops.attention(q, k, v).requires_grad)
        ops.attention(q, k.requires_grad_(), v).sum().backward()
        self.assertIsNone(q.grad)
        self.assertEqual(k.grad.shape, k.shape)

    def test_same_bits_twice(self):
        x = [self.normal(1, 2, 70, 64).requires_grad_() for _ in range(3)]
        d_o = self.normal(1, 2, 70, 64)
        first, second = (torch.autograd.grad(ops.attention(*x), x, d_o) for _ in range(2))
        for a, b in zip(first, second):
            self.assertTrue(torch.equal(a, b))


class Refused(Case):
    def test_by_name(self):
        q = self.normal(1, 2, 8, 32)
        for k, words in (
                (q[:, :, :7].contiguous(),
                 r"k has shape \[1, 2, 7, 32\], must be \[batch 1, heads 2, tokens 8, head_dim "
                 r"32\]"),
                (q.float(), r"k has type float32, must be float16 \(cast=True rounds it\)"),
                (q.bfloat16(), "k has type bfloat16, must be float16"),
                (self.normal(1, 8, 2, 32).transpose(1, 2),
                 r"k has strides \[512, 32, 64, 1\], must be contiguous: \[512, 256, 32, 1\]"),
                (q.tolist(), "k is a list, must be a torch tensor")):
            with self.assertRaisesRegex(ops.BadArgument, words):
                ops.attention(q, k, q)
        for call in (lambda: ops.linear(None, q), lambda: ops.layer_norm(None, q, q)):
            with self.assertRaisesRegex(ops.BadArgument, "x is a NoneType, must be a torch tensor"):
                call()
        with self.assertRaisesRegex(ops.BadArgument, "k has type int64, must be a floating type"):
            ops.attention(q, q.long(), q, cast=True)
        with self.assertRaisesRegex(ops.BadArgument, "head_dim must be 32, 64 or 128"):
            ops.attention(*[self.normal(1, 2, 8, 16)] * 3)
        with self.assertRaisesRegex(ops.BadArgument,
                                    r"x has strides \[1, 2\], must be contiguous: "
                                    r".*contiguous\(\)"):
            ops.layer_norm(self.normal(72, 2).t(), q, q)
        with self.assertRaisesRegex(ops.BadArgument,
                                    r"linear: weight has shape \[8, 16\], must be \[out 8, in "
                                    r"24\]"):
            ops.linear(self.normal(3, 24), self.normal(8, 16))
        with self.assertRaisesRegex(ops.BadArgument,
                                    "k lies on meta, must lie on a GPU or on the CPU"):
            ops.attention_forward(q, q.to("meta"), q)
        with self.assertRaisesRegex(ops.BadArgument, "k has layout torch.sparse"):
            ops.attention_forward(q, q.to_sparse(), q)
        w = self.normal(3, 8, 3, 3, dtype=torch.float32)
        of_channels = torch.ones(3, 8, device=DEVICE)
        with self.assertRaisesRegex(ops.BadArgument,
                                    r"x has shape \[1, 10, 8\], must be .* with 2 \* 4 tokens"):
            ops.projection(self.normal(1, 10, 8), w, of_channels, of_channels, 2, 4)
        with self.assertRaisesRegex(ops.BadArgument, "projection_forward: running_mean is missing"):
            ops.projection(self.normal(1, 8, 8), w, of_channels, of_channels, 2, 4, training=False)
        with self.assertRaisesRegex(ops.BadArgument,
                                    "x has type float64, must be float16 or float32"):
            ops.projection(self.normal(1, 8, 8).double(), w, of_channels, of_channels, 2, 4)
        with self.assertRaisesRegex(ops.BadArgument, "scale is 0.001, must be at least 1/256"):
            ops.cross_attention(q, self.normal(1, 2, 5, 32), self.normal(1, 2, 5, 32), 0.001)

    def test_numbers(self):
        q = self.normal(1, 2, 8, 32)
        for scale in (float("nan"), 1e39, "a"):
            with self.assertRaisesRegex(ops.BadArgument, "scale is .*, must be a finite number"):
                ops.attention(q, q, q, scale)
        for sizes in ([(6, 4, 9)], [6, 4]):
            with self.assertRaisesRegex(ops.BadArgument,
                                        r"level_sizes is .*, must be pairs \(height, width\)"):
                ops.deformable_attention(q, sizes, q[None, None], q)
        for padding in ((1, 1), 1.5):
            with self.assertRaisesRegex(ops.BadArgument,
                                        "padding is .*, must be an integer, or four"):
                ops.conv_norm(q, q, q, q, padding=padding)

    @unittest.skipIf(torch and ON_GPU, "on a GPU nobody looks at the numbers")
    def test_beyond_float16(self):
        q = self.normal(1, 1, 8, 32, dtype=torch.float32)
        with self.assertRaisesRegex(ops.BadArgument,
                                    "attention: v has an element of size 1e\\+06, must be at most "
                                    "65504"):
            ops.attention(q, q, torch.full_like(q, -1e6), cast=True)
        v = q.clone()
        v[0, 0, 0, 0] = float("inf")  # the caller's own infinity arrives
        self.assertTrue(bool(ops.attention(q, q, v, cast=True).isinf().any()))

    def test_misaligned(self):
        """On the CPU arrays are copied, wherever they begin; on a GPU they are used where they
        are."""
        q = self.normal(1, 1, 8, 32)
        moved = self.normal(8 * 32 + 1)[1:].view(1, 1, 8, 32)
        if ON_GPU:
            with self.assertRaisesRegex(ops.BadArgument,
                                        "k starts 2 bytes behind a multiple of 16, must start at "
                                        "one"):
                ops.attention(q, moved, q)
        else:
            self.assertTrue(torch.equal(ops.attention(q, moved, q),
                                        ops.attention(q, moved.clone(), q)))

    @unittest.skipUnless(torch and ON_GPU, "no GPU in PyTorch, or no library for it")
    def test_on_the_current_stream(self):
        """Work behind a long one on the same stream sees its results."""
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            x = torch.randn(4096, 4096, device="cuda")
            for _ in range(20):
                x = x @ x / 64
            q = x.flatten()[:8 * 64].view(1, 1, 8, 64).clamp(-1, 1).half().contiguous()
            got = ops.attention(q, q, q)
            expected = F.scaled_dot_product_attention(q, q, q)
        stream.synchronize()
        self.near(got, expected, 1e-2)


class Functional(Case):
    def test_in_place_of_torch_and_back(self):
        before = F.layer_norm, F.scaled_dot_product_attention
        x, q = self.normal(2, 64, dtype=torch.float32), self.normal(1, 2, 9, 32,
                                                                    dtype=torch.float32)
        norm = torch.nn.LayerNorm(64).to(DEVICE)
        expected = norm(x), F.scaled_dot_product_attention(q, q, q), F.layer_norm(x, (64,))
        with ops.replaced() as used:
            got = norm(x), F.scaled_dot_product_attention(q, q, q), F.layer_norm(x, (64,))
            causal = F.scaled_dot_product_attention(q, q, q, is_causal=True)
        self.assertEqual((F.layer_norm, F.scaled_dot_product_attention), before)
        for a, b in zip(got, expected):
            self.near(a.detach(), b.detach(), 1e-2)
        expected = F.scaled_dot_product_attention(q, q, q, is_causal=True)
        self.assertTrue(torch.equal(causal, expected))
        self.assertEqual(dict(used.calls), {"layer_norm": 1, "attention": 1})
        self.assertEqual(dict(used.left), {("layer_norm",
                                            "layer_norm: weight and bias must be there"): 1,
                                           ("attention",
                                            "attention: is_causal is not supported"): 1})

    def test_head_dim_that_the_kernel_has_not(self):
        q = self.normal(1, 2, 9, 48, dtype=torch.float32)
        with ops.replaced() as used:
            got = F.scaled_dot_product_attention(q, q, q)
        self.near(got, F.scaled_dot_product_attention(q, q, q), 1e-2)
        self.assertEqual((dict(used.calls), dict(used.left)), ({"attention": 1}, {}))

    def test_blocks_that_end_in_another_order(self):
        before = F.layer_norm
        first, second = ops.replaced(), ops.replaced()
        first.__enter__()
        used = second.__enter__()
        first.__exit__(None, None, None)
        torch.nn.LayerNorm(64).to(DEVICE)(self.normal(2, 64, dtype=torch.float32))
        self.assertEqual(dict(used.calls), {"layer_norm": 1})
        second.__exit__(None, None, None)
        self.assertIs(F.layer_norm, before)

    def test_put_back_after_an_error(self):
        before = F.layer_norm
        with self.assertRaises(ZeroDivisionError), ops.replaced():
            1 / 0
        self.assertIs(F.layer_norm, before)


if torch:
    class Doubling(torch.nn.Module):
        """In the place of a class that `replaced` knows."""

        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.tensor(2.0))

        def forward(self, x):
            return self.scale * x


@unittest.skipUnless(torch, "no PyTorch")
class Modules(unittest.TestCase):
    """Blocks with a model: a class of this file stands for timm's."""

    def setUp(self):
        from vision_operators import replace

        def make(used, kernels, original):
            def forward(self, x):
                return used.run("ours", lambda: 10 * original(self, x), None)
            return forward
        place = (Doubling.__module__, "Doubling")
        self.addCleanup(replace._MODULES.pop, place)
        replace._MODULES[place] = make
        self.forward = Doubling.forward
        self.model, self.x = torch.nn.Sequential(Doubling()), torch.tensor(3.0)

    def tearDown(self):
        self.assertIs(Doubling.forward, self.forward)
        self.assertEqual(self.model(self.x).item(), 6)

    def test_nested(self):
        with ops.replaced(self.model) as outer:
            with ops.replaced(self.model) as inner:
                self.assertEqual(self.model(self.x).item(), 60)
            self.assertEqual((dict(outer.calls), dict(inner.calls)), ({}, {"ours": 1}))
            self.assertEqual(self.model(self.x).item(), 60)
            with ops.replaced():
                self.assertEqual(self.model(self.x).item(), 60)
        self.assertEqual(outer.calls["ours"], 2)

    def test_a_copy_is_its_own(self):
        """With its own weights, and without ours."""
        with ops.replaced(self.model):
            others = copy.deepcopy(self.model), pickle.loads(pickle.dumps(self.model))
            for other in others:
                with torch.no_grad():
                    other[0].scale.fill_(5)
                self.assertEqual(other(self.x).item(), 15)
        for other in others:
            self.assertEqual(other(self.x).item(), 15)

    def test_a_forward_that_somebody_put_there_stays(self):
        self.model[0].forward = lambda x: 2 * x
        with ops.replaced(self.model):
            self.assertEqual(self.model(self.x).item(), 6)
        self.assertIn("forward", self.model[0].__dict__)

    def test_put_back_after_an_error(self):
        with self.assertRaises(ZeroDivisionError), ops.replaced(self.model):
            1 / 0


if __name__ == "__main__":
    unittest.main()
