// Which machine instructions a warp executes, from what its PTX did: the machine code's branches are
// taken as the PTX branches that they come from were.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "machine_code.h"
#include "recording.h"

namespace vgpu::time {

// Basic blocks of machine code, and what each of its branches decides by.
class Walker {
 public:
  Walker(const MachineCode& code, const Layout& layout);

  // "" or why the machine code cannot be followed (indirect jumps, calls of other functions).
  const std::string& why() const { return why_; }

  // The way of one warp, as numbers of basic blocks.
  struct Way {
    std::vector<std::uint32_t> blocks;
    bool lost = false;     // it did not come to an end: the way was cut off
    const char* why = "";  // lost: because of what
  };
  Way walk(const WarpRecord& record) const;

  // The basic blocks, what decides at the end of each and how often a way goes there: for those who
  // look into a kernel that is not followed.
  std::string listing(const WarpRecord& record, const Way& way) const;

  // Steps of a warp along its way. Record, way and walker must outlive them.
  std::unique_ptr<WarpSteps> steps(const WarpRecord& record, const Way& way) const;

  Kind kind(std::uint32_t instr) const { return code_.code[instr].kind; }

  // Whether ptxas has made one lane's atomic operation of those of the warp that a PTX instruction asks
  // for (number among the lines with events): all lanes have the same address.
  bool joins_lanes(std::uint32_t slot) const { return slot < joins_.size() && joins_[slot]; }

  // Machine instructions on a way.
  std::uint64_t length(const Way& way) const;
  // Whether some of them multiply on the tensor cores.
  bool multiplies(const Way& way) const;

  // How well ways agree with records: memory instructions, barriers and the like that the ways
  // execute more or less often than the PTX did, as a share of all of them (loads and stores by their
  // bytes). 0: exactly as often.
  struct Agreement {
    double executed = 0, differing = 0;
    double share() const { return executed ? differing / executed : 0; }
    std::string worst;  // what differs most, in words
    double worst_by = 0;
  };
  void compare(const WarpRecord& record, const Way& way, Agreement& sum) const;

 private:
  friend class Steps;
  static constexpr std::uint32_t kNone = ~0u;
  struct Basic {
    std::uint32_t first = 0, last = 0;       // instructions
    std::uint32_t next[2] = {kNone, kNone};  // [0] falls through, [1] taken
    bool conditional = false;     // decides between the two, or whether the warp ends here
    bool ends = false;            // taken: the warp ends
    const char* stop = "";        // why nobody can follow a warp that gets here
    std::uint32_t meets = kNone;  // immediate post-dominator
    // What decides: the outcomes of a PTX branch, and whether they are turned round; or a loop of
    // one PTX block that ptxas has unrolled; or a choice that is always the same.
    enum class By : std::uint8_t { fixed, outcome, unrolled } by = By::fixed;
    std::uint32_t slot = 0;      // the PTX branch's
    bool inverted = false;       // taken when the PTX branch is not
    std::uint8_t fixed = 0;      // index into next
    bool rare = false;           // fixed: the other way is for rare arguments
    std::uint32_t loop = kNone;  // unrolled loop that it belongs to
    bool swaps = false;          // an atomic operation as a loop round a swap
    std::uint32_t copies = 0;    // turns of that loop that it makes
    std::uint32_t optional = 0;  // more turns, with guarded instructions, that it may make
    // The PTX instructions that it has the code of, by ordinal, and how often. Of those of which
    // ptxas makes exactly one machine instruction, when there are such.
    std::vector<std::pair<std::uint32_t, std::uint32_t>> lines;
  };
  struct Loop {  // a loop of one PTX block, of which ptxas has made several copies
    std::uint32_t slot = 0;
    std::uint8_t again = 0;  // the outcome of a lane that makes another turn
  };
  struct State;  // how far a walk has come
  // What decides when a PTX branch says one thing and the instructions that are left another.
  enum class Trust : std::uint8_t { branches, counts };
  Way walk(const WarpRecord& record, Trust trust) const;
  int support(const State& state, std::uint32_t basic, std::uint32_t until) const;
  int by_counts(const State& state, std::uint32_t basic) const;

  void find_basics();
  void find_lines();
  void find_slots();
  void find_stops();
  void find_meets();
  void find_atomics();
  struct Copies {
    std::uint32_t always = 0, guarded = 0;
  };
  std::map<std::uint32_t, Copies> copies_of(std::uint32_t block) const;
  void find_loops();
  void decide_branches();
  std::uint32_t distance(std::uint32_t from, std::uint32_t ptx_block) const;
  int direction(std::uint32_t basic, const Layout::Line& line) const;
  const Layout::Line* branch_behind(std::uint32_t basic) const;
  bool slow_path(std::uint32_t basic) const;
  bool comes_back(std::uint32_t basic, int side) const;
  bool waits_for_lanes(std::uint32_t basic) const;
  bool serves_lanes(std::uint32_t basic) const;
  std::uint32_t step(State& state, std::uint32_t basic) const;
  static long turns_in(const Basic& basic, long left);
  long reach(std::uint32_t basic, std::uint32_t loop, long left, int depth) const;

  const MachineCode& code_;
  const Layout& layout_;
  std::string why_;
  std::vector<Basic> basics_;
  std::vector<std::uint32_t> basic_of_;  // by instruction
  std::vector<std::uint32_t> slot_of_;   // the same: where its events are; kNone: it takes none
  std::vector<Loop> loops_;
  std::vector<bool> joins_;  // by event slot
};

}  // namespace vgpu::time
