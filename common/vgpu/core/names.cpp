#include "names.h"

#include <cxxabi.h>

#include <cstdlib>
#include <filesystem>
#include <map>

#include "../ptx/paths.h"
#include "machine.h"

namespace vgpu {

namespace {

// `here`: the current folder, empty where there is none.
std::string path_from(const std::string& here, const std::string& given) {
  const std::string path = normal_path(given);
  const std::filesystem::path relative = std::filesystem::path(path).lexically_relative(here);
  if (here.empty() || relative.empty() || *relative.begin() == "..") return path;
  return relative.string();
}

}  // namespace

std::string display_path(const std::string& given) {
  // Findings of one place ask for the same file thousands of times.
  thread_local std::string last_here;
  thread_local std::map<std::string, std::string> known;
  std::error_code error;
  const std::string here = std::filesystem::current_path(error).string();
  if (here != last_here) known.clear();
  last_here = here;
  const auto [it, added] = known.try_emplace(given);
  if (added) it->second = path_from(here, given);
  return it->second;
}

std::string full_name(const std::string& mangled) {
  int status = 0;
  char* text = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
  std::string name = status == 0 && text ? text : mangled;
  std::free(text);
  if (status != 0) return name;
  const std::string anonymous = "(anonymous namespace)::";
  for (std::size_t at; (at = name.find(anonymous)) != name.npos;) name.erase(at, anonymous.size());
  // nvcc puts the variables of such a namespace into one named after the file.
  if (name.starts_with("_INTERNAL_") && name.find("::") != name.npos)
    name.erase(0, name.find("::") + 2);
  // Without the parameter list: the last parenthesis at depth 0 opens it.
  int depth = 0;
  for (std::size_t i = name.size(); i-- > 0;) {
    if (name[i] == ')' || name[i] == '>') ++depth;
    if (name[i] == '(' || name[i] == '<') --depth;
    if (name[i] == '(' && depth == 0) {
      name.resize(i);
      break;
    }
  }
  // Template functions carry their return type: what stands before the last space at depth 0.
  depth = 0;
  for (std::size_t i = name.size(); i-- > 0;) {
    if (name[i] == '>' || name[i] == ')') ++depth;
    if (name[i] == '<' || name[i] == '(') --depth;
    if (name[i] == ' ' && depth == 0) {
      name.erase(0, i + 1);
      break;
    }
  }
  return name;
}

std::string variable_name(const std::string& mangled) {
  int status = 0;
  char* text = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
  std::string name = status == 0 && text ? text : mangled;
  std::free(text);
  const std::size_t scope = name.rfind("::");
  return scope == name.npos ? name : name.substr(scope + 2);
}

namespace {

constexpr std::size_t kLongestName = 100;

// The name with "..." for the template arguments inside of `depth` others.
std::string elided(const std::string& name, int depth) {
  std::string text;
  int inside = 0;
  for (const char c : name) {
    if (c == '>' && --inside == depth) text += "...";
    if (inside <= depth) text += c;
    if (c == '<') ++inside;
  }
  return text;
}

// Only the first arguments of the last template list, as many as there is room for.
std::string first_arguments(const std::string& name) {
  int inside = 0;
  std::size_t last = std::string::npos;  // where there is a comma between arguments
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '>') --inside;
    if (name[i] == '<') ++inside;
    if (name[i] == ',' && inside == 1 && i + sizeof ", ...>" <= kLongestName) last = i;
  }
  if (last == std::string::npos) return elided(name, 0);
  return name.substr(0, last) + ", ...>";
}

}  // namespace

std::string display_name(const std::string& mangled) {
  const std::string full = full_name(mangled);
  if (full.size() <= kLongestName) return full;
  std::string name = full;
  if (name.back() == '>') {
    for (int depth = 3; depth > 0 && name.size() > kLongestName; --depth)
      name = elided(full, depth);
    if (name.size() > kLongestName) name = first_arguments(name);
  }
  if (name.size() > kLongestName) name = "..." + name.substr(name.size() - (kLongestName - 3));
  return name;
}

}  // namespace vgpu
