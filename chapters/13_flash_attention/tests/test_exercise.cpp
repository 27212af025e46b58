// Exercise 13: ours gets all points, others what they deserve.
#include <doctest/doctest.h>

#include <cstdint>

#include "../../../common/grader/tests/support.h"

using namespace lab::grader::testing;

TEST_CASE("exercise 13: points") {
  const std::string folder = "chapters/13_flash_attention/exercise/";
  const std::string solution = source(folder + "solution.cuh");
  const std::vector<int> none = {0, 0, 0, 0, 0, 0, 0};
  const std::string mask = "diagonal && key > query";
  // Scores go to a place of their own in shared memory and come back.
  const std::string through_shared =
      "__shared__ float scores[kWarps][32][kTile / 2];\n"
      "      for (int j = 0; j < kTile / 8; ++j)\n"
      "        for (int i = 0; i < 4; ++i)\n"
      "          reinterpret_cast<volatile float&>(scores[warp][lane][4 * j + i]) =\n"
      "              s[j].value[i];\n"
      "      for (int j = 0; j < kTile / 8; ++j)\n"
      "        for (int i = 0; i < 4; ++i)\n"
      "          s[j].value[i] =\n"
      "              reinterpret_cast<volatile float&>(scores[warp][lane][4 * j + i]);\n"
      "      rows.softmax(s);";
  // The second product without tensor cores: a weight comes from the lane that has it.
  const size_t begin =
                   solution.find("#pragma unroll\n    for (int j = 0; j < kTile / 8; j += 2) {"),
               end = solution.find("  // Divides O by the sum");
  REQUIRE(begin < end);
  REQUIRE(end != std::string::npos);
  const std::string by_shuffles =
      solution.substr(0, begin) +
      "#pragma unroll\n"
      "    for (int j = 0; j < kTile / 8; ++j)\n"
      "#pragma unroll 1\n"
      "      for (int t = 0; t < 4; ++t)\n"
      "#pragma unroll\n"
      "        for (int i = 0; i < 4; ++i) {\n"
      "          const float weight = __shfl_sync(0xffffffffu, s[j].value[i], lane / 4 * 4 + t);\n"
      "          for (int d = 0; d < kHeadDim / 8; ++d)\n"
      "            for (int c = 0; c < 2; ++c)\n"
      "              o[d].value[i / 2 * 2 + c] +=\n"
      "                  weight * __half2float(const_cast<Tile<kHeadDim>&>(v).at(\n"
      "                               8 * j + 2 * t + i % 2, 8 * d + lane % 4 * 2 + c));\n"
      "        }\n"
      "  }\n\n" +
      solution.substr(end);
  // Tensor cores multiply as often as they should, by nothing.
  const std::string of_zeros = planted(
      by_shuffles, "        }\n  }\n\n",
      "        }\n"
      "    float sums[4] = {};\n"
      "    for (int i = 0; i < kHeadDim / 2; ++i)\n"
      "      asm volatile(\"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 \"\n"
      "                   \"{%0, %1, %2, %3}, {%4, %4, %4, %4}, {%4, %4}, {%0, %1, %2, %3};\"\n"
      "                   : \"+f\"(sums[0]), \"+f\"(sums[1]), \"+f\"(sums[2]), \"+f\"(sums[3])\n"
      "                   : \"r\"(0));\n"
      "  }\n\n");
  const std::string by_atomics = planted(
      planted(
          planted(through_shared,
                  "          reinterpret_cast<volatile float&>(scores[warp][lane][4 * j + i]) =\n"
                  "              s[j].value[i];\n",
                  "          atomicExch(&scores[warp][lane][4 * j + i], s[j].value[i]);\n"),
          "reinterpret_cast<volatile float&>(scores[warp][lane][4 * j + i]);",
          "atomicAdd(&scores[warp][lane][4 * j + i], 0.0f);"),
      "\n          s[j]", " s[j]");
  const std::string all_tiles =
      planted(planted(planted(solution, "key_tiles = row_block + 1", "key_tiles = row_blocks"),
                      mask, "key > query"),
              "const bool diagonal = key_tile == row_block;", "");
  check_points(
      "exercise13", "exercise.cuh",
      {{"solution", solution, {30, 20, 20, 10, 10, 5, 5}},
       {"starter", source(folder + "exercise.cuh"), none},
       {"a query sees the key behind its own",
        planted(solution, mask, "diagonal && key > query + 1"), none,
        "a key behind the query's own counts"},
       {"a query does not see its own key", planted(solution, mask, "diagonal && key >= query"),
        none, "query 0 sees key 0"},
       // Right where there is one token.
       {"tiles are left out, keys are not",
        planted(solution, mask, "key >= tokens"),
        {3, 20, 0, 0, 0, 0, 0},
        "the key behind a query's own counts"},
       // A row's first tile has no key that it sees: NaN, from 65 tokens on.
       {"from the last tile to the first",
        planted(planted(all_tiles, "key_tile * kTile", "(key_tiles - 1 - key_tile) * kTile"),
                "int64_t(key_tile)", "int64_t(key_tiles - 1 - key_tile)"),
        {15, 20, 0, 0, 0, 0, 0},
        "no key that it sees"},
       {"all tiles are multiplied", all_tiles, {30, 20, 0, 0, 0, 5, 5}},
       // Fewer multiply-adds on tensor cores than there are pairs that are seen.
       {"the second product without tensor cores", by_shuffles, {30, 20, 0, 0, 0, 0, 5}},
       {"the same, and products of zeros on tensor cores",
        of_zeros,
        {30, 20, 0, 0, 0, 0, 5},
        "the kernels must do the work themselves"},
       // (An atomic operation on what nobody wrote is a finding.)
       {"scores by way of shared memory, by atomics",
        planted(solution, "rows.softmax(s);", by_atomics),
        {30, 0, 20, 10, 0, 0, 5}},
       {"scores by way of shared memory",
        planted(solution, "rows.softmax(s);", through_shared),
        {30, 20, 20, 10, 0, 0, 5}},
       {"the last keys are forgotten where they fill no tile",
        planted(solution, "key_tiles = row_block + 1",
                "key_tiles = max(1, min(row_block + 1, tokens / kTile))"),
        {15, 20, 0, 0, 0, 0, 0},
        "the last 1 of 65 keys are left out"},
       {"rows past the last are copied, too",
        planted(planted(solution, "const bool there = row < valid;", ""),
                "(there ? row * kHeadDim + 8 * piece : 0),\n                     there",
                "row * kHeadDim + 8 * piece"),
        {3, 0, 0, 0, 0, 0, 0},
        "past the last row"},
       {"tiles without a swizzle",
        planted(solution, "tile::Swizzled>", "tile::Plain>"),
        {30, 20, 20, 10, 10, 0, 5}}});
}

TEST_CASE("exercise 13: the refusal of the chapter's own headers names all that may be included") {
  const std::string starter = source("chapters/13_flash_attention/exercise/exercise.cuh");
  const std::string report =
      check_points("exercise13", "exercise.cuh",
                   {{"the chapter's fragments",
                     planted(starter, "../../../common/tile/tile.cuh", "fragments.cuh"),
                     {}}})
          .back();
  for (const char* part : {"#include \\\"fragments.cuh\\\" is not for an exercise",
                           "and \\\"../../../common/attention/shape.h\\\", "
                           "\\\"../../../common/attention/launch.cuh\\\" or "
                           "\\\"../../../common/tile/tile.cuh\\\""})
    CHECK_MESSAGE(contains(report, part), report);
}
