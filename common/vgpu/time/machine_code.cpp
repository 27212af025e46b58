// From a module's PTX to the machine code of one kernel: annotated, assembled (or remembered),
// compared with the program's own, decoded.
#include "machine_code.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <mutex>
#include <set>
#include <type_traits>
#include <unordered_map>

#include "annotate.h"
#include "assembler.h"
#include "code_cache.h"
#include "cubin_code.h"
#include "opcodes.h"

namespace vgpu::time {
namespace {

constexpr std::string_view kFormat = "machine code 1";
constexpr double kMostSeconds = 300;

// ---- what the cache keeps of a cubin --------------------------------------------------------------

template <class T>
void put(std::string& out, const std::vector<T>& values) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto count = static_cast<std::uint32_t>(values.size());
  out.append(reinterpret_cast<const char*>(&count), sizeof count);
  if (count) out.append(reinterpret_cast<const char*>(values.data()), count * sizeof(T));
}
template <class T>
bool take(std::string_view& in, std::vector<T>& values) {
  std::uint32_t count = 0;
  if (in.size() < sizeof count) return false;
  std::memcpy(&count, in.data(), sizeof count);
  in.remove_prefix(sizeof count);
  if (in.size() / sizeof(T) < count) return false;
  values.resize(count);
  if (count) std::memcpy(static_cast<void*>(values.data()), in.data(), count * sizeof(T));
  in.remove_prefix(count * sizeof(T));
  return true;
}

std::string packed(const CubinCode& code) {
  std::string out;
  put(out, code.words);
  put(out, code.lines);
  put(out, code.references);
  put(out,
      std::vector<std::uint32_t>{code.kernel_words, static_cast<std::uint32_t>(code.registers)});
  return out;
}
bool unpack(std::string_view in, CubinCode& code) {
  std::vector<std::uint32_t> rest;
  if (!take(in, code.words) || !take(in, code.lines) || !take(in, code.references) ||
      !take(in, rest) || !in.empty() || rest.size() != 2 || rest[0] > code.words.size() ||
      code.lines.size() != code.words.size())
    return false;
  code.kernel_words = rest[0];
  code.registers = static_cast<std::int32_t>(rest[1]);
  return true;
}

// ---- options ---------------------------------------------------------------------------------------

// The options given to the program's own ptxas that change the code. PTX has the rest.
std::vector<std::string> code_options(std::string_view options) {
  std::vector<std::string> kept, words;
  for (std::size_t at = 0; at < options.size();) {
    const std::size_t begin = options.find_first_not_of(' ', at);
    if (begin == options.npos) break;
    at = std::min(options.find(' ', begin), options.size());
    words.emplace_back(options.substr(begin, at - begin));
  }
  static const std::set<std::string_view> kWithValue = {"-maxrregcount",
                                                        "--maxrregcount",
                                                        "-O",
                                                        "--opt-level",
                                                        "--def-load-cache",
                                                        "-dlcm",
                                                        "--def-store-cache",
                                                        "-dscm",
                                                        "--register-usage-level",
                                                        "-regUsageLevel"};
  static const std::set<std::string_view> kAlone = {"-c",
                                                    "--compile-only",
                                                    "-O0",
                                                    "-O1",
                                                    "-O2",
                                                    "-O3",
                                                    "-disable-optimizer-constants",
                                                    "--disable-optimizer-constants",
                                                    "-Xptxas",
                                                    "--allow-expensive-optimizations",
                                                    "--position-independent-code",
                                                    "-pic"};
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i], name = word.substr(0, word.find('='));
    if (kAlone.count(word) || (name.size() < word.size() && kWithValue.count(name)))
      kept.push_back(words[i]);
    else if (kWithValue.count(word) && i + 1 < words.size())
      kept.insert(kept.end(), {words[i], words[i + 1]}), ++i;
  }
  kept.erase(std::remove(kept.begin(), kept.end(), "-Xptxas"), kept.end());
  return kept;
}

// ---- decoding --------------------------------------------------------------------------------------

int sm_of(std::string_view target) {
  int sm = 0;
  if (!target.starts_with("sm_")) return 0;
  for (const char c : target.substr(3)) {
    if (c < '0' || c > '9' || sm > 999) break;
    sm = 10 * sm + (c - '0');
  }
  return sm;
}

