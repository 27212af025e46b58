// Tensor files: what was written is read, and what is malformed is refused by name.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>

#include "lab.cuh"
#include "lab/errors.h"
#include "lab/program.h"
#include "lab/tensors.h"
#include "testing/testing.h"
#include "testing/text.h"

using lab::testing::contains;
using lab::testing::TemporaryFolder;

namespace {

// A safetensors file from its header and so many bytes of data.
std::string file_of(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header +
         std::string(data_bytes, '\0');
}

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":" + offsets + "}";
}

// The message with which reading "x" from that content is refused; "" when it is not.
std::string file_refusal(const std::string& content) {
  const TemporaryFolder folder;
  folder.write("t.safetensors", content);
  try {
    lab::read_safetensors(folder.path("t.safetensors"), {"x"});
  } catch (const lab::UsageError& error) {
    CHECK(std::string(error.what()).find("t.safetensors: ") != std::string::npos);
    return error.what();
  }
  return "";
}

std::string npy(const std::string& header, size_t data_bytes, char version = 1) {
  std::string file("\x93NUMPY");
  file += {version, 0};
  const uint32_t length = uint32_t(header.size());
  file.append(reinterpret_cast<const char*>(&length), version == 1 ? 2 : 4);
  return file + header + std::string(data_bytes, '\0');
}

