#include "decode.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "../core/memory.h"
#include "../core/specials.h"
#include "../ptx/cfg.h"
#include "forms.h"

namespace vgpu {
namespace {

using ast::Body;
using ast::Operand;
using ast::Statement;
using Kind = ast::Operand::Kind;

std::uint32_t align_up(std::uint64_t value, std::uint64_t align) {
  return static_cast<std::uint32_t>((value + align - 1) / align * align);
}

// Bytes that the 32 lanes of a register take; see Slot.
std::uint32_t register_bytes(int bits) {
  if (bits == 1) return 4;
  return kWarpSize * static_cast<std::uint32_t>(std::max(16, bits) / 8);
}
// Functions of libcudadevrt, with which kernels launch kernels: __cudaCDP2LaunchDeviceV2.
bool is_device_runtime(std::string_view name) {
  return name.starts_with("__cudaCDP") ||
         (name.size() > 4 && name.starts_with("cuda") && name[4] >= 'A' && name[4] <= 'Z');
}

int register_width(Type type) {  // as stored
  const int bits = type_bits(type);
  return bits == 1 ? 1 : std::max(16, bits);
}

// Offsets are 64-bit numbers that wrap around, as addresses do.
void add_offset(std::int64_t& imm, std::uint64_t offset) {
  imm = static_cast<std::int64_t>(static_cast<std::uint64_t>(imm) + offset);
}

// One word of the operand signature of a form: "b:u32?" or "d*".
struct Expected {
  char name = 'x';
  std::string_view type;
  bool optional = false, vector = false;
};
std::vector<Expected> parse_signature(std::string_view signature) {
  std::vector<Expected> result;
  std::size_t p = 0;
  while (p < signature.size()) {
    if (signature[p] == ' ') {
      ++p;
      continue;
    }
    std::size_t end = std::min(signature.find(' ', p), signature.size());
    std::string_view word = signature.substr(p, end - p);
    p = end;
    Expected e;
    if (word.back() == '?') {
      e.optional = true;
      word.remove_suffix(1);
    }
    const std::size_t colon = word.find(':');
    if (colon != word.npos) {
      e.type = word.substr(colon + 1);
      word = word.substr(0, colon);
    }
    e.vector = word.size() > 1 && word[1] == '*';
    e.name = word[0];
    result.push_back(e);
  }
  return result;
}

class Decoder {
 public:
  Decoder(Function& function, Body& body, const SymbolTable& symbols)
      : fn_(function), body_(body), symbols_(symbols) {}

