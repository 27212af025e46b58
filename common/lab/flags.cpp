#include "flags.h"
#include "errors.h"
#include "program.h"

#define CLI11_HAS_FILESYSTEM 0  // nothing of it is used
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "files.h"

namespace lab {
namespace {

constexpr int kMaxRuns = 1'000'000;
constexpr int kHelpColumn = 34;  // where a flag's explanation begins

std::string lower_ending(const std::string& path) {
  const size_t dot = path.rfind('.');
  std::string ending = dot == std::string::npos ? "" : path.substr(dot);
  for (char& c : ending) c = char(std::tolower(static_cast<unsigned char>(c)));
  return ending;
}

}  // namespace

void require_distinct(const std::vector<std::pair<std::string, std::string>>& files) {
  for (size_t i = 0; i < files.size(); ++i)
    for (size_t j = i + 1; j < files.size(); ++j)
      if (!files[i].second.empty() && !files[j].second.empty() &&
          same_file(files[i].second, files[j].second))
        throw UsageError(files[i].first + " and " + files[j].first + " name the same file " +
                         files[j].second);
}

std::string in_columns(const std::string& text, size_t most) {
  std::string wrapped;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    const size_t own = std::min(line.find_first_not_of(' '), line.size());
    const size_t indent = line.compare(0, 3, "  -") == 0 ? kHelpColumn : own;
    while (line.size() > most) {
      const size_t blank = line.rfind(' ', most);
      if (blank == std::string::npos || blank <= indent) break;  // one word
      wrapped += line.substr(0, blank) + '\n';
      line = std::string(indent, ' ') + line.substr(blank + 1);
    }
    wrapped += line + (end < text.size() ? "\n" : "");
    begin = end + 1;
  }
  return wrapped;
}

Flags::Flags(const std::string& about, const std::string& footer)
    : app_(std::make_unique<CLI::App>(about)) {
  app_->get_formatter()->column_width(kHelpColumn);
  app_->footer(footer +
               "\nExit codes: 0 correct, 1 wrong result, 2 bad usage or input, 3 this device or "
               "machine lacks\n"
               "what is asked, 86 a finding of one of the virtual GPU's checks.");
}

Flags::~Flags() = default;

void Flags::option(const char* flag, const std::function<void(const std::string&)>& take,
                   const char* type, const std::string& help) {
  app_->add_option_function<std::string>(flag, take, help)->type_name(type);
}
void Flags::text(const char* flag, std::string& value, const char* type, const std::string& help) {
  app_->add_option(flag, value, help)->type_name(type);
}
void Flags::given(const char* flag, bool& value, const std::string& help) {
  app_->add_flag(flag, value, help);
}
bool Flags::given(const char* flag) const { return app_->count(flag) > 0; }

void Flags::look_flag(Options& options) {
  text("--look", options.look, "FILE.html",
       "a page that shows the kernels from inside, for the browser\n(virtual GPU)");
}

void Flags::run_flags(Options& options, const std::string& seed_of) {
  number("--warmup", options.warmup, 0, kMaxRuns, "N",
         "runs before the timed ones, and 0.2 s of more on a GPU\n(5; virtual: 0; 0 also leaves "
         "out CUDA graphs: for profilers)");
  number("--iterations", options.iterations, 1, kMaxRuns, "N", "timed runs (50; virtual: 1)");
  number("--seed", options.seed, uint64_t(0), std::numeric_limits<uint64_t>::max(), "N", seed_of);
  text("--json", options.json, "FILE", "result as JSON");
  text("--csv", options.csv, "FILE", "result's lines as CSV");
  given("--profile", options.profile,
        "counters, predicted and host time, why warps wait (virtual GPU)");
  given("--predict", options.predict,
        "predicted times alone, of large problems in seconds: executes\nonly the blocks that they "
        "need, compares nothing (virtual GPU)");
  look_flag(options);
}

void Flags::parse(int argc, const char* const* argv) {
  // CLI11 would take numbers and words like "off" for a flag that is there or not.
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i], name = word.substr(0, word.find('='));
    const CLI::Option* option = name == word ? nullptr : app_->get_option_no_throw(name);
    if (option && option->get_expected_max() == 0)
      throw UsageError(word + ": " + name + " takes no value");
  }
  try {
    app_->parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(in_columns(app_->help()).c_str(), stdout);
    require_output_written();
    std::exit(kCorrect);
  } catch (const CLI::ExtrasError&) {  // its own message has them in reverse
    std::string extras;
    for (const std::string& word : app_->remaining()) extras += (extras.empty() ? "" : " ") + word;
    throw UsageError(extras + ": there is no such flag (--help lists the flags)");
  } catch (const CLI::ParseError& error) {
    throw UsageError(std::string(error.what()) + " (--help lists the flags)");
  }
  for (const CLI::Option* option : app_->get_options())
    if (option->count() > 0 && option->get_type_size() > 0 && option->as<std::string>().empty())
      throw UsageError(option->get_name() + ": the value is empty");
}

void Flags::refuse(std::initializer_list<const char*> flags, const std::string& why) const {
  for (const char* flag : flags)
    if (given(flag)) throw UsageError(std::string(flag) + " " + why);
}

void Flags::refuse_with_predict(Options& options) const {
  if (!options.predict) return;
  for (const char* const flag : {"--out", "--output"})
    if (app_->get_option_no_throw(flag))
      refuse({flag}, "does not go with --predict, which leaves results incomplete");
  refuse({"--warmup", "--iterations"}, "does not go with --predict: each launch is predicted once");
  options.out.clear();
}

void require_files(const Options& options) {
  const std::string ending = lower_ending(options.out);
  if (!options.out.empty() && ending != ".png" && ending != ".jpg" && ending != ".jpeg")
    throw UsageError("--out '" + options.out + "': the name must end in .png, .jpg or .jpeg");
  if (!options.out.empty() && file_name(options.out).size() == ending.size())
    throw UsageError("--out '" + options.out + "': has no name in front of " + ending);
  std::vector<std::pair<std::string, std::string>> files = {{"--out", options.out},
                                                            {"--output", options.output},
                                                            {"--json", options.json},
                                                            {"--csv", options.csv},
                                                            {"--look", options.look}};
  for (const auto& [flag, path] : files)
    if (!path.empty()) require_writable(flag, path);
  files.insert(files.end(), {{"--image", options.image}, {"--input", options.input}});
  require_distinct(files);
}

std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace lab
