// Races between the host and the device: the host touches pinned or managed memory while an operation that
// it has not waited for may touch the same bytes.
//
// Operations run at the call that submits them, so a missing wait changes no result here. Pages that an
// operation has touched are protected until the host has waited for it: it may not touch what was written,
// nor write what was read. An access runs into a handler (fault_handler.h), which notes it and lets it go on.
// Only pages of which the operation has touched all bytes of the allocation are protected, so that no other
// access does; each such allocation has pages of its own. Protection is lifted while an operation runs. Since
// that takes time with each page, only the beginning of what an operation has touched is protected.
#pragma once
#include <atomic>
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
  HostGuard() = default;
  HostGuard(const HostGuard&) = delete;
  HostGuard& operator=(const HostGuard&) = delete;

  // What an operation has touched. `what`: "cudaMemcpyAsync in stream 3".
  void add(Timeline timeline, OperationNumber number, const std::string& what,
           const std::vector<HostTouch>& touches);
  // A call of the runtime begins: adds what was found since the last one. Until settle() nothing is a finding.
  void enter(std::vector<std::string>& findings);
  // An operation is about to run, which may touch everything, or memory is given back.
  void lift();
  // The call ends. Forgets operations that the host has waited for, and protects what the others have touched.
  void settle(const Clock& host);
  // Takes what `clock` knows for waited for: an operation after it may have told the host so.
  void forget(const Clock& clock);
  // Takes everything for waited for: a function of the host runs in stream order, and may tell others.
  void forget_all() { guards_.clear(); }

  // Memory that shares its pages with other things is left alone.
  std::function<bool(const Allocation&)> shares_pages;

  struct Guard {
    std::byte *begin = nullptr, *end = nullptr;  // whole pages
    std::uint64_t offset = 0;                    // where the first page lies in the allocation
    bool writes = false;
    Timeline timeline = 0;
    OperationNumber number = 0;
    std::shared_ptr<Allocation> allocation;
    std::string what, memory;  // "cudaMemcpyAsync in stream 3", "'h' (4 bytes)"
    std::atomic<int> faults{0};
  };

 private:
  struct Range {
    std::byte *begin, *end;
  };
  std::vector<Range> ranges(bool writes) const;
  void protect();

  std::vector<std::shared_ptr<Guard>> guards_, watched_;
  std::vector<Range> protected_;
};

}  // namespace vgpu
