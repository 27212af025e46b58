// From statements to executable code.
#include "decoder.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "../core/specials.h"
#include "../ptx/cfg.h"

namespace vgpu {
namespace {

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

}  // namespace

void Decoder::run() {
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
  fn_.code = insert_joins(std::move(code_), fn_.tables, fn_.calls);
  for (Instr& instr : fn_.code)
    if (instr.flow == Flow::memory) instr.memory_site = fn_.memory_sites++;
  fn_.register_bytes = align_up(next_register_, 64);
  find_order_dependence();
}

void Decoder::fail(const std::string& what) const {
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
    message += " (PTX line " + std::to_string(statement_->line) + ": '" + std::string(text) + "')";
  }
  message += " in " + fn_.display;
  throw PtxError(message, statement_ ? static_cast<int>(statement_->line) : 0);
}

void Decoder::place_variables() {
  std::uint64_t local = 0, call_area = 0;
  std::uint64_t shared = 0;
  if (fn_.entry && uses_module_shared()) {
    shared = symbols_.module_shared_bytes;
    for (const auto& [name, global] : fn_.module->globals)
      if (global->space == Space::shared && !global->external)
        fn_.shared_variables.push_back({name, static_cast<std::uint32_t>(global->address),
                                        static_cast<std::uint32_t>(global->size)});
    for (const auto& [name, body] : symbols_.parsed->bodies)
      if (const Function* f = symbols_.parsed->module.find(name); f && !f->entry)
        for (const ast::Variable& v : body.variables)
          if (v.space == Space::shared) fn_.shared_variables.push_back({v.name, v.offset, v.size});
  }
  for (ast::Variable& v : body_.variables) {
    if (v.space == Space::shared && !fn_.entry) continue;  // placed with the module's
    std::uint64_t& next = v.space == Space::local    ? local
                          : v.space == Space::shared ? shared
                                                     : call_area;
    next = align_up(next, std::max(1u, v.align));
    v.offset = static_cast<std::uint32_t>(next);
    if (v.space == Space::shared) fn_.shared_variables.push_back({v.name, v.offset, v.size});
    next += v.size;
    if (next > (1u << 30)) fail("variables of " + fn_.display + " are larger than 1 GiB");
  }
  fn_.local_bytes = align_up(local, 32);  // the widest access, so that frames may follow each other
  fn_.call_area_bytes = align_up(call_area, 16);
  fn_.shared_bytes = static_cast<std::uint32_t>(shared);
  fn_.dynamic_shared_align = 16;
  for (const auto& [name, global] : fn_.module->globals)
    if (global->space == Space::shared && global->external)
      fn_.dynamic_shared_align = std::max(fn_.dynamic_shared_align, global->align);
}

