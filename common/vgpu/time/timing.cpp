// The table of clocks by architecture, each with where it comes from.
#include "timing.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

namespace vgpu::time {
namespace {

// Papers. What is said to be recalled was written down from memory of the paper, and waits to be
// read again or measured.
constexpr const char* kJia =
    "recalled: Jia et al. 2019, Dissecting the NVIDIA Turing T4, arXiv 1903.07486";
constexpr const char* kFeng =
    "sjfeng1999/gpu-arch-microbenchmark, README: RTX 2070 (L1 32, shared 23, L2 236 clocks)";
constexpr const char* kLuo =
    "recalled: Luo et al. 2024, arXiv 2402.13499, table of memory latencies (RTX 4090, A100, H100)";
constexpr const char* kLuoDsm =
    "recalled: Luo et al. 2024, arXiv 2402.13499, SM-to-SM network of the H100";
constexpr const char* kHuerta = "recalled: Huerta et al. 2025, arXiv 2503.20481 (RTX A6000)";
constexpr const char* kBlackwell = "recalled: Jarmusch et al. 2025, arXiv 2507.10789 (RTX 5080)";
constexpr const char* kGuide =
    "CUDA C++ Programming Guide, Throughput of Native Arithmetic Instructions";
constexpr const char* kEmpty = "guessed: empty kernels on a stream";
constexpr const char* kRtx5070 =
    "guessed: a published log of an RTX 5070 Ti has 0.78 us, and gau-nernst's sums agree";
constexpr const char* kBackToBack =
    "measured on an H200: 150 kernels of the course, launched back to back, take 1.5 us longer "
    "than as nodes of a graph, data/results/nvidia_h200";
constexpr const char* kWayBack = "guessed: a store is known to be done when the L2 has answered";
constexpr const char* kBlocks =
    "guessed: from yencal's transposes on the H100, whose blocks of 1024 threads live shortly";
constexpr const char* kLanes =
    "whitepapers of the architectures: 32 load/store units an SM on GA100 and GH100, else 16";
constexpr const char* kAtomics =
    "ademeure/QuickRunCUDA, 22_atomic_ops_DEEP: 32 clocks for a warp's RED of 32 words, B300; "
    "guessed to be the same elsewhere";
constexpr const char* kFewAddresses =
    "ademeure/QuickRunCUDA, 22r_atom_n2_hotspot_DEEP: RED on 1 to 128 words, B300 (the GK110 "
    "whitepaper has one operation a clock on an address); guessed to be the same elsewhere";
constexpr const char* kMeasured =
    "measured on an H200 by make calibrate, data/results/nvidia_h200/calibration.json";
constexpr const char* kOwnParts =
    "measured on an H200: each SM reads its own part of 2 to 40 MB, or copies in bulk; where all "
    "read the "
    "same MB it is 41";
constexpr const char* kAdditions =
    "measured on an H200: additions of all SMs, back to back, to one place or to their own";
constexpr const char* kSectors =
    "measured on an H200: additions to sectors that stay in the L2 take 2.3 clocks each; fitted to "
    "chapter 19's packed step, whose sectors do not all stay there";
constexpr const char* kCopies =
    "measured on an H200: copies of 19 to 155 MB, data/results/nvidia_h200/chapter10.json";
constexpr const char* kTwoPartitions =
    "whitepapers of the A100 and H100: two partitions; what SMs of both sides read lies in both";
constexpr const char* kOnePartition = "guessed: one partition";
constexpr const char* kDevice = "the device's file, common/vgpu/profile/devices";
constexpr const char* kPrototype = "guessed: fits five published attention kernels on the RTX 5090";
constexpr const char* kLike86 = "guessed: as on the RTX A6000";
constexpr const char* kLike80 = "guessed: as on the A100";
constexpr const char* kLike89 = "guessed: as on the RTX 4090";
constexpr const char* kLike90 = "guessed: as on the H100";

constexpr std::array<int, 6> kArchitectures = {75, 80, 86, 89, 90, 120};

struct Cell {
  double value;
  const char* source;
};
struct Row {
  Constant Timing::*where;
  const char* name;
  std::array<Cell, 6> cells;  // by kArchitectures
};
// The same for all architectures.
constexpr std::array<Cell, 6> all(double value, const char* source) {
  return {{{value, source},
           {value, source},
           {value, source},
           {value, source},
           {value, source},
           {value, source}}};
}
// The same but for the H100 and the H200.
constexpr std::array<Cell, 6> measured(std::array<Cell, 6> cells, double value,
                                       const char* source = kMeasured) {
  cells[4] = {value, source};
  return cells;
}

const Row kRows[] = {
    // Intervals of one scheduler: a quarter of the SM's lanes.
    {&Timing::imad,
     "imad",
     {{{2, kGuide},
       {2, kGuide},
       {2, kGuide},
       {2, kGuide},
       {2, kGuide},
       {1, "NVIDIA RTX Blackwell whitepaper: integer at the rate of FP32"}}}},
    {&Timing::alu, "alu", all(2, kGuide)},
    {&Timing::uniform, "uniform", all(1, "guessed: one warp-wide value a clock")},
    {&Timing::memory_issue, "memory_issue", all(2, kPrototype)},
    {&Timing::redux, "redux",
     all(8,
         "the Programming Guide's 16 lanes a clock for warp reductions; "
         "guessed to be as slow for MATCH")},
    {&Timing::wide_factor, "wide_factor", all(2, "guessed: a result of two registers")},
    {&Timing::alu_latency, "alu_latency",
     all(5,
         "guessed: ptxas's stall counts of 4 and 5 contain it; only a scoreboard would show it")},
    {&Timing::special_latency,
     "special_latency",
     {{{22, kLike86},
       {22, kLike86},
       {24, kPrototype},
       {24, kPrototype},
       {17, kMeasured},
       {24, kPrototype}}}},
    {&Timing::shuffle_latency,
     "shuffle_latency",
     {{{23, kLike86},
       {23, kLike86},
       {24, kPrototype},
       {24, kPrototype},
       {24, kPrototype},
       {24, kPrototype}}}},
    {&Timing::vote_latency, "vote_latency", all(12, kPrototype)},
    {&Timing::fp64_latency,
     "fp64_latency",
     {{{48, "guessed: one of two lanes an SM"},
       {8, "guessed: twice that of FP32"},
       {48, kLike86},
       {48, kLike86},
       {8, kLike80},
       {48, kLike86}}}},
    {&Timing::tensor_latency, "tensor_latency",
     measured(all(33, "guessed: ptxas's stall counts contain it; only a scoreboard would show it"),
              52, "measured on an H200: a wgmma and the wait for it, less what the product takes")},
    {&Timing::constant_latency,
     "constant_latency",
     {{{27, kLike86},
       {27, kLike86},
       {26, kHuerta},
       {26, kLike86},
       {30, kPrototype},
       {30, kPrototype}}}},
    {&Timing::special_register_latency, "special_register_latency", all(25, kPrototype)},
    {&Timing::uniform_latency, "uniform_latency", all(12, kPrototype)},
    {&Timing::constant_miss, "constant_miss",
     all(80, "guessed: a way through the L1.5; to the L2 it would be more")},

    {&Timing::shared_latency,
     "shared_latency",
     {{{23, kFeng}, {29, kLuo}, {24, kHuerta}, {30, kLuo}, {23, kMeasured}, {29, kLuo}}}},
    {&Timing::matrix_latency,
     "matrix_latency",
     {{{28, "guessed: shared memory and 4"},
       {33, kPrototype},
       {29, kHuerta},
       {33, kPrototype},
       {23, kMeasured},
       {33, kPrototype}}}},
    {&Timing::shared_atomic_latency, "shared_atomic_latency",
     all(64, "guessed: twice a load of shared memory")},
    {&Timing::l1_latency,
     "l1_latency",
     {{{32, kFeng}, {38, kLuo}, {32, kHuerta}, {43, kLuo}, {32, kMeasured}, {43, kLike89}}}},
    {&Timing::l2_latency,
     "l2_latency",
     {{{188, kJia},
       {262, kLuo},
       {230, "guessed: between Turing's 236 and Ada's 273"},
       {273, kLuo},
       {282, kMeasured},
       {358, kBlackwell}}}},
    {&Timing::dram_latency,
     "dram_latency",
     {{{430, "guessed: L2 and some 150 ns"},
       {466, kLuo},
       {480, "guessed: L2 and some 140 ns"},
       {542, kLuo},
       {655, kMeasured},
       {877, kBlackwell}}}},
    {&Timing::atomic_latency,
     "atomic_latency",
     {{{230, "guessed: L2 and 40"},
       {300, "guessed: L2 and 40"},
       {270, "guessed: L2 and 40"},
       {313, "guessed: L2 and 40"},
       {322, "guessed: L2 and 40"},
       {398, "guessed: L2 and 40"}}}},
    {&Timing::store_latency,
     "store_latency",
     {{{188, kWayBack},
       {262, kWayBack},
       {230, kWayBack},
       {273, kWayBack},
       {282, kWayBack},
       {358, kWayBack}}}},
    {&Timing::page_latency,
     "page_latency",
     {{{900, kLike90},
       {900, kLike90},
       {900, kLike90},
       {900, kLike90},
       {900, kCopies},
       {900, kLike90}}}},
    {&Timing::read_latency, "read_latency", all(10, kHuerta)},
    {&Timing::remote_shared_latency, "remote_shared_latency", measured(all(180, kLuoDsm), 183.5)},
    {&Timing::bulk_latency,
     "bulk_latency",
     {{{333, kLike90},
       {333, kLike90},
       {333, kLike90},
       {333, kLike90},
       {333, kMeasured},
       {478, "guessed: as far above the L2's as on the H800"}}}},
    {&Timing::mbarrier_latency, "mbarrier_latency", all(25, kPrototype)},
    {&Timing::barrier_latency, "barrier_latency", measured(all(18, kPrototype), 20)},
    {&Timing::cluster_barrier_latency, "cluster_barrier_latency",
     all(190, "guessed: once through the SM-to-SM network")},
    {&Timing::branch_latency, "branch_latency", all(8, kPrototype)},
    {&Timing::fence_latency, "fence_latency", all(500, "guessed: twice the way to the L2")},
    {&Timing::fence_block_latency, "fence_block_latency", all(16, "guessed")},
    {&Timing::sleep_clocks, "sleep_clocks", all(100, "guessed: no one sleeps shorter")},

    {&Timing::request_clocks,
     "request_clocks",
     {{{2, kLanes}, {1, kLanes}, {2, kLanes}, {2, kLanes}, {1, kLanes}, {2, kLanes}}}},
    {&Timing::line_clocks, "line_clocks",
     all(1, "siboehm/SGEMM_CUDA on the RTX A6000: a load of 32 lines, 31 clocks an SM")},
    {&Timing::memory_queue, "memory_queue", all(24, kPrototype)},
    {&Timing::requests_beyond, "requests_beyond",
     all(32768, "guessed: 32 KiB under way beside what latency hides")},
    {&Timing::atomic_word,
     "atomic_word",
     {{{1, kAtomics},
       {1, kAtomics},
       {1, kAtomics},
       {1, kAtomics},
       {0.28, kAdditions},
       {1, kAtomics}}}},
    {&Timing::atomic_sector, "atomic_sector", measured(all(1, kAtomics), 3, kSectors)},
    {&Timing::line_request, "line_request", measured(all(1.25, kFewAddresses), 1.45, kAdditions)},
    {&Timing::line_lane, "line_lane", measured(all(0.28, kFewAddresses), 0.15, kAdditions)},
    {&Timing::line_meeting, "line_meeting", measured(all(0.6, kFewAddresses), 1.45, kAdditions)},
    {&Timing::remote_bytes_per_clock, "remote_bytes_per_clock",
     measured(all(14, "recalled: Luo et al. 2024: 3.3 TB/s over the H100's SMs"), 21.5)},
    {&Timing::bulk_interval, "bulk_interval", measured(all(4, "guessed"), 3.27)},
    {&Timing::tensor_line, "tensor_line",
     all(2,
         "guessed: 64 bytes a clock of whole lines, above what the L2 gives an SM; how quickly "
         "short rows go nobody has published")},
    {&Timing::partial_store, "partial_store",
     all(2, "guessed: from naive transposes on the T4, A100 and H100")},
    {&Timing::partial_written, "partial_written",
     all(0.75, "guessed: from naive transposes on the T4, A100 and H100")},
    {&Timing::l2_bytes_per_clock,
     "l2_bytes_per_clock",
     {{{20, kJia},
       {40, "guessed: A100 whitepaper: 5120 bytes a clock for 108 SMs, 85% of it"},
       {24, "guessed: from Turing's 20 and Ada's 24"},
       {24, "guessed: above 5 TB/s on the RTX 4090"},
       {32.5, kOwnParts},
       {40, kPrototype}}}},
    {&Timing::dram_share,
     "dram_share",
     {{{0.86, "guessed: GDDR6 with ECC on"},
       {0.90, "guessed: streams on HBM2e"},
       {0.92, "guessed: streams on GDDR6X"},
       {0.92, "guessed: streams on GDDR6X"},
       {0.92, kMeasured},
       {0.92, "guessed: streams on GDDR7"}}}},
    {&Timing::dram_written,
     "dram_written",
     {{{1, "guessed"},
       {1, "guessed"},
       {1, "guessed"},
       {1, "guessed"},
       {1.085, kCopies},
       {1, "guessed"}}}},
    {&Timing::l2_share,
     "l2_share",
     {{{1, kOnePartition},
       {0.5, kTwoPartitions},
       {1, kOnePartition},
       {1, kOnePartition},
       {0.5, kTwoPartitions},
       {1, kOnePartition}}}},

    {&Timing::l0_instructions, "l0_instructions", all(128, kHuerta)},
    {&Timing::l0_miss, "l0_miss", all(20, "guessed: an access of the L1.5")},
    {&Timing::code_cache_bytes, "code_cache_bytes", all(131072, kJia)},
    {&Timing::code_latency, "code_latency", all(260, "guessed: an access of the L2")},
    {&Timing::code_line_clocks, "code_line_clocks",
     all(16, "guessed: two clocks an instruction from the L2")},

    {&Timing::block_launch, "block_launch", all(150, kBlocks)},
    {&Timing::warp_launch, "warp_launch", all(20, kBlocks)},
    {&Timing::launch_us,
     "launch_us",
     {{{2.5, kEmpty},
       {2.5, kEmpty},
       {2.5, kEmpty},
       {0.8, kRtx5070},
       {1.9, kBackToBack},
       {0.8, kRtx5070}}}},
    {&Timing::graph_node_us,
     "graph_node_us",
     {{{0.4, kLike90},
       {0.4, kLike90},
       {0.4, kLike90},
       {0.4, kLike90},
       {0.37, kMeasured},
       {0.4, kLike90}}}},
    {&Timing::cooperative_us, "cooperative_us", measured(all(0.05, kLike90), 0.05)},
    {&Timing::grid_barrier_us, "grid_barrier_us",
     all(0.05, "measured on an H200: less than 0.1 us beyond what its blocks execute")},
};

// Clocks in which a scheduler gets one warp instruction through so many lanes of the SM.
double interval_of(double lanes, int schedulers) {
  return lanes > 0 ? 32.0 * schedulers / lanes : 32.0 * schedulers;
}

// Multiply-adds of a warp's product, from the shape that the name says: m16n8k16 is 16816.
double multiply_adds(std::string_view shape) {
  struct Known {
    std::string_view name;
    int m, n, k;
  };
  static constexpr Known kShapes[] = {
      {"884", 8, 8, 4},     {"1684", 16, 8, 4},   {"1688", 16, 8, 8},     {"16816", 16, 8, 16},
      {"16832", 16, 8, 32}, {"16864", 16, 8, 64}, {"168128", 16, 8, 128}, {"168256", 16, 8, 256},
      {"8816", 8, 8, 16},   {"8832", 8, 8, 32},   {"88128", 8, 8, 128}};
  for (const Known& known : kShapes)
    if (known.name == shape) return static_cast<double>(known.m) * known.n * known.k;
  return 16.0 * 8 * 16;
}

}  // namespace

double Timing::tensor_interval(std::string_view name) const {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t dot = std::min(name.find('.', at), name.size());
    parts.push_back(name.substr(at, dot - at));
    at = dot + 1;
  }
  const auto has = [&](std::string_view part) {
    return std::find(parts.begin(), parts.end(), part) != parts.end();
  };
  const std::string_view head = parts[0];
  // A sparse product is twice as large for the same work.
  const bool sparse = parts.size() > 1 && parts[1] == "SP";
  const std::size_t at = sparse ? 2 : 1;
  const std::string_view shape = parts.size() > at ? parts[at] : head == "DMMA" ? "884" : "";
  const double work = multiply_adds(shape) / (sparse ? 2 : 1);
  const bool fp16_sums = has("F16");
  double rate = fp16_sums ? tensor_fp16.value : tensor_fp16_fp32_sums.value;
  if (has("TF32")) {
    rate = tensor_tf32.value;
  } else if (head == "IMMA") {  // four-bit numbers have shapes of their own
    rate = shape == "8832" || shape == "16864" || has("S4") || has("U4") ? 2 * tensor_int8.value
                                                                         : tensor_int8.value;
  } else if (head == "BMMA") {
    rate = 8 * tensor_int8.value;
  } else if (head == "QMMA") {
    rate *= 2;
  } else if (head == "DMMA") {
    rate = tensor_fp64.value;
  }
  if (rate <= 0) rate = tensor_fp16_fp32_sums.value;
  return work / (rate / 4) * (head == "DMMA" ? 1 : tensor_slowdown.value);
}

