// Who includes whom in the virtual GPU: only along the arrows that README.md's table of rooms has.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>

namespace {

using Rooms = std::set<std::string>;
const std::filesystem::path kHouse = "common/vgpu";

// The rows "| `core/` | what it does | `ptx` |" of the README: each room, and the rooms that its files
// may include from.
std::map<std::string, Rooms> arrows() {
  std::ifstream readme(kHouse / "README.md");
  REQUIRE(readme.good());
  const std::regex row("\\| `([a-z_]+)/` \\|[^|]*\\|([^|]*)\\|"), name("`([a-z_]+)`");
  std::map<std::string, Rooms> found;
  std::smatch parts;
  for (std::string line; std::getline(readme, line);) {
    if (!std::regex_match(line, parts, row)) continue;
    Rooms& others = found[parts[1]];
    const std::string list = parts[2];
    for (std::sregex_iterator at(list.begin(), list.end(), name), end; at != end; ++at)
      others.insert((*at)[1]);
  }
  return found;
}

// The room that `#include "../ROOM/..."` in a line names, or "". What has no room: vgpu.h.
std::string room_included(const std::string& line) {
  static const std::regex other("\\s*#\\s*include \"(?:\\.\\./)+(?:vgpu/)?([a-z_]+)/[^\"]*\".*");
  std::smatch parts;
  return std::regex_match(line, parts, other) ? parts[1].str() : "";
}

}  // namespace

TEST_CASE("rooms: what the table is read from") {
  CHECK(room_included("#include \"../core/warp.h\"") == "core");
  CHECK(room_included("# include \"../../vgpu/cudart/errors.inc\"  // names") == "cudart");
  CHECK(room_included("#include \"../vgpu.h\"") == "");
  CHECK(room_included("#include \"warp.h\"") == "");
}

TEST_CASE("rooms: includes go only along the arrows of the README") {
  const auto allowed = arrows();
  int files = 0;
  for (const auto& room : std::filesystem::directory_iterator(kHouse)) {
    if (!room.is_directory() || room.path().filename() == "tests") continue;
    const std::string name = room.path().filename();
    REQUIRE_MESSAGE(allowed.count(name) == 1, "the README's table of rooms has no row for ", name);
    for (const auto& entry : std::filesystem::recursive_directory_iterator(room)) {
      static const Rooms kSources = {".h", ".cpp", ".cc", ".inc", ".def"};
      if (!kSources.count(entry.path().extension())) continue;
      ++files;
      std::ifstream source(entry.path());
      int number = 0;
      for (std::string line; std::getline(source, line);) {
        ++number;
        if (name != "cudart" && name != "cuda_driver") {
          INFO(entry.path().string(), ":", number, ": CUDA's headers are for the faces");
          CHECK(line.find("#include <cuda") == std::string::npos);
        }
        const std::string other = room_included(line);
        if (other.empty() || other == name) continue;
        INFO(entry.path().string(), ":", number, ": ", line);
        CHECK(allowed.at(name).count(other) == 1);
      }
    }
  }
  CHECK(files > 100);
}
