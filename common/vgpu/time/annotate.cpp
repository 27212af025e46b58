// Two passes. The first goes over the whole text once and notes where the functions and variables of
// the module begin and end; its answer is kept for the module's other kernels. The second writes one
// kernel and what it needs.
#include "annotate.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <list>
#include <mutex>
#include <unordered_map>

#include "hash.h"

namespace vgpu::time {
namespace {

bool starts_name(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%';
}
bool in_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$'; }

// A cursor over PTX text that skips blanks and comments. It never goes past `end`.
struct Cursor {
  std::string_view text;
  std::size_t at = 0, end = 0;

  char peek(std::size_t ahead = 0) const { return at + ahead < end ? text[at + ahead] : '\0'; }
  bool done() const { return at >= end; }
  void blanks() {
    while (at < end) {
      const char c = text[at];
      if (c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\0') {
        ++at;
      } else if (c == '/' && (peek(1) == '/' || peek(1) == '*')) {
        comment();
      } else {
        return;
      }
    }
  }
  void comment() {
    const std::size_t found = peek(1) == '/' ? text.find('\n', at) : text.find("*/", at + 2);
    at = found == std::string_view::npos ? end : std::min(end, found + (peek(1) == '/' ? 0 : 2));
  }
  void quoted() {
    for (++at; at < end && text[at] != '"'; ++at)
      if (text[at] == '\\') ++at;
    at = std::min(end, at + 1);
  }
  std::string_view word() {  // a name or a directive
    blanks();
    const std::size_t begin = at;
    if (peek() == '.' || starts_name(peek())) ++at;
    while (at < end && in_name(text[at])) ++at;
    return text.substr(begin, at - begin);
  }
  void integer() {
    blanks();
    if (peek() == '-') ++at;
    while (at < end && std::isalnum(static_cast<unsigned char>(text[at]))) ++at;
  }
  bool accept(char c) {
    blanks();
    if (peek() != c) return false;
    ++at;
    return true;
  }
  // To behind the bracket that closes the one here, or to the end.
  void brackets() {
    static constexpr auto kOpening = [] {
      std::array<char, 256> kinds{};
      kinds['{'] = 1;
      kinds['}'] = 2;
      kinds['"'] = 3;
      kinds['/'] = 4;
      return kinds;
    }();
    int depth = 0;
    while (at < end) {
      switch (kOpening[static_cast<unsigned char>(text[at])]) {
        case 1:
          ++depth, ++at;
          break;
        case 2:
          ++at;
          if (--depth == 0) return;
          break;
        case 3:
          quoted();
          break;
        case 4:
          if (peek(1) == '/' || peek(1) == '*')
            comment();
          else
            ++at;
          break;
        default:
          ++at;
      }
    }
  }
  // To behind the next ';' outside of brackets and strings.
  void statement() {
    while (at < end) {
      const char c = text[at];
      if (c == ';') {
        ++at;
        return;
      }
      if (c == '{')
        brackets();
      else if (c == '"')
        quoted();
      else if (c == '/' && (peek(1) == '/' || peek(1) == '*'))
        comment();
      else
        ++at;
    }
  }
  // ".file 1 "a.cu", 123, 456", ".loc 1 2 3, function_name $L + 4, inlined_at 1 2 3": behind the word.
  void file() {
    integer();
    blanks();
    if (peek() == '"') quoted();
    while (accept(',')) integer();
  }
  void loc() {
    for (int i = 0; i < 3; ++i) integer();
    while (accept(',')) {
      if (word() == "inlined_at") {
        for (int i = 0; i < 3; ++i) integer();
      } else {
        word();
        if (accept('+')) integer();
      }
    }
  }
  void section() {
    while (at < end && text[at] != '{') ++at;
    brackets();
  }
};

// A function or variable of the module.
struct Item {
  std::size_t begin = 0, body = 0, end = 0;  // body: its '{', or end
  std::uint32_t body_line = 0;
  int file = 0;  // which of the files that were linked to this text
  enum class Kind { header, function, variable, alias } kind = Kind::header;
  std::vector<std::string> names;
};

struct Index {
  std::vector<Item> items;
  std::unordered_multimap<std::string, std::size_t> by_name;
  int files = 0;
};

// [begin, end) of a declaration: the names before each '[', '=' or ',' outside of brackets.
std::vector<std::string> variable_names(std::string_view text, std::size_t begin, std::size_t end) {
  std::vector<std::string> names;
  std::string last;
  Cursor c{text, begin, end};
  bool initializer = false;
  while (c.blanks(), !c.done()) {
    const char ch = c.peek();
    if (ch == '{') {
      c.brackets();
    } else if (ch == '"') {
      c.quoted();
    } else if (ch == '.' || starts_name(ch)) {
      const std::string_view word = c.word();
      if (word[0] != '.' && !initializer) last = std::string(word);
    } else {
      if (ch == '=' || ch == ',' || ch == ';') {
        if (!initializer && !last.empty()) names.push_back(last);
        initializer = ch == '=';
        last.clear();
      }
      ++c.at;
    }
  }
  return names;
}

// Behind ".entry" or ".func": [(results)] name [(parameters)] directives, then '{' or ';'.
std::string function_name(Cursor& c) {
  c.blanks();
  const auto list = [&] {
    while (!c.done() && c.peek() != ')') ++c.at;
    c.accept(')');
  };
  while (c.peek() == '.') {  // .attribute(...)
    c.word();
    if (c.accept('(')) list();
    c.blanks();
  }
  if (c.accept('(')) list();
  const std::string name(c.word());
  while (!c.done() && c.peek() != '{' && c.peek() != ';') {
    if (c.peek() == '"')
      c.quoted();
    else if (c.peek() == '/' && (c.peek(1) == '/' || c.peek(1) == '*'))
      c.comment();
    else
      ++c.at;
  }
  return name;
}

// One item of the module; false: it is not worth keeping, or what stands there is not understood.
bool read_item(Cursor& c, Item& item) {
  item.begin = c.at;
  for (;;) {
    c.blanks();
    const std::string_view word = c.word();
    if (word == ".visible" || word == ".weak" || word == ".extern" || word == ".common") continue;
    if (word == ".file") return c.file(), false;
    if (word == ".loc") return c.loc(), false;
    if (word == ".section") return c.section(), false;
    if (word == ".entry" || word == ".func") {
      item.kind = Item::Kind::function;
      item.names.push_back(function_name(c));
      item.body = c.at;
      if (c.peek() == '{')
        c.brackets();
      else
        c.accept(';');
    } else if (word == ".global" || word == ".const" || word == ".shared") {
      item.kind = Item::Kind::variable;
      c.statement();
      item.names = variable_names(c.text, item.begin, c.at);
      item.body = c.at;
    } else if (word == ".alias") {
      item.kind = Item::Kind::alias;
      item.names.emplace_back(c.word());
      c.statement();
      item.body = c.at;
    } else if (word == ".version" || word == ".target" || word == ".address_size") {
      while (!c.done() && c.peek() != '\n') ++c.at;
      item.body = c.at;
    } else if (word == ".pragma") {
      c.statement();
      item.body = c.at;
    } else {
      c.at = std::max(c.at, item.begin + 1);
      return false;
    }
    item.end = c.at;
    return true;
  }
}

std::shared_ptr<const Index> read_module(std::string_view text) {
  auto index = std::make_shared<Index>();
  Cursor c{text, 0, text.size()};
  std::size_t counted = 0;
  std::uint32_t line = 1;
  while (c.blanks(), !c.done()) {
    Item item;
    if (!read_item(c, item)) continue;
    if (text.compare(item.begin, 8, ".version") == 0) ++index->files;
    item.file = index->files;
    while (const void* found = std::memchr(text.data() + counted, '\n', item.body - counted)) {
      counted = static_cast<const char*>(found) - text.data() + 1;
      ++line;
    }
    item.body_line = line;
    for (const std::string& name : item.names) index->by_name.emplace(name, index->items.size());
    index->items.push_back(std::move(item));
  }
  return index;
}

// The kernels of a module are asked for one after the other.
std::shared_ptr<const Index> index_of(std::string_view text) {
  static std::mutex mutex;
  static std::list<std::pair<Hash, std::shared_ptr<const Index>>> kept;  // the latest first
  const Hash key = hash_of(text);
  {
    const std::lock_guard lock(mutex);
    for (auto it = kept.begin(); it != kept.end(); ++it)
      if (it->first == key) {
        kept.splice(kept.begin(), kept, it);
        return it->second;
      }
  }
  auto index = read_module(text);
  const std::lock_guard lock(mutex);
  kept.emplace_front(key, index);
  if (kept.size() > 8) kept.pop_back();
  return index;
}

// A function's body, and where in it the numbers of its instructions go.
struct Body {
  std::string text;
  std::vector<PtxPlace> places;
  std::vector<std::size_t> numbered;  // offsets in text, by instruction
};

// Writes the body of a function; calls `name` with each name in it that is no register.
class BodyWriter {
 public:
  BodyWriter(Body& out, std::string_view text, const Item& item)
      : out_(out), c_{text, item.body, item.end}, counted_(item.body), line_(item.body_line) {}