  void run() {
    // A first attempt may have ended in the middle.
    fn_.constants.clear();
    fn_.tables.clear();
    fn_.calls.clear();
    fn_.lists.clear();
    fn_.registers.clear();
    fn_.memory_sites = 0;
    place_variables();
    place_registers();
    statement_pc_.resize(body_.statements.size() + 1);
    for (std::size_t i = 0; i < body_.statements.size(); ++i) {
      statement_pc_[i] = static_cast<std::uint32_t>(code_.size());
      statement_ = &body_.statements[i];
      decode_statement();
    }
    statement_pc_.back() = static_cast<std::uint32_t>(code_.size());
    bool to_end = false;  // a label behind the last instruction
    for (const auto& branch : branches_) to_end |= statement_pc_[branch.second] == code_.size();
    for (const auto& table : fn_.tables)
      for (const std::uint32_t target : table) to_end |= statement_pc_[target] == code_.size();
    if (to_end || code_.empty() || code_.back().flow != Flow::ret || code_.back().guard.valid()) {
      Instr ret;  // a function may end without one
      ret.flow = Flow::ret;
      ret.op_class = OpClass::control;
      code_.push_back(ret);
    }
    for (auto& [pc, target] : branches_) code_[pc].target = statement_pc_[target];
    for (auto& table : fn_.tables)
      for (std::uint32_t& target : table) target = statement_pc_[target];
    fn_.code = insert_joins(std::move(code_), fn_.tables);
    for (Instr& instr : fn_.code)
      if (instr.flow == Flow::memory) instr.memory_site = fn_.memory_sites++;
    fn_.register_bytes = align_up(next_register_, 64);
    find_order_dependence();
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    const Module& module = *fn_.module;
    std::string message;
    const Location& where = module.locations[statement_ ? statement_->location : 0];
    if (where.line) message = where.file + ":" + std::to_string(where.line) + ": ";
    message += what;
    if (statement_) {
      std::string_view text =
          statement_->line <= module.lines.size() ? module.lines[statement_->line - 1] : "";
      while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())))
        text.remove_prefix(1);
      message +=
          " (PTX line " + std::to_string(statement_->line) + ": '" + std::string(text) + "')";
    }
    message += " in " + fn_.display;
    throw PtxError(message, statement_ ? static_cast<int>(statement_->line) : 0);
  }

  // ---- places --------------------------------------------------------------------------------
  void place_variables() {
    std::uint64_t local = 0, call_area = 0;
    std::uint64_t shared = fn_.entry && uses_module_shared() ? symbols_.module_shared_bytes : 0;
    for (ast::Variable& v : body_.variables) {
      if (v.space == Space::shared && !fn_.entry) continue;  // placed with the module's
      std::uint64_t& next = v.space == Space::local    ? local
                            : v.space == Space::shared ? shared
                                                       : call_area;
      next = align_up(next, std::max(1u, v.align));
      v.offset = static_cast<std::uint32_t>(next);
      next += v.size;
      if (next > (1u << 30)) fail("variables of " + fn_.display + " are larger than 1 GiB");
    }
    fn_.local_bytes =
        align_up(local, 32);  // the widest access, so that frames may follow each other
    fn_.call_area_bytes = align_up(call_area, 16);
    fn_.shared_bytes = static_cast<std::uint32_t>(shared);
    fn_.dynamic_shared_align = 16;
    for (const auto& [name, global] : fn_.module->globals)
      if (global->space == Space::shared && global->external)
        fn_.dynamic_shared_align = std::max(fn_.dynamic_shared_align, global->align);
  }
  // Whether this kernel, or a function it may call, names a shared variable placed by the module.
  bool uses_module_shared() const {
    if (symbols_.module_shared_bytes == 0) return false;
    std::set<std::string_view> seen;
    std::vector<const Body*> todo = {&body_};
    while (!todo.empty()) {
      const Body& body = *todo.back();
      todo.pop_back();
      if (&body != &body_)
        for (const ast::Variable& v : body.variables)
          if (v.space == Space::shared) return true;
      for (const Statement& s : body.statements) {
        if (s.name.substr(0, 4) == "call") {
          bool direct = false;
          for (const Operand& o : s.operands)
            direct |= o.kind == Kind::symbol && symbols_.function(o.name);
          if (!direct) return true;
        }
        std::vector<const Operand*> operands;
        for (const Operand& o : s.operands) operands.push_back(&o);
        while (!operands.empty()) {
          const Operand& o = *operands.back();
          operands.pop_back();
          for (const Operand& part : o.parts) operands.push_back(&part);
          if (o.kind != Kind::symbol) continue;
          if (const Global* g = symbols_.global(o.name);
              g && g->space == Space::shared && !g->external)
            return true;
          if (const Function* f = symbols_.function(o.name); f && seen.insert(f->name).second) {
            const auto it = symbols_.parsed->bodies.find(f->name);
            if (it != symbols_.parsed->bodies.end()) todo.push_back(&it->second);
          }
        }
      }
    }
    return false;
  }

  void place_registers() {
    next_register_ = 0;
    sink_ = allocate(128);
    slots_.resize(body_.registers.size());
    // Only what some statement names, however many are declared.
    std::vector<bool> used(body_.registers.size(), false);
    auto mark = [&](auto&& self, const Operand& o) -> void {
      if (o.kind == Kind::reg) used[o.reg] = true;
      for (const Operand& part : o.parts) self(self, part);
    };
    for (const Statement& s : body_.statements) {
      if (s.guard >= 0) used[static_cast<std::size_t>(s.guard)] = true;
      for (const Operand& o : s.operands) mark(mark, o);
    }
    // Predicates first: they are small, and used by nearly every loop.
    for (int pass = 0; pass < 2; ++pass)
      for (std::size_t i = 0; i < body_.registers.size(); ++i)
        if (used[i] && (body_.registers[i].type == Type::pred) == (pass == 0)) {
          const int bits = register_width(body_.registers[i].type);
          slots_[i] = allocate(bits);
          fn_.registers.push_back({slots_[i], static_cast<std::uint8_t>(bits)});
        }
  }
  Slot allocate(int bits) {
    const std::uint32_t bytes = register_bytes(bits);
    next_register_ = align_up(next_register_, std::min(bytes, 64u));
    Slot slot{next_register_ << 1};
    next_register_ += bytes;
    if (next_register_ > (1u << 30)) fail("more than 1 GiB of registers");
    return slot;
  }

  // A value spread over 32 lanes of `bits`.
  Slot constant(std::uint64_t value, int bits) {
    if (bits == 1) {
      value = value ? kFullMask : 0;
    } else if (bits < 64) {
      bits = std::max(bits, 16);
      value &= (1ull << bits) - 1;
    }
    const auto [it, fresh] = constants_.try_emplace({value, bits});
    if (fresh) {
      const std::uint32_t bytes = register_bytes(bits);
      const std::uint32_t offset = align_up(fn_.constants.size(), std::min(bytes, 64u));
      fn_.constants.resize(offset + bytes);
      std::byte* at = fn_.constants.data() + offset;
      const int step = bits == 1 ? 4 : bits / 8;
      for (std::uint32_t b = 0; b < bytes; b += step) {
        std::memset(at + b, 0, step);
        std::memcpy(at + b, &value, std::min(step, 8));
      }
      it->second = Slot{offset << 1 | 1};
    }
    return it->second;
  }

  // ---- operands ------------------------------------------------------------------------------
  struct Address {  // of a name
    Space space;
    std::uint64_t value;          // in its own state space
    bool dynamic_shared = false;  // known only at the launch
  };
  Address address_of(const Operand& o) const {
    if (o.kind == Kind::variable) {
      const ast::Variable& v = body_.variables[o.reg];
      return {v.space, v.offset};
    }
    if (const Global* g = symbols_.global(o.name)) {
      if (g->space == Space::shared && g->external) {
        if (!fn_.entry) return {Space::shared, 0, true};
        return {Space::shared, align_up(fn_.shared_bytes, fn_.dynamic_shared_align)};
      }
      if (g->external && g->address == 0)
        fail("variable '" + g->name +
             "' is declared but defined in no module (link the device code: nvcc -rdc=true and a "
             "device link)");
      return {g->space, g->address};
    }
    if (const Function* f = symbols_.function(o.name))
      return {Space::generic, symbols_.function_address(f)};
    if (fn_.entry)
      for (const Param& p : fn_.params)
        if (p.name == o.name) return {Space::param, p.offset};
    fail("unknown name '" + std::string(o.name) + "'");
  }

  // Puts what cannot stand in a register slot (special registers, addresses) into a fresh one.
  Slot materialize(const Operand& o, int bits) {
    Instr mov;
    mov.op_class = OpClass::move;
    stamp(mov);
    mov.d[0] = allocate(bits);
    mov.d_bits = static_cast<std::uint8_t>(bits);
    const Slot slot = mov.d[0];
    if (o.kind == Kind::special) {
      mov.run = bind_special(mov, o.name, bits);
      if (!mov.run) fail("special register '%" + std::string(o.name) + "' is not known");
    } else {
      const Address address = address_of(o);
      if (address.dynamic_shared) {
        mov.imm = o.value;
        mov.run = bind_special(mov, "dynamic_shared_base", bits);
      } else if (address.space == Space::local) {
        mov.imm = o.value;
        add_offset(mov.imm, address.value);
        mov.run = bind_special(mov, "local_base", bits);
      } else {
        return constant(address.value + static_cast<std::uint64_t>(o.value), bits);
      }
    }
    code_.push_back(mov);
    return slot;
  }

  Slot source(const Operand& o, Type type) {
    const int bits = type == Type::none ? 32 : type_bits(type);
    switch (o.kind) {
      case Kind::reg:
        return slots_[o.reg];
      case Kind::integer: {
        // An integer where a float stands means its value.
        if (type == Type::f32) {
          const float f = static_cast<float>(o.value);
          std::uint32_t u;
          std::memcpy(&u, &f, 4);
          return constant(u, 32);
        }
        if (type == Type::f64) {
          const double d = static_cast<double>(o.value);
          std::uint64_t u;
          std::memcpy(&u, &d, 8);
          return constant(u, 64);
        }
        return constant(static_cast<std::uint64_t>(o.value), bits);
      }
      case Kind::real: {
        std::uint64_t value = static_cast<std::uint64_t>(o.value);
        if (o.bits == 64 && bits == 32) {
          double d;
          std::memcpy(&d, &value, 8);
          const float f = static_cast<float>(d);
          value = 0;
          std::memcpy(&value, &f, 4);
        } else if (o.bits == 32 && bits == 64 && type == Type::f64) {
          float f;
          std::memcpy(&f, &value, 4);
          const double d = f;
          std::memcpy(&value, &d, 8);
        }
        return constant(value, bits);
      }
      case Kind::special:
      case Kind::symbol:
      case Kind::variable:
        return materialize(o, std::max(bits, 32));
      case Kind::sink:
        return sink_;
      default:
        fail("an operand of a kind that does not belong here");
    }
  }

  int width_of(const Operand& o) const {
    if (o.kind == Kind::reg) return register_width(body_.registers[o.reg].type);
    return 0;
  }

  std::uint32_t* add_list(Instr& instr, const std::vector<Slot>& slots) {
    auto list = std::make_unique<std::uint32_t[]>(slots.size());
    for (std::size_t i = 0; i < slots.size(); ++i) list[i] = slots[i].bits;
    instr.list = list.get();
    instr.list_count = static_cast<std::uint16_t>(slots.size());
    fn_.lists.push_back(std::move(list));
    return fn_.lists.back().get();
  }

  void memory_operand(Instr& instr, const Operand& o) {
    if (o.kind != Kind::memory) fail("expected a memory operand in brackets");
    if (o.parts.size() != 1) fail("memory operands with coordinates are not supported here");
    const Operand& base = o.parts[0];
    instr.imm = o.value;
    if (base.kind == Kind::reg) {
      instr.address = slots_[base.reg];
      instr.address_bits = static_cast<std::uint8_t>(width_of(base));
      if (instr.address_bits != 32 && instr.address_bits != 64)
        fail("an address needs a register of 32 or 64 bits");
      return;
    }
    if (base.kind == Kind::integer) {
      add_offset(instr.imm, static_cast<std::uint64_t>(base.value));
      return;
    }
    const Address address = address_of(base);
    if (address.dynamic_shared) {
      instr.address = materialize(base, 64);
      instr.address_bits = 64;
      if (instr.space == Space::generic) add_offset(instr.imm, kSharedWindow);
      return;
    }
    add_offset(instr.imm, address.value);
    if (instr.space == Space::generic) {
      switch (address.space) {
        case Space::shared:
          add_offset(instr.imm, kSharedWindow);
          break;
        case Space::constant:
          add_offset(instr.imm, kConstantWindow);
          break;
        case Space::local:
          instr.space = Space::local;
          break;
        case Space::param:
          instr.space = Space::param;
          break;
        default:
          break;
      }
    } else if (instr.space != address.space &&
               !(instr.space == Space::global && address.space == Space::generic)) {
      fail("'" + std::string(base.name) + "' lies in ." + std::string(space_name(address.space)) +
           ", not in ." + std::string(space_name(instr.space)));
    }
    if (base.kind == Kind::variable && (instr.space == Space::local || instr.space == Space::param))
      instr.frame_local = true;
  }

  // The source of an asynchronous copy, in the other of its two spaces.
  void second_memory_operand(Instr& instr, const Operand& o) {
    Instr other;
    other.space =
        instr.space == Space::shared && !instr.from_shared ? Space::global : Space::shared;
    memory_operand(other, o);
    instr.address2 = other.address;
    instr.address2_bits = other.address_bits;
    instr.imm2 = other.imm;
  }
  // The object that an asynchronous operation reports to: in shared memory, with an address like that
  // of the data.
  void third_memory_operand(Instr& instr, const Operand& o) {
    Instr other;
    other.space = instr.space == Space::generic ? Space::generic : Space::shared;
    memory_operand(other, o);
    instr.b = other.address;
    instr.b_bits = other.address_bits;
    instr.constant = other.imm;
  }

  // All registers of all vector operands in one list, in order (mma: D, A, B, C).
  void all_vectors(Instr& instr) {
    std::vector<Slot> slots;
    const Type type =
        instr.dtype == Type::f64 ? Type::f64 : Type::f32;  // other fragments are packed in 32 bits
    for (const Operand& o : statement_->operands) {
      const auto one = [&](const Operand& part) {
        if (part.kind == Kind::reg && width_of(part) != type_bits(type))
          fail("register '" + std::string(part.name) + "' of " + std::to_string(width_of(part)) +
               " bits in a fragment of " + std::to_string(type_bits(type)) + "-bit registers");
        if (part.kind == Kind::reg)
          slots.push_back(slots_[part.reg]);
        else if (part.kind == Kind::sink)
          slots.push_back(sink_);
        else if (part.kind == Kind::real || part.kind == Kind::integer)
          slots.push_back(source(part, type));
        else
          fail("expected a register in a fragment");
      };
      if (o.kind == Kind::vector)
        for (const Operand& part : o.parts) one(part);
      else
        one(o);
    }
    add_list(instr, slots);
  }

  // ---- statements ----------------------------------------------------------------------------
  void stamp(Instr& instr) const {
    instr.location = statement_->location;
    instr.ptx_line = statement_->line;
    if (statement_->guard >= 0) {
      instr.guard = slots_[statement_->guard];
      instr.guard_not = statement_->guard_not;
    }
  }

  static Rounding rounding_of(std::string_view w) {
    constexpr std::pair<std::string_view, Rounding> names[] = {
        {"rn", Rounding::rn},   {"rz", Rounding::rz},   {"rm", Rounding::rm},
        {"rp", Rounding::rp},   {"rna", Rounding::rna}, {"rni", Rounding::rni},
        {"rzi", Rounding::rzi}, {"rmi", Rounding::rmi}, {"rpi", Rounding::rpi},
        {"rs", Rounding::rs}};
    for (auto& [name, value] : names)
      if (name == w) return value;
    return Rounding::none;
  }
  static Compare compare_of(std::string_view w) {
    constexpr std::pair<std::string_view, Compare> names[] = {
        {"eq", Compare::eq},   {"ne", Compare::ne},   {"lt", Compare::lt},   {"le", Compare::le},
        {"gt", Compare::gt},   {"ge", Compare::ge},   {"lo", Compare::lo},   {"ls", Compare::ls},
        {"hi", Compare::hi},   {"hs", Compare::hs},   {"equ", Compare::equ}, {"neu", Compare::neu},
        {"ltu", Compare::ltu}, {"leu", Compare::leu}, {"gtu", Compare::gtu}, {"geu", Compare::geu},
        {"num", Compare::num}, {"nan", Compare::nan}};
    for (auto& [name, value] : names)
      if (name == w) return value;
    return Compare::none;
  }

  void apply_mods(Instr& instr, std::string_view opcode, const Mods& mods) const {
    const bool compares = opcode == "set" || opcode == "setp";
    bool first_type = true;
    for (std::size_t i = 0; i < mods.words.size(); ++i) {
      const std::string_view w = mods.words[i];
      if (const Type type = type_from_name(w); type != Type::none) {
        if (first_type) instr.dtype = type;
        first_type = false;
        instr.type = type;
      } else if (compares && i == 0) {
        instr.compare = compare_of(w);
      } else if (compares && (w == "and" || w == "or" || w == "xor")) {
        instr.combine = w == "and" ? Bool::and_ : w == "or" ? Bool::or_ : Bool::xor_;
      } else if (const Rounding r = rounding_of(w); r != Rounding::none) {
        instr.rounding = r;
      } else if (w == "ftz") {
        instr.ftz = true;
      } else if (w == "sat") {
        instr.sat = true;
      } else if (w == "relu") {
        instr.relu = true;
      } else if (w == "NaN") {
        instr.nan = true;
      } else if (w == "approx") {
        instr.approx = true;
      } else if (w == "full") {
        instr.full = true;
      } else if (w == "cc") {
        instr.carry_out = true;
      } else if (w == "volatile" || w == "relaxed" || w == "acquire" || w == "release" ||
                 w == "mmio" || w == "acq_rel") {
        instr.volatile_ = true;
        instr.order |= w == "volatile"  ? kOrderVolatile
                       : w == "acquire" ? kOrderAcquire
                       : w == "release" ? kOrderRelease
                       : w == "acq_rel" ? kOrderAcquire | kOrderRelease
                                        : kOrderRelaxed;
      } else if (w == "nc") {
        instr.non_coherent = true;
      } else if (w == "cta") {
        instr.order |= kOrderBlock;
      } else if (w == "cluster") {
        instr.order |= kOrderCluster;
      } else if (w == "v2" || w == "v4" || w == "v8") {
        instr.elements = static_cast<std::uint8_t>(w[1] - '0');
      } else if (w == "global") {
        instr.space = Space::global;
      } else if (w == "shared" || w == "shared::cta" || w == "shared::cluster") {
        instr.space = Space::shared;
        instr.cluster |= w == "shared::cluster";
      } else if (w == "local") {
        instr.space = Space::local;
      } else if (w == "const") {
        instr.space = Space::constant;
      } else if (w == "param" || w == "param::entry" || w == "param::func") {
        instr.space = Space::param;
      }
    }
  }

  void decode_statement() {
    const Statement& s = *statement_;
    if (s.name.empty()) return;
    Mods mods;
    const Form* form = match_form(s.name, mods);
    if (!form) fail(explain_mismatch(s.name));
    Instr instr;
    stamp(instr);
    instr.op_class = form->op_class;
    instr.flow = form->flow;
    instr.form = static_cast<std::uint16_t>(form - forms().data());
    const std::string_view opcode = form->opcode;
    apply_mods(instr, opcode, mods);
    // Of the first operand; the others have their own.
    if (opcode == "cp") {
      instr.space = mods.has("bulk_group") || mods.has("prefetch") ? Space::global : Space::shared;
      instr.from_shared = mods.has("shared::cluster") && mods.has("shared::cta");
    }

    if (fn_.module->sm < 100 && since_sm_100(opcode, instr, mods))
      fail("'" + std::string(s.name) + "' with these operands needs .target sm_100 or higher");

    if (instr.flow == Flow::branch) return branch(instr);
    if (instr.flow == Flow::branch_table) return branch_table(instr);
    if (instr.flow == Flow::call) return call(instr);
    if (instr.flow == Flow::ret || instr.flow == Flow::exit) {
      if (!s.operands.empty()) fail("unexpected operand");
      if (fn_.entry) instr.flow = Flow::exit;
      code_.push_back(instr);
      return;
    }
    if (opcode == "mov")
      move(instr);
    else if (std::string_view(form->operands) == "fragments")
      all_vectors(instr);
    else
      operands(instr, parse_signature(form->operands));
    instr.run = form->bind(instr, mods);
    if (!instr.run)
      fail("the virtual GPU does not support '" + std::string(s.name) + "' with these operands");
    instr.counter =
        opcode == "atom" && !is_float(instr.type) && mods.pick({"add", "inc", "dec"}) >= 0;
    code_.push_back(instr);
  }

  bool since_sm_100(std::string_view opcode, const Instr& instr, const Mods& mods) const {
    if (opcode == "ld" || opcode == "st")
      return instr.elements * type_bits(instr.type) > 128 && !mods.has("async");
    if (opcode == "min" || opcode == "max")
      return instr.type == Type::f32 && statement_->operands.size() > 3;
    if (opcode == "cvt")
      return instr.dtype == Type::tf32 && instr.rounding != Rounding::rna && mods.has("satfinite");
    return instr.type == Type::f32x2 || mods.has("cp_mask");
  }

  Type named_type(const Instr& instr, std::string_view name) const {
    if (name.empty()) return instr.type;
    if (name == "dtype") return instr.dtype;
    if (name == "wide") {
      switch (instr.type) {
        case Type::u16:
          return Type::u32;
        case Type::s16:
          return Type::s32;
        case Type::u32:
          return Type::u64;
        case Type::s32:
          return Type::s64;
        default:
          return instr.type;
      }
    }
    return type_from_name(name);
  }

  void operands(Instr& instr, const std::vector<Expected>& expected) {
    const auto& given = statement_->operands;
    // Operands that stand after the mandatory ones' number are the first optional ones.
    std::size_t g = 0, mandatory = 0;
    for (const Expected& want : expected) mandatory += !want.optional;
    std::size_t extra = given.size() > mandatory ? given.size() - mandatory : 0;
    for (const Expected& want : expected) {
      if (want.optional) {
        if (!extra) continue;
        --extra;
      }
      if (g == given.size()) fail("an operand is missing");
      const Operand& o = given[g++];
      if (!o.selector.empty()) select_parts(instr, o, want.name);
      const Type type = named_type(instr, want.type);
      switch (want.name) {
        case 'd':
          destination(instr, o, want, type);
          break;
        case 'p':
          destination2(instr, o);
          break;
        case 'm':
          memory_operand(instr, o);
          break;
        case 'a':
          if (o.kind == Kind::vector) {
            if (!want.vector) fail("a vector does not belong here");
            vector_sources(instr, o, type);
            break;
          }
          instr.a = source(o, type);
          instr.a_bits =
              static_cast<std::uint8_t>(width_of(o) ? width_of(o) : register_width(type));
          instr.a_not = o.negated;
          break;
        case 'b':
          instr.b = source(o, type);
          instr.b_bits = static_cast<std::uint8_t>(width_of(o));
          instr.b_not = o.negated;
          break;
        case 'c':
          instr.c = source(o, type);
          instr.c_not = o.negated;
          break;
        case 'e':
          instr.e = source(o, type);
          break;
        case 'n':
          second_memory_operand(instr, o);
          break;
        case 'o':
          third_memory_operand(instr, o);
          break;
        case 'k':
          if (o.kind != Kind::integer) fail("expected an integer constant");
          instr.constant = o.value;
          break;
        case 'i':
          if (o.kind != Kind::integer) fail("expected an integer constant");
          instr.imm = o.value;
          break;
        default:
          fail("internal: bad operand signature");
      }
      if (o.kind == Kind::reg && want.name != 'm') check_width(instr, o, want, type);
    }
    if (g != given.size()) fail("too many operands");
  }
  // What ops_video.cpp reads: 16 bits each for d, a and b. Of these bits 0-2 count the parts, bit 3
  // says halves, not bytes, and 3 bits follow for each part, the lowest of the destination first.
  void select_parts(Instr& instr, const Operand& o, char operand) {
    const bool video = statement_->name[0] == 'v' && statement_->name.substr(0, 4) != "vote";
    const std::string_view digits = o.selector.substr(1);
    const std::size_t place = std::string_view("dab").find(operand);
    bool good = video && place != std::string_view::npos && !digits.empty() && digits.size() <= 4;
    std::uint64_t packed = digits.size() | (o.selector[0] == 'h' ? 8 : 0);
    for (std::size_t i = 0; good && i < digits.size(); ++i) {
      const char digit = digits[digits.size() - 1 - i];
      good = digit >= '0' && digit <= '7';
      packed |= static_cast<std::uint64_t>(digit - '0') << (4 + 3 * i);
    }
    if (!good)
      fail("'." + std::string(o.selector) + "' does not belong behind '" + std::string(o.name) +
           "' here");
    instr.constant |= static_cast<std::int64_t>(packed << 16 * place);
  }
  // Registers must be as wide as the type, where the ISA says so (ld, st, cvt may be wider).
  void check_width(const Instr& instr, const Operand& o, const Expected& want, Type type) const {
    if (type == Type::none) return;
    const int have = width_of(o), need = register_width(type);
    if (have == need) return;
    const std::string_view name = statement_->name.substr(0, statement_->name.find('.'));
    const bool may_be_wider = name == "ld" || name == "ldu" || name == "st" || name == "cvt";
    (void)instr;
    if (have > need && need > 1 && may_be_wider) return;
    fail("register '" + std::string(o.name) + "' of " + std::to_string(have) + " bits where ." +
         std::string(type_name(type)) + " needs " + std::to_string(need) + " (operand " +
         want.name + ")");
  }

  void destination(Instr& instr, const Operand& o, const Expected& want, Type type) {
    if (o.kind == Kind::reg) {
      instr.d[0] = slots_[o.reg];
      instr.d_bits = static_cast<std::uint8_t>(width_of(o));
    } else if (o.kind == Kind::sink) {
      instr.d[0] = sink_;
      instr.d_bits = static_cast<std::uint8_t>(register_width(type));
    } else if (o.kind == Kind::pair) {
      for (int i = 0; i < 2; ++i) {
        const Operand& part = o.parts[static_cast<std::size_t>(i)];
        const int need = i == 0 ? register_width(type) : 1;
        if (part.kind == Kind::reg && width_of(part) != need)
          fail("register '" + std::string(part.name) + "' of " + std::to_string(width_of(part)) +
               " bits where " + std::to_string(need) + " are needed");
        if (part.kind == Kind::reg)
          instr.d[i] = slots_[part.reg];
        else if (part.kind == Kind::sink && i == 0)
          instr.d[i] = sink_;
        else if (part.kind != Kind::sink)
          fail("expected a register");
        if (i == 0)
          instr.d_bits = static_cast<std::uint8_t>(part.kind == Kind::reg ? width_of(part)
                                                                          : register_width(type));
      }
    } else if (o.kind == Kind::vector && want.vector) {
      if (o.parts.empty()) fail("a vector without elements");
      std::vector<Slot> slots;
      for (const Operand& part : o.parts) {
        if (part.kind == Kind::reg) {
          slots.push_back(slots_[part.reg]);
          instr.d_bits = static_cast<std::uint8_t>(width_of(part));
        } else if (part.kind == Kind::sink) {
          slots.push_back(sink_);
        } else {
          fail("expected a register in the vector");
        }
      }
      for (const Operand& part : o.parts)
        if (part.kind == Kind::reg && width_of(part) != instr.d_bits)
          fail("registers of different width in one vector");
      if (!instr.d_bits) instr.d_bits = static_cast<std::uint8_t>(register_width(type));
      add_list(instr, slots);
      instr.list_results = instr.list_count;
      instr.d[0] = slots[0];
    } else {
      fail("expected a register as destination");
    }
  }
  void destination2(Instr& instr, const Operand& o) {
    if (o.kind == Kind::reg)
      instr.d[1] = slots_[o.reg];
    else if (o.kind != Kind::sink)
      fail("expected a register");
  }
  void vector_sources(Instr& instr, const Operand& o, Type type) {
    if (o.parts.empty()) fail("a vector without elements");
    std::vector<Slot> slots;
    for (const Operand& part : o.parts) {
      slots.push_back(source(part, type));
      if (width_of(part)) instr.a_bits = static_cast<std::uint8_t>(width_of(part));
    }
    if (!instr.a_bits) instr.a_bits = static_cast<std::uint8_t>(register_width(type));
    for (std::size_t i = 0; i < o.parts.size(); ++i) {
      const int width = width_of(o.parts[i]);
      if (width && width != instr.a_bits) fail("registers of different width in one vector");
      if (!width) slots[i] = constant_of_width(o.parts[i], type, instr.a_bits);
    }
    add_list(instr, slots);
    instr.a = slots[0];
  }
  Slot constant_of_width(const Operand& o, Type type, int bits) {
    if (o.kind == Kind::integer && !is_float(type))
      return constant(static_cast<std::uint64_t>(o.value), bits);
    if (o.kind != Kind::sink && register_width(type) < bits)
      fail("a constant of " + std::to_string(register_width(type)) + " bits beside registers of " +
           std::to_string(bits) + " in one vector");
    return source(o, type);
  }

  void move(Instr& instr) {
    const auto& given = statement_->operands;
    if (given.size() != 2) fail("mov has two operands");
    const Operand &d = given[0], &a = given[1];
    const int bits = type_bits(instr.type);
    if (d.kind == Kind::vector) {  // unpack
      instr.variant = 2;
      Expected want;
      want.vector = true;
      destination(instr, d, want, instr.type);
      if (a.kind == Kind::reg && width_of(a) != register_width(instr.type))
        fail("mov from a register of another width");
      instr.a = source(a, instr.type);
      instr.a_bits = static_cast<std::uint8_t>(bits);
      return;
    }
    destination(instr, d, {}, instr.type);
    if (instr.d_bits != register_width(instr.type)) fail("mov to a register of another width");
    if (a.kind == Kind::vector) {  // pack
      instr.variant = 1;
      if (a.parts.empty()) fail("a vector without elements");
      const Type part = bits == 32 && a.parts.size() == 4               ? Type::b8
                        : bits / static_cast<int>(a.parts.size()) == 16 ? Type::b16
                        : bits / static_cast<int>(a.parts.size()) == 32 ? Type::b32
                        : bits / static_cast<int>(a.parts.size()) == 8  ? Type::b8
                                                                        : Type::b64;
      vector_sources(instr, a, part);
      return;
    }
    if (a.kind == Kind::special) {
      instr.variant = 3;
      instr.special = special_index(a.name);
      if (instr.special < 0) fail("special register '%" + std::string(a.name) + "' is not known");
      fn_.uses_reserved_shared |= a.name.starts_with("reserved_smem_offset_");
      return;
    }
    if (a.kind == Kind::symbol || a.kind == Kind::variable) {
      // A move of an address that only the launch knows is one instruction, like any other.
      const Address address = address_of(a);
      if (address.dynamic_shared || address.space == Space::local) {
        instr.variant = 3;
        instr.imm = a.value;
        add_offset(instr.imm, address.value);
        instr.special =
            special_index(address.dynamic_shared ? "dynamic_shared_base" : "local_base");
        return;
      }
      if (address.space == Space::param && !fn_.entry)
        fail("the address of a call parameter is not supported");
    }
    instr.a = source(a, instr.type);
    instr.a_not = a.negated;
    instr.a_bits = static_cast<std::uint8_t>(bits);
    if (a.kind == Kind::reg && width_of(a) != register_width(instr.type))
      fail("mov from a register of another width");
  }

  std::uint32_t label(std::string_view name) const {
    for (std::uint32_t scope = statement_->scope;; scope = body_.scope_parent[scope]) {
      const auto it = body_.labels[scope].find(name);
      if (it != body_.labels[scope].end()) return it->second;
      if (scope == 0) break;
    }
    fail("unknown label '" + std::string(name) + "'");
  }

  void branch(Instr& instr) {
    if (statement_->operands.size() != 1 || statement_->operands[0].kind != Kind::symbol)
      fail("bra needs a label");
    branches_.emplace_back(static_cast<std::uint32_t>(code_.size()),
                           label(statement_->operands[0].name));
    code_.push_back(instr);
  }
  void branch_table(Instr& instr) {
    const auto& given = statement_->operands;
    if (given.size() != 2 || given[1].kind != Kind::symbol)
      fail("brx.idx needs an index and a list of labels");
    const auto it = body_.branch_targets.find(given[1].name);
    if (it == body_.branch_targets.end()) fail("unknown list of branch targets");
    instr.a = source(given[0], Type::u32);
    if (given[0].kind == Kind::reg && width_of(given[0]) != 32)
      fail("the index of brx.idx needs a register of 32 bits");
    instr.target = static_cast<std::uint32_t>(fn_.tables.size());
    fn_.tables.emplace_back();
    for (std::string_view name : it->second) fn_.tables.back().push_back(label(name));
    code_.push_back(instr);
  }

  void call(Instr& instr) {
    const auto& given = statement_->operands;
    std::size_t g = 0;
    CallSite site;
    auto areas = [&](const Operand& list, std::vector<std::uint32_t>& offsets,
                     std::vector<std::uint32_t>& sizes) {
      for (const Operand& o : list.parts) {
        if (o.kind != Kind::variable || body_.variables[o.reg].space != Space::param)
          fail("arguments of a call are registers, numbers or .param variables");
        offsets.push_back(body_.variables[o.reg].offset);
        sizes.push_back(body_.variables[o.reg].size);
      }
    };
    if (g < given.size() && given[g].kind == Kind::list)
      areas(given[g++], site.results, site.result_sizes);
    if (g == given.size()) fail("call without a function");
    const Operand& target = given[g++];
    if (target.kind == Kind::reg) {
      if (width_of(target) != 64) fail("a call through a pointer needs a register of 64 bits");
      site.pointer = slots_[target.reg];
      fn_.calls_indirectly = true;
    } else if (target.kind == Kind::symbol) {
      const Function* callee = symbols_.function(target.name);
      if (!callee) fail("unknown function '" + std::string(target.name) + "'");
      if (callee->entry)
        fail("'" + callee->display + "' is a kernel, and a kernel cannot be called");
      const auto body = symbols_.parsed->bodies.find(callee->name);
      if (body == symbols_.parsed->bodies.end() || !body->second.has_body) {
        site.builtin = callee->name;
        if (is_device_runtime(site.builtin))
          fail("function '" + site.builtin +
               "' is of the CUDA device runtime: dynamic parallelism (kernels that launch kernels) "
               "is not supported by the virtual GPU");
        if (!is_builtin(site.builtin))
          fail("function '" + site.builtin +
               "' has no code in this module and is none that the virtual GPU provides");
      } else {
        site.callee = callee;
      }
    } else {
      fail("call of something that is no function");
    }
    if (g < given.size() && given[g].kind == Kind::list)
      areas(given[g++], site.args, site.arg_sizes);
    instr.callee = site.callee;
    instr.site = static_cast<std::uint32_t>(fn_.calls.size());
    fn_.calls.push_back(std::move(site));
    code_.push_back(instr);
  }

  // See Function::order_matters.
  void find_order_dependence() {
    std::set<std::uint32_t> read;  // slots that some instruction reads
    for (const Instr& i : fn_.code) {
      for (const Slot* slot : {&i.a, &i.b, &i.c, &i.e, &i.address, &i.guard})
        if (slot->valid()) read.insert(slot->bits);
      if (i.list && (!is_memory(i.flow) || !i.d[0].valid()))
        for (int k = 0; k < i.list_count; ++k) read.insert(i.list[k]);
    }
    for (const CallSite& site : fn_.calls) {
      if (site.pointer.valid()) read.insert(site.pointer.bits);
      if (!site.builtin.empty() && site.builtin != "__assertfail") fn_.order_matters = true;
    }
    for (Instr& i : fn_.code) {
      if (i.space != Space::global && i.space != Space::generic) continue;
      if (i.op_class == OpClass::atomic) {
        if (is_float(i.type) || i.variant)
          fn_.order_matters = true;  // variant: exchanges, the last one wins
        if (!i.d[0].valid() || i.d[0].bits == sink_.bits || !read.count(i.d[0].bits)) continue;
        fn_.order_matters = true;
        if (i.counter && in_loop(i.pc)) i.flow = Flow::fetch;
      } else if (i.op_class == OpClass::memory && i.volatile_ && i.d[0].valid()) {
        fn_.order_matters = true;
      }
    }
  }

  // Whether a jump back leads over the instruction.
  bool in_loop(std::uint32_t pc) const {
    for (const Instr& i : fn_.code) {
      if (i.pc < pc) continue;
      if (i.flow == Flow::branch && i.target <= pc) return true;
      if (i.flow != Flow::branch_table) continue;
      for (const std::uint32_t target : fn_.tables[i.target])
        if (target <= pc) return true;
    }
    return false;
  }

  Function& fn_;
  Body& body_;
  const SymbolTable& symbols_;
  const Statement* statement_ = nullptr;
  std::vector<Instr> code_;
  std::vector<Slot> slots_;
  Slot sink_;
  std::uint32_t next_register_ = 0;
  std::map<std::pair<std::uint64_t, int>, Slot> constants_;
  std::vector<std::uint32_t> statement_pc_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> branches_;  // pc, statement
};

}  // namespace

