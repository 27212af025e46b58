// The device files, and theoretical occupancy.
#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "../profile/devices.h"
#include "../profile/occupancy.h"

// NVIDIA's own calculator, a header of the toolkit, is the oracle where it is installed.
#if __has_include(<cuda_occupancy.h>)
#include <climits>
#include <random>
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#pragma GCC diagnostic ignored "-Wunused-function"
#include <cuda_occupancy.h>
#pragma GCC diagnostic pop
#define HAVE_ORACLE 1
#endif

using namespace vgpu;
using Json = nlohmann::json;

namespace {

DeviceSpec device(const char* key) {
  auto spec = find_device(key);
  REQUIRE(spec.has_value());
  return *spec;
}

std::string error_of(const Json& file) {
  try {
    parse_device("x", file.dump());
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("devices: ten, by key, the default first") {
  CHECK(device_keys() == std::vector<std::string>{"h200", "a100", "a100_40gb", "a6000", "h100",
                                                  "rtx3090", "rtx4070tis", "rtx4090", "rtx5090",
                                                  "t4"});
  CHECK(device("H200").key == "h200");
  CHECK_FALSE(find_device("h201").has_value());
  CHECK_FALSE(find_device("").has_value());
}

TEST_CASE("devices: the clock while tensor instructions are executed, where it was measured") {
  CHECK(device("h200").clock_mhz(true) == 1735);
  CHECK(device("h200").clock_mhz(false) == 1980);
  CHECK(device("t4").clock_mhz(true) == device("t4").clock_mhz(false));
}

TEST_CASE("devices: every figure has a source or is declared unknown or guessed") {
  for (const std::string& key : device_keys()) {
    CAPTURE(key);
    const Json file = Json::parse(device_file(key));
    for (const auto& [field, entry] : file.items()) {
      if (field == "documents") continue;
      CAPTURE(field);
      CHECK(entry["value"].is_null() == (entry["source"] == "unknown"));
      CHECK((entry["source"] == "unknown" || entry["source"] == "guessed" ||
             file["documents"].contains(entry["source"].get<std::string>())));
      if (entry["source"] == "guessed") CHECK(entry["note"].get<std::string>() != "");
    }
  }
}

TEST_CASE("devices: figures agree with each other and with published peak rates") {
  for (const std::string& key : device_keys()) {
    CAPTURE(key);
    const DeviceSpec d = device(key.c_str());
    CHECK(d.registers_per_sm == 65536);
    CHECK(d.shared_per_block == 48 << 10);
    CHECK(d.shared_per_block_optin + d.shared_reserved == d.shared_per_sm);
    CHECK(d.shared_per_sm < d.l1_bytes);
    CHECK(d.clusters == (d.major >= 9));
    // Nobody's mma.sync is quicker than the peak, nor quicker with sums in fp32.
    CHECK(d.tensor_mma_sync_fp16_fma_per_clock_sm <= d.tensor_fp16_fma_per_clock_sm);
    CHECK(d.tensor_mma_sync_fp16_fp32_sums_fma_per_clock_sm <=
          d.tensor_mma_sync_fp16_fma_per_clock_sm);
    CHECK((d.major == 9) ==
          (d.tensor_mma_sync_fp16_fma_per_clock_sm < d.tensor_fp16_fma_per_clock_sm));
    if (!d.clusters) CHECK(d.distributed_bytes_per_clock_sm == 0);
    // Two transfers a memory clock over the whole bus: the quoted bandwidth, within 3 %.
    const double pins = 2e-3 * d.memory_clock_mhz * d.memory_bus_bits / 8;
    CHECK(d.dram_gb_s == doctest::Approx(pins).epsilon(0.03));
  }
  auto tflops = [](const char* key, double DeviceSpec::*fma_per_clock_sm) {
    const DeviceSpec d = device(key);
    return 2e-6 * d.*fma_per_clock_sm * d.sm_count * d.sm_clock_mhz;
  };
  auto about = [](double figure) { return doctest::Approx(figure).epsilon(0.01); };
  const auto fp32 = &DeviceSpec::fp32_fma_per_clock_sm;
  CHECK(tflops("h200", fp32) == about(66.9));
  CHECK(tflops("h100", fp32) == about(66.9));
  CHECK(tflops("a100", fp32) == about(19.5));
  CHECK(tflops("t4", fp32) == about(8.1));
  CHECK(tflops("rtx3090", fp32) == about(35.6));
  CHECK(tflops("rtx4090", fp32) == about(82.6));
  CHECK(tflops("a6000", fp32) == about(38.7));
  CHECK(tflops("rtx4070tis", fp32) == about(44.1));
  CHECK(tflops("rtx5090", fp32) == about(104.8));
  // fp16 on tensor cores, dense. The 989 of Hopper are quoted at 1830 MHz; the GeForce figures are
  // those with fp16 sums.
  const auto tensor = &DeviceSpec::tensor_fp16_fma_per_clock_sm;
  CHECK(tflops("h200", tensor) == about(989.4 * 1980 / 1830));
  CHECK(tflops("a100", tensor) == about(312));
  CHECK(tflops("t4", tensor) == about(65));
  CHECK(tflops("rtx3090", tensor) == about(142));
  CHECK(tflops("rtx4090", tensor) == about(330));
  CHECK(tflops("a6000", tensor) == about(154.8));
  CHECK(tflops("rtx5090", tensor) == about(419));
  // The same with sums in fp32: half of it on GeForce cards.
  const auto f32_sums = &DeviceSpec::tensor_mma_sync_fp16_fp32_sums_fma_per_clock_sm;
  CHECK(tflops("a100", f32_sums) == about(312));
  CHECK(tflops("t4", f32_sums) == about(65));
  CHECK(tflops("a6000", f32_sums) == about(154.8));
  CHECK(tflops("rtx3090", f32_sums) == about(71));
  CHECK(tflops("rtx4090", f32_sums) == about(165.2));
  CHECK(tflops("rtx4070tis", f32_sums) == about(88.2));
  CHECK(tflops("rtx5090", f32_sums) == about(209.5));
  const auto fp8 = &DeviceSpec::tensor_mma_sync_fp8_fma_per_clock_sm;
  CHECK(tflops("rtx4090", fp8) == about(330.3));
  CHECK(tflops("rtx5090", fp8) == about(419));
  // 494.4 of the 729.3 TFLOP/s that wgmma reaches: 67.8%, where two thirds are modelled.
  CHECK(tflops("h100", f32_sums) / tflops("h100", tensor) ==
        doctest::Approx(494.4 / 729.3).epsilon(0.02));
  const auto tf32 = &DeviceSpec::tensor_tf32_fma_per_clock_sm;
  CHECK(tflops("a6000", tf32) == about(77.4));
  CHECK(tflops("rtx3090", tf32) == about(35.6));
  CHECK(tflops("rtx5090", tf32) == about(104.8));
  CHECK(tflops("rtx5090", &DeviceSpec::tensor_int8_fma_per_clock_sm) == about(838));
  // fp64: 34, 9.7, and 1/64 of fp32 on GeForce.
  const auto fp64 = &DeviceSpec::fp64_fma_per_clock_sm;
  CHECK(tflops("h200", fp64) == about(33.5));
  CHECK(tflops("a100", fp64) == about(9.7));
  CHECK(tflops("rtx4090", fp64) == about(82.6 / 64));
  CHECK(std::isnan(device("h200").l2_gb_s));
  CHECK(device("a100").l2_gb_s == doctest::Approx(5120 * 1.41));
  // 16 lanes of 8, 16 or 32 GT/s, 128 of 130 bits are data: 15.75, 31.5 and 63.0 GB/s each way.
  const auto pcie = [&](const char* key) { return device(key).pcie_gb_s; };
  CHECK(pcie("t4") == doctest::Approx(16 * 8.0 * 128 / 130 / 8).epsilon(0.001));
  for (const char* key : {"a100", "rtx3090", "rtx4090"})
    CHECK(pcie(key) == doctest::Approx(16 * 16.0 * 128 / 130 / 8).epsilon(0.001));
  for (const char* key : {"h100", "h200"})
    CHECK(pcie(key) == doctest::Approx(16 * 32.0 * 128 / 130 / 8).epsilon(0.001));
}

TEST_CASE("devices: a faulty file is refused with the field's name") {
  const Json good = Json::parse(device_file("t4"));
  CHECK(error_of(good).empty());
  Json bad = good;
  bad.erase("l2_bytes");
  CHECK(error_of(bad) == "device 'x': 'l2_bytes': missing");
  bad = good;
  bad["sm_count"]["value"] = "forty";
  CHECK(error_of(bad) == "device 'x': 'sm_count': must be a whole number");
  bad = good;
  bad["sm_count"]["value"] = 39.5;
  CHECK(error_of(bad) == "device 'x': 'sm_count': must be a whole number");
  bad = good;
  bad["dram_gb_s"].erase("source");
  CHECK(error_of(bad) == "device 'x': 'dram_gb_s': needs a value and a source");
  bad = good;
  bad["dram_gb_s"]["source"] = "hearsay";
  CHECK(error_of(bad) == "device 'x': 'dram_gb_s': the source 'hearsay' is not in 'documents'");
  bad = good;
  bad["dram_gb_s"]["value"] = nullptr;
  CHECK(error_of(bad) ==
        "device 'x': 'dram_gb_s': null goes with the source 'unknown', and only null");
  // A guess says from what, and is known.
  bad = good;
  bad["dram_gb_s"] = Json::object({{"value", 300}, {"source", "guessed"}});
  CHECK(error_of(bad) == "device 'x': 'dram_gb_s': a guess needs a 'note' that says from what");
  bad["dram_gb_s"]["note"] = "";
  CHECK(error_of(bad) == "device 'x': 'dram_gb_s': a guess needs a 'note' that says from what");
  bad["dram_gb_s"]["note"] = "as the T4's neighbours";
  CHECK(error_of(bad).empty());
  CHECK(parse_device("x", bad.dump()).dram_gb_s == 300);
  bad["dram_gb_s"]["value"] = nullptr;
  CHECK(error_of(bad) ==
        "device 'x': 'dram_gb_s': null goes with the source 'unknown', and only null");
  CHECK_THROWS_AS(parse_device("x", "{"), std::runtime_error);
  CHECK_THROWS_AS(parse_device("x", "[]"), std::runtime_error);
}

TEST_CASE("occupancy worked out by hand") {
  const DeviceSpec h200 = device("h200"), t4 = device("t4"), ada = device("rtx4090");
  Occupancy o = occupancy(h200, 32, 0, 256);
  // 32 registers x 32 lanes = 1024 a warp, 16384 / 1024 = 16 warps in each partition: all 64.
  // 64 warps / 8 = 8 blocks by warps and by registers.
  CHECK(o.blocks_per_sm == 8);
  CHECK(o.warps_per_sm == 64);
  CHECK(o.fraction == 1.0);
  CHECK(o.limiter == "warps and registers");

  // 63 registers: 2016, rounded up to 2048; 8 warps a partition, 32 in all, 4 blocks of 8.
  o = occupancy(h200, 63, 0, 256);
  CHECK(o.blocks_per_sm == 4);
  CHECK(o.fraction == 0.5);
  CHECK(o.limiter == "registers");

  // 40 registers: 1280 a warp; 12 in a partition of 16384 (12.8), so 48 warps, although the whole
  // file of 65536 would hold 51: 24 blocks of 2 warps, not 25.
  o = occupancy(h200, 40, 0, 64);
  CHECK(o.blocks_per_sm == 24);
  CHECK(o.fraction == 0.75);

  // 12 KiB + 1 KiB of the system = 13312 bytes; 233472 / 13312 = 17.5.
  o = occupancy(h200, 8, 12 << 10, 32);
  CHECK(o.blocks_per_sm == 17);
  CHECK(o.limiter == "shared memory");

  // 100 bytes + 1024 = 1124, in units of 128: 1152; 233472 / 1152 = 202: the 32 blocks count.
  o = occupancy(h200, 16, 100, 32);
  CHECK(o.blocks_per_sm == 32);
  CHECK(o.limiter == "blocks");

  // A T4 has 32 warps; 64 KiB hold one block of 33 KiB.
  o = occupancy(t4, 32, 33 << 10, 256);
  CHECK(o.blocks_per_sm == 1);
  CHECK(o.fraction == 0.25);
  CHECK(occupancy(t4, 32, 64 << 10, 256).blocks_per_sm == 1);

  // 48 warps on cc 8.9: blocks of 1024 threads fill 32 of them.
  o = occupancy(ada, 32, 0, 1024);
  CHECK(o.blocks_per_sm == 1);
  CHECK(o.fraction == doctest::Approx(2.0 / 3));

  // cc 12.0 has 48 warps and 24 blocks too: 2 warps a block fill both, 100 KiB hold 2 x (48 + 1).
  const DeviceSpec blackwell = device("rtx5090");
  CHECK(occupancy(blackwell, 16, 0, 64).limiter == "warps and blocks");
  CHECK(occupancy(blackwell, 16, 0, 64).warps_per_sm == 48);
  CHECK(occupancy(blackwell, 16, 48 << 10, 64).blocks_per_sm == 2);

  // 200 registers: 6400 a warp. 9 warps take those of 12, three rows of four: 76800, not 57600.
  CHECK(occupancy(h200, 200, 0, 288).limiter == "76800 registers per block (at most 65536)");
  // 8 warps are two rows: 51200, and one block's.
  CHECK(occupancy(h200, 200, 0, 256).blocks_per_sm == 1);

  // Registers unknown: no limit from them. A part of a warp counts as a warp: 33 threads are two.
  CHECK(occupancy(h200, 0, 0, 256).limiter == "warps");
  CHECK(occupancy(h200, 0, 0, 33).warps_per_sm == 64);
}

TEST_CASE("occupancy: what does not fit is said in words") {
  const DeviceSpec t4 = device("t4");
  CHECK(occupancy(t4, 32, 0, 1025).limiter == "a block of 1025 threads (1 to 1024 are possible)");
  CHECK(occupancy(t4, 32, 0, 0).blocks_per_sm == 0);
  CHECK(occupancy(t4, 256, 0, 32).limiter == "256 registers per thread (at most 255)");
  CHECK(occupancy(t4, 32, 65537, 32).limiter ==
        "65537 bytes of shared memory per block (at most 65536)");
  // 1024 threads of 72 registers: 2304 a warp x 32 warps.
  CHECK(occupancy(t4, 72, 0, 1024).limiter == "73728 registers per block (at most 65536)");
}

TEST_CASE("waves") {
  const DeviceSpec h200 = device("h200");
  // 8 blocks on each of 132 SMs at once: 1056.
  const Occupancy o = occupancy(h200, 32, 0, 256);
  CHECK(waves(h200, o, 1056) == 1.0);
  CHECK(waves(h200, o, 1584) == 1.5);
  CHECK(waves(h200, occupancy(h200, 32, 0, 2000), 10) == 0);
}

#ifdef HAVE_ORACLE
TEST_CASE("occupancy agrees with NVIDIA's calculator") {
  std::mt19937 random(3);
  for (const std::string& key : device_keys()) {
    const DeviceSpec d = device(key.c_str());
    cudaOccDeviceProp properties;
    properties.computeMajor = d.major;
    properties.computeMinor = d.minor;
    properties.maxThreadsPerBlock = d.max_threads_per_block;
    properties.maxThreadsPerMultiprocessor = 32 * d.max_warps_per_sm;
    properties.regsPerBlock = d.registers_per_block;
    properties.regsPerMultiprocessor = d.registers_per_sm;
    properties.warpSize = 32;
    properties.sharedMemPerBlock = static_cast<std::size_t>(d.shared_per_block);
    properties.sharedMemPerMultiprocessor = static_cast<std::size_t>(d.shared_per_sm);
    properties.numSms = d.sm_count;
    properties.sharedMemPerBlockOptin = static_cast<std::size_t>(d.shared_per_block_optin);
    properties.reservedSharedMemPerBlock = static_cast<std::size_t>(d.shared_reserved);
    for (int round = 0; round < 5000; ++round) {
      const int registers = 1 + static_cast<int>(random() % 255);
      const int threads = 1 + static_cast<int>(random() % 1024);
      const int shared = random() % 3 ? static_cast<int>(random() % 60000)
                                      : static_cast<int>(random() % (d.shared_per_block_optin + 1));
      cudaOccFuncAttributes attributes;
      attributes.maxThreadsPerBlock = INT_MAX;
      attributes.numRegs = registers;
      attributes.sharedSizeBytes = 0;
      attributes.partitionedGCConfig = PARTITIONED_GC_OFF;
      attributes.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
      attributes.maxDynamicSharedSizeBytes = static_cast<std::size_t>(shared);
      attributes.numBlockBarriers = 1;
      cudaOccDeviceState state;
      state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
      cudaOccResult result;
      REQUIRE(cudaOccMaxActiveBlocksPerMultiprocessor(&result, &properties, &attributes, &state,
                                                      threads, static_cast<std::size_t>(shared)) ==
              CUDA_OCC_SUCCESS);
      const Occupancy ours = occupancy(d, registers, shared, threads);
      REQUIRE_MESSAGE(ours.blocks_per_sm == result.activeBlocksPerMultiprocessor,
                      key << ": " << registers << " registers, " << threads << " threads, "
                          << shared << " bytes");
    }
  }
}
#endif
