#include "host_guard.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>

namespace vgpu {
namespace {

constexpr std::uint64_t kPage = 4096;

// What the handler reads, made before the pages are protected.
struct Watched {
  std::vector<std::shared_ptr<HostGuard::Guard>> guards;
};
struct Hit {
  std::shared_ptr<HostGuard::Guard> const* guard;
  const void* at;
  const void* code;
  bool writes;
};
std::atomic<const Watched*> watched{nullptr};
std::array<Hit, 64> hits;
std::atomic<std::size_t> hit_count{0};
struct sigaction others;  // what was there before

bool is_write(const void* context, bool only_writes_fault) {
#if defined(__x86_64__)
  constexpr greg_t kWriteBit = 2;
  (void)only_writes_fault;
  return static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & kWriteBit;
#else
  (void)context;
  return only_writes_fault;
#endif
}
const void* code_of(const void* context) {
#if defined(__x86_64__)
  return reinterpret_cast<const void*>(
      static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return reinterpret_cast<const void*>(static_cast<const ucontext_t*>(context)->uc_mcontext.pc);
#else
  (void)context;
  return nullptr;
#endif
}

void pass_on(int signal, siginfo_t* info, void* context) {
  if (others.sa_flags & SA_SIGINFO) return others.sa_sigaction(signal, info, context);
  if (others.sa_handler != SIG_DFL && others.sa_handler != SIG_IGN)
    return others.sa_handler(signal);
  sigaction(SIGSEGV, &others, nullptr);  // the access faults again, and ends the program
}

void on_fault(int signal, siginfo_t* info, void* context) {
  auto* const at = static_cast<std::byte*>(info->si_addr);
  const Watched* const all = watched.load(std::memory_order_acquire);
  const std::shared_ptr<HostGuard::Guard>* found = nullptr;
  if (all)
    for (const auto& guard : all->guards)
      if (at >= guard->begin && at < guard->begin + guard->bytes &&
          (!found || (guard->writes && !(*found)->writes)))
        found = &guard;
  if (!found) return pass_on(signal, info, context);
  const bool writes = is_write(context, !(*found)->writes);
  if (const std::size_t n = hit_count.fetch_add(1); n < hits.size())
    hits[n] = {found, at, code_of(context), writes};
  auto* const page =
      reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(at) / kPage * kPage);
  mprotect(page, kPage, PROT_READ | PROT_WRITE);
}

// "main in ./program+0x1234", as far as it is known.
std::string place(const void* code) {
  Dl_info info{};
  if (!code || !dladdr(code, &info) || !info.dli_fname) return "";
  char offset[32];
  std::snprintf(offset, sizeof offset, "+0x%zx",
                static_cast<std::size_t>(static_cast<const char*>(code) -
                                         static_cast<const char*>(info.dli_fbase)));
  return " at " + (info.dli_sname ? std::string(info.dli_sname) + " in " : "") + info.dli_fname +
         offset;
}

}  // namespace

HostGuard::HostGuard() {
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, &others);
}

void HostGuard::add(Timeline timeline, OperationNumber number, const std::string& what,
                    const std::vector<HostTouch>& touches) {
  for (const HostTouch& touch : touches) {
    const Allocation& a = *touch.allocation;
    if (a.base % kPage || a.freed || (shares_pages && shares_pages(a))) continue;
    const std::uint64_t end = touch.offset + touch.bytes;
    const std::uint64_t first = (touch.offset + kPage - 1) / kPage * kPage,
                        last = end >= a.size ? (a.size + kPage - 1) / kPage * kPage
                                             : end / kPage * kPage;
    if (last <= first) continue;
    auto guard = std::make_shared<Guard>();
    guard->begin = a.host + first;
    guard->bytes = last - first;
    guard->writes = touch.writes;
    guard->timeline = timeline;
    guard->number = number;
    guard->allocation = touch.allocation;
    guard->what = what;
    guard->memory = (a.name.empty() ? "an allocation of " : "'" + a.name + "' (") +
                    std::to_string(a.size) + " bytes" + (a.name.empty() ? "" : ")");
    guards_.push_back(std::move(guard));
  }
}

void HostGuard::protect(bool all) {
  for (const bool writes : {false, true})  // what is written last: it allows less
    for (const auto& guard : guards_)
      if (guard->writes == writes || !all)
        mprotect(guard->begin, guard->bytes,
                 !all     ? PROT_READ | PROT_WRITE
                 : writes ? PROT_NONE
                          : PROT_READ);
}

void HostGuard::lift() {
  if (!guards_.empty()) protect(false);
}

void HostGuard::settle(const Clock& host, std::vector<std::string>& findings) {
  const std::size_t count = std::min(hit_count.exchange(0), hits.size());
  for (std::size_t i = 0; i < count; ++i) {
    const Guard& guard = **hits[i].guard;
    const auto same = [&](const auto& other) {
      return other->number == guard.number && other->allocation == guard.allocation;
    };
    if (std::none_of(guards_.begin(), guards_.end(), same)) continue;  // told
    std::string text = "error: race with the host: ";
    text += (guard.writes ? "write by " : "read by ") + guard.what;
    text += std::string(" and ") + (hits[i].writes ? "write" : "read") + " by the host" +
            place(hits[i].code) + ", byte " +
            std::to_string(static_cast<const std::byte*>(hits[i].at) - guard.begin) + " of " +
            guard.memory +
            ", before it has waited (cudaStreamSynchronize, cudaEventSynchronize or "
            "cudaDeviceSynchronize)";
    findings.push_back(std::move(text));
    std::erase_if(guards_, same);
  }
  std::erase_if(guards_, [&](const auto& guard) {
    return guard->allocation->freed || host.knows(guard->timeline, guard->number);
  });
  const Watched* const old = watched.load();
  if (guards_.empty() && !old) return;
  // The one before stays for a handler that may be reading it, both until the program's very end.
  static auto* const kept = new std::array<std::unique_ptr<const Watched>, 2>;
  auto& [present, before] = *kept;
  before = std::move(present);
  present = guards_.empty() ? nullptr : std::make_unique<const Watched>(Watched{guards_});
  watched.store(present.get(), std::memory_order_release);
  protect(true);
}

void HostGuard::forget_all() {
  lift();
  guards_.clear();
}

}  // namespace vgpu
