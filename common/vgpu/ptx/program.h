// A module as the executor sees it: resolved, typed, decoded once.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "types.h"

namespace vgpu {

class Warp;
struct Instr;
struct Form;
struct Function;

// Does the work of one instruction for the lanes in `mask` (never 0). Throws Fault (core/fault.h).
using Handler = void (*)(Warp& warp, const Instr& instr, std::uint32_t mask);

// Where the 32 lanes of a register or an immediate lie: a byte offset into the registers of the
// current frame (bit 0 clear) or into the constants of the function (bit 0 set). Lanes of 8- and
// 16-bit registers are 2 bytes apart, others by their width; a predicate is one 32-bit mask.
struct Slot {
  std::uint32_t bits = kNone;
  static constexpr std::uint32_t kNone = 0xffffffffu;
  bool valid() const { return bits != kNone; }
  bool constant() const { return bits & 1; }
  std::uint32_t offset() const { return bits >> 1; }
};

// What the warp loop itself must do; everything else is `plain`.
enum class Flow : std::uint8_t {
  plain,   // run the handler, go on
  memory,  // like plain, and a point where a shuffled schedule may switch warps
  fetch,   // the same for an atomic in a loop that asks a counter for more: see Block::may_fetch
  branch,  // bra
  branch_table,  // brx.idx
  join,          // pseudo instruction: lanes that took different ways meet here
  call,
  ret,
  exit,
  barrier,    // bar, barrier
  warp_sync,  // shfl.sync, vote.sync, match.sync, redux.sync, bar.warp.sync, elect.sync
  yield,      // nanosleep and the like: let others go first
  registers,  // setmaxnreg and wgmma.wait_group, which may have to wait for others
  trap,
};

inline bool is_memory(Flow flow) { return flow == Flow::memory || flow == Flow::fetch; }

// Rounding of the result; `none` is the instruction's default (nearest even for arithmetic).
enum class Rounding : std::uint8_t { none, rn, rz, rm, rp, rna, rni, rzi, rmi, rpi, rs };

enum class Compare : std::uint8_t {
  none,
  eq,
  ne,
  lt,
  le,
  gt,
  ge,
  lo,
  ls,
  hi,
  hs,
  equ,
  neu,
  ltu,
  leu,
  gtu,
  geu,
  num,
  nan
};
enum class Bool : std::uint8_t { none, and_, or_, xor_ };

// Memory model of an access or a fence, as far as its modifiers say it.
enum Order : std::uint8_t {
  kOrderVolatile = 1,
  kOrderRelaxed = 2,
  kOrderAcquire = 4,
  kOrderRelease = 8,
  kOrderBlock = 16,   // scope .cta
  kOrderCluster = 32  // scope .cluster
};

struct alignas(64) Instr {
  // What the warp loop and most handlers read, in one cache line.
  Handler run = nullptr;
  std::int64_t imm = 0;           // offset of the memory operand; else the handler's own
  Slot guard;                     // predicate, or not valid
  Slot d[2];                      // destination and second destination (p|q); vectors: `list`
  Slot a, b, c;                   // sources in order, then e
  Slot address;                   // base register of a memory operand; may be invalid (absolute)
  std::uint32_t target = 0;       // branch: index into code; branch_table: index into tables
  std::uint32_t pc = 0;           // own index
  std::uint32_t memory_site = 0;  // counts the function's memory instructions
  Flow flow = Flow::plain;
  bool guard_not = false;
  std::uint8_t address_bits = 64;
  std::uint8_t elements = 1;  // elements of a vector load or store
  Space space = Space::generic;
  Type type = Type::none;    // the last type modifier that names the source or only type
  bool frame_local = false;  // the address is that of a .local variable of this frame
  bool volatile_ = false;    // volatile, relaxed, acquire, release, mmio: others may be waiting