void decode(Function& function, ast::Body& body, const SymbolTable& symbols) {
  Decoder(function, body, symbols).run();
}

const Global* SymbolTable::global(std::string_view name) const {
  const auto it = parsed->module.globals.find(name);
  return it == parsed->module.globals.end() ? nullptr : it->second.get();
}
const Function* SymbolTable::function(std::string_view name) const {
  const auto alias = parsed->module.aliases.find(name);
  return parsed->module.find(
      alias == parsed->module.aliases.end() ? name : std::string_view(alias->second));
}

std::uint32_t place_module_shared(ParsedModule& parsed) {
  std::uint64_t next = 0;
  for (auto& [name, global] : parsed.module.globals) {
    if (global->space != Space::shared || global->external) continue;
    next = align_up(next, std::max(1u, global->align));
    global->address = next;
    next += global->size;
  }
  for (auto& [name, body] : parsed.bodies) {
    const Function* fn = parsed.module.find(name);
    if (!fn || fn->entry) continue;
    for (ast::Variable& v : body.variables) {
      if (v.space != Space::shared) continue;
      next = align_up(next, std::max(1u, v.align));
      v.offset = static_cast<std::uint32_t>(next);
      next += v.size;
    }
  }
  if (next > (1u << 20)) throw PtxError("more than 1 MiB of shared variables");
  return align_up(next, 16);
}

}  // namespace vgpu
