// Serves a student's process: starts it, executes its CUDA calls on the virtual GPU, ends it.
#include "student_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <map>
#include <utility>

#include "lab/errors.h"
#include "lab/files.h"
#include "process.h"
#include "wire.h"

namespace lab::grader {
namespace {

using namespace wire;

constexpr int kSocket = 3;  // as in grader/student_host.cc
// A table of constants may come from the host, a result may not.
constexpr uint64_t kToldBytes = 4096;
// Kinds of requests beside launches, which have the number of their kernel.
constexpr uint64_t kOfUpload = ~0ull, kOfFill = ~1ull, kOfCopy = ~2ull, kOfLaunches = ~3ull;

// A pointer that the student's process has named: of a kernel, a library, ...
template <class T>
T pointer(uint64_t value) {
  return reinterpret_cast<T>(value);
}

class Session {
 public:
  // code: what the student's library holds.
  Session(const Range& output, const std::string& code) : output_(output), code_(code) {}

  // Executes a request; false when the function has come back.
  bool serve(int socket, uint32_t op, Reader& in) {
    Writer out;
    cudaError_t error = cudaSuccess;
    switch (Op(op)) {
      case Op::returned:
        return false;
      case Op::threw:
        throw StudentError(CaseState::failed, "it threw: " + in.rest());
      case Op::no_memory:
        throw StudentError(CaseState::too_much_memory, "std::bad_alloc");
      case Op::unloadable:
        throw StudentError(CaseState::unloadable, in.rest());
      case Op::download:
        throw StudentError(CaseState::failed,
                           "the host may not read device memory here: what is computed is computed "
                           "by kernels, from the arguments of the function");
      default:
        error = execute(Op(op), in, out);
    }
    send_message(socket, uint32_t(error), error == cudaSuccess ? out : Writer());
    return true;
  }

  cudaError_t pending() const { return pending_; }

 private:
  struct Kernel {
    const void* handle;
    std::vector<size_t> bytes;  // one size for each parameter
  };

  cudaError_t execute(Op op, Reader& in, Writer& out) {
    switch (op) {
      case Op::load:
        return load(in, out);
      case Op::kernel:
        return find_kernel(in, out);
      case Op::variable:
        return find_variable(in, out);
      case Op::launch:
        return launch(in);
      case Op::allocate:
      case Op::release:
      case Op::fill:
      case Op::upload:
      case Op::copy:
        return memory(op, in, out);
      case Op::set_attribute: {
        const Kernel& kernel = read_kernel(in);
        const auto attribute = in.get<cudaFuncAttribute>();
        return cudaFuncSetAttribute(kernel.handle, attribute, in.get<int>());
      }
      case Op::get_attributes: {
        cudaFuncAttributes attributes{};
        const cudaError_t error = cudaFuncGetAttributes(&attributes, read_kernel(in).handle);
        out.put(attributes);
        return error;
      }
      case Op::occupancy: {
        const Kernel& kernel = read_kernel(in);
        const int threads = in.get<int>();
        const uint64_t shared = in.get<uint64_t>();
        int blocks = 0;
        const cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
            &blocks, kernel.handle, threads, shared, in.get<unsigned>());
        out.put(blocks);
        return error;
      }
      case Op::tensor_map:
        return tensor_map(in.get<TensorMap>(), out);
      default:
        return device(op, in, out);
    }
  }

