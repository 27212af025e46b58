#include "json.h"

#include <algorithm>
#include <cmath>

namespace json {
namespace {

// How many bytes from `at` on begin a character of UTF-8, up to the first that cannot follow; ok is
// whether they are all of it.
struct Utf8 {
  std::size_t length;
  bool ok;
};
Utf8 character(const std::string& text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at);
  if (lead < 0x80) return {1, true};
  // 0xc0, 0xc1, and the bounds of the second byte: what could be written shorter, surrogates, and
  // what is beyond U+10FFFF.
  if (lead < 0xc2 || lead > 0xf4) return {1, false};
  const std::size_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  for (std::size_t i = 1; i < length; ++i) {
    unsigned char low = 0x80, high = 0xbf;
    if (i == 1 && lead == 0xe0) low = 0xa0;
    if (i == 1 && lead == 0xed) high = 0x9f;
    if (i == 1 && lead == 0xf0) low = 0x90;
    if (i == 1 && lead == 0xf4) high = 0x8f;
    if (at + i >= text.size() || byte(at + i) < low || byte(at + i) > high) return {i, false};
  }
  return {length, true};
}

void write_text(std::string& to, const std::string& text) {
  constexpr char kHex[] = "0123456789abcdef";
  constexpr std::string_view kNamed = "\"\\\b\f\n\r\t", kNames = "\"\\bfnrt";
  to += '"';
  for (std::size_t i = 0; i < text.size();) {
    const char c = text[i];
    const auto [length, ok] = character(text, i);
    if (const std::size_t named = kNamed.find(c); named != kNamed.npos) {
      to += '\\';
      to += kNames[named];
    } else if (static_cast<unsigned char>(c) < 0x20) {
      to += "\\u00";
      to += kHex[c >> 4];
      to += kHex[c & 15];
    } else if (ok) {
      to.append(text, i, length);
    } else {
      to += "\xef\xbf\xbd";
    }
    i += length;
  }
  to += '"';
}

// A name or an index of a JSON pointer, with ~1 for / and ~0 for ~.
std::string unescaped(std::string_view token, std::string_view pointer) {
  std::string text;
  for (std::size_t i = 0; i < token.size(); ++i) {
    if (token[i] != '~') {
      text += token[i];
      continue;
    }
    if (++i == token.size() || (token[i] != '0' && token[i] != '1'))
      throw std::invalid_argument("JSON pointer '" + std::string(pointer) +
                                  "': behind ~ there must be 0 (for ~) or 1 (for /)");
    text += token[i] == '0' ? '~' : '/';
  }
  return text;
}

}  // namespace

Value::Value(const std::vector<std::string>& texts)
    : kind_(Kind::kArray), items_(texts.begin(), texts.end()) {}

Value::Value(const std::vector<std::int64_t>& numbers)
    : kind_(Kind::kArray), items_(numbers.begin(), numbers.end()) {}

Value::Value(std::initializer_list<Value> list) : kind_(Kind::kArray) {
  if (!std::all_of(list.begin(), list.end(), [](const Value& item) {
        return item.is_array() && item.size() == 2 && item.front().is_string();
      })) {
    items_ = list;
    return;
  }
  kind_ = Kind::kObject;
  for (const Value& pair : list) (*this)[pair.front().text_] = pair.back();
}

Value Value::object() {
  Value value;
  value.kind_ = Kind::kObject;
  return value;
}

// Takes apart what lies inside one another, however deep, without a call for each level.
void Value::unnest() {
  std::vector<Value> left = std::move(items_);
  while (!left.empty()) {
    std::vector<Value> inner = std::move(left.back().items_);
    left.pop_back();
    for (Value& value : inner)
      if (!value.items_.empty()) left.push_back(std::move(value));
  }
}

void Value::not_a(const char* wanted) const {
  const char* const names[] = {"null",     "true or false", "a number", "a number",
                               "a number", "a text",        "an array", "an object"};
  throw std::runtime_error(std::string("JSON: ") + names[static_cast<int>(kind_)] + " where " +
                           wanted + " is expected");
}

