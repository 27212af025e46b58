// What a kernel did wrong, thrown by handlers and turned into an error of the launch.
#pragma once
#include <cstdint>
#include <string>

namespace vgpu {

enum class FaultKind {
  none,
  illegal_address,  // out of bounds, use after free, null, host pointer   cudaErrorIllegalAddress
  misaligned,       // cudaErrorMisalignedAddress
  address_space,  // wrong state space                                   cudaErrorInvalidAddressSpace
  illegal_instruction,  // not in the table of forms, or bad operands          cudaErrorIllegalInstruction
  assertion,            // assert()                                            cudaErrorAssert
  trap,            // __trap()                                            cudaErrorLaunchFailure
  deadlock,        // no lane can go on                                   cudaErrorLaunchTimeout
  stack_overflow,  // local memory                                        cudaErrorLaunchFailure
  out_of_memory,   // host memory for the launch                          cudaErrorMemoryAllocation
};

struct Fault {
  FaultKind kind = FaultKind::none;
  std::string
      message;  // "kernel.cuh:42: error: out-of-bounds read of 4 bytes, ... in scores_kernel"
};

}  // namespace vgpu
