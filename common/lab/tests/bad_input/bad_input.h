// What users get wrong, tried on the programs as users run them. A class of mistakes is a generator
// and an oracle: which exit status, and which words stderr must contain. Of every case it is checked
// besides that no signal ends the program, that it ends in time, and that it leaves the files of its
// folder as they were.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lab/temporary_folder.h"
#include "testing/text.h"

namespace bad_input {

struct Command {
  std::string program;  // "chapter1" beside the test, "vgpu", or a path
  std::vector<std::string> arguments;
  std::vector<std::string> environment = {};  // "NAME=value", in addition
  std::string output = {};                    // path of standard output; "closed": it is closed
  std::optional<std::uint64_t> largest_file = {};  // bytes, as by ulimit -f
  bool no_threads = false;  // of a user who may start no other process or thread, as by ulimit -u
};

struct Outcome {
  int code = -1;  // exit status; -1: none, `ended` says why
  std::string ended, output, errors;
};

// The folder in which all commands run.
class Bench {
 public:
  static Bench& get();
  std::string path(const std::string& name) const { return folder_.path(name); }
  const std::string& folder() const { return folder_.folder(); }
  void write(const std::string& name, const std::string& content);
  // The case's files go.
  void clear();
  Outcome run(const Command& command);

 private:
  Bench() = default;
  lab::TemporaryFolder folder_{lab::testing::test_place()}, logs_{lab::testing::test_place()};
};

inline std::vector<std::string> with(std::vector<std::string> first,
                                     const std::vector<std::string>& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

// Runs the command, counts it as a case and checks what is said above. `codes`: the exit statuses
// that are right; `words`: what stderr contains, each; `creates`: the files that may be new.
void expect(const Command& command, const std::vector<int>& codes,
            const std::vector<std::string>& words, const std::vector<std::string>& creates = {});

int cases();       // so far
int test_cases();  // of doctest's, that had some

bool is_built(const std::string& program);

// The same numbers for a seed everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t below(std::uint64_t end);

 private:
  std::uint64_t state_;
};

// ---- Files to be damaged ------------------------------------------------------------------------

void put_big_endian(std::string& bytes, std::size_t at, std::uint32_t value);

// A chunk of a PNG with the checksum that belongs to it.
std::string png_chunk(const std::string& type, const std::string& data);
// IHDR's 13 bytes.
std::string png_header(std::uint32_t width, std::uint32_t height, int depth = 8, int colour = 2,
                       int interlace = 0);
// A sound PNG of that size, colours rising to the right and down; depth 8 or 16.
std::string png(std::uint32_t width, std::uint32_t height, int depth = 8);
// Signature, header and image data as given.
std::string png_of(const std::string& header, const std::string& compressed);
// Data in the form of zlib, not compressed.
std::string stored(const std::string& data);

// A safetensors file: length, header, data.
std::string safetensors(const std::string& header, const std::string& data);

struct Tensor {
  std::string name, dtype, shape;  // "[1, 2]"
  std::string data;
};
std::string safetensors(const std::vector<Tensor>& tensors);
std::string f32(const std::vector<float>& values);
std::string f16(const std::vector<std::uint16_t>& bits);

}  // namespace bad_input
