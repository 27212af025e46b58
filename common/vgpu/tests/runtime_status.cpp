// The statuses of the runtime's services, and what the CUDA runtime's face makes of them.
#include <doctest/doctest.h>

#include <set>
#include <string>

#include "../cudart/face.h"

using vgpu::runtime::Status;

TEST_CASE("status: each has words and a CUDA error of its own") {
  std::set<std::string> all_words;
  std::set<int> errors;
  for (int i = 0; i < Status::count_; ++i) {
    const Status status(static_cast<Status::Code>(i));
    const cudaError_t error = status;
    INFO(vgpu::runtime::words(status), " is ", vgpu::cudart::error_name(error));
    CHECK(all_words.insert(vgpu::runtime::words(status)).second);
    CHECK(errors.insert(error).second);
    CHECK(std::string(vgpu::cudart::error_name(error)).starts_with("cuda"));
    CHECK((error == cudaSuccess) == (status == Status::success));
  }
  CHECK(cudaError_t(Status(Status::invalid_pitch)) == cudaErrorInvalidPitchValue);
  CHECK(cudaError_t(Status(Status::captured_event)) == cudaErrorCapturedEvent);
  CHECK(cudaError_t(Status(Status::cooperative_launch_too_large)) ==
        cudaErrorCooperativeLaunchTooLarge);
}

TEST_CASE("status: a face's frame returns its own error for exceptions and for statuses") {
  using vgpu::cudart::guarded;
  CHECK(guarded([]() -> Status { return Status::invalid_ptx; }) == cudaErrorInvalidPtx);
  CHECK(guarded([]() -> Status { throw std::bad_alloc(); }) == cudaErrorMemoryAllocation);
  CHECK(guarded([]() -> cudaError_t { throw 7; }) == cudaErrorUnknown);
  const auto status = vgpu::runtime::catching<Status>([]() -> Status { throw 7; });
  CHECK(status == Status::unknown);
}

TEST_CASE("status: a 3D copy's parameters come back as they were given") {
  cudaMemcpy3DParms params{};
  int from = 0, to = 0;
  params.srcPtr = {&from, 64, 48, 5};
  params.dstPtr = {&to, 128, 96, 7};
  params.srcPos = {1, 2, 3};
  params.dstPos = {4, 5, 6};
  params.extent = {40, 4, 2};
  params.kind = cudaMemcpyDeviceToDevice;
  const cudaMemcpy3DParms back = vgpu::cudart::params_of(vgpu::cudart::copy_of(params));
  CHECK(std::memcmp(&back, &params, sizeof params) == 0);
}
