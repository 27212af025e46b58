// A folder for what a program needs only while it runs.
#pragma once

#include <string>

namespace lab {

// TMPDIR of the environment, or /tmp.
std::string temporary_place();

// An empty folder that is removed at the end.
class TemporaryFolder {
 public:
  // Throws UsageError where no folder can be made in `parent`.
  explicit TemporaryFolder(const std::string& parent = temporary_place());
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
};

}  // namespace lab