bool Decoder::uses_module_shared() const {
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

void Decoder::place_registers() {
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

void Decoder::stamp(Instr& instr) const {
  instr.location = statement_->location;
  instr.ptx_line = statement_->line;
  if (statement_->guard >= 0) {
    instr.guard = slots_[statement_->guard];
    instr.guard_not = statement_->guard_not;
  }
}

Rounding Decoder::rounding_of(std::string_view w) {
  constexpr std::pair<std::string_view, Rounding> names[] = {
      {"rn", Rounding::rn},   {"rz", Rounding::rz},   {"rm", Rounding::rm},
      {"rp", Rounding::rp},   {"rna", Rounding::rna}, {"rni", Rounding::rni},
      {"rzi", Rounding::rzi}, {"rmi", Rounding::rmi}, {"rpi", Rounding::rpi},
      {"rs", Rounding::rs}};
  for (auto& [name, value] : names)
    if (name == w) return value;
  return Rounding::none;
}

Compare Decoder::compare_of(std::string_view w) {
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

void Decoder::apply_mods(Instr& instr, std::string_view opcode, const Mods& mods) const {
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

void Decoder::decode_statement() {
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
  // The first operand's state space; the others have their own.
  if (opcode == "cp") {
    instr.space = mods.has("bulk_group") || mods.has("prefetch") ? Space::global : Space::shared;
    instr.from_shared = mods.has("shared::cluster") && mods.has("shared::cta");
    if (mods.has("tensor"))
      instr.rank = static_cast<std::uint8_t>(1 + mods.pick({"1d", "2d", "3d", "4d", "5d"}));
  }
  // (cp_fenceproxy: the second operand's space is the other one.)
  if (opcode == "tensormap" && mods.has("cp_fenceproxy")) instr.space = Space::global;
  if (fn_.module->sm < 90 && (instr.rank || mods.has("tensormap") ||
                              mods.has("tensormap::generic") || opcode == "tensormap"))
    fail("'" + std::string(s.name) + "' needs .target sm_90 or higher");

  if (fn_.module->sm < 100 && since_sm_100(opcode, instr, mods))
    fail("'" + std::string(s.name) + "' with these operands needs .target sm_100 or higher");

  if ((opcode == "wgmma" && fn_.module->target != "sm_90a") ||
      ((opcode == "setmaxnreg" || mods.has("b1024")) &&
       !std::isalpha(static_cast<unsigned char>(fn_.module->target.back()))))
    fail("'" + std::string(s.name) + "' needs .target sm_90a, and this module is for " +
         fn_.module->target);

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
  else if (std::string_view(form->operands) == "warpgroup")
    warpgroup_product(instr);
  else
    operands(instr, parse_signature(form->operands));
  instr.run = form->bind(instr, mods);
  if (!instr.run)
    fail("the virtual GPU does not support '" + std::string(s.name) + "' with these operands");
  instr.counter =
      opcode == "atom" && !is_float(instr.type) && mods.pick({"add", "inc", "dec"}) >= 0;
  code_.push_back(instr);
}

bool Decoder::since_sm_100(std::string_view opcode, const Instr& instr, const Mods& mods) const {
  if (opcode == "ld" || opcode == "st")
    return instr.elements * type_bits(instr.type) > 128 && !mods.has("async");
  if (opcode == "min" || opcode == "max")
    return instr.type == Type::f32 && statement_->operands.size() > 3;
  if (opcode == "cvt")
    return instr.dtype == Type::tf32 && instr.rounding != Rounding::rna && mods.has("satfinite");
  return instr.type == Type::f32x2 || mods.has("cp_mask");
}

void Decoder::packed_parts(const Instr& instr, const Operand& d, const Operand& a) const {
  if (d.kind == Kind::vector && a.kind == Kind::vector) fail("a vector moved to a vector");
  const std::vector<Operand>& parts = d.kind == Kind::vector ? d.parts : a.parts;
  const std::size_t count = parts.size();
  if (count == 0) fail("a vector without elements");
  if (count != 2 && count != 4) return;  // bind_mov refuses it
  const int bits = type_bits(instr.type);
  if (instr.type != Type::b16 && instr.type != Type::b32 && instr.type != Type::b64 &&
      instr.type != Type::b128)
    fail("only types .b16 to .b128 are put together from parts, not ." +
         std::string(type_name(instr.type)));
  for (const Operand& part : parts)
    if (part.kind == Kind::reg &&
        type_bits(body_.registers[part.reg].type) * static_cast<int>(count) != bits)
      fail("register '" + std::string(part.name) + "' of " +
           std::to_string(type_bits(body_.registers[part.reg].type)) + " bits as one of " +
           std::to_string(count) + " parts of " + std::to_string(bits) + " bits");
}

void Decoder::move(Instr& instr) {
  const auto& given = statement_->operands;
  if (given.size() != 2) fail("mov has two operands");
  const Operand &d = given[0], &a = given[1];
  const int bits = type_bits(instr.type);
  if (d.kind == Kind::vector || a.kind == Kind::vector) packed_parts(instr, d, a);
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
    const int has = special_bits(instr.special);
    if (bits != has && (bits != 16 || has != 32))
      fail("special register '%" + std::string(a.name) + "' has " + std::to_string(has) +
           " bits, not " + std::to_string(bits));
    fn_.uses_reserved_shared |= a.name.starts_with("reserved_smem_offset_");
    return;
  }
  if (a.kind == Kind::symbol || a.kind == Kind::variable) {
    // A move of an address that only the launch knows is one instruction, like any other. (Only GPUs with
    // clusters put a block's rank into it.)
    const Address address = address_of(a);
    name_variable(instr, a, address);
    const bool ranked = address.space == Space::shared && fn_.module->sm >= 90;
    if (address.dynamic_shared || address.space == Space::local || ranked) {
      instr.variant = 3;
      instr.imm = a.value;
      add_offset(instr.imm, address.value);
      instr.special = special_index(address.dynamic_shared          ? "dynamic_shared_base"
                                    : address.space == Space::local ? "local_base"
                                                                    : "shared_base");
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