double Timing::warpgroup_interval(const Tensor& product) const {
  using enum Tensor::Input;
  double rate = tensor_fp16.value;
  if (product.input == tf32) rate = tensor_tf32.value;
  if (product.input == fp8) rate *= 2;
  if (product.input == s8) rate = tensor_int8.value;
  if (product.input == b1) rate = 8 * tensor_int8.value;
  return product.multiply_adds() / (rate / 4);
}

double Timing::warpgroup_reads(const Tensor& product, bool reads_a) const {
  // 32 bytes of a row of A, or of a column of B, a product; 128 bytes a wavefront.
  const double rows = product.n + (reads_a ? product.m : 0);
  return rows * 32 / 128 * wavefront_clocks.value;
}

std::vector<std::pair<std::string_view, const Constant*>> Timing::all() const {
  std::vector<std::pair<std::string_view, const Constant*>> list = {
      {"fp32", &fp32},
      {"half", &half},
      {"fp64", &fp64},
      {"special", &special},
      {"tensor_fp16", &tensor_fp16},
      {"tensor_fp16_fp32_sums", &tensor_fp16_fp32_sums},
      {"tensor_tf32", &tensor_tf32},
      {"tensor_int8", &tensor_int8},
      {"tensor_fp64", &tensor_fp64},
      {"tensor_slowdown", &tensor_slowdown},
      {"wavefront_clocks", &wavefront_clocks},
      {"sectors_per_clock", &sectors_per_clock},
      {"block_stagger", &block_stagger}};
  for (const Row& row : kRows) list.emplace_back(row.name, &(this->*row.where));
  return list;
}

