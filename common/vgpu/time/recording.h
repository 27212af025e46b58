// What the blocks of one SM do in a launch, recorded while it runs: which way each warp takes at each
// branch, and what each of its memory instructions asks for. The machine code is played with it later.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../core/observer.h"
#include "events.h"

namespace vgpu::time {

// The PTX lines of a kernel and of what it calls.
struct Layout {
  enum class Role : std::uint8_t { none, plain, branch, memory, mbarrier, barrier };
  struct Line {
    Role role = Role::none;
    bool polls = false;  // a load or a wait that may be repeated until others have done something
    bool bypasses_l1 = false;
    MemoryEvent::Mbarrier mbarrier = MemoryEvent::Mbarrier::none;
    std::uint32_t ordinal =
        0;                   // among all lines with an instruction: index into WarpRecord::issued
    std::uint32_t slot = 0;  // among the branches, or among the lines with events
    std::string_view name;   // "ld.global.u32"; the first of several on the line
    const Instr* instr = nullptr;        // the named one: the line is issued when it is
    std::uint32_t block = 0;             // basic block of the PTX code that it is in
    std::uint32_t taken = 0, falls = 0;  // the blocks that a branch leads to
    bool indirect = false;               // brx.idx
    bool calls = false;   // a function of the program, not one that the machine executes
    bool atomic = false;  // reads and writes in one
    bool guarded = false;
    // Load or store: bytes of a lane that machine code has at least. It may leave out elements of a load
    // that nothing reads, and load once what PTX loads twice.
    std::uint32_t least_bytes = 0;
  };
  std::uint32_t first = 1;  // PTX line of lines[0]
  std::vector<Line> lines;
  std::uint32_t ordinals = 0, branches = 0, events = 0;
  bool global_atomics = false;                   // any line may be atomic in global memory
  std::vector<std::vector<std::uint32_t>> next;  // blocks that follow a block
  const Line* at(std::uint32_t ptx_line) const {
    return ptx_line < first || ptx_line - first >= lines.size() ? nullptr
                                                                : &lines[ptx_line - first];
  }
};

// Outcomes of a branch.
inline constexpr std::uint8_t kTaken = 1, kNotTaken = 2;  // by some lanes; both: the lanes part

struct WarpRecord {
  std::vector<std::uint32_t> issued;                // by ordinal: how often the warp executed it
  std::vector<std::vector<std::uint8_t>> outcomes;  // by branch slot, in order
  std::vector<std::vector<MemoryEvent>> events;     // by event slot, in order
  std::uint64_t instructions = 0;                   // PTX instructions
};

// What an instruction of a block does to one line of global memory with atomic operations.
struct AtomicLine {
  double requests = 0, sectors = 0;  // by warps; all their sectors
  double lanes = 0, meeting = 0;     // see LinePiece
};
struct AtomicPlace {
  std::uint64_t line = 0;
  std::uint32_t slot = 0;  // the instruction's, among the lines with events
  bool operator==(const AtomicPlace&) const = default;
  struct Hash {
    std::size_t operator()(const AtomicPlace& p) const {
      return (p.line * 0x9e3779b97f4a7c15u) ^ p.slot;
    }
  };
};

struct BlockRecord {
  std::uint64_t linear = 0;  // number in the grid
  std::vector<WarpRecord> warps;
  std::unordered_map<AtomicPlace, AtomicLine, AtomicPlace::Hash> atomics;
  std::uint64_t grid_barriers = 0;  // arrivals at the barrier of a cooperative grid
  bool cut = false;                 // the record ends before the block does: too long
  std::vector<std::unique_ptr<LinePiece[]>> pieces;
  std::size_t pieces_used = 0;  // pieces used in the last array
};

struct Recording {
  Layout layout;
  std::string why;                  // not empty: what cannot be recorded, for the user
  std::vector<BlockRecord> blocks;  // one SM's, in the order in which it gets them
  std::uint64_t sm = 0;             // which SM: 0, or the busiest of those that were recorded
  // A few of other SMs, whose instructions and atomic operations are counted: when only recorded
  // blocks are executed, and where blocks may meet at an address.
  std::vector<BlockRecord> probes;
  std::uint64_t blocks_of_sm = 0;  // how many that SM gets in all
  // PTX instructions of the busiest of the SMs that were looked at as a whole; 0: none were.
  double most_of_sm = 0;
  std::uint64_t grid_blocks = 0;
  std::uint64_t cluster_blocks = 1;
};

// An observer of the blocks that SM 0 gets, the first few of them. Where all blocks of an SM are resident
// together, those of a few other SMs are recorded as well, and the busiest SM stands for all.
class Recorder : public Observer {
 public:
  // rounds: how many times as many blocks as are resident on an SM together are recorded at most.
  Recorder(std::shared_ptr<Recording> into, int rounds);

