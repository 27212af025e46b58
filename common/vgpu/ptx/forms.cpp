#include "forms.h"

#include <array>
#include <map>

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

// Matches words[w..] against items[i..]; `chosen` gets the item of each word. An optional item is
// tried first, then left out: no two neighbouring items share a word, but an order may be ambiguous.
bool match(const std::vector<PatternItem>& items, std::size_t i,
           const std::vector<std::string_view>& words, std::size_t w,
           std::vector<std::size_t>& chosen, std::size_t& furthest) {
  furthest = std::max(furthest, w);
  if (i == items.size()) return w == words.size();
  if (w < words.size()) {
    for (const std::string& choice : items[i].choices) {
      if (choice != words[w]) continue;
      chosen.push_back(i);
      if (match(items, i + 1, words, w + 1, chosen, furthest)) return true;
      chosen.pop_back();
      break;
    }
  }
  return items[i].optional && match(items, i + 1, words, w, chosen, furthest);
}

std::vector<std::string_view> words_of(std::string_view dotted) {
  auto words = split(dotted, '.');
  return words;
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
  auto words = words_of(dotted);
  if (words.empty()) return nullptr;
  const std::string_view opcode = words.front();
  words.erase(words.begin());
  const auto [first, last] = by_opcode().equal_range(opcode);
  for (auto it = first; it != last; ++it) {
    std::vector<std::size_t> chosen;
    std::size_t furthest = 0;
    if (match(patterns()[it->second], 0, words, 0, chosen, furthest)) {
      mods.words = std::move(words);
      return &kForms[it->second];
    }
  }
  return nullptr;
}

std::string explain_mismatch(std::string_view dotted) {
  auto words = words_of(dotted);
  const std::string opcode(words.empty() ? dotted : words.front());
  const auto [first, last] = by_opcode().equal_range(opcode);
  if (first == last) return "the virtual GPU does not know the instruction '" + opcode + "'";
  words.erase(words.begin());
  std::size_t furthest = 0;
  for (auto it = first; it != last; ++it) {
    std::vector<std::size_t> chosen;
    match(patterns()[it->second], 0, words, 0, chosen, furthest);
  }
  if (furthest >= words.size())
    return "the virtual GPU knows no form '" + std::string(dotted) + "' (a modifier is missing)";
  return "the virtual GPU does not know '." + std::string(words[furthest]) + "' in '" +
         std::string(dotted) + "'";
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
