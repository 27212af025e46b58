#include "forms.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <utility>

namespace vgpu {

// The binders are declared from the table itself, so that a row without one does not link.
#define FORM(opcode, pattern, operands, op_class, flow, bind) Handler bind(Instr&, const Mods&);
#include "forms.def"
#undef FORM

namespace {

constexpr Form kForms[] = {
#define FORM(opcode, pattern, operands, op_class, flow, bind) \
  {opcode, pattern, operands, OpClass::op_class, Flow::flow, &bind, #bind},
#include "forms.def"
#undef FORM
};

struct Group {
  std::string_view name, choices;
};
constexpr Group kGroups[] = {
    {"$rnd", ".rn|.rz|.rm|.rp"},
    {"$int", ".u16|.u32|.u64|.s16|.s32|.s64"},
    {"$cmp", ".eq|.ne|.lt|.le|.gt|.ge|.lo|.ls|.hi|.hs|.equ|.neu|.ltu|.leu|.gtu|.geu|.num|.nan"},
    {"$icmp", ".eq|.ne|.lt|.le|.gt|.ge|.lo|.ls|.hi|.hs"},
    {"$fcmp", ".eq|.ne|.lt|.le|.gt|.ge|.equ|.neu|.ltu|.leu|.gtu|.geu|.num|.nan"},
    {"$order", ".eq|.ne|.lt|.le|.gt|.ge"},
    {"$word", ".u32|.s32"},
    {"$bool", ".and|.or|.xor"},
    {"$scope", ".cta|.cluster|.gpu|.sys"},
    {"$wshape", ".m16n16k16|.m32n8k16|.m8n32k16|.m16n16k8|.m8n8k32|.m8n8k4"},
    {"$warpgroup16",
     ".m64n8k16|.m64n16k16|.m64n24k16|.m64n32k16|.m64n40k16|.m64n48k16|.m64n56k16|.m64n64k16|"
     ".m64n72k16|.m64n80k16|.m64n88k16|.m64n96k16|.m64n104k16|.m64n112k16|.m64n120k16|"
     ".m64n128k16|.m64n136k16|.m64n144k16|.m64n152k16|.m64n160k16|.m64n168k16|.m64n176k16|"
     ".m64n184k16|.m64n192k16|.m64n200k16|.m64n208k16|.m64n216k16|.m64n224k16|.m64n232k16|"
     ".m64n240k16|.m64n248k16|.m64n256k16"},
    {"$warpgroup8",
     ".m64n8k8|.m64n16k8|.m64n24k8|.m64n32k8|.m64n40k8|.m64n48k8|.m64n56k8|.m64n64k8|.m64n72k8|"
     ".m64n80k8|.m64n88k8|.m64n96k8|.m64n104k8|.m64n112k8|.m64n120k8|.m64n128k8|.m64n136k8|"
     ".m64n144k8|.m64n152k8|.m64n160k8|.m64n168k8|.m64n176k8|.m64n184k8|.m64n192k8|.m64n200k8|"
     ".m64n208k8|.m64n216k8|.m64n224k8|.m64n232k8|.m64n240k8|.m64n248k8|.m64n256k8"},
    {"$warpgroup32",
     ".m64n8k32|.m64n16k32|.m64n24k32|.m64n32k32|.m64n40k32|.m64n48k32|.m64n56k32|.m64n64k32|"
     ".m64n72k32|.m64n80k32|.m64n88k32|.m64n96k32|.m64n104k32|.m64n112k32|.m64n120k32|"
     ".m64n128k32|.m64n136k32|.m64n144k32|.m64n152k32|.m64n160k32|.m64n168k32|.m64n176k32|"
     ".m64n184k32|.m64n192k32|.m64n200k32|.m64n208k32|.m64n216k32|.m64n224k32|.m64n232k32|"
     ".m64n240k32|.m64n248k32|.m64n256k32"},
    {"$warpgroup32i",
     ".m64n8k32|.m64n16k32|.m64n24k32|.m64n32k32|.m64n48k32|.m64n64k32|.m64n80k32|.m64n96k32|"
     ".m64n112k32|.m64n128k32|.m64n144k32|.m64n160k32|.m64n176k32|.m64n192k32|.m64n208k32|"
     ".m64n224k32|.m64n240k32|.m64n256k32"},
    {"$warpgroup64",
     ".m64n8k64|.m64n16k64|.m64n24k64|.m64n32k64|.m64n40k64|.m64n48k64|.m64n56k64|.m64n64k64|"
     ".m64n72k64|.m64n80k64|.m64n88k64|.m64n96k64|.m64n104k64|.m64n112k64|.m64n120k64|"
     ".m64n128k64|.m64n136k64|.m64n144k64|.m64n152k64|.m64n160k64|.m64n168k64|.m64n176k64|"
     ".m64n184k64|.m64n192k64|.m64n200k64|.m64n208k64|.m64n216k64|.m64n224k64|.m64n232k64|"
     ".m64n240k64|.m64n248k64|.m64n256k64"},
    {"$warpgroup64i",
     ".m64n8k64|.m64n16k64|.m64n24k64|.m64n32k64|.m64n48k64|.m64n64k64|.m64n80k64|.m64n96k64|"
     ".m64n112k64|.m64n128k64|.m64n144k64|.m64n160k64|.m64n176k64|.m64n192k64|.m64n208k64|"
     ".m64n224k64|.m64n240k64|.m64n256k64"},
    {"$warpgroup256",
     ".m64n8k256|.m64n16k256|.m64n24k256|.m64n32k256|.m64n48k256|.m64n64k256|.m64n80k256|"
     ".m64n96k256|.m64n112k256|.m64n128k256|.m64n144k256|.m64n160k256|.m64n176k256|.m64n192k256|"
     ".m64n208k256|.m64n224k256|.m64n240k256|.m64n256k256"},
    {"$matspace", ".global|.shared|.shared::cta"},
    {"$cvtint", ".u8|.u16|.u32|.u64|.s8|.s16|.s32|.s64"},
    {"$memory", ".b8|.b16|.b32|.b64|.b128|.u8|.u16|.u32|.u64|.s8|.s16|.s32|.s64|.f16|.f32|.f64"},
    {"$evict",
     ".L1::evict_normal|.L1::evict_unchanged|.L1::evict_first|.L1::evict_last|"
     ".L1::no_allocate|.evict_normal|.evict_first|.evict_last|.evict_unchanged|"
     ".no_allocate"},
    {"$space",
     ".const|.global|.local|.param|.param::entry|.param::func|.shared|.shared::cta|.shared::"
     "cluster"},
    {"$stspace", ".global|.local|.param|.param::func|.shared|.shared::cta|.shared::cluster"},
    {"$atomspace", ".global|.shared|.shared::cta|.shared::cluster"},
    {"$sem", ".relaxed|.acquire|.release|.acq_rel"},
    {"$cop", ".ca|.cg|.cs|.lu|.cv|.wb|.wt"},
    {"$hint", ".L2::cache_hint"},
    {"$l2evict", ".L2::evict_normal|.L2::evict_first|.L2::evict_last"},
    {"$rank", ".1d|.2d|.3d|.4d|.5d"},
    {"$pixels", ".3d|.4d|.5d"},
    {"$red", ".add|.min|.max|.inc|.dec|.and|.or|.xor"},
    {"$prefetch", ".L2::64B|.L2::128B|.L2::256B"},
};

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  std::size_t start = 0;
  while (start <= text.size()) {
    const std::size_t end = std::min(text.find(separator, start), text.size());
    if (end > start) parts.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return parts;
}

const std::vector<std::vector<PatternItem>>& patterns() {
  static const auto all = [] {
    std::vector<std::vector<PatternItem>> result;
    for (const Form& form : kForms) result.push_back(parse_pattern(form.pattern));
    return result;
  }();
  return all;
}

const std::multimap<std::string_view, std::size_t>& by_opcode() {
  static const auto index = [] {
    std::multimap<std::string_view, std::size_t> result;
    for (std::size_t i = 0; i < std::size(kForms); ++i) result.emplace(kForms[i].opcode, i);
    return result;
  }();
  return index;
}

bool takes(const PatternItem& item, std::string_view word) {
  return std::find(item.choices.begin(), item.choices.end(), word) != item.choices.end();
}

// Matches words[w..] against items[i..], in the row's order. An optional item is tried first, then
// left out: no two neighbouring items share a word, but an order may be ambiguous.
bool match(const std::vector<PatternItem>& items, std::size_t i,
           const std::vector<std::string_view>& words, std::size_t w) {
  if (i == items.size()) return w == words.size();
  if (w < words.size() && takes(items[i], words[w]) && match(items, i + 1, words, w + 1))
    return true;
  return items[i].optional && match(items, i + 1, words, w);
}

// Modifiers that are part of an instruction's name: ptxas wants them first, in their order. All
// others may stand in any order.
constexpr std::pair<std::string_view, std::string_view> kNames[] = {
    {"bar", "arrive cta red warp"},
    {"barrier", "arrive cluster cta red wait"},
    {"cp", "arrive async bulk commit_group mbarrier prefetch reduce tensor wait_all wait_group"},
    {"createpolicy", "fractional"},
    {"cvt", "pack"},
    {"cvta", "to"},
    {"div", "full"},
    {"dp2a", "hi lo"},
    {"fence", "proxy"},
    {"mad", "hi lo wide"},
    {"mad24", "hi lo"},
    {"madc", "hi lo"},
    {"mbarrier",
     "arrive arrive_drop complete_tx expect_tx init inval parity pending_count test_wait try_wait"},
    {"mul", "hi lo wide"},
    {"mul24", "hi lo"},
    {"red", "async"},
    {"setmaxnreg", "dec inc"},
    {"shf", "l r"},
    {"st", "async"},
    {"tensormap", "cp_fenceproxy replace"},
    {"wgmma", "commit_group fence mma_async wait_group"},
    {"wmma", "a b c d load mma store"},
};
bool in_name(std::string_view opcode, std::string_view word) {
  for (const auto& [name, words] : kNames) {
    if (name != opcode) continue;
    for (std::string_view w : split(words, ' '))
      if (w == word) return true;
  }
  return false;
}
// Items at the front of a row's pattern that are part of the instruction's name.
std::size_t name_items(const Form& form, const std::vector<PatternItem>& items) {
  std::size_t count = 0;
  while (count < items.size() && in_name(form.opcode, items[count].choices.front())) ++count;
  return count;
}

// Modifiers that say the same of different operands keep their order among themselves: the types
// of d and a, the two state spaces of a copy, the layouts of two matrices.
enum class Kin { none, type, space, layout, eviction, bits };
Kin kin_of(std::string_view word) {
  if (type_from_name(word) != Type::none) return Kin::type;
  const std::string_view space = word.substr(0, word.find("::"));
  for (std::string_view name : {"const", "global", "local", "param", "shared"})
    if (space == name) return Kin::space;
  if (word == "row" || word == "col") return Kin::layout;
  if (word == "and" || word == "popc") return Kin::bits;  // wgmma has both, others one
  return word.starts_with("L2::evict_") ? Kin::eviction : Kin::none;
}

// The words of an instruction, given to the items of a row in whatever order ptxas takes them.
class AnyOrder {
 public:
  AnyOrder(const Form& form, const std::vector<PatternItem>& items,
           const std::vector<std::string_view>& words)
      : opcode_(form.opcode),
        items_(items),
        words_(words),
        names_(name_items(form, items)),
        used_(words.size()) {}

  // Whether all fit; `chosen` gets them in the order of the row.
  bool match(std::vector<std::string_view>& chosen) {
    chosen.clear();
    return words_.size() <= items_.size() && give(0, 0, chosen);
  }

 private:
  bool free(std::size_t w, std::size_t given) const {
    if (used_[w] || (w != given && in_name(opcode_, words_[w]))) return false;
    const Kin kin = kin_of(words_[w]);
    for (std::size_t before = 0; kin != Kin::none && before < w; ++before)
      if (!used_[before] && kin_of(words_[before]) == kin) return false;
    return true;
  }
  bool give(std::size_t i, std::size_t given, std::vector<std::string_view>& chosen) {
    if (i == items_.size()) return given == words_.size();
    for (std::size_t w = 0; w < words_.size(); ++w) {
      if (i < names_) w = given;
      if (w < words_.size() && free(w, given) && takes(items_[i], words_[w])) {
        used_[w] = true;
        chosen.push_back(words_[w]);
        if (give(i + 1, given + 1, chosen)) return true;
        chosen.pop_back();
        used_[w] = false;
      }
      if (i < names_) break;
    }
    return items_[i].optional && give(i + 1, given, chosen);
  }

  const std::string_view opcode_;
  const std::vector<PatternItem>& items_;
  const std::vector<std::string_view>& words_;
  const std::size_t names_;
  std::vector<bool> used_;
};

// What is wrong with words that a row does not take: words that it has no place for, in their order
// (each item takes one), and whether something is missing beside them.
struct Misfit {
  std::vector<std::string_view> strangers;
  bool missing = false;
};
Misfit misfit(const std::vector<PatternItem>& items, const std::vector<std::string_view>& words) {
  Misfit result;
  std::vector<bool> taken(items.size());
  for (std::string_view word : words) {
    std::size_t i = 0;
    while (i < items.size() && (taken[i] || !takes(items[i], word))) ++i;
    if (i == items.size())
      result.strangers.push_back(word);
    else
      taken[i] = true;
  }
  for (std::size_t i = 0; i < items.size(); ++i) result.missing |= !taken[i] && !items[i].optional;
  return result;
}

}  // namespace

std::span<const Form> forms() { return kForms; }

bool Mods::has(std::string_view word) const {
  for (std::string_view w : words)
    if (w == word) return true;
  return false;
}

int Mods::pick(std::initializer_list<std::string_view> choices) const {
  int index = 0;
  for (std::string_view choice : choices) {
    if (has(choice)) return index;
    ++index;
  }
  return -1;
}

std::vector<PatternItem> parse_pattern(std::string_view pattern) {
  std::vector<PatternItem> items;
  for (std::string_view word : split(pattern, ' ')) {
    PatternItem item;
    if (word.back() == '?') {
      item.optional = true;
      word.remove_suffix(1);
    }
    for (std::string_view choice : split(word, '|')) {
      bool group = false;
      for (const Group& g : kGroups) {
        if (g.name != choice) continue;
        group = true;
        for (std::string_view c : split(g.choices, '|')) item.choices.emplace_back(c.substr(1));
      }
      if (!group) item.choices.emplace_back(choice.substr(1));
    }
    items.push_back(std::move(item));
  }
  return items;
}

const Form* match_form(std::string_view dotted, Mods& mods) {
  auto words = split(dotted, '.');
  if (words.empty()) return nullptr;
  const std::string_view opcode = words.front();
  words.erase(words.begin());
  const auto [first, last] = by_opcode().equal_range(opcode);
  for (auto it = first; it != last; ++it) {
    if (match(patterns()[it->second], 0, words, 0)) {
      mods.words = std::move(words);
      return &kForms[it->second];
    }
  }
  for (auto it = first; it != last; ++it)
    if (AnyOrder(kForms[it->second], patterns()[it->second], words).match(mods.words))
      return &kForms[it->second];
  return nullptr;
}

std::string explain_mismatch(std::string_view dotted) {
  auto words = split(dotted, '.');
  const std::string opcode(words.empty() ? dotted : words.front());
  const auto [first, last] = by_opcode().equal_range(opcode);
  if (first == last) return "the virtual GPU does not know the instruction '" + opcode + "'";
  words.erase(words.begin());
  // A word of no row at all; else the first that does not fit into the row that fits best.
  const auto unknown = [&](std::string_view word) {
    return std::none_of(first, last, [&](const auto& row) {
      return misfit(patterns()[row.second], {word}).strangers.empty();
    });
  };
  const auto stranger = [&](std::string_view word) {
    return "the virtual GPU does not know '." + std::string(word) + "' in '" + std::string(dotted) +
           "'";
  };
  for (std::string_view word : words)
    if (unknown(word)) return stranger(word);
  Misfit best;
  for (auto it = first; it != last; ++it) {
    Misfit row = misfit(patterns()[it->second], words);
    if (it == first || std::pair(row.strangers.size(), row.missing) <
                           std::pair(best.strangers.size(), best.missing))
      best = std::move(row);
  }
  if (!best.strangers.empty()) return stranger(best.strangers.front());
  return "the virtual GPU knows no form '" + std::string(dotted) + "' (" +
         (best.missing ? "a modifier is missing)" : "its modifiers stand in another order)");
}

namespace {
std::string point(std::size_t row, const std::string& choice) {
  return std::string(kForms[row].opcode) + " | " + kForms[row].pattern + " | " + choice;
}
}  // namespace

std::vector<std::string> form_points() {
  std::vector<std::string> points;
  for (std::size_t row = 0; row < std::size(kForms); ++row) {
    if (patterns()[row].empty()) points.push_back(point(row, ""));
    for (const PatternItem& item : patterns()[row])
      for (const std::string& choice : item.choices) points.push_back(point(row, "." + choice));
  }
  return points;
}

std::vector<std::string> points_of(std::string_view dotted) {
  Mods mods;
  const Form* form = match_form(dotted, mods);
  if (!form) return {};
  const std::size_t row = form - kForms;
  std::vector<std::string> points;
  if (mods.words.empty()) points.push_back(point(row, ""));
  for (std::string_view word : mods.words) points.push_back(point(row, "." + std::string(word)));
  return points;
}

}  // namespace vgpu
