// The machine code that ptxas makes of a kernel, instruction by instruction, with the PTX line that
// each comes from. Nothing is executed here: this is what the SM simulator plays.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace vgpu::time {

// What an instruction is to the simulator: which unit takes it, and what has to happen for it.
enum class Kind : std::uint8_t {
  fp32,      // FFMA, FADD, FMUL
  fp16,      // HFMA2, HADD2, HMUL2 and their bf16 forms
  imad,      // integer multiply-add, and moves that ptxas writes as one
  alu,       // integer, logic, comparison, selection, moves, conversions of packed halves (F2FP)
  fp64,      // DFMA, DADD, DMUL, DSETP
  special,   // MUFU
  convert,   // I2F, F2I, F2F, FRND, and counting bits (POPC, FLO): the same slow unit as MUFU
  tensor,    // HMMA, IMMA, BMMA, DMMA, QMMA, and HGMMA and the like; `flavour` says which
  uniform,   // the uniform datapath: UMOV, UIADD3, ULDC, ...
  constant,  // LDC, LDCU: loads of the constant bank
  special_register,  // S2R, S2UR, CS2R of a slow register
  shuffle,           // SHFL
  vote,              // VOTE, MATCH, REDUX
  shared_load,
  shared_store,
  shared_atomic,  // LDS, STS, ATOMS
  matrix_load,
  matrix_store,  // LDSM, STSM
  global_load,
  global_store,
  global_atomic,  // LDG, LD, STG, ST, ATOMG, ATOM, RED
  local_load,
  local_store,   // LDL, STL: spills, stacks
  async_copy,    // LDGSTS: global to shared
  async_commit,  // LDGDEPBAR
  async_wait,    // DEPBAR.LE SB, n: `pending` groups or accesses may be left
  barrier,       // BAR.SYNC, BAR.RED; `arrives_only`: BAR.ARV
  warpgroup,  // WARPGROUP.DEPBAR: `pending` groups of products may be left; .ARRIVE: `arrives_only`
  cluster_barrier,  // UCGABAR_ARV, UCGABAR_WAIT and the like
  mbarrier,         // SYNCS: arrive, try_wait, init
  bulk_copy,        // UBLKCP, UBLKRED
  fence,            // MEMBAR, ERRBAR, FENCE, CCTL
  convergence,      // BSSY, BSYNC, BREAK, BMOV, WARPSYNC
  branch,           // BRA, BRX, JMP; `target`
  call,
  ret,
  exit,
  sleep,  // NANOSLEEP, YIELD
  nop,
  unknown,  // not in the table: named in MachineCode::unknown, costed as alu
};
std::string_view kind_name(Kind kind);

struct MachineInstr {
  std::uint32_t address = 0;      // bytes from the function's begin, a multiple of 16
  std::uint32_t ptx_line = 0;     // in the module's own text, from 1; 0: ptxas names none
  std::uint16_t ptx_on_line = 0;  // PTX statements before its own one on the same line
  std::int32_t target = -1;       // branch, call: index of the instruction it goes to; -1 unknown
  std::uint16_t opcode = 0;       // low 12 bits of the instruction
  std::uint16_t name = 0;         // index into MachineCode::names
  Kind kind = Kind::unknown;
  // Control bits, as ptxas has set them.
  std::uint8_t stall = 0;  // clocks until this warp's next instruction
  bool yield = false;
  std::uint8_t write_barrier = 7;  // scoreboard that is busy until the result is there; 7: none
  std::uint8_t read_barrier = 7;   // scoreboard that is busy until the sources have been read
  std::uint8_t wait_mask = 0;      // scoreboards, bits 0 to 5, that must be free before it issues
  std::uint8_t guard = 7;          // predicate register P0 to P6, 7: always
  bool guard_not = false;
  bool uniform_guard = false;  // branch on a uniform predicate: all lanes go the same way
  // Branch: its guard alone does not decide (a second predicate, BRA.DIV, BRA.CONV).
  bool more_conditions = false;
  bool if_together = false;  // BRA.CONV: taken when the lanes have not parted
  bool if_parted = false;    // BRA.DIV: when they have
  // What a lane accesses; 4 for each matrix of a matrix load; 8 for IMAD.WIDE and .HI.
  std::uint8_t bytes = 4;
  std::uint8_t matrices = 0;  // matrix_load, matrix_store: 1, 2, 4
  std::uint16_t flavour = 0;  // tensor: see Tensor in opcodes.h
  bool arrives_only = false;  // barrier
  std::uint8_t pending = 0;   // async_wait, warpgroup
  bool reads_a = false;       // tensor, of a warpgroup: A comes from shared memory, as B does
  bool commits = false;       // likewise: it is the last of its group
};

struct MachineCode {
  std::string function;  // mangled
  std::string target;    // "sm_90"
  std::vector<MachineInstr> code;
  std::vector<std::string> names;    // "HMMA.16816.F32", "LDG.E.128"; as far as the table knows
  std::vector<std::string> unknown;  // opcodes outside the table, in hex, each once
  int registers = 0;
};

// Machine code of one kernel of a PTX text for `target` ("sm_86"), with PTX lines, made by ptxas.
//   own_cubin   the program's own machine code for that target, or empty. When it is there, the
//               instructions must be the same byte for byte, else `why` says that they differ.
// When it cannot be had, `why` is one sentence for the user (no ptxas; which version it is and
// what it said; a target it does not know), and `code` is empty. The answer is kept on disk by hash.
struct MachineCodeOrWhy {
  MachineCode code;
  std::string why;
};
MachineCodeOrWhy machine_code(std::string_view ptx, std::string_view kernel,
                              std::string_view target, std::string_view own_cubin);

}  // namespace vgpu::time
