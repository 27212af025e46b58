#include "status.h"

#include <iterator>

namespace vgpu::runtime {

const char* words(Status status) {
  static constexpr const char* kWords[] = {
      "success",
      "a value is not valid",
      "out of memory",
      "the device is switched off",
      "the grid, block or cluster is not valid",
      "the pitch is smaller than a row",
      "there is no such variable",
      "the direction of the copy is not valid",
      "there is no such kernel",
      "there is no such device",
      "no code for this device",
      "the code is damaged",
      "the PTX is not valid",
      "the handle is none",
      "not permitted here",
      "not supported",
      "access to memory that is not there",
      "a block needs more than a multiprocessor has",
      "no thread of the launch gets any further",
      "the cooperative grid does not fit on the device at once",
      "the size of the cluster is not valid",
      "an assertion failed on the device",
      "illegal instruction",
      "misaligned address",
      "address in the wrong state space",
      "the launch failed",
      "not supported while a stream captures",
      "the capture has been invalidated",
      "two captures would become one",
      "the event is not part of the capture",
      "the default stream would wait for a stream that captures",
      "the event was recorded in a capture",
      "unknown",
  };
  static_assert(std::size(kWords) == static_cast<std::size_t>(Status::count_));
  const auto index = static_cast<std::size_t>(status.code);
  return index < std::size(kWords) ? kWords[index] : "unknown";
}

}  // namespace vgpu::runtime