  Slot e;  // fourth source
  OpClass op_class = OpClass::integer;
  Type dtype = Type::none;  // the first of two type modifiers (cvt, set, mma ...), else = type
  Rounding rounding = Rounding::none;
  Compare compare = Compare::none;
  Bool combine = Bool::none;
  std::uint8_t variant = 0;  // meaning is the handler's own (shfl mode, atom operation ...)
  bool ftz = false, sat = false, relu = false, nan = false, approx = false, full = false;
  bool carry_out = false;                            // .cc
  bool a_not = false, b_not = false, c_not = false;  // a predicate source written as !p
  bool async = false;                                // the access happens later: see ops/async.cpp
  bool cluster = false;                              // space is .shared::cluster
  bool non_coherent = false;                         // ld.global.nc
  bool counter = false;                              // atom.add, .inc, .dec of an integer
  std::uint8_t rank = 0;     // how many dimensions a tensor copy's tensor has
  bool from_shared = false;  // a copy to shared memory whose source is in shared memory, too
  std::uint8_t order = 0;    // bits of Order: what the memory model is told, for those who check it
  std::uint8_t d_bits = 0;   // width of the destination register (ld, cvt, atom; 16 for 8-bit)
  std::uint8_t a_bits = 0;   // width of the first source register (st, cvt, atom)
  std::uint8_t b_bits = 0;   // width of the second (asynchronous copies: size or predicate)
  std::uint8_t address2_bits = 64;
  std::int16_t special = -1;  // mov from a special register: its index (specials.h)
  std::uint16_t list_count = 0;
  std::uint16_t list_results = 0;       // the first so many of `list` are written, others read
  const std::uint32_t* list = nullptr;  // Slot bits of a vector operand or fragment, in order
  Slot address2;                        // a second memory operand's (asynchronous copies)
  std::int64_t imm2 = 0;                // its offset
  std::int64_t constant = 0;            // an integer operand that must be an immediate
  const void* data = nullptr;           // the handler's own tables, kept as long as the process
  std::uint32_t reconverge = 0;         // branch: index of the join instruction, or kNoJoin
  std::uint32_t site = 0;               // call: index into Function::calls
  std::uint32_t location = 0;           // index into Module::locations
  std::uint32_t ptx_line = 0;
  std::uint16_t form = 0;  // row of the table of forms
  // Whose address a mov takes, or a memory operand without a register names: index into Function::named
  // plus 1; 0: no variable of shared or constant memory.
  std::uint16_t named = 0;
};
inline constexpr std::uint32_t kNoJoin = 0xffffffffu;

// A place in the user's source: what `.loc` says, inlined_at followed to the user's own line.
struct Location {
  std::string file;  // as in `.file`, absolute
  int line = 0;      // 0: unknown (compiled without -lineinfo)
  // What is inlined here: the location of the call, in Module::locations. 0: nothing is, or not known.
  std::uint32_t caller = 0;
};

struct Param {
  std::string name;
  std::uint32_t offset = 0, size = 0, align = 1;
};

struct SharedVariable {
  std::string name;  // mangled
  std::uint32_t offset = 0, size = 0;
};

// A variable in shared or constant memory whose name stands in a function.
struct NamedVariable {
  Space space = Space::shared;
  std::string name;  // mangled
  std::uint64_t offset = 0, size = 0;
};

struct RegisterPlace {
  Slot slot;
  std::uint8_t bits = 0;  // bits per lane, as stored: 1 (a predicate), 16, 32, 64 or 128
};

struct CallSite {
  const Function* callee = nullptr;  // null: indirect, through `pointer`
  std::string builtin;               // "vprintf", "malloc" ...: executed by the machine
  Slot pointer;
  std::vector<std::uint32_t> args, results;  // offsets into the caller's call-parameter area
  std::vector<std::uint32_t> arg_sizes, result_sizes;
};

struct Function {
  std::string name;     // mangled
  std::string display;  // demangled, without the parameter list
  bool entry = false;
  std::vector<Param> params;             // the layout of an entry's arguments
  std::vector<std::string> param_names;  // as its source has them; empty when that is not known
  std::uint32_t param_bytes = 0;
  std::vector<Param> results;  // a .func's results
  std::vector<Instr> code;
  std::vector<RegisterPlace> registers;            // those of the source that code names
  std::vector<std::byte> constants;                // immediates, already spread over 32 lanes
  std::vector<std::vector<std::uint32_t>> tables;  // targets of brx.idx
  std::vector<CallSite> calls;
  std::vector<std::unique_ptr<std::uint32_t[]>> lists;
  std::uint32_t memory_sites = 0;     // memory instructions in code
  std::uint32_t register_bytes = 0;   // registers of one frame, all 32 lanes
  std::uint32_t call_area_bytes = 0;  // .param variables of a frame, for one lane
  std::uint32_t local_bytes = 0;      // .local variables, for one lane
  std::uint32_t shared_bytes = 0;     // static shared memory (of the kernel and what it calls)
  std::vector<SharedVariable> shared_variables;  // what lies in these bytes, for messages
  std::vector<NamedVariable> named;
  std::uint32_t dynamic_shared_align = 16;
  bool uses_reserved_shared = false;              // %reserved_smem_offset_<>
  std::uint32_t max_threads = 0;                  // .maxntid product, 0 when unsaid
  std::uint32_t required_block[3] = {0, 0, 0};    // .reqntid
  std::uint32_t max_registers = 0;                // .maxnreg, 0 when unsaid
  std::uint32_t min_blocks = 0;                   // .minnctapersm
  std::uint32_t required_cluster[3] = {0, 0, 0};  // .reqnctapercluster, in blocks
  std::uint32_t max_cluster = 0;     // .maxclusterrank, blocks of a cluster; 0 when unsaid
  bool explicit_cluster = false;     // .explicitcluster: a launch must have clusters
  bool blocks_are_clusters = false;  // .blocksareclusters: the grid is given in clusters
  bool calls_indirectly = false;
  // Whether the results may depend on the order of blocks (an atomic whose result is used, a
  // float atomic, volatile or acquiring loads): such kernels run their blocks in order.
  bool order_matters = false;
  const struct Module* module = nullptr;
};

struct Global {
  std::string name;
  Space space = Space::global;  // global, constant, or shared (module scope)
  std::uint64_t size = 0;
  std::uint32_t align = 1;
  std::vector<std::byte> init;  // what is not covered is zero
  struct Relocation {
    std::uint64_t offset;
    std::string symbol;
    std::int64_t addend;
    bool generic;
    int bytes;
  };
  std::vector<Relocation> relocations;
  bool external = false;
  bool managed = false;            // .attribute(.managed): the host has it at the same address
  std::uint64_t address = 0;       // device address (global), offset in the bank (constant, shared)
  std::uint64_t host_address = 0;  // what cudaGetSymbolAddress gives for a constant
};

// When the bodies of a module's kernels are read. A program has many kernels and runs a few; what its
// compiler wrote is right, and a body that is wrong all the same is refused at its first use.
enum class Bodies : std::uint8_t { now, at_first_use };

struct Module {
  std::string text;                 // the PTX, kept for messages
  std::string target;               // "sm_90a"
  int sm = 0;                       // 90
  std::vector<Location> locations;  // [0] is unknown
  std::map<std::string, std::unique_ptr<Function>, std::less<>> functions;
  std::map<std::string, std::unique_ptr<Global>, std::less<>> globals;
  std::map<std::string, std::string, std::less<>> aliases;  // .alias name, function
  std::vector<std::string_view> lines;                      // the lines of text, for messages
  const Function* find(std::string_view name) const;
};

}  // namespace vgpu