  template <class Name>
  void write(const Name& name) {
    while (c_.blanks(), !c_.done()) {
      const std::size_t begin = c_.at;
      const char ch = c_.peek();
      if (ch == '{' || ch == '}' || ch == ';') {
        ++c_.at;
        copy(begin);
      } else if (ch == '.') {
        const std::string_view word = c_.word();
        if (word == ".loc") {
          c_.loc();
        } else if (word == ".file") {
          c_.file();
        } else if (word == ".section") {
          c_.section();
        } else {
          c_.statement();
          copy(begin);
          names(begin, name);
        }
      } else if (!label(begin, name)) {
        number(begin);
        c_.statement();
        copy(begin);
        names(begin, name);
      }
      if (c_.at == begin) ++c_.at;
    }
  }

 private:
  void copy(std::size_t begin) {
    out_.text.append(c_.text.substr(begin, c_.at - begin));
    out_.text += '\n';
  }
  void number(std::size_t begin) {
    while (const void* found = std::memchr(c_.text.data() + counted_, '\n', begin - counted_)) {
      counted_ = static_cast<const char*>(found) - c_.text.data() + 1;
      ++line_;
    }
    std::uint16_t on_line = 0;
    if (!out_.places.empty() && out_.places.back().line == line_)
      on_line = static_cast<std::uint16_t>(out_.places.back().on_line + 1);
    out_.places.push_back({line_, on_line});
    out_.numbered.push_back(out_.text.size());
  }
  // "name:" and what belongs to it: .branchtargets, .calltargets, .callprototype.
  template <class Name>
  bool label(std::size_t begin, const Name& name) {
    if (!starts_name(c_.peek()) || c_.peek() == '%') return false;
    c_.word();
    c_.blanks();
    if (c_.peek() != ':' || c_.peek(1) == ':') {
      c_.at = begin;
      return false;
    }
    ++c_.at;
    const std::size_t behind = c_.at;
    c_.blanks();
    bool table = false;
    for (const std::string_view word : {".branchtargets", ".calltargets", ".callprototype"})
      table |= c_.text.substr(c_.at, word.size()) == word;
    if (table) {
      c_.statement();
      names(behind, name);
    } else {
      c_.at = behind;
    }
    copy(begin);
    return true;
  }
  template <class Name>
  void names(std::size_t begin, const Name& name) const {
    for (std::size_t at = begin; at < c_.at;) {
      const char ch = c_.text[at];
      if (ch == '%' || ch == '.' || in_name(ch)) {
        const std::size_t first = at++;
        while (at < c_.at && in_name(c_.text[at])) ++at;
        if (starts_name(ch) && ch != '%') name(c_.text.substr(first, at - first));
      } else {
        ++at;
      }
    }
  }

