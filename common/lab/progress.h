// How far a long piece of work is, said on stderr while it lasts.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace lab {

// From its construction to its end: on a terminal once a second in one line, elsewhere as lines
// that come ever less often, from 15 s after the program's first one on, about ten in ten minutes.
class Progress {
 public:
  // share: of the work that is done, 0 to 1, asked for from another thread; negative: unknown.
  Progress(const std::string& what, std::function<double()> share);
  explicit Progress(const std::string& what);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

 private:
  void tick();

  std::string what_;
  std::function<double()> share_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool over_ = false;
  std::thread thread_;  // the last member: it uses the others
};

}  // namespace lab
