// What the C functions refuse: by name, with the value, and what would be right. Nothing is written
// then.
#include "support.h"

using namespace operators_tests;

namespace {

const std::vector<int64_t> kShape = {1, 2, 8, 32};

struct Attention {
  Array<half> q{kShape, 1}, k{kShape, 2}, v{kShape, 3}, o{kShape};
  int run() { return vision_attention_forward(q, k, v, o, nullptr, 0.125f, nullptr); }
};

}  // namespace

TEST_CASE("shapes: number of dimensions, sizes, limits of the kernel") {
  Attention a;
  RUN(a.run());
  a.k.tensor.shape[2] = 7;
  check_refused(a.run(),
                "attention_forward: k has shape [1, 2, 7, 32], must be [batch 1, heads 2, tokens "
                "8, head_dim 32]");
  a.k.tensor.shape[2] = 8;
  a.q.tensor.dimensions = 3;
  check_refused(
      a.run(),
      "attention_forward: q has shape [1, 2, 8], must be [batch, heads, tokens, head_dim]");
  a.q.tensor.dimensions = 7;
  check_refused(a.run(),
                "attention_forward: q has 7 dimensions, must be [batch, heads, tokens, head_dim]");
  a.q.tensor.dimensions = 4;
  a.q.tensor.shape[1] = 0;
  check_refused(a.run(),
                "attention_forward: q has shape [1, 0, 8, 32]: heads must be 1 to 2147483647");
  a.q.tensor.shape[1] = int64_t(1) << 31;
  check_refused(
      a.run(),
      "attention_forward: q has shape [1, 2147483648, 8, 32]: heads must be 1 to 2147483647");
  a.q.tensor.shape[1] = 2;
  a.q.tensor.shape[3] = 16;
  check_refused(a.run(),
                "attention of shape [batch 1, heads 2, tokens 8, head_dim 16]: head_dim must be "
                "32, 64 or 128");
  a.q.tensor.shape[3] = 32;
  check_refused(vision_attention_forward(a.q, nullptr, a.v, a.o, nullptr, 1, nullptr),
                "attention_forward: k is missing: a tensor [batch 1, heads 2, tokens 8, head_dim "
                "32] is needed");
  RUN(a.run());
}

TEST_CASE("types, strides, alignment and place") {
  Attention a;
  a.v.tensor.type = VISION_BFLOAT16;
  check_refused(a.run(), "attention_forward: v has type bfloat16, must be float16");
  a.v.tensor.type = VISION_FLOAT16;
  a.v.tensor.strides[1] = 32, a.v.tensor.strides[2] = 64;
  check_refused(
      a.run(),
      "attention_forward: v has strides [512, 32, 64, 1], must be contiguous: [512, 256, 32, 1]");
  a.v.tensor.strides[1] = 256, a.v.tensor.strides[2] = 32;
  a.v.tensor.strides[0] = 12345;  // a dimension of 1: its stride does not matter
  RUN(a.run());
  char* const right = static_cast<char*>(a.v.tensor.data);
  a.v.tensor.data = right + 2;
  check_refused(a.run(),
                "attention_forward: v starts 2 bytes behind a multiple of 16, must start at one");
  a.v.tensor.data = nullptr;
  check_refused(a.run(), "attention_forward: v is a null pointer");
  alignas(16) static half on_host[512];
  a.v.tensor.data = on_host;
  check_refused(a.run(), "attention_forward: v lies in the host's memory, must lie on the device");
  a.v.tensor.data = a.o.tensor.data;
  check_refused(a.run(),
                "attention_forward: o overlaps v, must be memory of its own, since it is written");
  a.v.tensor.data = right;
  RUN(a.run());
}

TEST_CASE("what is refused has written nothing") {
  Attention a;
  a.v.tensor.shape[2] = 7;
  CHECK(a.run() == VISION_BAD_ARGUMENT);
  for (const half value : a.o.download()) REQUIRE(std::isnan(float(value)));
}