  // The virtual GPU looks at all of it, and says on stderr what is wrong.
  static cudaError_t tensor_map(const TensorMap& what, Writer& out) {
    using Encode = int (*)(void*, int, uint32_t, void*, const uint64_t*, const uint64_t*,
                           const uint32_t*, const uint32_t*, int, int, int, int);
    void* function = nullptr;
    if (what.rank < 1 || what.rank > TensorMap::kMostRank) throw Broken("no tensor map");
    if (const cudaError_t error = cudaGetDriverEntryPointByVersion(
            "cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, nullptr);
        error != cudaSuccess)
      return error;
    alignas(64) std::byte map[TensorMap::kBytes] = {};
    const int error = reinterpret_cast<Encode>(function)(
        map, what.type, what.rank, pointer<void*>(what.address), what.sizes, what.strides, what.box,
        what.steps, what.interleave, what.swizzle, what.promotion, what.fill);
    out.put(map, sizeof map);
    return cudaError_t(error);
  }

  cudaError_t device(Op op, Reader& in, Writer& out) {
    cudaError_t error = cudaSuccess;
    switch (op) {
      case Op::synchronize:
        return cudaDeviceSynchronize();
      case Op::last_error: {
        const bool peek = in.get<uint32_t>() != 0;
        if (pending_ == cudaSuccess) return peek ? cudaPeekAtLastError() : cudaGetLastError();
        return peek ? pending_ : std::exchange(pending_, cudaSuccess);
      }
      case Op::attribute: {
        int value = 0;
        error = cudaDeviceGetAttribute(&value, in.get<cudaDeviceAttr>(), 0);
        out.put(value);
        return error;
      }
      case Op::properties: {
        cudaDeviceProp properties{};
        error = cudaGetDeviceProperties(&properties, 0);
        out.put(properties);
        return error;
      }
      case Op::stream_create: {
        cudaStream_t stream = nullptr;
        error = cudaStreamCreateWithFlags(&stream, in.get<unsigned>());
        out.put(stream);
        return error;
      }
      case Op::stream_destroy:
        return cudaStreamDestroy(pointer<cudaStream_t>(in.get<uint64_t>()));
      case Op::event_create: {
        cudaEvent_t event = nullptr;
        error = cudaEventCreateWithFlags(&event, in.get<unsigned>());
        out.put(event);
        return error;
      }
      case Op::event_record: {
        const auto event = pointer<cudaEvent_t>(in.get<uint64_t>());
        return cudaEventRecord(event, pointer<cudaStream_t>(in.get<uint64_t>()));
      }
      case Op::event_wait: {
        const auto stream = pointer<cudaStream_t>(in.get<uint64_t>());
        return cudaStreamWaitEvent(stream, pointer<cudaEvent_t>(in.get<uint64_t>()), 0);
      }
      case Op::event_destroy:
        return cudaEventDestroy(pointer<cudaEvent_t>(in.get<uint64_t>()));
      default:
        throw Broken("an unknown request");
    }
  }

  Kernel& read_kernel(Reader& in) {
    const uint64_t number = in.get<uint64_t>();
    if (number >= kernels_.size()) throw Broken("an unknown kernel");
    return kernels_[number];
  }
  cudaLibrary_t read_library(Reader& in) {
    const uint64_t number = in.get<uint64_t>();
    if (number >= libraries_.size()) throw Broken("an unknown library");
    return libraries_[number];
  }

  cudaError_t load(Reader& in, Writer& out) {
    // The size in the container's head must be what has come.
    const std::string image = in.rest();
    uint16_t header = 0;
    uint64_t bytes = 0;
    if (image.size() < 16) throw Broken("no fat binary");
    std::memcpy(&header, image.data() + 6, sizeof header);
    std::memcpy(&bytes, image.data() + 8, sizeof bytes);
    if (header < 16 || bytes != image.size() - header) throw Broken("no fat binary");
    if (code_.find(image) == std::string::npos)
      throw StudentError(CaseState::failed,
                         "it loads device code that the compiler has not made of its file");
    cudaLibrary_t library = nullptr;
    images_.push_back(image);
    const cudaError_t error = cudaLibraryLoadData(&library, images_.back().data(), nullptr, nullptr,
                                                  0, nullptr, nullptr, 0);
    if (error != cudaSuccess) return error;
    out.put(uint64_t{libraries_.size()});
    libraries_.push_back(library);
    return cudaSuccess;
  }

  cudaError_t find_kernel(Reader& in, Writer& out) {
    const cudaLibrary_t library = read_library(in);
    cudaKernel_t kernel = nullptr;
    const cudaError_t error = cudaLibraryGetKernel(&kernel, library, in.rest().c_str());
    if (error != cudaSuccess) return error;
    Kernel found{kernel, {}};
    // Asking for a parameter that is not there is an error too, but not the student's.
    if (const cudaError_t before = cudaGetLastError(); before != cudaSuccess) pending_ = before;
    out.put(uint64_t{kernels_.size()});
    for (size_t i = 0;; ++i) {
      size_t offset = 0, bytes = 0;
      if (cudaFuncGetParamInfo(kernel, i, &offset, &bytes) != cudaSuccess) break;
      out.put(uint64_t{offset}).put(uint64_t{bytes});
      found.bytes.push_back(bytes);
    }
    cudaGetLastError();
    kernels_.push_back(found);
    return cudaSuccess;
  }

  cudaError_t find_variable(Reader& in, Writer& out) {
    const cudaLibrary_t library = read_library(in);
    void* address = nullptr;
    size_t bytes = 0;
    const cudaError_t error = cudaLibraryGetGlobal(&address, &bytes, library, in.rest().c_str());
    if (error != cudaSuccess) return error;
    own_.push_back({uint64_t(address), bytes});
    variables_.push_back(own_.back());
    out.put(uint64_t(address)).put(uint64_t{bytes});
    return cudaSuccess;
  }

  cudaError_t launch(Reader& in) {
    const Launch what = in.get<Launch>();
    if (what.kernel >= kernels_.size()) throw Broken("an unknown kernel");
    const Kernel& kernel = kernels_[what.kernel];
    tell_changes(kOfLaunches, in.begin(), sizeof what);
    tell_changes(what.kernel, in.begin() + sizeof what, in.left());
    std::vector<std::vector<std::max_align_t>> values;
    std::vector<void*> arguments;
    for (const size_t bytes : kernel.bytes) {
      values.emplace_back(bytes / sizeof(std::max_align_t) + 1);
      std::memcpy(values.back().data(), in.take(bytes), bytes);
      arguments.push_back(values.back().data());
    }
    cudaLaunchAttribute attributes[2]{};
    cudaLaunchConfig_t config{};
    config.gridDim = {what.grid[0], what.grid[1], what.grid[2]};
    config.blockDim = {what.block[0], what.block[1], what.block[2]};
    config.dynamicSmemBytes = what.shared_bytes;
    config.stream = pointer<cudaStream_t>(what.stream);
    config.attrs = attributes;
    if (what.cooperative) {
      attributes[config.numAttrs].id = cudaLaunchAttributeCooperative;
      attributes[config.numAttrs++].val.cooperative = 1;
    }
    if (what.cluster[0] != 0) {
      attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
      attributes[config.numAttrs++].val.clusterDim = {what.cluster[0], what.cluster[1],
                                                      what.cluster[2]};
    }
    return cudaLaunchKernelExC(&config, kernel.handle, arguments.data());
  }

  bool owns(uint64_t address, uint64_t bytes) const {
    return std::any_of(own_.begin(), own_.end(),
                       [&](const Range& range) { return range.holds(address, bytes); });
  }

  cudaError_t memory(Op op, Reader& in, Writer& out) {
    if (op == Op::allocate) {
      const uint64_t bytes = in.get<uint64_t>(), stream = in.get<uint64_t>();
      void* address = nullptr;
      const cudaError_t error =
          in.get<uint32_t>() ? cudaMallocAsync(&address, bytes, pointer<cudaStream_t>(stream))
                             : cudaMalloc(&address, bytes);
      if (error == cudaSuccess) own_.push_back({uint64_t(address), bytes});
      out.put(address);
      return error;
    }
    const uint64_t address = in.get<uint64_t>();
    if (op == Op::release) {
      const auto range = std::find_if(own_.begin(), own_.end(),
                                      [&](const Range& r) { return r.first == address; });
      if (address != 0 && range == own_.end()) return cudaErrorInvalidValue;
      if (address != 0) own_.erase(range);
      const auto stream = pointer<cudaStream_t>(in.get<uint64_t>());
      return in.get<uint32_t>() ? cudaFreeAsync(pointer<void*>(address), stream)
                                : cudaFree(pointer<void*>(address));
    }
    if (op == Op::fill) {
      const int value = in.get<int>();
      const uint64_t bytes = in.get<uint64_t>();
      tell_changes(kOfFill, in.begin(), sizeof address + sizeof value + sizeof bytes);
      const bool of_output = output_.holds(address, bytes);
      if (of_output && bytes > 0 && (address != output_.first || bytes != output_.bytes))
        throw StudentError(
            CaseState::failed,
            "the host fills a part of the result: that is written by kernels (all of "
            "it may be set to one value before)");
      if (!owns(address, bytes) && !of_output) return cudaErrorInvalidValue;
      return cudaMemset(pointer<void*>(address), value, bytes);
    }
    if (op == Op::upload) {
      const std::string bytes = in.rest();
      if (!owns(address, bytes.size()))
        throw StudentError(CaseState::failed,
                           "the host copies to device memory that is none of its own: the result "
                           "is written by kernels");
      tell_changes(kOfUpload, in.begin(), sizeof address);
      tell(bytes.size());
      return cudaMemcpy(pointer<void*>(address), bytes.data(), bytes.size(),
                        cudaMemcpyHostToDevice);
    }
    const uint64_t from = in.get<uint64_t>(), bytes = in.get<uint64_t>();
    tell_changes(kOfCopy, in.begin(), sizeof address + sizeof from + sizeof bytes);
    // It may be constant memory, of whose loads there are no counters.
    if (std::any_of(variables_.begin(), variables_.end(),
                    [&](const Range& range) { return range.holds(address, bytes); }))
      throw StudentError(
          CaseState::failed,
          "the host copies device memory to a variable: copies on the device are for "
          "memory that it has allocated");
    if (!owns(address, bytes) && !output_.holds(address, bytes)) return cudaErrorInvalidValue;
    // What is read of the inputs is counted, and no counter sees a copy.
    if (!owns(from, bytes))
      throw StudentError(CaseState::failed,
                         "the host copies device memory that is none of its own: kernels read the "
                         "inputs");
    return cudaMemcpy(pointer<void*>(address), pointer<const void*>(from), bytes,
                      cudaMemcpyDeviceToDevice);
  }

  // Counts what a request tells kernels: each byte that was not the same in the last request of its kind.
  void tell_changes(uint64_t kind, const char* request, size_t bytes) {
    std::vector<char>& before = before_[kind];
    before.resize(bytes);
    uint64_t changed = 0;
    for (size_t i = 0; i < bytes; ++i) changed += request[i] != before[i];
    before.assign(request, request + bytes);
    tell(changed);
  }
  // Throws StudentError where all of it is more than a table of constants.
  void tell(uint64_t bytes) {
    if ((told_ += bytes) > kToldBytes)
      throw StudentError(CaseState::failed,
                         format("the host copies more than %d bytes to the device (parameters of "
                                "kernels, fills and the like count, too): what is computed is "
                                "computed by kernels",
                                int(kToldBytes)));
  }

  const Range output_;
  const std::string& code_;
  cudaError_t pending_ = cudaSuccess;  // an error that nobody has asked for yet
  std::vector<Range> own_, variables_;
  uint64_t told_ = 0;
  std::map<uint64_t, std::vector<char>> before_;
  std::vector<std::string> images_;
  std::vector<cudaLibrary_t> libraries_;
  std::vector<Kernel> kernels_;
};

// A process that ends with this object, and all that it has started.
class Process {
 public:
  explicit Process(const StudentProgram& program)
      : user_(program.isolation == Isolation::other_user ? user_of_this_process() : 0) {
    std::vector<std::string> command = {program.host, program.library, program.entry};
    if (program.isolation == Isolation::bubblewrap)
      command = wrapped({"/student/host", "/student/library", program.entry},
                        {{program.host, "/student/host"}, {program.library, "/student/library"}},
                        {}, "/tmp", {{"PATH", "/usr/bin:/bin"}, {"HOME", "/tmp"}});
    std::vector<char*> arguments;
    for (std::string& text : command) arguments.push_back(text.data());
    arguments.push_back(nullptr);
    char path[] = "PATH=/usr/bin:/bin";
    char* const environment[] = {path, nullptr};
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      throw LackError("no socket can be made");
    socket_ = ends[0];
    child_ = fork();
    if (child_ == 0) {
      if (chdir("/") != 0 || dup2(ends[1], kSocket) < 0) _exit(127);
      if (ends[1] == kSocket) fcntl(kSocket, F_SETFD, 0);
      limit_address_space();  // the virtual GPU's own process needs more than this one
      // Whatever else is open here is the grader's.
      if (dup2(program.errors, 2) < 0 || close_range(kSocket + 1, ~0u, 0) != 0 ||
          (user_ != 0 && !become(user_)))
        _exit(127);
      if (user_ != 0) write_no_files();
      // A copy of student_host may still be open for writing: in a process that another thread of
      // the grader has forked, until that one executes something itself.
      execute_when_closed(arguments.data(), environment);
      _exit(127);
    }
    close(ends[1]);
    if (child_ < 0) throw LackError("no process can be started");
  }
  ~Process() {
    end();
    close(socket_);
  }
  int socket() const { return socket_; }

