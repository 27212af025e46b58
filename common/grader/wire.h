// How the process that holds a student's code talks to the one that holds the virtual GPU.
//
// A student's host code runs in a small program (grader/student_host.cc) that has no GPU: each CUDA call
// becomes a request, over a socket, to the grader's own process (grader/student_process.cpp), which executes
// it and answers. So memory, counters, checks and results are never in a process that runs code of
// the student's. A request is a Header and its bytes, an answer the same with the call's error in
// place of the operation.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include <sys/socket.h>

namespace lab::grader::wire {

enum class Op : uint32_t {
  load,            // a fat binary's bytes -> library
  kernel,          // library, name -> kernel, and of each parameter its offset and size
  variable,        // library, name -> address, size
  launch,          // Launch, then the parameters' bytes
  allocate,        // bytes, on a stream -> address
  release,         // address, on a stream
  fill,            // address, value, bytes
  upload,          // address, then the bytes
  copy,            // address, from address, bytes
  synchronize,     //
  last_error,      // peek?
  attribute,       // cudaDeviceAttr -> int
  properties,      // -> cudaDeviceProp
  set_attribute,   // kernel, cudaFuncAttribute, int
  get_attributes,  // kernel -> cudaFuncAttributes
  occupancy,       // kernel, threads, bytes of shared memory, flags -> blocks
  stream_create,   // flags -> stream
  stream_destroy,  // stream
  event_create,    // flags -> event
  event_record,    // event, stream
  event_wait,      // stream, event
  event_destroy,   // event
  tensor_map,      // TensorMap -> the map's 128 bytes
  download,        // what no exercise may: a copy to the host
  returned,        // the student's function came back
  threw,           // or threw: what()
  no_memory,       // or std::bad_alloc
  unloadable,      // the library cannot be loaded: dlerror()
};

struct Header {
  uint32_t op;     // an answer has the cudaError_t here
  uint32_t bytes;  // how many bytes follow
};
constexpr uint32_t kMostBytes = 256u << 20;

struct Launch {
  uint64_t kernel, stream, shared_bytes;
  uint32_t grid[3], block[3], cluster[3];  // cluster: zeros for none
  uint32_t cooperative;
};

// What cuTensorMapEncodeTiled is called with, in its types.
struct TensorMap {
  static constexpr uint32_t kMostRank = 5;
  static constexpr size_t kBytes = 128;
  int32_t type, interleave, swizzle, promotion, fill;
  uint32_t rank;
  uint64_t address, sizes[kMostRank], strides[kMostRank - 1];
  uint32_t box[kMostRank], steps[kMostRank];
};

struct Broken : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Writer {
 public:
  template <class T>
  Writer& put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    return put(&value, sizeof value);
  }
  Writer& put(const void* data, size_t bytes) {
    const char* const first = static_cast<const char*>(data);
    bytes_.insert(bytes_.end(), first, first + bytes);
    return *this;
  }
  Writer& put(const std::string& text) { return put(text.data(), text.size()); }
  const std::vector<char>& bytes() const { return bytes_; }

 private:
  std::vector<char> bytes_;
};

// Reads what a Writer wrote; throws Broken beyond the end.
class Reader {
 public:
  Reader() = default;
  explicit Reader(std::vector<char> bytes) : bytes_(std::move(bytes)) {}
  template <class T>
  T get() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    std::memcpy(&value, take(sizeof value), sizeof value);
    return value;
  }
  const char* take(size_t bytes) {
    if (bytes > left()) throw Broken("a message is too short");
    at_ += bytes;
    return bytes_.data() + (at_ - bytes);
  }
  std::string rest() {
    const size_t bytes = left();
    return std::string(take(bytes), bytes);
  }
  size_t left() const { return bytes_.size() - at_; }
  const char* begin() const { return bytes_.data(); }  // what was read before, too

 private:
  std::vector<char> bytes_;
  size_t at_ = 0;
};

// All bytes, or Broken.
inline void send_all(int socket, const void* data, size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = send(socket, next, bytes, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw Broken("the other side is gone");
    next += n, bytes -= size_t(n);
  }
}
// False when the other side has closed the socket before the first byte.
inline bool receive_all(int socket, void* data, size_t bytes) {
  char* next = static_cast<char*>(data);
  for (size_t got = 0; got < bytes;) {
    const ssize_t n = recv(socket, next + got, bytes - got, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0 && got == 0) return false;
    if (n <= 0) throw Broken("a message is cut short");
    got += size_t(n);
  }
  return true;
}

inline void send_message(int socket, uint32_t op, const Writer& content) {
  const Header header{op, uint32_t(content.bytes().size())};
  send_all(socket, &header, sizeof header);
  send_all(socket, content.bytes().data(), content.bytes().size());
}
inline bool receive_message(int socket, uint32_t& op, Reader& content) {
  Header header;
  if (!receive_all(socket, &header, sizeof header)) return false;
  if (header.bytes > kMostBytes) throw Broken("a message is too long");
  std::vector<char> bytes(header.bytes);
  if (header.bytes > 0 && !receive_all(socket, bytes.data(), bytes.size()))
    throw Broken("a message is cut short");
  op = header.op;
  content = Reader(std::move(bytes));
  return true;
}

}  // namespace lab::grader::wire