Timing timing_of(const DeviceSpec& device) {
  Timing t;
  t.major = device.major;
  t.minor = device.minor;
  const auto at =
      std::find(kArchitectures.begin(), kArchitectures.end(), device.major * 10 + device.minor);
  if (at == kArchitectures.end()) {
    t.why = "no clocks are known for compute capability " + std::to_string(device.major) + "." +
            std::to_string(device.minor) + ", only for 7.5, 8.0, 8.6, 8.9, 9.0 and 12.0";
    return t;
  }
  const auto column = static_cast<std::size_t>(at - kArchitectures.begin());
  for (const Row& row : kRows) {
    const Cell& cell = row.cells[column];
    t.*row.where = {cell.value, cell.source};
  }
  const int schedulers = device.schedulers_per_sm;
  t.fp32 = {interval_of(device.fp32_fma_per_clock_sm, schedulers), kDevice};
  t.half = {interval_of(device.fp16_fma_per_clock_sm / 2, schedulers), kDevice};
  t.fp64 = {interval_of(device.fp64_fma_per_clock_sm, schedulers), kDevice};
  t.special = {interval_of(device.special_per_clock_sm, schedulers), kDevice};
  // 128 lanes are two pipes of 16 in each quarter; only one of them multiplies integers, on the
  // GeForce RTX 50 either.
  t.two_fma_pipes = device.fp32_fma_per_clock_sm >= 128;
  t.imad_on_both = t.two_fma_pipes && t.imad.value < 2;
  // (On the H200 Nsight Compute counts HFMA2 for both.)
  t.half_on_both = t.two_fma_pipes && t.half.value < 2;
  t.half_on_fma = t.two_fma_pipes && (t.half.value >= 2 || t.major == 9);
  t.tensor_fp16 = {device.tensor_fp16_fma_per_clock_sm, kDevice};
  // GeForce cards sum in FP32 at half the rate; on Hopper wgmma alone reaches the peak.
  const double by_warps = device.tensor_mma_sync_fp16_fma_per_clock_sm,
               sums = device.tensor_mma_sync_fp16_fp32_sums_fma_per_clock_sm;
  t.tensor_fp16_fp32_sums = {t.tensor_fp16.value * (by_warps > 0 ? sums / by_warps : 1), kDevice};
  t.tensor_slowdown = {by_warps > 0 ? t.tensor_fp16.value / by_warps : 1, kDevice};
  t.tensor_tf32 = {device.tensor_tf32_fma_per_clock_sm, kDevice};
  t.tensor_int8 = {device.tensor_int8_fma_per_clock_sm, kDevice};
  const bool fp64_tensor = (device.major == 8 && device.minor == 0) || device.major == 9;
  t.tensor_fp64 = {
      device.fp64_fma_per_clock_sm * (fp64_tensor ? 2 : 1),
      fp64_tensor ? "whitepapers of the A100 and H100: twice the other FP64 rate" : kDevice};
  t.wavefront_clocks = {128 / device.l1_bytes_per_clock_sm, kDevice};
  t.sectors_per_clock = {device.l1_bytes_per_clock_sm / 32, kDevice};
  t.block_stagger = {static_cast<double>(device.sm_count),
                     "guessed: one block a clock is handed out, to one SM after the other"};
  return t;
}

}  // namespace vgpu::time
