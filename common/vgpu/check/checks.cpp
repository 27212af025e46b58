#include "checks.h"

#include "../core/access.h"

namespace vgpu {
namespace {

std::string triple(std::uint64_t n, const Dim3& size) {
  return "(" + std::to_string(n % size.x) + "," + std::to_string(n / size.x % size.y) + "," +
         std::to_string(n / (std::uint64_t{size.x} * size.y)) + ")";
}

}  // namespace

std::vector<std::unique_ptr<Observer>> make_checks(const MachineOptions& options,
                                                   const Function& kernel) {
  std::vector<std::unique_ptr<Observer>> checks;
  if (options.check_race) checks.push_back(make_race_check());
  if (options.check_init) checks.push_back(make_init_check());
  if (options.check_sync) checks.push_back(make_sync_check());
  if (options.check_sync && uses_wgmma(kernel)) checks.push_back(make_warpgroup_check());
  if (options.check_proxy) checks.push_back(make_proxy_check());
  if (options.check_finite) checks.push_back(make_finite_check());
  if (options.check_bounds) checks.push_back(make_bounds_check());
  return checks;
}

std::string thread_text(const Launch& launch, std::uint32_t thread) {
  return triple(thread, launch.request.block);
}
std::string block_text(const Launch& launch, std::uint64_t linear) {
  return triple(linear, launch.request.grid);
}
std::string bytes_text(std::uint64_t bytes) {
  return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes");
}

std::string global_text(const Launch& launch, std::uint64_t address) {
  const auto allocation = launch.memory.find(address);
  if (!allocation) return "in global memory";
  const std::string text = allocation_text(launch, *allocation);
  return "at byte " + std::to_string(address - allocation->base) + " of " +
         (text.starts_with("of ") ? "an allocation " : "") + text;
}

}  // namespace vgpu
