// The warps of a block over time as the page has them: pieces packed as numbers, and coarser windows.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "../look/warps.h"

using namespace vgpu;
using Json = nlohmann::json;

namespace {

// One warp of block 0: waits for memory, loads, has to let a latency pass, adds, ends its turn, and waits at
// a barrier. Its instructions come from lines 10, 11 and 12 of the PTX, which are entries 0, 1 and 2.
look::Warps one_warp() {
  using time::Kind;
  using time::Stall;
  time::SimulatedBlocks blocks;
  blocks.activities = {{0, 0, 0, 3, Stall::long_scoreboard, Kind::nop, 0},
                       {0, 0, 3, 4, Stall::selected, Kind::global_load, 0},
                       {1, 0, 3, 9, Stall::selected, Kind::tensor, 0},  // another block's
                       {0, 0, 4, 10, Stall::wait, Kind::nop, 1},
                       {0, 0, 10, 11, Stall::selected, Kind::fp32, 1},
                       {0, 0, 13, 16, Stall::barrier, Kind::nop, 2}};
  time::MachineCode code;
  look::PtxListing ptx;
  for (std::uint32_t i = 0; i < 3; ++i) {
    code.code.emplace_back().ptx_line = 10 + i;
    ptx.index[10 + i] = static_cast<int>(i);
  }
  return look::Warps(blocks, code, ptx, 0, 1980);
}

// "clocks kind line reason" of each piece of the first warp.
std::vector<std::string> pieces(const Json& warps) {
  std::vector<std::string> all;
  const Json& packed = warps["packed"][0];
  const auto name = [](const Json& names, int index) {
    return index < 0 ? "-" : names[static_cast<std::size_t>(index)].get<std::string>();
  };
  for (std::size_t i = 0; i + 3 < packed.size(); i += 4)
    all.push_back(std::to_string(packed[i].get<int>()) + " " +
                  name(warps["kinds"], packed[i + 1].get<int>()) + " " +
                  std::to_string(packed[i + 2].get<int>()) + " " +
                  name(warps["reasons"], packed[i + 3].get<int>()));
  return all;
}

}  // namespace

TEST_CASE("look: the pieces of a warp, packed, with gaps") {
  const Json warps = Json::parse(one_warp().json(100));
  CHECK(warps["resolution"] == 1);
  CHECK(warps["clocks"] == 16);
  CHECK(warps["begin"] == Json({0}));
  CHECK(pieces(warps) == std::vector<std::string>{"3 wait 0 long_scoreboard", "1 load 0 selected",
                                                  "6 wait 1 wait", "1 compute 1 selected",
                                                  "2 - -1 -", "3 barrier 2 barrier"});
}

TEST_CASE(
    "look: a window shows what the warp issued, and what it waited for only where it did not") {
  const Json four = Json::parse(one_warp().json(4));
  CHECK(four["resolution"] == 4);
  CHECK(pieces(four) == std::vector<std::string>{"4 load 0 selected", "4 wait 1 wait",
                                                 "4 compute 1 selected", "4 barrier 2 barrier"});
  // The rarer kind wins where both are issued.
  CHECK(pieces(Json::parse(one_warp().json(1))) == std::vector<std::string>{"16 load 0 selected"});
}

TEST_CASE("look: nothing simulated, no warps") { CHECK(look::Warps().json(100) == "null"); }
