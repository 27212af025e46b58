// Flags of the chapters' programs: what they share, on top of CLI11.
#pragma once

#include <charconv>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "errors.h"
#include "program.h"

namespace CLI {
class App;
}

namespace lab {

// A whole number without anything around it; the error names value and range.
template <class Number>
Number parse_number(const std::string& flag, const std::string& text, Number least, Number most) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < least || number > most)
    throw UsageError(flag + " '" + text + "': must be a whole number from " +
                     std::to_string(least) + " to " + std::to_string(most));
  return number;
}

// Throws UsageError unless text is one of those: "--padding 'none': must be zero or reflect".
inline void require_one_of(const std::string& flag, const std::string& text,
                           std::initializer_list<const char*> names) {
  std::string list;
  size_t left = names.size();
  for (const char* name : names) {
    if (text == name) return;
    list += name;
    if (--left > 0) list += left == 1 ? " or " : ", ";
  }
  throw UsageError(flag + " '" + text + "': must be " + list);
}

// The text with lines of at most `most` columns: longer ones go on below their own begin, those of a
// help's flags where the flag's explanation begins.
std::string in_columns(const std::string& text, size_t most = 100);

class Flags {
 public:
  Flags(const std::string& about, const std::string& footer);
  ~Flags();

  // A flag whose value take() reads; it throws UsageError for what is not right.
  void option(const char* flag, const std::function<void(const std::string&)>& take,
              const char* type, const std::string& help);
  // Numbers are read as text first: one message for everything that is no number of the range.
  template <class Number>
  void number(const char* flag, Number& value, Number least, Number most, const char* unit,
              const std::string& help) {
    option(
        flag,
        [&value, flag, least, most](const std::string& text) {
          value = parse_number(flag, text, least, most);
        },
        unit, help);
  }
  void text(const char* flag, std::string& value, const char* type, const std::string& help);
  // A flag that is there or not.
  void given(const char* flag, bool& value, const std::string& help);
  // --look.
  void look_flag(Options& options);
  // --warmup, --iterations, --seed, --json, --csv, --profile, --predict, --look.
  void run_flags(Options& options, const std::string& seed_of);

  // Prints the help and exits with 0 for --help. Throws UsageError, also where a flag's value is
  // empty.
  void parse(int argc, const char* const* argv);
  bool given(const char* flag) const;
  void refuse(std::initializer_list<const char*> flags, const std::string& why) const;
  // Throws UsageError for flags of a program that make no sense with --predict, where that is
  // given; then there is no picture.
  void refuse_with_predict(Options& options) const;

 private:
  std::unique_ptr<CLI::App> app_;
};

// Throws UsageError unless what is to be written can be, and all files are different ones.
void require_files(const Options& options);
// Throws UsageError where two of these pairs of a flag and a path, which may be empty, name one file.
void require_distinct(const std::vector<std::pair<std::string, std::string>>& files);

// "photo.png" of a path.
std::string file_name(const std::string& path);

}  // namespace lab