template <class T>
T Value::number() const {
  switch (kind_) {
    case Kind::kSigned:
      return static_cast<T>(scalar_.signed_integer);
    case Kind::kUnsigned:
      return static_cast<T>(scalar_.unsigned_integer);
    case Kind::kDouble:
      return static_cast<T>(scalar_.real);
    default:
      not_a("a number");
  }
}
template <>
int Value::get() const {
  return number<int>();
}
template <>
std::int64_t Value::get() const {
  return number<std::int64_t>();
}
template <>
std::uint64_t Value::get() const {
  return number<std::uint64_t>();
}
template <>
double Value::get() const {
  return number<double>();
}
template <>
bool Value::get() const {
  if (!is_boolean()) not_a("true or false");
  return scalar_.boolean;
}
template <>
std::string Value::get() const {
  if (!is_string()) not_a("a text");
  return text_;
}
template <>
std::vector<std::int64_t> Value::get() const {
  if (!is_array()) not_a("an array");
  std::vector<std::int64_t> numbers;
  for (const Value& item : items_) numbers.push_back(item.get<std::int64_t>());
  return numbers;
}

void Value::push_back(Value value) {
  if (is_null()) kind_ = Kind::kArray;
  if (!is_array()) not_a("an array");
  items_.push_back(std::move(value));
}

const Value* Value::find(std::string_view name) const {
  for (std::size_t i = 0; i < names_.size(); ++i)
    if (names_[i] == name) return &items_[i];
  return nullptr;
}

const Value& Value::at(std::string_view name) const {
  if (!is_object()) not_a("an object");
  const Value* const found = find(name);
  if (!found) throw std::runtime_error("JSON: '" + std::string(name) + "' is missing");
  return *found;
}

Value& Value::operator[](std::string_view name) {
  if (is_null()) kind_ = Kind::kObject;
  if (!is_object()) not_a("an object");
  for (std::size_t i = 0; i < names_.size(); ++i)
    if (names_[i] == name) return items_[i];
  names_.emplace_back(name);
  return items_.emplace_back();
}

void Value::update(const Value& object) {
  if (!object.is_object()) object.not_a("an object");
  for (std::size_t i = 0; i < object.size(); ++i) (*this)[object.names_[i]] = object.items_[i];
}

const Value* Value::find_path(std::string_view pointer) const {
  if (!pointer.empty() && pointer[0] != '/')
    throw std::invalid_argument("JSON pointer '" + std::string(pointer) +
                                "': it must be empty or begin with /");
  std::vector<std::string> tokens;
  for (std::size_t at = 0; at < pointer.size();) {
    const std::size_t end = std::min(pointer.find('/', at + 1), pointer.size());
    tokens.push_back(unescaped(pointer.substr(at + 1, end - at - 1), pointer));
    at = end;
  }
  const Value* value = this;
  for (const std::string& token : tokens) {
    if (value->is_array()) {
      const bool digits = !token.empty() && token.size() < 19 &&
                          (token == "0" || token[0] != '0') &&
                          token.find_first_not_of("0123456789") == token.npos;
      const std::size_t index = digits ? std::stoull(token) : value->size();
      value = index < value->size() ? &value->items_[index] : nullptr;
    } else {
      value = value->find(token);
    }
    if (!value) return nullptr;
  }
  return value;
}

std::string Value::dump(int indent) const {
  std::string text;
  write(text, indent, 0);
  return text;
}

void Value::write(std::string& to, int indent, std::size_t column) const {
  switch (kind_) {
    case Kind::kNull:
      to += "null";
      return;
    case Kind::kBool:
      to += scalar_.boolean ? "true" : "false";
      return;
    case Kind::kSigned:
      to += std::to_string(scalar_.signed_integer);
      return;
    case Kind::kUnsigned:
      to += std::to_string(scalar_.unsigned_integer);
      return;
    case Kind::kDouble:
      to += std::isfinite(scalar_.real) ? number_text(scalar_.real) : "null";
      return;
    case Kind::kText:
      write_text(to, text_);
      return;
    case Kind::kArray:
    case Kind::kObject:
      break;
  }
  to += is_object() ? '{' : '[';
  const std::size_t inner = column + static_cast<std::size_t>(std::max(indent, 0));
  for (std::size_t i = 0; i < items_.size(); ++i) {
    if (i) to += ',';
    if (indent >= 0) to.append(1, '\n').append(inner, ' ');
    if (is_object()) {
      write_text(to, names_[i]);
      to += indent >= 0 ? ": " : ":";
    }
    items_[i].write(to, indent, inner);
  }
  if (indent >= 0 && !items_.empty()) to.append(1, '\n').append(column, ' ');
  to += is_object() ? '}' : ']';
}

}  // namespace json
