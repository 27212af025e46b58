// The simulated SM behind simulate(): what it is made of.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "../profile/cache.h"
#include "sm.h"

namespace vgpu::time {

inline constexpr std::uint64_t kPageLines = 16384;  // of 2 MiB
inline constexpr std::uint64_t kMostBlocks = 32;    // at a time

inline constexpr double kNever = 1e300;
inline constexpr std::int64_t kAsleep = std::int64_t{1} << 62;
inline constexpr int kSchedulers = 4;
// Sources of an instruction that goes nowhere have been read after so many clocks.
inline constexpr double kSourcesRead = 6;

// Units of one scheduler that take one instruction for some clocks.
enum class Unit : std::uint8_t {
  none,
  fma_heavy,
  fma_lite,
  alu,
  half,
  fp64,
  special,
  tensor,
  uniform,
  memory,
};
inline constexpr int kUnits = 10;

// What has to be done when an instruction issues, apart from keeping its unit busy.
enum class Act : std::uint8_t {
  plain,
  branch,
  constant,
  shuffle,
  access,
  store,
  copy,
  commit,
  wait_copies,
  product,
  wait_products,
  group_arrive,
  barrier,
  cluster_barrier,
  mbarrier,
  deferred_mbarrier,
  bulk,
  fence,
  fence_block,
  drop_l1,
  sleep,
};

// An instruction as the simulator needs it, made once from MachineInstr and Timing.
struct Op {
  Kind kind = Kind::nop;
  Act act = Act::plain;
  Unit unit = Unit::none, other = Unit::none;  // `other`: as good, and taken when free
  Stall waits_for = Stall::short_scoreboard;   // the stall of those who wait for its result
  Stall busy = Stall::math_pipe_throttle;      // its warp's stall while its unit or queue is full
  std::uint8_t write = 7, read = 7, mask = 0;  // scoreboards
  bool queued = false;                         // goes through the SM's load/store unit
  bool arrives_only = false;
  bool commits = false;  // product
  std::uint8_t pending = 0, bytes = 4;
  float stall = 1, interval = 1, latency = 0;
  float shared = 0;  // product: clocks of shared memory, which its operands are read from
};

struct Mbarrier {
  std::uint32_t offset = 0, expected = 1, phases = 0;
  std::int64_t arrivals = 1, bytes = 0;  // what this phase still waits for
};

// One for a cooperative grid: blocks that have arrived, and warps that wait with a scoreboard.
struct GridBarrier {
  std::uint64_t arrived = 0;
  double complete = 0;  // clock
  std::vector<std::pair<int, std::uint32_t>> waiting;
};

inline constexpr std::uint32_t kGroupWarps = 4, kMostGroups = 8;
struct Warp;
struct Block {
  std::uint64_t number = 0;
  int place = 0, running = 0;  // warps that have not ended
  double begin = 0, end = 0;
  BlockSteps steps;
  struct Barrier {
    int arrived = 0, expected = 0;  // warps
    bool whole = true;              // all warps of the block that have not ended
    double latency = 0, free = 0;   // `free`: clock at which the last phase let go
    std::uint32_t phases = 0;       // that are complete
    std::vector<int> waiting;
  };
  std::array<Barrier, 17> barriers;  // the last: the cluster's
  // By warpgroup: where its warps meet before products, and those that have issued the same product.
  std::array<Barrier, kMostGroups> groups;
  std::array<std::vector<int>, kMostGroups> multiplying;
  std::vector<Mbarrier> mbarriers;
  std::vector<std::pair<int, MemoryEvent>> waiting;  // warps whose mbarrier phase is not there yet
};

struct Warp {
  WarpSteps* steps = nullptr;
  Step step;               // the next to issue
  const Op* op = nullptr;  // the step's
  Block* block = nullptr;
  int scheduler = 0, slot = 0;
  std::uint32_t index = 0;  // in its block
  bool alive = false, held = false, parked = false;
  Stall hold = Stall::misc;
  std::uint32_t held_at = 0;  // instruction that holds it
  std::uint32_t line = ~0u;   // the line of code that it reads
  double cursor = 0;          // up to here its clocks are accounted for
  double throttled = 0;
  // Scoreboards: free at that clock, as far as is known; `unknown` writers have no clock yet. The
  // seventh is waited for by every instruction: mbarriers that ptxas gave no scoreboard.
  std::array<double, 7> free{};
  std::array<std::uint8_t, 7> unknown{};
  std::array<Stall, 7> why{};
  std::vector<double> groups;  // when each group of asynchronous copies and all before are there
  // The same for its warpgroup's products, and the clock at which the last one is complete.
  std::vector<double> product_groups;
  double products = 0;
  double copies = 0, stores = 0;
  std::uint32_t cluster_phase = 0;  // the phase it has arrived at and not waited for; 0: none
};

class Sm {
 public:
  explicit Sm(const SmRequest& request);
  SmResult run();

