// Counters of the student's launches, as aims ask for them.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace lab::grader {

// Counters of the student's launches, all of them together. Arrays are called what the arguments
// are called; `kScratch` is all other memory: what the student allocates, and local memory of more
// than a few bytes a thread. `access` is "load" or "store". Whoever moves the bytes counts:
// instructions, atomics, which do both, and the copy engine.
inline const char* const kScratch = "*";
class Counters {
 public:
  // launches: a JSON list as VGPU_PROFILE=json writes it. Throws std::runtime_error if it is none.
  Counters(const std::string& launches, const std::vector<std::string>& arrays);

  // The sum over all launches of the number at a JSON pointer; 0 where a launch lacks it.
  double sum(const std::string& pointer) const;
  double launches() const;
  double bytes(const std::string& array, const std::string& access) const;
  // Bytes of K and V that are loaded, and of memory of the student's own: what is loaded from a copy
  // counts as well.
  double loaded_tiles() const;
  // Bytes that kernels bring to global memory, or to local memory as above, in any way.
  double stored() const;
  // Bytes that kernels bring to shared memory in any way.
  double brought_to_shared() const;
  // A copy of the copy engine is as many as warps that load 16 bytes a lane would need.
  double requests(const std::string& array, const std::string& access) const;
  // Sectors moved over sectors needed if the same bytes lay side by side, of the worst launch: 1 is
  // coalesced, 16 a warp that reads 2 bytes of each of 32 sectors. NaN without such accesses.
  // most_bytes: what counts as needed at most. Without such a bound good accesses that nobody needs
  // hide the bad ones.
  double moved_over_needed(const std::string& array, const std::string& access,
                           double most_bytes) const;
  // The counters of one kind of launch alone: launches that both load and store the array, such as
  // a softmax in place, or all others.
  Counters load_and_store(const std::string& array) const;
  Counters load_or_store(const std::string& array) const;
  double sectors(const std::string& array, const std::string& access) const;
  // Shared-memory conflicts over ideal wavefronts; 0 without shared memory. multiply_adds: those that
  // the problem needs, for two wavefronts of which a warp's may count as ideal.
  double bank_conflict_share(double multiply_adds) const;
  // Multiply-adds on tensor cores. multiply_adds: those that the problem needs. 0 where the CUDA cores'
  // floating-point instructions are enough for much of them: what tensor cores multiply may be anything
  // then.
  double on_tensor_cores(double multiply_adds) const;

 private:
  struct Data;
  Counters chosen(const std::string& array, bool both) const;
  std::shared_ptr<const Data> data_;
};

}  // namespace lab::grader
