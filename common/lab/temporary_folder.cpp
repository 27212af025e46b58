#include "temporary_folder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "errors.h"

namespace lab {

std::string temporary_place() {
  const char* const given = std::getenv("TMPDIR");
  return given && *given ? given : "/tmp";
}

TemporaryFolder::TemporaryFolder(const std::string& parent)
    : folder_(std::filesystem::absolute(parent).string() + "/lab-XXXXXX") {
  if (!mkdtemp(folder_.data()))
    throw UsageError(parent + ": no folder can be made there (TMPDIR names another place): " +
                     std::strerror(errno));
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

}  // namespace lab
