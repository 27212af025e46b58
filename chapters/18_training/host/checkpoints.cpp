#include "checkpoints.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>

#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"

namespace training {

using lab::format;

namespace {

constexpr int kCheckpointSteps = 50;  // from one checkpoint to the next

volatile sig_atomic_t interrupted = 0;

// The first Ctrl-C is noted, the second one ends the program.
void catch_interrupt() {
  struct sigaction action = {};
  action.sa_handler = [](int) { interrupted = 1; };
  action.sa_flags = SA_RESETHAND | SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
}

}  // namespace

std::string going_on(const TrainingOptions& options, const std::string& path) {
  std::string data;
  if (!options.data.empty())
    data = " --data " + lab::shell_word(options.data) + format(" --held-out %d", options.held_out);
  return "./run --resume " + lab::shell_word(path) + data + " goes on";
}

namespace {

// Where the run was interrupted: leaves a checkpoint, says how to go on, ends as by the signal.
[[noreturn]] void leave(const Trainer& trainer, const TrainingOptions& options) {
  std::string path = options.checkpoint;
  for (int i = 1; path.empty(); ++i) {
    const std::string candidate = format("interrupted-%d.safetensors", i);
    if (access(candidate.c_str(), F_OK) != 0) path = candidate;
  }
  trainer.save(path);
  std::printf("interrupted after step %lld: %s\n", static_cast<long long>(trainer.steps_done()),
              going_on(options, path).c_str());
  std::fflush(stdout);
  signal(SIGINT, SIG_DFL);
  raise(SIGINT);
  _exit(130);
}

}  // namespace

void resume(const TrainingOptions& options, Trainer& trainer) {
  trainer.resume(options.resume);
  std::printf("%s: goes on behind step %lld of %d\n", options.resume.c_str(),
              static_cast<long long>(trainer.steps_done()), trainer.settings().steps);
}

Checkpoints::Checkpoints(const TrainingOptions& options, const Trainer& trainer)
    : options_(options), trainer_(trainer) {
  catch_interrupt();
}

void Checkpoints::after_step() const {
  if (!options_.checkpoint.empty() && trainer_.steps_done() % kCheckpointSteps == 0)
    trainer_.save(options_.checkpoint);
  if (interrupted) leave(trainer_, options_);
}

void Checkpoints::finish() const {
  if (!options_.checkpoint.empty()) trainer_.save(options_.checkpoint);
  signal(SIGINT, SIG_DFL);
  if (interrupted) leave(trainer_, options_);
}

}  // namespace training
