#include "fault_handler.h"

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>

namespace vgpu::fault_handler {
namespace {

std::atomic<const Guards*> watched{nullptr};
std::atomic<int> looking{0};  // handlers that look at what is watched
std::atomic<bool> paused{false}, was_opened{false};
std::array<FaultHit, 64> hits;
std::atomic<std::size_t> hit_count{0};

bool installed = false;
// The program's handler, and the one that stood there before the program put that there.
struct sigaction program {
}, before{};

bool is_ours(const struct sigaction& action);

bool is_write(const void* context, const HostGuard::Guard& guard) {
#if defined(__x86_64__)
  constexpr greg_t kWriteBit = 2;
  (void)guard;
  return static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & kWriteBit;
#else
  (void)context;
  return !guard.writes;
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

// Opens the pages that were touched. False if they are not watched, or were not what is in the way.
bool let_in(const void* address, const void* context) {
  const Guards* const guards = watched.load();
  const auto* const at = static_cast<const std::byte*>(address);
  HostGuard::Guard* found = nullptr;
  if (guards)
    for (const auto& guard : *guards)
      if (at >= guard->begin && at < guard->end && (!found || (guard->writes && !found->writes)))
        found = guard.get();
  // Threads may run into it together; one that comes again and again is let in by nothing.
  constexpr int kMostFaults = 1000;
  if (!found || found->faults.fetch_add(1) >= kMostFaults) return false;
  if (!paused.load())
    if (const std::size_t n = hit_count.fetch_add(1); n < hits.size())
      hits[n] = {found, at, code_of(context), is_write(context, *found)};
  was_opened = true;
  return mprotect(found->begin, static_cast<std::size_t>(found->end - found->begin),
                  PROT_READ | PROT_WRITE) == 0;
}

// To the program's handler, as if it stood here itself. A handler that gives what it gets to the one before it
// may give it back: then it goes to the one before that.
void pass_on(int signal, siginfo_t* info, void* context) {
  static ucontext_t given;  // a mark; the kernel writes a null pointer there
  ucontext_t*& link = static_cast<ucontext_t*>(context)->uc_link;
  struct sigaction& to = link == &given ? before : program;
  link = &given;
  const struct sigaction action = to;
  if (!(action.sa_flags & SA_SIGINFO) &&
      (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN)) {
    sigaction(SIGSEGV, &action, nullptr);   // the access faults again, and ends the program
    if (info->si_code <= 0) raise(signal);  // there was none: somebody has sent it
    return;
  }
  if (action.sa_flags & static_cast<int>(SA_RESETHAND)) to = {};
  sigset_t blocked = action.sa_mask, mask;
  if (!(action.sa_flags & SA_NODEFER)) sigaddset(&blocked, SIGSEGV);
  pthread_sigmask(SIG_BLOCK, &blocked, &mask);
  if (action.sa_flags & SA_SIGINFO)
    action.sa_sigaction(signal, info, context);
  else
    action.sa_handler(signal);
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
}

void on_fault(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  ++looking;
  const bool done = info->si_code > 0 && let_in(info->si_addr, context);
  --looking;
  errno = error;
  if (!done) pass_on(signal, info, context);
}

bool is_ours(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) && action.sa_sigaction == on_fault;
}

// False where the program has put another handler in its place, which may hold on to this one; and where
// this thread lets no fault through.
bool install() {
  sigset_t blocked;
  if (pthread_sigmask(SIG_BLOCK, nullptr, &blocked) != 0 || sigismember(&blocked, SIGSEGV))
    return false;
  struct sigaction present {};
  if (sigaction(SIGSEGV, nullptr, &present) != 0) return false;
  if (is_ours(present)) return true;
  if (installed) return false;
  before = program;
  program = present;
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  // (On the stack that the program may have for it: its own may be full.)
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  return installed = sigaction(SIGSEGV, &action, nullptr) == 0;
}

void uninstall() {
  if (!installed) return;
  struct sigaction present {};
  if (sigaction(SIGSEGV, nullptr, &present) == 0 && is_ours(present))
    sigaction(SIGSEGV, &program, nullptr);
  installed = false;
}

}  // namespace

bool watch(const Guards& guards) {
  const bool watches = !guards.empty() && install();
  if (guards.empty()) uninstall();
  // Those before stay while a handler reads them, or has noted one of them.
  static auto* const kept = new std::vector<std::unique_ptr<const Guards>>;
  std::unique_ptr<const Guards> fresh = watches ? std::make_unique<const Guards>(guards) : nullptr;
  watched = fresh.get();
  if (looking == 0 && hit_count == 0) kept->clear();
  if (fresh) kept->push_back(std::move(fresh));
  was_opened = false;
  return watches;
}

void pause() { paused = true; }
void resume() { paused = false; }
bool opened() { return was_opened; }

std::vector<FaultHit> take_hits() {
  if (looking != 0) return {};  // the next time
  const std::size_t count = std::min(hit_count.exchange(0), hits.size());
  return {hits.begin(), hits.begin() + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace vgpu::fault_handler
