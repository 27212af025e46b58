// The checks beyond memory errors: race, init, sync, proxy, finite and bounds (VGPU_CHECK).
#pragma once
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "../core/machine.h"
#include "../core/observer.h"

namespace vgpu {

// One observer for each check that is asked for.
std::vector<std::unique_ptr<Observer>> make_checks(const MachineOptions& options,
                                                   const Function& kernel);

std::unique_ptr<Observer> make_race_check();
std::unique_ptr<Observer> make_init_check();
std::unique_ptr<Observer> make_sync_check();
std::unique_ptr<Observer> make_proxy_check();
std::unique_ptr<Observer> make_finite_check();
std::unique_ptr<Observer> make_bounds_check();
// Part of the sync check, for kernels that use wgmma.
std::unique_ptr<Observer> make_warpgroup_check();
bool uses_wgmma(const Function& kernel);
bool uses_bulk_copies(const Function& kernel);
// Calls f for the kernel and each function that it calls by name.
template <class F>
void each_function(const Function& kernel, F f) {
  std::vector<const Function*> todo = {&kernel}, seen;
  while (!todo.empty()) {
    const Function* function = todo.back();
    todo.pop_back();
    if (std::find(seen.begin(), seen.end(), function) != seen.end()) continue;
    seen.push_back(function);
    f(*function);
    for (const CallSite& site : function->calls)
      if (site.callee) todo.push_back(site.callee);
  }
}

// The findings of one check in one launch: the first of each kind in words, the others counted.
class Findings {
 public:
  // `key`: what makes two findings the same, usually their source lines. Returns the finding's number.
  template <class F>
  std::size_t add(const std::string& key, F words) {
    auto [it, fresh] = index_.try_emplace(key, found_.size());
    if (fresh)
      found_.push_back({words(), 0});
    else
      ++found_[it->second].more;
    return it->second;
  }
  template <class F>
  void each_key(F f) const {
    for (const auto& [key, number] : index_) f(key);
  }
  // One more of what add() gave this number: a check that meets one finding thousands of times need
  // not put its key together each time.
  void again(std::size_t number) { ++found_[number].more; }
  // Leaves the first out if there is the second: `less` is a part of what `more` says.
  void drop(const std::string& less, const std::string& more) {
    const auto one = index_.find(less), other = index_.find(more);
    if (one == index_.end() || other == index_.end()) return;
    found_[other->second].more += found_[one->second].more + 1;
    found_[one->second].text.clear();
  }
  void take(std::vector<std::string>& out) const {
    for (const Found& f : found_)
      if (!f.text.empty())
        out.push_back(f.text + (f.more ? " (and " + std::to_string(f.more) + " more)" : ""));
  }

 private:
  struct Found {
    std::string text;
    std::uint64_t more;
  };
  std::map<std::string, std::size_t> index_;
  std::vector<Found> found_;
};

// "(3,0,0)"
std::string thread_text(const Launch& launch, std::uint32_t thread);
std::string block_text(const Launch& launch, std::uint64_t linear);
// "'K' (50432 bytes, argument 2)" with "an allocation" in front when it has no name, and the
// offset: "at byte 12 of 'K' (...)".
std::string global_text(const Launch& launch, std::uint64_t address);
std::string bytes_text(std::uint64_t bytes);

}  // namespace vgpu
