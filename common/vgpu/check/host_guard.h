// Races between the host and the device: the host touches pinned or managed memory while an operation that
// it has not waited for may touch the same bytes.
//
// Operations run at the call that submits them, so a missing wait changes no result here. Pages that an
// operation has touched are protected until the host has waited for it: it may not touch what was written,
// nor write what was read. An access runs into a handler, which notes it and lets it go on. Only pages of
// which the operation has touched all bytes of the allocation are protected, so that no other access does;
// each such allocation has pages of its own.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "../core/memory.h"
#include "clock.h"

namespace vgpu {

// Bytes of host-visible memory that an operation has touched.
struct HostTouch {
  std::shared_ptr<Allocation> allocation;
  std::uint64_t offset = 0, bytes = 0;
  bool writes = false;
};

class HostGuard {
 public:
  HostGuard();
  HostGuard(const HostGuard&) = delete;
  HostGuard& operator=(const HostGuard&) = delete;

  // What an operation has touched. `what`: "cudaMemcpyAsync in stream 3".
  void add(Timeline timeline, OperationNumber number, const std::string& what,
           const std::vector<HostTouch>& touches);
  // From here to settle() the device and the runtime may touch everything.
  void lift();
  // Forgets operations that the host has waited for, protects what the others have touched, and adds what
  // was found.
  void settle(const Clock& host, std::vector<std::string>& findings);
  // Takes everything for waited for: a function of the host runs in stream order, and may tell others.
  void forget_all();

  // Memory that shares its pages with other things is left alone.
  std::function<bool(const Allocation&)> shares_pages;

  struct Guard {
    std::byte* begin = nullptr;
    std::size_t bytes = 0;  // whole pages
    bool writes = false;
    Timeline timeline = 0;
    OperationNumber number = 0;
    std::shared_ptr<Allocation> allocation;
    std::string what, memory;  // "cudaMemcpyAsync in stream 3", "'h' (4 bytes)"
  };

 private:
  void protect(bool all);

  std::vector<std::shared_ptr<Guard>> guards_;
};

}  // namespace vgpu