  // In words, behind the socket's end or a message that is none; "" where it wrote more than it may.
  std::string how_it_ended() {
    int status = 0;
    for (int i = 0; waitpid(child_, &status, WNOHANG) == 0; ++i) {
      // A process that is ending has closed its end; one that has not may wait for an answer forever.
      pollfd end{socket_, 0, 0};
      if (poll(&end, 1, 0) == 0) return "its process has sent the grader what is no request";
      if (i == 3000) return "its process has closed the grader's socket";
      usleep(10'000);
    }
    reaped_ = true;
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    // bubblewrap says 128 + signal of what it ran.
    const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : code > 128 ? code - 128 : 0;
    if (signal == SIGXFSZ) return "";
    if (code == 127) return "the grader could not start its program student_host";
    return describe_end(signal, code);
  }

 private:
  void end() {
    if (!reaped_) {
      kill(child_, SIGKILL);
      waitpid(child_, nullptr, 0);
    }
    reaped_ = true;
    if (user_ != 0) end_and_clean_up(user_);
  }

  unsigned user_;
  pid_t child_ = -1;
  int socket_ = -1;
  bool reaped_ = false;
};

}  // namespace

cudaError_t call_student(const StudentProgram& program,
                         const std::vector<std::vector<char>>& arguments, const Range& output) {
  Process process(program);
  Session session(output, program.code);
  try {
    Writer call;
    for (const std::vector<char>& argument : arguments)
      call.put(uint64_t{argument.size()}).put(argument.data(), argument.size());
    send_message(process.socket(), uint32_t(Op::returned), call);
    uint32_t op = 0;
    Reader request;
    while (receive_message(process.socket(), op, request))
      if (!session.serve(process.socket(), op, request)) return session.pending();
  } catch (const Broken&) {
    // Killed in the middle of a message, or somebody plays with the socket: no result either way.
  }
  const std::string how = process.how_it_ended();
  throw how.empty() ? StudentError(CaseState::printed_too_much, "too much is printed")
                    : StudentError(CaseState::failed, how);
}

}  // namespace lab::grader