TEST_CASE("limits of the other kernels") {
  const Array<float> x({2, 40}, 1), scale({40}, 2), bias({40}, 3), beta({41}, 3);
  Array<float> y({2, 40});
  check_refused(
      vision_layer_norm_forward(x, nullptr, scale, bias, nullptr, y, 1e-5f, nullptr),
      "layer norm of shape [rows 2, columns 40, epsilon 1e-05]: columns must be 64 to 4096");
  const Array<half> a({3, 12}, 1), w({5, 12}, 2), narrow({5, 16}, 2);
  Array<half> b({3, 5});
  check_refused(vision_linear(a, w, nullptr, nullptr, b, 0, nullptr),
                "product of shape [m 3, n 5, k 12]: k must be a multiple of 8: this step copies "
                "rows of x and weight "
                "16 bytes at a time");
  check_refused(vision_linear(a, narrow, nullptr, nullptr, b, 0, nullptr),
                "linear: weight has shape [5, 16], must be [out 5, in 12]");
  check_refused(vision_linear(x, w, nullptr, nullptr, b, 0, nullptr),
                "linear: x has type float32, must be float16");
  const Array<float> photo({1, 1, 4, 4}, 1), filter({1, 1, 2, 2}, 2), one({1}, 3);
  Array<float> map({1, 1, 4, 4});
  vision_conv_norm_options options = {1, 1, 1, 1, 1, 0, 1, 1e-5f};
  check_refused(vision_conv_norm(photo, filter, one, one, nullptr, map, &options, nullptr),
                "convolution of shape [batch 1, channels 1 to 1, 4x4, kernel 2, stride 1, zeros 1 "
                "1 1 1]: kernel must be "
                "1, 3, 4, 5 or 9");
  check_refused(vision_conv_norm(photo, filter, one, one, nullptr, map, nullptr, nullptr),
                "conv_norm: options is a null pointer");
  const Array<half> value({1, 4, 1, 16}, 1), locations({1, 1, 1, 1, 4, 2}, 2),
      weights({1, 1, 1, 1, 4}, 3);
  Array<half> out({1, 1, 16});
  const int64_t sizes[] = {2, 3};
  check_refused(
      vision_deformable_attention_forward(value, sizes, 1, locations, weights, out, nullptr),
      "deformable_attention_forward: value has shape [1, 4, 1, 16], must be [batch 1, pixels 6, "
      "heads 1, "
      "channels 16]");
  check_refused(
      vision_deformable_attention_forward(value, sizes, 6, locations, weights, out, nullptr),
      "deformable_attention_forward: level_sizes has 6 pairs, must be 1 to 5");
}

TEST_CASE("limits of the convolutional projection") {
  const Array<float> x({1, 9, 4}, 1), w({3, 4, 3, 3}, 2), each({3, 4}, 3);
  Array<float> q({1, 9, 4}), k({1, 3, 4}), v({1, 3, 4}), a({3, 4}), b({3, 4}), c({3, 4}), d({3, 4});
  const auto run = [&](int height, int width, int training) {
    return vision_projection_forward(x, w, each, each, nullptr, nullptr, q, k, v, a, b, c, d,
                                     height, width, training, nullptr);
  };
  RUN(run(2, 4, 1));
  check_refused(run(3, 4, 1),
                "projection_forward: x has 9 tokens, must have 12 for a map of 3 x 4, or one more "
                "with a class token");
  check_refused(run(0, 4, 1), "projection_forward: height 0 and width 4 must be 1 to 4096");
  check_refused(run(2, 4, 0),
                "projection_forward: running_mean is missing: a tensor [projections 3, channels 4] "
                "is needed");
  check_refused(
      run(3, 3, 1),
      "projection_forward: k has shape [1, 3, 4], must be [batch 1, tokens 4, channels 4]");
}

TEST_CASE("memory: negative sizes, more than there is, and addresses that nobody gave") {
  void* address = nullptr;
  check_refused(vision_allocate(-1, &address),
                "allocate: -1 bytes: must be at least 0, and address not null");
  CHECK(vision_allocate(int64_t(1) << 60, &address) == VISION_DEVICE_ERROR);
  CHECK(std::string(vision_last_message())
            .find("allocating 1152921504606846976 bytes on the device: ") == 0);
  CHECK(vision_free(reinterpret_cast<void*>(0x1230)) == VISION_DEVICE_ERROR);
  CHECK(std::string(vision_last_message()).find("freeing memory of the device: ") == 0);
}
