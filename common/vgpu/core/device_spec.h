// The figures of one GPU model, read from profile/devices/*.json. NaN or 0: unknown.
#pragma once
#include <cstdint>
#include <string>

namespace vgpu {

struct DeviceSpec {
  std::string key;   // "h200"
  std::string name;  // "NVIDIA H200"
  int major = 9, minor = 0;
  int sm_count = 132;
  int max_warps_per_sm = 64, max_blocks_per_sm = 32;
  int max_threads_per_block = 1024;
  int registers_per_sm = 65536, registers_per_block = 65536, max_registers_per_thread = 255;
  int register_unit = 256;         // registers are given to a warp in units of this many
  int shared_per_sm = 0;           // bytes
  int shared_per_block = 49152;    // bytes without opting in
  int shared_per_block_optin = 0;  // bytes
  int shared_reserved = 0;         // bytes the system takes of each block's
  int shared_unit = 128;           // bytes, granularity
  int l1_bytes = 0;                // unified L1 + shared, per SM
  std::int64_t l2_bytes = 0;
  std::int64_t memory_bytes = 0;
  int memory_bus_bits = 0;
  double sm_clock_mhz = 0;    // boost
  double load_clock_mhz = 0;  // what SMs under full load keep; NaN: not known to differ from boost
  // The same while they execute tensor instructions.
  double tensor_clock_mhz = 0;
  double memory_clock_mhz = 0;
  double dram_gb_s = 0;                // peak
  double l2_gb_s = 0;                  // NaN when unknown
  double pcie_gb_s = 0;                // each way, as the link carries it, without protocol
  double l1_bytes_per_clock_sm = 128;  // also shared memory
  // Between the shared memories of a cluster's blocks; NaN when unknown.
  double distributed_bytes_per_clock_sm = 0;
  double fp32_fma_per_clock_sm = 128;  // lanes
  double fp16_fma_per_clock_sm = 256;  // non-tensor, half2 counted as two
  double fp64_fma_per_clock_sm = 64;
  double special_per_clock_sm = 16;
  // Dense, per SM, by whatever instruction is fastest (on cc 9.0 wgmma), with sums in fp16.
  double tensor_fp16_fma_per_clock_sm = 2048;
  // By mma.sync and wmma alone, with sums in fp16 and in fp32, and of fp8 with sums in fp32.
  double tensor_mma_sync_fp16_fma_per_clock_sm = 0,
         tensor_mma_sync_fp16_fp32_sums_fma_per_clock_sm = 0,
         tensor_mma_sync_fp8_fma_per_clock_sm = 0;
  double tensor_tf32_fma_per_clock_sm = 0, tensor_int8_fma_per_clock_sm = 0;
  int schedulers_per_sm = 4;  // warp instructions per clock and SM
  bool cooperative = true, clusters = true;

  // Clocks a microsecond that predicted times count with.
  double clock_mhz(bool tensor_instructions) const {
    if (tensor_instructions && tensor_clock_mhz > 0) return tensor_clock_mhz;
    return load_clock_mhz > 0 ? load_clock_mhz : sm_clock_mhz;
  }
};

}  // namespace vgpu
