// Mutation fuzzing of everything that reads input, and of kernels that run: `make fuzz`.
//
//   fuzz --seconds N --seed S --out DIR [--target NAME] [SEED.ptx|SEED.cubin ...]
//   fuzz --replay NAME FILE                  one input again, as it was kept
//
// Inputs are run in a child process. A crash, a sanitizer's report, an input that takes longer than
// the limit or more memory than the limit is a finding: the input and the child's words go to DIR, and
// the rest goes on in a new child. Exits with 1 when there are findings. Input i of a seed is always
// the same.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <utility>

#include "fuzz.h"

// Tables of matrix instructions live as long as the process, so leaks are none here.
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options() {
  return "detect_leaks=0:hard_rss_limit_mb=4000:max_allocation_size_mb=2048:exitcode=99:handle_"
         "abort=1:detect_stack_use_after_return=0";
}
extern "C" __attribute__((visibility("default"))) const char* __ubsan_default_options() {
  return "print_stacktrace=1:halt_on_error=1";
}

namespace vgpu::fuzz {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kInputSeconds = 10;
constexpr std::size_t kMostInput = 1u << 20;

// What the child is doing, in memory that both see.
struct Progress {
  std::uint64_t next;      // input to begin with
  std::uint64_t done[16];  // inputs by target
  Counts counts;
  std::int64_t started;  // of the running input, steady clock's ticks
  std::uint32_t target, size;
  char input[kMostInput];
};

std::int64_t now() { return Clock::now().time_since_epoch().count(); }
double seconds_since(std::int64_t start) {
  return std::chrono::duration<double>(Clock::duration(now() - start)).count();
}

std::string make_input(const Target& target, Random& random) {
  if (target.seeds.empty()) {
    std::string text = generate_ptx(random);
    return random.chance(5) ? mutate_text(text, text, random) : text;
  }
  // The small seeds more often: they are quick.
  const std::string& seed = random.chance(2) ? target.seeds.front() : random.pick(target.seeds);
  const std::string& other = random.pick(target.seeds);
  return target.text ? mutate_text(seed, other, random) : mutate_bytes(seed, other, random);
}

[[noreturn]] void child(Progress& progress, const std::vector<Target>& all, std::uint64_t seed,
                        const std::string& log, double until) {
  if (std::FILE* file = std::freopen(log.c_str(), "w", stderr); !file) _exit(3);
  std::setvbuf(stderr, nullptr, _IONBF, 0);
  if (std::FILE* file = std::freopen("/dev/null", "w", stdout); !file) _exit(3);
  const std::int64_t start = now();
  while (seconds_since(start) < until) {
    const std::uint64_t number = progress.next++;
    Random random(seed * 0x9E3779B97F4A7C15ull + number);
    // Half of all inputs are PTX, the others take turns.
    const std::uint32_t t =
        all.size() > 2 && number % 2
            ? 2 + static_cast<std::uint32_t>(number / 2 % (all.size() - 2))
            : static_cast<std::uint32_t>(number / 2 % std::min<std::size_t>(2, all.size()));
    std::string input = make_input(all[t], random);
    if (input.size() > kMostInput) input.resize(kMostInput);
    progress.target = t;
    progress.size = static_cast<std::uint32_t>(input.size());
    std::memcpy(progress.input, input.data(), input.size());
    progress.started = now();
    all[t].run(input);
    progress.started = 0;
    ++progress.done[t];
    progress.counts.loaded += std::exchange(counts.loaded, 0);
    progress.counts.launched += std::exchange(counts.launched, 0);
    progress.counts.finished += std::exchange(counts.finished, 0);
  }
  _exit(0);
}

// The line of the log that says what happened and where: the same bug gives the same line.
std::string summary_of(const std::string& log) {
  std::ifstream file(log);
  std::string line, found;
  while (std::getline(file, line)) {
    if (const std::size_t at = line.find("runtime error:");
        at != line.npos) {  // without its values
      std::erase_if(line, [&](const char& c) {
        return &c > line.data() + at && (std::isdigit(static_cast<unsigned char>(c)) || c == '-');
      });
      return line;
    }
    if (line.find("SUMMARY:") != line.npos) return line;
    if (found.empty() &&
        (line.find("ERROR:") != line.npos || line.find("terminate called") != line.npos ||
         line.find("hard rss limit") != line.npos))
      found = line;
  }
  return found.empty() ? "no words" : found;
}

int replay(const std::string& name, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string input{std::istreambuf_iterator<char>(file), {}};
  for (const Target& target : targets({}))
    if (target.name == name) {
      target.run(input);
      std::printf("%s: %zu bytes went through without a finding\n", path.c_str(), input.size());
      return 0;
    }
  std::fprintf(stderr, "fuzz: no target '%s'\n", name.c_str());
  return 2;
}

int fuzz(double seconds, std::uint64_t seed, const std::string& out, const std::string& only,
         const std::vector<std::string>& files) {
  std::vector<Target> all = targets(files);
  if (!only.empty()) std::erase_if(all, [&](const Target& t) { return t.name != only; });
  if (all.empty()) {
    std::fprintf(stderr, "fuzz: no target '%s'\n", only.c_str());
    return 2;
  }
  std::filesystem::create_directories(out);
  void* shared =
      mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 3;
  auto& progress = *static_cast<Progress*>(shared);
  const std::int64_t start = now();
  std::map<std::string, int> findings;
  int number = 0;
  std::printf("fuzz: FUZZ_SEED=%llu, %.0f s\n", static_cast<unsigned long long>(seed), seconds);
  std::fflush(stdout);
  while (seconds_since(start) < seconds) {
    const std::string log = out + "/log";
    progress.started = 0;
    const pid_t pid = fork();
    if (pid == 0) child(progress, all, seed, log, seconds - seconds_since(start));
    int status = 0;
    bool hung = false;
    while (waitpid(pid, &status, WNOHANG) == 0) {
      usleep(20000);
      const std::int64_t since = progress.started;
      if (since && seconds_since(since) > kInputSeconds) {
        hung = true;
        kill(pid, SIGABRT);  // the sanitizer says where it stands
        usleep(500000);
        kill(pid, SIGKILL);
      }
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) break;
    const Target& target = all[progress.target];
    const std::string what =
        hung ? "longer than " + std::to_string(static_cast<int>(kInputSeconds)) + " s"
             : summary_of(log);
    if (findings[std::string(target.name) + ": " + what]++ > 2)
      continue;  // enough examples of this one
    const std::string kept = out + "/" + target.name + "-" + std::to_string(++number);
    std::ofstream(kept, std::ios::binary).write(progress.input, progress.size);
    std::error_code error;
    std::filesystem::rename(log, kept + ".log", error);
    std::printf("fuzz: FINDING %s: %s\n  kept: %s (again: fuzz --replay %s %s)\n", target.name,
                what.c_str(), kept.c_str(), target.name, kept.c_str());
    std::fflush(stdout);
  }
  std::uint64_t total = 0;
  for (std::size_t t = 0; t < all.size(); ++t) {
    std::printf("fuzz: %-12s %8llu inputs\n", all[t].name,
                static_cast<unsigned long long>(progress.done[t]));
    total += progress.done[t];
  }
  std::printf("fuzz: of the PTX %llu modules loaded, %llu kernels ran, %llu of them to their end\n",
              static_cast<unsigned long long>(progress.counts.loaded),
              static_cast<unsigned long long>(progress.counts.launched),
              static_cast<unsigned long long>(progress.counts.finished));
  for (const auto& [what, times] : findings) std::printf("fuzz: %d x %s\n", times, what.c_str());
  std::printf("fuzz: %llu inputs, %zu different findings\n", static_cast<unsigned long long>(total),
              findings.size());
  return findings.empty() && total > 0 ? 0 : 1;
}

}  // namespace
}  // namespace vgpu::fuzz

int main(int argc, char** argv) {
  double seconds = 60;
  std::uint64_t seed = 1;
  std::string out = "fuzz-out", only;
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--replay" && i + 2 < argc) return vgpu::fuzz::replay(argv[i + 1], argv[i + 2]);
    if (word.starts_with("--") && i + 1 == argc) {
      std::fprintf(stderr, "fuzz: %s needs a value\n", word.c_str());
      return 2;
    }
    if (word == "--seconds")
      seconds = std::atof(argv[++i]);
    else if (word == "--seed")
      seed = std::strtoull(argv[++i], nullptr, 10);
    else if (word == "--out")
      out = argv[++i];
    else if (word == "--target")
      only = argv[++i];
    else
      files.push_back(word);
  }
  return vgpu::fuzz::fuzz(seconds, seed, out, only, files);
}