  Body& out_;
  Cursor c_;
  std::size_t counted_;
  std::uint32_t line_;
};

// ".target sm_90, debug" without what asks for debug information.
void write_header(std::string& out, std::string_view line) {
  if (const auto at = line.find(", debug"); line.starts_with(".target") && at != line.npos) {
    out.append(line.substr(0, at));
    out.append(line.substr(at + 7));
  } else {
    out.append(line);
  }
  out += '\n';
}

}  // namespace

Annotated annotate(std::string_view ptx, std::string_view kernel) {
  Annotated out;
  const auto index = index_of(ptx);
  const auto& items = index->items;
  const auto range = index->by_name.equal_range(std::string(kernel));
  const auto has_body = [&](std::size_t i) {
    return items[i].kind == Item::Kind::function && items[i].body < items[i].end &&
           ptx[items[i].body] == '{';
  };
  const auto is_constant = [&](std::size_t i) {
    const Item& item = items[i];
    const std::size_t size = std::min<std::size_t>(item.end - item.begin, 32);
    return item.kind == Item::Kind::variable &&
           ptx.substr(item.begin, size).find(".const") != std::string_view::npos;
  };
  std::size_t wanted = items.size();
  for (auto it = range.first; it != range.second; ++it)
    if (has_body(it->second)) wanted = std::min(wanted, it->second);
  if (wanted == items.size()) {
    out.why = "the module's PTX has no kernel '" + std::string(kernel) + "'";
    return out;
  }
  out.several_files = index->files > 1;
  const int file = items[wanted].file;

  // Bodies are written once, as they are needed, and put together in the module's order. Offsets in
  // the constant bank depend on all variables there: one that is needed brings all.
  std::vector<std::size_t> todo{wanted}, needed;
  std::vector<bool> seen(items.size());
  seen[wanted] = true;
  const auto need = [&](std::size_t i) {
    if (seen[i] || items[i].file != file) return;
    seen[i] = true;
    todo.push_back(i);
  };
  const auto name = [&](std::string_view word) {
    thread_local std::string key;
    key = word;
    const auto found = index->by_name.equal_range(key);
    for (auto it = found.first; it != found.second; ++it) need(it->second);
  };
  std::unordered_map<std::size_t, Body> bodies;
  while (!todo.empty()) {
    const std::size_t i = todo.back();
    todo.pop_back();
    needed.push_back(i);
    const Item& item = items[i];
    if (item.kind == Item::Kind::function) {
      if (has_body(i)) BodyWriter(bodies[i], ptx, item).write(name);
      continue;
    }
    // Initializers and aliases name others.
    const std::string_view text = ptx.substr(item.begin, item.end - item.begin);
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t first = at++;
      if (!in_name(text[first])) continue;
      while (at < text.size() && in_name(text[at])) ++at;
      if (starts_name(text[first])) name(text.substr(first, at - first));
    }
    if (is_constant(i))
      for (std::size_t other = 0; other < items.size(); ++other)
        if (is_constant(other)) need(other);
  }

  std::sort(needed.begin(), needed.end());
  for (const Item& item : items) {
    if (item.kind != Item::Kind::header || item.file != file) continue;
    const std::string_view line = ptx.substr(item.begin, item.end - item.begin);
    write_header(out.text, line);
    if (line.starts_with(".address_size")) out.text += ".file 1 \"ptx\"\n";
  }
  for (const std::size_t i : needed) {
    const Item& item = items[i];
    out.text.append(ptx.substr(item.begin, item.body - item.begin));
    out.text += '\n';
    const auto body = bodies.find(i);
    if (body == bodies.end()) {
      out.text.append(ptx.substr(item.body, item.end - item.body));
    } else {
      const std::string_view text = body->second.text;
      std::size_t done = 0;
      for (std::size_t n = 0; n < body->second.numbered.size(); ++n) {
        const std::size_t at = body->second.numbered[n];
        out.places.push_back(body->second.places[n]);
        out.text.append(text.substr(done, at - done));
        out.text += ".loc 1 ";
        out.text += std::to_string(out.places.size());
        out.text += " 0\n";
        done = at;
      }
      out.text.append(text.substr(done));
    }
    out.text += '\n';
  }
  return out;
}

}  // namespace vgpu::time
