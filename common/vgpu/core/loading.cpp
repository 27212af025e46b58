// Loading modules: their variables placed in memory, their functions decoded at the first use.
#include <algorithm>
#include <cstring>

#include "../ptx/parameter_names.h"
#include "machine_impl.h"

namespace vgpu {

void Machine::Impl::prepare(const Function* function) {
  const std::lock_guard lock(prepare_mutex);
  if (!function->code.empty()) return;
  Loaded* loaded = nullptr;
  {
    const std::lock_guard tables_lock(tables->mutex);
    loaded = tables->owner.at(function);
  }
  parse_body(*loaded->parsed, function->name);
  const auto body = loaded->parsed->bodies.find(function->name);
  if (body == loaded->parsed->bodies.end() || !body->second.has_body)
    throw PtxError("function '" + function->display + "' has no code in this module");
  auto& decoded = const_cast<Function&>(*function);
  decode(decoded, body->second, loaded->symbols);
  if (decoded.entry) decoded.param_names = parameter_names(decoded);
}

std::uint64_t SymbolTable::function_address(const Function* function) const {
  return address(function);
}

std::unique_ptr<LoadedModule> Machine::load(std::string ptx_text, Bodies bodies) {
  auto loaded = std::make_unique<Loaded>();
  loaded->parsed = parse_ptx(std::move(ptx_text), bodies);
  Module& module = loaded->parsed->module;
  loaded->module = std::shared_ptr<const Module>(loaded->parsed, &module);
  loaded->symbols.parsed = loaded->parsed.get();
  loaded->symbols.module_shared_bytes = place_module_shared(*loaded->parsed);
  loaded->tables = impl_->tables;
  loaded->symbols.address = [tables = impl_->tables.get()](const Function* f) {
    return tables->address_of(f);
  };
  // Variables: constants in one bank, globals in allocations of their own, so that running past one
  // is noticed.
  loaded->constants = std::make_shared<std::vector<std::byte>>();
  for (auto& [name, global] : module.globals) {
    if (global->external) continue;
    if (global->space == Space::constant) {
      auto& bank = *loaded->constants;
      const std::size_t at = (bank.size() + global->align - 1) / global->align * global->align;
      if (at + global->size > (64u << 10)) throw PtxError("more than 64 KiB of constant memory");
      bank.resize(at + global->size);
      std::copy(global->init.begin(), global->init.end(),
                bank.begin() + static_cast<std::ptrdiff_t>(at));
      global->address = at;
    } else if (global->space == Space::global) {
      const auto kind = global->managed ? MemoryKind::managed : MemoryKind::global_variable;
      auto allocation = impl_->memory.allocate(global->size, kind, global->align);
      if (!allocation)
        throw PtxError("no memory for variable '" + name + "' of " + std::to_string(global->size) +
                       " bytes");
      allocation->name = display_name(name);
      std::copy(global->init.begin(), global->init.end(), allocation->host);
      global->address = allocation->base;
      loaded->variables.push_back(std::move(allocation));
    }
  }
  // What the host knows of a constant is an address by which ordinary loads and stores reach it, too.
  for (auto& [name, global] : module.globals) {
    if (global->external || global->space != Space::constant) continue;
    auto allocation = impl_->memory.place(loaded->constants->data() + global->address, global->size,
                                          MemoryKind::global_variable);
    allocation->name = display_name(name);
    global->host_address = allocation->base;
    loaded->variables.push_back(std::move(allocation));
  }
  for (auto& [name, global] : module.globals)
    for (const Global::Relocation& r : global->relocations) {
      std::uint64_t value = 0;
      if (const Global* target = loaded->symbols.global(r.symbol)) {
        value = target->address;
        if (r.generic && target->space == Space::constant) value += kConstantWindow;
        if (r.generic && target->space == Space::shared) value += kSharedWindow;
      } else if (const Function* f = loaded->symbols.function(r.symbol)) {
        value = loaded->symbols.function_address(f);
      } else {
        throw PtxError("initializer of '" + name + "' names unknown '" + r.symbol + "'");
      }
      value += static_cast<std::uint64_t>(r.addend);
      std::uint64_t size = 0;
      std::byte* bytes = loaded->variable_bytes(name, size);
      if (bytes && r.offset + static_cast<std::uint64_t>(r.bytes) <= size)
        std::memcpy(bytes + r.offset, &value, static_cast<std::size_t>(std::min(r.bytes, 8)));
    }
  const std::lock_guard lock(impl_->tables->mutex);
  for (auto& [name, function] : module.functions) {
    function->display = display_name(name);
    impl_->tables->owner[function.get()] = loaded.get();
  }
  return loaded;
}

bool LoadedModule::variable(std::string_view name, std::uint64_t& address,
                            std::uint64_t& size) const {
  const auto it = module->globals.find(name);
  if (it == module->globals.end() || it->second->external || it->second->space == Space::shared)
    return false;
  address = it->second->space == Space::constant ? it->second->host_address : it->second->address;
  size = it->second->size;
  return true;
}

std::byte* LoadedModule::variable_bytes(std::string_view name, std::uint64_t& size) const {
  const auto it = module->globals.find(name);
  if (it == module->globals.end() || it->second->external) return nullptr;
  const Global& global = *it->second;
  size = global.size;
  if (global.space == Space::constant) return constants->data() + global.address;
  for (const auto& allocation : variables)
    if (allocation->base == global.address) return allocation->host;
  return nullptr;
}

std::vector<std::string> Machine::refusals(const LoadedModule& module) {
  std::vector<std::string> messages;
  const auto& loaded = static_cast<const Loaded&>(module);
  for (const auto& [name, function] : module.module->functions) {
    const auto body = loaded.parsed->bodies.find(name);
    if (body == loaded.parsed->bodies.end() || !body->second.has_body) continue;
    try {
      impl_->prepare(function.get());
    } catch (const PtxError& error) {
      messages.push_back(error.what());
    }
  }
  return messages;
}

}  // namespace vgpu
