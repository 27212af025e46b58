// Loading of device code: from the fat binaries of the program or cudaLibraryLoadData to a placed
// module, and what the cubin beside the PTX says about each kernel.
#include <algorithm>
#include <cstdlib>

#include "../profile/occupancy.h"
#include "runtime.h"

namespace vgpu::runtime {
namespace {

// In the program's own section: nothing but its header says how long it is.
std::span<const std::byte> container_at(const void* address) {
  const auto* begin = static_cast<const std::byte*>(address);
  return {begin, container_size({begin, 16})};
}
std::span<const std::byte> container_bytes(const Library& library) {
  return library.copy.empty() ? container_at(library.container) : library.copy;
}

// Whether it is NVIDIA's library for dynamic parallelism, which is linked into a program whose
// kernels launch kernels. Its PTX is for the newest devices only, and stands on calls of a real
// device.
bool is_device_runtime(std::span<const Image> images) {
  return std::any_of(images.begin(), images.end(), [](const Image& image) {
    return image.kind == Image::Kind::ptx &&
           image_text(image).find("__cuda_syscall_cnp") != std::string::npos;
  });
}

// Adds the PTX of a container that the device runs.
Status add_ptx(std::span<const Image> images, std::string& ptx) {
  const DeviceSpec& spec = Runtime::get().spec();
  const Image* image = choose_ptx(images, spec.major, spec.minor);
  if (!image) {
    say("cannot load device code: " + explain_no_ptx(images, spec.major, spec.minor));
    return Status::no_kernel_image;
  }
  ptx += image_text(*image) + "\n";
  return Status::success;
}

// The PTX that the device runs; `library.cubin` gets what the matching cubin knows.
Status find_code(Library& library, std::string& ptx) {
  const DeviceSpec& spec = Runtime::get().spec();
  if (library.is_text) {
    ptx.assign(reinterpret_cast<const char*>(library.copy.data()), library.copy.size());
    if (const auto end = ptx.find('\0'); end != std::string::npos) ptx.resize(end);
    return Status::success;
  }
  if (library.is_elf) {
    say("cannot load a cubin: it has machine code only, and PTX is what the virtual GPU executes; "
        "load the PTX (nvcc -ptx) or a fat binary (nvcc -fatbin) with PTX in it");
    return Status::no_kernel_image;
  }
  const std::vector<Image> images = read_container(container_bytes(library));
  // What nvlink made of the files of an -rdc=true program is machine code; their PTX is linked here.
  if (library.prelinked) {
    for (const void* const* file = library.prelinked; *file; ++file) {
      const std::vector<Image> of_file = read_container(container_at(*file));
      // Without it, the kernels that need it are refused for that, and all others run.
      if (!choose_ptx(of_file, spec.major, spec.minor) && is_device_runtime(of_file)) continue;
      if (const Status status = add_ptx(of_file, ptx); status != Status::success) return status;
    }
  } else if (const Status status = add_ptx(images, ptx); status != Status::success) {
    return status;
  }
  if (const Image* cubin = choose_cubin(images, spec.major, spec.minor)) {
    const auto bytes = image_bytes(*cubin);
    library.cubin = read_cubin(bytes);
    if (cubin->arch == spec.major * 10 + spec.minor)
      library.own_code.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return Status::success;
}

// ".target sm_90a": may the device run PTX that came without a container?
Status check_target(const std::string& target) {
  const DeviceSpec& spec = Runtime::get().spec();
  Image image;
  image.kind = Image::Kind::ptx;
  if (!target.starts_with("sm_")) return Status::success;
  image.arch = std::atoi(target.c_str() + 3);
  if (target.ends_with('a')) image.scope = Image::Scope::specific;
  if (target.ends_with('f')) image.scope = Image::Scope::family;
  if (runs_ptx(image, spec.major, spec.minor)) return Status::success;
  say("cannot load PTX for " + target + " on " + spec.name + " (compute capability " +
      std::to_string(spec.major) + "." + std::to_string(spec.minor) + ")");
  return Status::no_kernel_image;
}

// Takes the module of a library of the same bytes that is loaded already, so that these are read once
// and a kernel is decoded once. Only one without variables: each library has its own.
bool take_module_of_another(Library& library) {
  if (library.copy.empty() || library.is_text) return false;
  for (const auto& other : Runtime::get().libraries) {
    if (!other->module || other->is_text || other->copy != library.copy) continue;
    if (!other->module->variables.empty() || !other->module->constants->empty()) continue;
    library.module = other->module;
    library.cubin = other->cubin;
    library.own_code = other->own_code;
    return true;
  }
  return false;
}

Status load_now(Library& library) {
  if (take_module_of_another(library)) return Status::success;
  Runtime& runtime = Runtime::get();
  std::string ptx;
  try {
    if (const Status status = find_code(library, ptx); status != Status::success) return status;
  } catch (const FatbinError& error) {
    say(error.what());
    return Status::invalid_kernel_image;
  }
  try {
    // A text that the program brings is read as a whole: loading is where its mistakes are reported.
    library.module = runtime.machine().load(std::move(ptx),
                                            library.is_text ? Bodies::now : Bodies::at_first_use);
  } catch (const PtxError& error) {
    say(std::string("cannot load device code: ") + error.what());
    return Status::invalid_ptx;
  }
  if (const Status status = check_target(library.module->module->target);
      status != Status::success) {
    library.module.reset();
    return status;
  }
  return Status::success;
}

// Warps of a kernel with this many registers that the register file of one block's SM holds.
int warps_by_registers(const DeviceSpec& spec, int registers) {
  if (registers <= 0) return spec.max_threads_per_block / 32;
  const int unit = std::max(1, spec.register_unit);
  const int per_warp = (registers * 32 + unit - 1) / unit * unit;
  const int schedulers = std::max(1, spec.schedulers_per_sm);
  return spec.registers_per_block / per_warp / schedulers * schedulers;
}

}  // namespace

// Points the program's own pointers at the __managed__ variables of the library. Where that cannot
// be, they get host memory: the program uses them without asking whether loading worked.
void place_managed(Library& library) {
  Runtime& runtime = Runtime::get();
  for (const auto& [host, variable] : runtime.variables) {
    if (variable.library != &library || !variable.managed_pointer) continue;
    std::uint64_t address = 0, size = 0;
    if (library.module && library.module->variable(variable.name, address, size)) {
      const auto allocation = runtime.memory().find(address);
      if (allocation && allocation->kind == MemoryKind::managed) {
        *variable.managed_pointer = reinterpret_cast<void*>(address);
        continue;
      }
      say("__managed__ variable " + display_name(variable.name) + " is not in managed memory");
    }
    if (!*variable.managed_pointer) *variable.managed_pointer = std::calloc(1, variable.size);
  }
}

Status load_library(Library& library) {
  if (!library.tried) {
    library.tried = true;
    library.load_error = load_now(library);
    place_managed(library);
  }
  return library.load_error;
}

Status load_kernel(Kernel& kernel) {
  if (const Status status = load_library(*kernel.library); status != Status::success) return status;
  if (kernel.function) return Status::success;
  kernel.function = kernel.library->module->module->find(kernel.name);
  const auto& cubin = kernel.library->cubin;
  if (const auto facts = cubin.find(kernel.name); facts != cubin.end())
    kernel.cubin = facts->second;
  if (kernel.function && kernel.function->entry) return Status::success;
  kernel.function = nullptr;
  say("the device code has no kernel " + display_name(kernel.name));
  return Status::invalid_device_function;
}

int static_shared(const Kernel& kernel) {
  if (kernel.cubin.registers > 0) return kernel.cubin.shared_bytes;
  return static_cast<int>(kernel.function->shared_bytes);
}

int max_threads_per_block(const Kernel& kernel) {
  const DeviceSpec& spec = Runtime::get().spec();
  int threads =
      std::min(spec.max_threads_per_block, 32 * warps_by_registers(spec, kernel.cubin.registers));
  if (kernel.function->max_threads > 0)
    threads = std::min<int>(threads, static_cast<int>(kernel.function->max_threads));
  return threads;
}

int max_dynamic_shared(const Kernel& kernel) {
  if (kernel.max_dynamic_shared >= 0) return kernel.max_dynamic_shared;
  return std::max(0, Runtime::get().spec().shared_per_block - static_shared(kernel));
}

int blocks_per_sm(const Kernel& kernel, int threads, std::uint64_t dynamic_shared) {
  const DeviceSpec& spec = Runtime::get().spec();
  const std::uint64_t shared = static_cast<std::uint64_t>(static_shared(kernel)) + dynamic_shared;
  const int limit = std::max(spec.shared_per_block, spec.shared_per_block_optin);
  if (threads < 1 || threads > max_threads_per_block(kernel)) return 0;
  if (shared > static_cast<std::uint64_t>(limit)) return 0;
  return occupancy(spec, kernel.cubin.registers, static_cast<std::int64_t>(shared), threads)
      .blocks_per_sm;
}

}  // namespace vgpu::runtime