std::string npy_refusal(const std::string& content) {
  const TemporaryFolder folder;
  folder.write("a.npy", content);
  try {
    lab::read_npy(folder.path("a.npy"));
  } catch (const lab::UsageError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("safetensors: there and back") {
  const TemporaryFolder folder;
  const std::string path = folder.path("t.safetensors");
  // 0.1 is not exact in either type, 65504 is fp16's largest, 6e-8 its smallest but one.
  const std::vector<float> values = {1.0f, -0.5f, 0.1f, 65504.0f, 5.9604645e-8f, -0.0f};
  lab::write_safetensors(path, {{"half", {{2, 3}, values, "F16"}},
                                {"single", {{3, 1, 2}, values, "F32"}},
                                {"scalar", {{}, {0.125f}, "F32"}}});
  const std::vector<lab::Tensor> read =
      lab::read_safetensors(path, {"single", "half"}, {"scalar", "absent"});
  REQUIRE(read.size() == 4);
  CHECK(read[0].shape == std::vector<int64_t>{3, 1, 2});
  CHECK(read[0].dtype == "F32");
  CHECK(read[0].values == values);
  CHECK(read[1].shape == std::vector<int64_t>{2, 3});
  CHECK(read[1].dtype == "F16");
  for (size_t i = 0; i < values.size(); ++i)
    CHECK(read[1].values[i] == __half2float(__float2half(values[i])));
  CHECK(std::signbit(read[1].values[5]));
  CHECK(read[2].shape.empty());
  CHECK(read[2].values == std::vector<float>{0.125f});
  CHECK(read[3].values.empty());
  // The header is padded so that data begins at a multiple of 8.
  const std::string content = lab::testing::file_content(path);
  uint64_t length = 0;
  std::memcpy(&length, content.data(), 8);
  CHECK(length % 8 == 0);
}

TEST_CASE("safetensors: a file as other programs write it is read") {
  // Metadata, spaces, a tensor of another type beside, an empty one.
  const std::string header = "{\"__metadata__\":{\"made by\":\"\\\"{[hand\"}, " +
                             tensor("big", "I64", "[1]", "[4,12]") + "," +
                             tensor("x", "F32", "[1]", "[0,4]") + "," +
                             tensor("none", "F16", "[0,7]", "[12,12]") + "}   ";
  CHECK(file_refusal(file_of(header, 12)) == "");
}

TEST_CASE("safetensors: malformed files are refused by name") {
  const std::string x = tensor("x", "F16", "[2]", "[0,4]");
  REQUIRE(file_refusal(file_of("{" + x + "}", 4)) == "");

  SUBCASE("header length") {
    CHECK(contains(file_refusal("abcdefg"), "7 bytes are no safetensors file"));
    CHECK(
        contains(file_refusal(std::string(16, '\xff')), "bad header length 18446744073709551615"));
    CHECK(contains(file_refusal(file_of("{" + x + "}", 4).substr(0, 20)), "bad header length"));
    CHECK(contains(file_refusal(std::string(8, '\0') + "{}"), "bad header length 0"));
  }
  SUBCASE("header text") {
    CHECK(contains(file_refusal(file_of("[" + x + "]", 4)), "does not begin with '{'"));
    CHECK(contains(file_refusal(file_of("{" + x, 4)), "no valid JSON"));
    CHECK(contains(file_refusal(file_of("{\"x\":{\"dtype\":\"F16\xff\"}}", 4)), "no valid JSON"));
    CHECK(contains(file_refusal(file_of("{" + x + "," + x + "}", 4)), "'x' is there twice"));
    CHECK(contains(file_refusal(file_of("{\"__metadata__\":{\"a\":1}," + x + "}", 4)),
                   "__metadata__"));
  }
  SUBCASE("nested and huge JSON") {
    CHECK(contains(file_refusal(file_of("{\"x\":" + std::string(1'000'000, '[') + "}", 0)),
                   "nested deeper than 3"));
    CHECK(contains(file_refusal(file_of("{\"x\":{\"y\":{\"z\":{}}}}", 0)), "nested deeper than 3"));
    // Above the format's limit of 100 MB, in a file that is as long as it says (and sparse).
    const TemporaryFolder folder;
    const uint64_t length = 100'000'001;
    folder.write("t", std::string(reinterpret_cast<const char*>(&length), 8) + "{");
    REQUIRE(truncate(folder.path("t").c_str(), 8 + int64_t(length)) == 0);
    CHECK_THROWS_WITH_AS(lab::read_safetensors(folder.path("t"), {"x"}),
                         doctest::Contains("bad header length 100000001"), lab::UsageError);
  }
  SUBCASE("entries") {
    CHECK(contains(file_refusal(file_of("{\"x\":1}", 0)), "dtype is missing"));
    CHECK(
        contains(file_refusal(file_of("{\"x\":{\"dtype\":3}}", 0)), "dtype is missing or no text"));
    CHECK(contains(file_refusal(file_of("{" + tensor("x", "F17", "[2]", "[0,4]") + "}", 4)),
                   "dtype 'F17' is not known"));
    CHECK(contains(file_refusal(file_of("{" + tensor("x", "F16", "[-2]", "[0,4]") + "}", 4)),
                   "no list of sizes"));
    CHECK(contains(file_refusal(file_of("{" + tensor("x", "F16", "[2.5]", "[0,4]") + "}", 4)),
                   "no list of sizes"));
    CHECK(contains(file_refusal(file_of("{" + tensor("x", "F16", "[2]", "[0]") + "}", 4)),
                   "no pair [begin, end]"));
    CHECK(contains(file_refusal(file_of("{" + tensor("x", "F16", "[3]", "[0,4]") + "}", 4)),
                   "takes 6 bytes, data_offsets give it 4"));
    CHECK(contains(file_refusal(file_of(
                       "{" + tensor("x", "F16", "[4294967296,4294967296]", "[0,4]") + "}", 4)),
                   "larger than 2^64 bytes"));
  }
  SUBCASE("offsets") {
    CHECK(contains(file_refusal(file_of("{" + tensor("x", "F16", "[2]", "[4,0]") + "}", 4)),
                   "out of range"));
    CHECK(contains(file_refusal(file_of("{" + x + "}", 3)),
                   "out of range, the file has 3 data bytes"));
    CHECK(contains(
        file_refusal(file_of(
            "{" + tensor("x", "F16", "[2]", "[18446744073709551612,18446744073709551616]") + "}",
            4)),
        "data_offsets"));
    CHECK(
        contains(file_refusal(file_of("{" + x + "," + tensor("y", "F16", "[2]", "[2,6]") + "}", 6)),
                 "'x' and 'y' overlap"));
    CHECK(contains(
        file_refusal(file_of("{" + x + "," + tensor("y", "F16", "[2]", "[6,10]") + "}", 10)),
        "a hole between 'x' and 'y'"));
    CHECK(contains(file_refusal(file_of("{" + tensor("x", "F16", "[2]", "[2,6]") + "}", 6)),
                   "a hole"));
    CHECK(contains(file_refusal(file_of("{" + x + "}", 5)), "1 bytes after the last tensor"));
  }
  SUBCASE("what is asked for") {
    CHECK(contains(file_refusal(file_of("{" + tensor("y", "F16", "[2]", "[0,4]") + "}", 4)),
                   "tensor 'x' is missing, the file has y"));
    CHECK(contains(file_refusal(file_of("{" + tensor("x", "BF16", "[2]", "[0,4]") + "}", 4)),
                   "'x' is BF16, F16 or F32 is needed"));
  }
}

TEST_CASE("safetensors: every cut of a good file is refused, and no changed byte crashes") {
  const TemporaryFolder folder;
  const std::string path = folder.path("t.safetensors");
  lab::write_safetensors(path, {{"x", {{2, 2}, {1, 2, 3, 4}, "F32"}}, {"y", {{1}, {5}, "F16"}}});
  const std::string good = lab::testing::file_content(path);
  for (size_t length = 1; length < good.size(); ++length)
    CHECK(file_refusal(good.substr(0, length)) != "");
  for (size_t i = 0; i < good.size(); ++i)
    for (const char byte : {'\0', '\xff', '{', '"', '9'}) {
      std::string changed = good;
      changed[i] = byte;
      folder.write("t.safetensors", changed);
      try {
        const std::vector<lab::Tensor> tensors = lab::read_safetensors(path, {"x", "y"});
        CHECK(tensors[0].values.size() <= good.size());
      } catch (const lab::UsageError&) {
      } catch (const lab::LackError&) {
      }
    }
}

TEST_CASE("npy: read as NumPy wrote it") {
  // float16 [1, 3, 17, 64] and float64 of the same shape, made by NumPy.
  const lab::Array q = lab::read_npy(lab::repository_path("data/golden/ragged_17_q.npy"));
  const lab::Array out = lab::read_npy(lab::repository_path("data/golden/ragged_17_out.npy"));
  CHECK(q.shape == std::vector<int64_t>{1, 3, 17, 64});
  CHECK(q.values.size() == 3 * 17 * 64);
  CHECK(out.shape == q.shape);
  for (const double value : q.values) CHECK(value == double(__float2half(float(value))));
}

TEST_CASE("npy: values, versions and what is refused") {
  const TemporaryFolder folder;
  const std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }\n";
  for (const char version : {1, 2, 3}) {
    std::string file = npy(header, 0, version);
    const float values[] = {1.5f, -2.0f};
    file.append(reinterpret_cast<const char*>(values), sizeof values);
    folder.write("a.npy", file);
    const lab::Array array = lab::read_npy(folder.path("a.npy"));
    CHECK(array.shape == std::vector<int64_t>{2, 1});
    CHECK(array.values == std::vector<double>{1.5, -2.0});
  }
  const auto with = [](const std::string& descr, const std::string& order,
                       const std::string& shape) {
    return "{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }";
  };
  CHECK(npy_refusal(npy(with("'<f8'", "False", "()"), 8)) == "");
  CHECK(npy_refusal(npy(with("'<f8'", "False", "(1,)"), 8)) == "");
  CHECK(contains(npy_refusal("no array at all"), "is no .npy file"));
  CHECK(contains(npy_refusal(npy(header, 8, 4)), "version 4"));
  CHECK(contains(npy_refusal(npy(header, 7)), "takes 8 bytes, the file has 7"));
  CHECK(contains(npy_refusal(npy(header, 9)), "takes 8 bytes, the file has 9"));
  CHECK(contains(npy_refusal(npy(header, 8).substr(0, 30)), "longer than the file"));
  CHECK(contains(npy_refusal(npy(with("'>f4'", "False", "(2,)"), 8)), "dtype '>f4'"));
  CHECK(contains(npy_refusal(npy(with("'<i8'", "False", "(1,)"), 8)), "dtype '<i8'"));
  CHECK(contains(npy_refusal(npy(with("'<f4'", "True", "(2,)"), 8)), "not in C order"));
  CHECK(contains(npy_refusal(npy(with("'<f4'", "False", "[2]"), 8)), "shape is no tuple"));
  CHECK(contains(npy_refusal(npy(with("'<f4'", "False", "(x,)"), 8)), "shape is no tuple"));
  CHECK(contains(npy_refusal(npy(with("'<f4'", "False", "(4294967296, 4294967296)"), 8)),
                 "not possible"));
  CHECK(contains(npy_refusal(npy("{'descr': '<f4'}", 8)), "'fortran_order' is missing"));
  for (const char* key : {"descr", "fortran_order", "shape"}) {  // cut off behind a key
    const std::string whole = with("'<f4'", "False", "(2,)");
    const size_t at = whole.find(std::string("'") + key + "':") + std::strlen(key) + 3;
    CHECK(contains(npy_refusal(npy(whole.substr(at) + whole.substr(0, at), 8)), "has no value"));
  }
}
