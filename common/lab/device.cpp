// Checked CUDA calls, the device, memory on it, and what only a virtual one can tell.
#include "device.h"

#include <dlfcn.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <string>

#include "errors.h"
#include "files.h"
#include "lab.cuh"

namespace lab {

void check(cudaError_t error, std::source_location where) {
  if (error == cudaSuccess) return;
  // An included file's name comes with the way to it: "chapters/03_coalescing/../../common/lab.cuh".
  const std::string file = std::filesystem::path(where.file_name()).lexically_normal().string();
  const std::string message = format("%s:%u: %s: %s", file.c_str(), unsigned(where.line()),
                                     cudaGetErrorName(error), cudaGetErrorString(error));
  switch (error) {
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorStubLibrary:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorDevicesUnavailable:
    case cudaErrorMemoryAllocation:
    case cudaErrorNotSupported:
      throw LackError(message);
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
      throw LackError(message + "; build for this device with ARCH=sm_XX");
    default:
      throw std::runtime_error(message);
  }
}

namespace {

int attribute(cudaDeviceAttr which) {
  int value = 0;
  return cudaDeviceGetAttribute(&value, which, 0) == cudaSuccess ? value : 0;
}

// fp32 lanes of one SM (CUDA C++ Programming Guide, table of arithmetic throughput); 0: not known.
int fp32_lanes(int major, int minor) {
  switch (major * 10 + minor) {
    case 75:
    case 80:
      return 64;
    case 86:
    case 87:
    case 89:
    case 90:
    case 100:
    case 103:
    case 120:
    case 121:
      return 128;
    default:
      return 0;
  }
}

// Multiply-adds of fp16 numbers that the tensor cores of an SM begin in each clock, as the
// whitepapers have it (GeForce cards from 8.6 on reach half of it with sums in fp32); 0: not known.
int tensor_lanes(int major, int minor) {
  if (major == 7) return 512;
  if (major == 8) return minor == 0 ? 1024 : 512;
  if (major == 9) return 2048;
  if (major == 10) return 4096;
  return major == 12 ? 512 : 0;
}

}  // namespace

Device open_device() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0)
    throw LackError(format(
        "no CUDA device here (%s: %s); %s", cudaGetErrorName(error), cudaGetErrorString(error),
        vgpu::present() ? "this is the virtual GPU, which says above why it has none"
                        : "DEVICE=vgpu builds for the virtual GPU, which needs none"));
  check(cudaSetDevice(0));
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, 0));

  Device device;
  device.name = properties.name;
  device.major = properties.major;
  device.minor = properties.minor;
  device.sm_count = properties.multiProcessorCount;
  device.is_virtual = vgpu::present();
  device.memory_bytes = double(properties.totalGlobalMem);
  device.l2_bytes = properties.l2CacheSize;
  device.clock_hz = attribute(cudaDevAttrClockRate) * 1e3;
  device.fp32_flop_per_s =
      2.0 * fp32_lanes(device.major, device.minor) * device.sm_count * device.clock_hz;
  device.tensor_flop_per_s =
      2.0 * tensor_lanes(device.major, device.minor) * device.sm_count * device.clock_hz;
  // Double data rate: two transfers a memory clock.
  device.dram_bytes_per_s =
      2e3 * attribute(cudaDevAttrMemoryClockRate) * attribute(cudaDevAttrGlobalMemoryBusWidth) / 8;
  device.ceilings = "peaks at its clocks";
  if (device.name.find("H200") != std::string::npos) {
    device.dram_bytes_per_s = 4.3e12;
    device.tensor_flop_per_s = 790e12;
    device.ceilings = "DRAM and tensor cores as a device copy and a matrix product reach them";
  }

  // Keep freed stream-ordered memory: giving it back to the driver at every synchronization would
  // be timed with the kernels.
  cudaMemPool_t pool;
  uint64_t keep_all = UINT64_MAX;
  if (!device.is_virtual && cudaDeviceGetDefaultMemPool(&pool, 0) == cudaSuccess)
    cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep_all);
  cudaGetLastError();  // what is not supported above has been dealt with
  return device;
}

