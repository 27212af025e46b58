// What a machine consists of; machine.h is the door to it.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "host_threads.h"
#include "instruction_set.h"
#include "machine.h"

namespace vgpu {

struct Loaded;

// Which functions there are, and at which addresses. Shared with the modules, which take themselves
// out when they go: an address that a kernel kept is then one of no function.
struct FunctionTables {
  std::mutex mutex;
  std::unordered_map<std::uint64_t, const Function*> at;
  std::unordered_map<const Function*, std::uint64_t> addresses;
  std::unordered_map<const Function*, Loaded*> owner;
  std::uint64_t next = kFunctionRange;

  std::uint64_t address_of(const Function* function) {
    const std::lock_guard lock(mutex);
    auto& address = addresses[function];
    if (!address) {
      address = next += 16;
      at[address] = function;
    }
    return address;
  }
  const Function* find(std::uint64_t address) {
    const std::lock_guard lock(mutex);
    const auto it = at.find(address);
    return it == at.end() ? nullptr : it->second;
  }
};

struct Loaded : LoadedModule {
  std::shared_ptr<ParsedModule> parsed;
  SymbolTable symbols;
  std::shared_ptr<FunctionTables> tables;
  ~Loaded() override {
    if (!tables) return;
    const std::lock_guard lock(tables->mutex);
    for (const auto& [name, function] : parsed->module.functions) {
      tables->owner.erase(function.get());
      const auto it = tables->addresses.find(function.get());
      if (it == tables->addresses.end()) continue;
      tables->at.erase(it->second);
      tables->addresses.erase(it);
    }
  }
};

struct Machine::Impl {
  DeviceSpec spec;
  MachineOptions options;
  Memory memory;
  HostThreads threads;
  std::shared_ptr<FunctionTables> tables = std::make_shared<FunctionTables>();
  std::atomic<std::uint64_t> heap_used{0};
  std::uint64_t launches = 0;
  std::uint64_t time = 1'000'000'000;  // virtual nanoseconds
  std::recursive_mutex prepare_mutex;

  // Decodes a function at its first use: what a program never runs need not be known.
  void prepare(const Function* function);
};

}  // namespace vgpu