MachineCode decoded(const CubinCode& cubin, const Annotated& annotated, int sm) {
  MachineCode out;
  out.registers = cubin.registers;
  out.code.reserve(cubin.words.size());
  std::unordered_map<std::uint64_t, std::uint16_t> names;
  std::set<std::string> unknown;
  for (std::size_t i = 0; i < cubin.words.size(); ++i) {
    const Word128 word = cubin.words[i];
    MachineInstr instr = decode(word, sm);
    instr.address = static_cast<std::uint32_t>(i * sizeof(Word128));
    if (const std::uint32_t n = cubin.lines[i]; n > 0 && n <= annotated.places.size()) {
      instr.ptx_line = annotated.places[n - 1].line;
      instr.ptx_on_line = annotated.places[n - 1].on_line;
    }
    if (std::int64_t offset = 0; branch_offset(instr, word, sm, offset)) {
      const std::int64_t target = static_cast<std::int64_t>(i) + 1 + offset / 16;
      if (offset % 16 == 0 && target >= 0 && target < static_cast<std::int64_t>(cubin.words.size()))
        instr.target = static_cast<std::int32_t>(target);
    }
    const auto [name, fresh] =
        names.try_emplace(name_key(instr, word), static_cast<std::uint16_t>(out.names.size()));
    if (fresh) out.names.push_back(instruction_name(instr, word, sm));
    instr.name = name->second;
    if (instr.kind == Kind::unknown) unknown.insert(out.names[instr.name].substr(1));
    out.code.push_back(instr);
  }
  for (const CubinCode::Reference& r : cubin.references)
    if (r.from < out.code.size() && out.code[r.from].kind == Kind::call)
      out.code[r.from].target = r.to;
  out.unknown.assign(unknown.begin(), unknown.end());
  return out;
}

// Assembled, or what is remembered of it.
CubinCode code_of(const Annotated& annotated, std::string_view kernel, std::string_view target,
                  const std::string& ptxas, const std::string& version,
                  const std::vector<std::string>& options, std::string& why) {
  std::string about = std::string(kFormat) + '\n' + std::string(target) + '\n' + version + '\n' +
                      std::string(kernel);
  for (const std::string& option : options) about += '\n' + option;
  const Hash name = hash_of(annotated.text, hash_of(about));
  std::string kept;
  CubinCode code;
  if (read_cached(name, "code", kept) && unpack(kept, code)) return code;
  const Assembled made = assemble(ptxas, version, annotated.text, target, options, kMostSeconds);
  why = made.why;
  if (!why.empty()) return {};
  code = read_cubin_code(made.cubin, kernel, false, why);
  if (!why.empty()) {
    why = "what ptxas " + version + " has made cannot be read: " + why;
    return {};
  }
  write_cached(name, "code", packed(code));
  return code;
}

std::string difference(const std::string& version, const CubinOrigin& origin) {
  if (!origin.version.empty() && origin.version != version)
    return "the program's machine code is of ptxas " + origin.version + ", the one found is " +
           version + ", and they differ: set VGPU_PTXAS to the path of the former";
  return "ptxas " + version + " makes other machine code than the program has" +
         (origin.options.empty() ? "" : ": that was made with '" + origin.options + "'");
}

}  // namespace

std::string_view kind_name(Kind kind) {
  static constexpr std::string_view kNames[] = {"fp32",
                                                "fp16",
                                                "imad",
                                                "alu",
                                                "fp64",
                                                "special",
                                                "convert",
                                                "tensor",
                                                "uniform",
                                                "constant",
                                                "special_register",
                                                "shuffle",
                                                "vote",
                                                "shared_load",
                                                "shared_store",
                                                "shared_atomic",
                                                "matrix_load",
                                                "matrix_store",
                                                "global_load",
                                                "global_store",
                                                "global_atomic",
                                                "local_load",
                                                "local_store",
                                                "async_copy",
                                                "async_commit",
                                                "async_wait",
                                                "barrier",
                                                "warpgroup",
                                                "cluster_barrier",
                                                "mbarrier",
                                                "bulk_copy",
                                                "fence",
                                                "convergence",
                                                "branch",
                                                "call",
                                                "ret",
                                                "exit",
                                                "sleep",
                                                "nop",
                                                "unknown"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(Kind::unknown) + 1);
  return kNames[static_cast<std::size_t>(kind)];
}

MachineCodeOrWhy machine_code(std::string_view ptx, std::string_view kernel,
                              std::string_view target, std::string_view own_cubin) {
  MachineCodeOrWhy answer;
  const int sm = sm_of(target);
  if (sm < 75) {
    answer.why = "'" + std::string(target) +
                 "' has another format of machine code: sm_75 and newer are known";
    return answer;
  }
  const std::string ptxas = find_ptxas(answer.why);
  if (ptxas.empty()) return answer;
  const std::string version = ptxas_version(ptxas, answer.why);
  if (version.empty()) return answer;
  const Annotated annotated = annotate(ptx, kernel);
  answer.why = annotated.why;
  if (!answer.why.empty()) return answer;

  const CubinOrigin origin = own_cubin.empty() ? CubinOrigin{} : cubin_origin(own_cubin);
  std::vector<std::string> options = code_options(origin.options);
  // What other files define is not there: as for a program of several files.
  if (annotated.several_files && options.empty()) options = {"-c"};
  const CubinCode code = code_of(annotated, kernel, target, ptxas, version, options, answer.why);
  if (!answer.why.empty()) return answer;
  if (!own_cubin.empty()) {
    const CubinCode own = read_cubin_code(own_cubin, kernel, true, answer.why);
    if (answer.why.empty() && !same_code(own, code)) answer.why = difference(version, origin);
    if (!answer.why.empty()) return answer;
  }
  answer.code = decoded(code, annotated, sm);
  answer.code.function = std::string(kernel);
  answer.code.target = std::string(target);
  return answer;
}

}  // namespace vgpu::time