  bool samples() const override { return true; }
  bool watches(std::uint64_t cluster) const override;
  bool wants_instructions() const override { return true; }
  void launch_begin(Launch& launch) override;
  void launch_end(Launch& launch, std::vector<std::string>& findings) override;
  void block_begin(Block& block) override;
  void block_end(Block& block) override;
  void instruction(Warp& warp, const Instr& instr, std::uint32_t mask, std::uint32_t on) override;
  void access(Warp& warp, const Instr& instr, std::uint32_t mask, const Addresses& addresses,
              std::uint32_t bytes, Access access, Space space, const Places& places) override;
  void bulk_access(Warp& warp, const Instr& instr, int lane, std::uint64_t address,
                   std::uint32_t bytes, Access access, std::byte* host) override;
  void tensor_copy(Warp& warp, const Instr& instr, int lane, std::uint32_t shared_offset,
                   std::uint32_t bytes, std::uint32_t sectors, std::uint32_t lines) override;
  void bulk_issue(Warp& warp, const Instr& instr, const Block& to, std::uint32_t bytes) override;
  void bulk_land(Warp& warp, const Instr& instr, int lane, const Block& to, std::uint32_t mbarrier,
                 std::uint32_t bytes, std::uint64_t copy) override;
  void local_access(Warp& warp, const Instr& instr, std::uint32_t mask, const Addresses& physical,
                    std::uint32_t bytes, Access access) override;
  void barrier_arrive(Warp& warp, const Instr& instr, std::uint32_t mask, int barrier,
                      bool wait) override;
  void mbarrier_phase(Block& home, std::uint32_t offset) override;

  // PTX instructions of warps that are recorded in all before blocks are cut short. All of them loads,
  // that is 1.5 GB; lines that they touch count too.
  static constexpr std::uint64_t kMost = 24u << 20;
  // Blocks of other SMs that are looked at: whether they do as much as those of this one, and which
  // addresses they share with it.
  static constexpr std::uint64_t kProbes = 8;
  // SMs that are looked at as a whole, beside SM 0, where these would be more blocks than that.
  static constexpr std::uint64_t kLeastSms = 3;

 private:
  struct WarpState {  // what only the recording needs
    std::uint64_t activity = 1, polls = 0;
    struct Seen {
      std::uint64_t activity = 0, polls = 0;
    };
    std::vector<Seen> branch, poll;  // by slot
    // By event slot: copies whose mbarrier is not known yet, by the rank of its block.
    std::vector<std::map<std::uint32_t, std::uint32_t>> untold;
    bool cut = false;
  };
  // A copy, or the announcement of one, of the block's own that others' copies are told with: see
  // share_phases().
  struct Landing {
    std::uint32_t warp = 0, slot = 0, event = 0;
    std::uint32_t offset = 0, phase = 0;  // which mbarrier it reports to, and the phase
  };
  struct BlockState {
    BlockRecord* record = nullptr;
    std::vector<Landing> landed, sent, announced;
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t>
        from_others;     // bytes, by mbarrier and phase
    bool probe = false;  // on another SM than 0: only counted, unless whole_sms_ is set
    std::vector<WarpState> warps;
    std::unordered_map<std::uint32_t, std::uint32_t> phases;  // by offset: phases that are complete
  };
  BlockState* state_of(const Block& block);
  static void share_phases(BlockState& block);
  MemoryEvent* last_event(Warp& warp, const Instr& instr, const Layout::Line*& line);
  std::span<LinePiece> add_lines(BlockRecord& record, MemoryEvent& event,
                                 const std::uint64_t* addresses, std::uint32_t mask,
                                 std::uint32_t bytes);
  void add_atomics(BlockRecord& record, const Layout::Line& line, const std::uint64_t* addresses,
                   std::uint32_t mask);
  void lay_out(const Launch& launch);
  void choose_probes(std::uint64_t clusters);
  void poll_or_activity(WarpState& state, const Layout::Line& line,
                        std::vector<MemoryEvent>& events);

  std::shared_ptr<Recording> recording_;
  int rounds_;
  std::uint64_t stride_ = 1, cluster_blocks_ = 1;
  std::vector<std::uint64_t> chosen_;  // clusters that are simulated, one of each round of the SMs
  std::vector<std::uint64_t> probes_;  // clusters
  bool whole_sms_ = false;             // the probes are all blocks of some SMs
  std::atomic<std::uint64_t> recorded_{0}, recorded_of_probes_{0};
  std::mutex mutex_;
  std::unordered_map<const Block*, std::unique_ptr<BlockState>> running_;
};

}  // namespace vgpu::time