 private:
  struct Scheduler {
    std::vector<int> order;  // warps, oldest first
    // Clock before which they need not be looked at, in that order: whole numbers, since the least
    // of them is looked for in every clock.
    std::vector<std::int64_t> wake;
    int last = -1;                   // place in `order` of the warp that issued last
    double next = kNever, from = 0;  // clock of its next issue, as far as known; none before
    std::array<double, kUnits> unit{};
    std::vector<std::uint32_t> code;  // L0: lines, by line modulo size
  };
  struct Event {
    double at = 0;
    std::uint64_t order = 0;
    enum { start, land, ended, let_go } what = start;
    int who = 0;         // place or warp
    MemoryEvent memory;  // land: the mbarrier
    Block* block = nullptr;
    std::uint64_t number = 0;
    bool operator<(const Event& o) const { return at != o.at ? at > o.at : order > o.order; }
  };

  void decode();
  Op decode(const MachineInstr& instr) const;
  void add(Event event);
  void happen(const Event& event);
  void start_block(int place, double at);
  void warp_ended(Warp& warp, double at);
  void block_ended(Block& block, double at);

  void schedule(int s, double at);
  double blocked(const Scheduler& s, const Warp& warp, double at);
  void issue(Scheduler& s, int w, double at);
  void act(Warp& warp, int w, const Op& op, const MemoryEvent* event, double at);
  void settle(Warp& warp, const Op& op, double data, double read);
  void fetch_step(Warp& warp, const Op& before, std::uint32_t from, double at);
  void go_on(Warp& warp);
  void look(Warp& warp);
  void wake(Warp& warp, double at);
  void release(int w, double at);
  void resolve(int w, int scoreboard, double at);
  double code_ready(Warp& warp, std::uint32_t line, bool jumped, double at);

  double load_store(double clocks, double at, const Op& op);
  double access(Warp& warp, const Op& op, const MemoryEvent& event, double at);
  double beyond_l1(std::uint32_t sectors, double at, double latency, double weight, double miss,
                   double& missed, double cost = 1);
  void multiply(Warp& warp, int w, const Op& op, double at);
  void meet_group(Warp& warp, int w, const Op& op, double at);
  double translated(const Block& block, std::uint64_t line, double at);
  double load_line(const Block& block, const LinePiece& piece, bool bypass, double at);
  double store_line(const Block& block, const LinePiece& piece, const Op& op, double at,
                    double weight);
  double remote(double bytes, double at);
  void barrier(Warp& warp, int w, const Op& op, const MemoryEvent* event, double at);
  void complete(Block& block, Block::Barrier& barrier, double at);
  void mbarrier(Warp& warp, int w, const Op& op, const MemoryEvent& event, double at);
  bool comes_from_dram(std::uint32_t sectors);
  void bulk(Warp& warp, const Op& op, const MemoryEvent& event, double at);
  void land(Warp& warp, const MemoryEvent& event, double there);
  Block* home(const Block& block, std::uint8_t rank);
  Mbarrier& find(Block& block, std::uint32_t offset);
  void change(Block& block, const MemoryEvent& event, double at);
  void advance(Block& block, Mbarrier& barrier, double at);
  void arrive_at_grid(std::uint32_t phase, double there);
  void look_at_grid(Warp& warp, int w, const Op& op, std::uint32_t phase);
  bool assume(double at);
  const char* why_stuck() const;

  void charge(Warp& warp, std::uint32_t instr, Stall why, double begin, double end);
  std::vector<PipeUse> pipes() const;
  SmResult result();

  const SmRequest& request_;
  const Timing& timing_;
  double l2_rate_, dram_rate_;  // bytes a clock
  std::vector<Op> ops_;
  std::vector<Warp> warps_;  // [places][warps of a block]
  std::vector<std::unique_ptr<Block>> places_;
  std::array<Scheduler, kSchedulers> schedulers_;
  std::vector<Event> events_;  // a heap
  std::uint64_t event_order_ = 0, next_block_ = 0;
  int warps_per_block_ = 0, running_ = 0, l1_lines_ = 0;
  double now_ = 0, last_end_ = 0;

  SectoredCache l1_;
  bool has_l1_ = false;
  struct OnItsWay {
    std::uint64_t line = ~0ull;
    double there = 0;
  };
  std::vector<OnItsWay> on_its_way_;
  double lsu_ = 0, shared_ = 0, l2_ = 0, dram_ = 0, remote_ = 0, atomic_ = 0,
         bulk_ = 0;  // free at that clock
  struct Page {
    std::uint64_t page = ~std::uint64_t{0};
    double there = 0;
  };
  std::vector<Page> pages_ = std::vector<Page>(512 * kMostBlocks);
  double written_ = 0;                   // the same of stores
  double missed_ = 0, flight_ = 0;       // sectors of the share for DRAM not yet asked; byte clocks
  double missed_copies_ = 0;             // the same of bulk copies
  bool first_copy_ = true;               // none has brought anything yet
  std::vector<std::uint8_t> constants_;  // has this LDC been here before?
  std::vector<std::uint32_t> code_tags_;  // L1.5
  std::vector<double> code_there_;
  std::uint32_t stream_next_ = ~0u;
  double stream_there_ = 0;

  std::vector<GridBarrier> grid_barriers_;

  SmResult out_;
  std::vector<std::array<double, kStalls>> by_instr_;
  std::vector<int> last_activity_;  // index into the timeline, by warp
};

}  // namespace vgpu::time