void require_memory(const Device& device, double device_bytes, double host_bytes,
                    const std::string& what) {
  size_t free_bytes = 0, total_bytes = 0;
  check(cudaMemGetInfo(&free_bytes, &total_bytes));
  if (device_bytes > double(free_bytes))
    throw LackError(format("%s needs %s on the device, %s has %s free", what.c_str(),
                           human_bytes(device_bytes).c_str(), device.name.c_str(),
                           human_bytes(double(free_bytes)).c_str()));
  require_host_memory(host_bytes + (device.is_virtual ? device_bytes : 0), what);
}

void* allocate(size_t bytes, const std::string& name, MemoryKind kind) {
  void* data = nullptr;
  check(kind == MemoryKind::kDevice ? cudaMalloc(&data, bytes) : cudaMallocManaged(&data, bytes));
  vgpu::name_allocation(data, name);
  return data;
}

namespace vgpu {
namespace {

// With LAB_HIDE_VGPU=1 the virtual GPU passes for a real one, whose counters nobody knows: so that
// what happens on a GPU only, in tests and in `make bench`, can be rehearsed without one.
template <class Function>
Function* find(const char* name) {
  static const char* const hide = std::getenv("LAB_HIDE_VGPU");
  if (hide && std::string(hide) == "1") return nullptr;
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

}  // namespace

bool present() {
  static const auto function = find<int()>("vgpuPresent");
  return function && function() > 0;
}

void name_allocation(const void* pointer, const std::string& name) {
  static const auto function = find<int(const void*, const char*)>("vgpuNameAllocation");
  if (function && pointer) function(pointer, name.c_str());
}

void set_counters(bool on) {
  static const auto function = find<void(int)>("vgpuSetCounters");
  if (function) function(on);
}

void set_cache_model(bool on) {
  static const auto function = find<void(int)>("vgpuSetCacheModel");
  if (function) function(on);
}

double counter(const std::string& json_pointer) {
  static const auto function = find<double(const char*)>("vgpuLastLaunchCounter");
  return function ? function(json_pointer.c_str()) : std::nan("");
}

std::string launch_json() {
  static const auto function = find<const char*()>("vgpuLastLaunchJson");
  return function ? function() : "";
}

std::string launch_report() {
  static const auto function = find<const char*()>("vgpuLastLaunchReport");
  return function ? function() : "";
}

double clock_us() {
  static const auto function = find<double()>("vgpuClock");
  return function ? function() : std::nan("");
}

namespace {

int (*look_function())(const char*) {
  static const auto function = find<int(const char*)>("vgpuLook");
  return function;
}

}  // namespace

bool can_look() { return present() && look_function(); }
bool look(const std::string& file) { return can_look() && look_function()(file.c_str()) == 0; }

int findings() {
  static const auto function = find<int()>("vgpuFindings");
  return function ? function() : 0;
}

namespace {

enum class Time { kOff, kOn, kSample };  // as vgpuSetTime() numbers them

bool by_samples = false;

void (*time_setter())(int) {
  static const auto function = find<void(int)>("vgpuSetTime");
  return function;
}

// What VGPU_TIME says; other words have switched the device off.
Time time_of_environment() {
  const char* const text = std::getenv("VGPU_TIME");
  if (!text) return Time::kOff;
  return std::string(text) == "1"        ? Time::kOn
         : std::string(text) == "sample" ? Time::kSample
                                         : Time::kOff;
}

}  // namespace

bool can_predict() { return present() && time_setter(); }

bool prediction_refused() {
  const char* const text = std::getenv("VGPU_TIME");
  return text && std::string(text) == "0";
}

void predict_by_samples() { by_samples = true; }
bool predicts_by_samples() { return by_samples; }

Predicting::Predicting(bool on, Launched how) : on_(on && can_predict() && !prediction_refused()) {
  constexpr int kInGraph = 4;
  if (on_)
    time_setter()(int(by_samples ? Time::kSample : Time::kOn) +
                  (how == Launched::in_graph ? kInGraph : 0));
}

double Predicting::us() const {
  static const auto function = find<double(int*)>("vgpuPredictedTime");
  int launches = 0;
  const double us = on_ && function ? function(&launches) : 0;
  return launches > 0 ? us : std::numeric_limits<double>::quiet_NaN();
}

Predicting::~Predicting() {
  if (on_) time_setter()(int(time_of_environment()));
}

}  // namespace vgpu

}  // namespace lab
