#include "progress.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "files.h"

namespace lab {

using Clock = std::chrono::steady_clock;

Progress::Progress(const std::string& what, std::function<double()> share)
    : what_(what), share_(std::move(share)), thread_([this] { tick(); }) {}

Progress::Progress(const std::string& what) : Progress(what, [] { return -1.0; }) {}

Progress::~Progress() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Progress::tick() {
  // One thread at a time works on these: a program's pieces of work follow one another.
  static const Clock::time_point program_start = Clock::now();
  static double next_line = 15;  // seconds since then
  const bool terminal = isatty(STDERR_FILENO);
  const Clock::time_point start = Clock::now();
  const auto seconds_since = [](Clock::time_point then) {
    return std::chrono::duration<double>(Clock::now() - then).count();
  };
  bool shown = false;
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, std::chrono::seconds(1), [&] { return over_; })) {
    const double elapsed = seconds_since(program_start), share = share_();
    if (!terminal && elapsed < next_line) continue;
    next_line = std::max(1.5 * next_line, elapsed);
    const std::string text =
        format("%s: %s%.0f s", what_.c_str(),
               share < 0 ? "" : format("%.0f%% done, ", 100 * share).c_str(), seconds_since(start));
    std::fprintf(stderr, terminal ? "\r%s \033[K" : "%s\n", text.c_str());
    shown = true;
  }
  if (shown && terminal) std::fputs("\r\033[K", stderr);
}

}  // namespace lab
