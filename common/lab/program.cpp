// How a program ends, whatever happens in it.
#include "program.h"

#include <cstdio>
#include <new>

#include "device.h"
#include "errors.h"
#include "files.h"
#include "sources.h"

namespace lab {
namespace {

// One line whatever a file's names or a library's message contain.
int complain(const char* program, const std::string& message, ExitCode code) {
  std::string line = message;
  for (char& c : line)
    if (static_cast<unsigned char>(c) < ' ' || c == 127) c = ' ';
  std::fflush(stdout);
  std::fprintf(stderr, "%s: error: %s\n", program, line.c_str());
  return code;
}

}  // namespace

void complete_for(const Device& device, Options& options, const char* no_profile) {
  if (options.profile && !device.is_virtual) throw LackError(no_profile);
  if (options.warmup < 0) options.warmup = device.is_virtual ? 0 : 5;
  if (options.iterations == 0) options.iterations = device.is_virtual ? 1 : 50;
}

int guarded_main(const char* chapter, const std::function<ExitCode()>& program) {
  say_if_stale();
  try {
    open_standard_files();
    if (const ExitCode code = program(); code != kCorrect) return code;
    require_output_written();
    return kCorrect;
  } catch (const UsageError& error) {
    return complain(chapter, error.what(), kBadUsage);
  } catch (const std::invalid_argument& error) {
    return complain(chapter, error.what(), kBadUsage);
  } catch (const LackError& error) {
    return complain(chapter, error.what(), kLacking);
  } catch (const std::bad_alloc&) {
    return complain(chapter, "out of host memory", kLacking);
  } catch (const std::exception& error) {
    return complain(chapter, error.what(), kWrong);
  }
}

}  // namespace lab
