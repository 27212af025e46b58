// The characters of PTX: blanks, names, words, strings, numbers.
#include "parser.h"

#include <cctype>
#include <cstdlib>
#include <cstring>

namespace vgpu {

char Parser::peek(std::size_t ahead) const {
  return pos_ + ahead < text_.size() ? text_[pos_ + ahead] : '\0';
}

void Parser::fail(const std::string& what) const {
  throw PtxError("PTX line " + std::to_string(line_) + ": " + what, static_cast<int>(line_));
}

void Parser::skip_space() {
  for (;;) {
    const char c = peek();
    if (c == '\n') {
      ++line_;
      ++pos_;
    } else if (c == ' ' || c == '\t' || c == '\r') {
      ++pos_;
    } else if (c == '/' && peek(1) == '/') {
      while (!at_end() && peek() != '\n') ++pos_;
    } else if (c == '/' && peek(1) == '*') {
      pos_ += 2;
      while (!at_end() && !(peek() == '*' && peek(1) == '/')) {
        if (peek() == '\n') ++line_;
        ++pos_;
      }
      if (at_end()) fail("comment without end");
      pos_ += 2;
    } else if (c == '\0' && pos_ + 1 >= text_.size() && !at_end()) {
      ++pos_;  // a terminating zero of an embedded image
    } else {
      return;
    }
  }
}

bool Parser::accept(char c) {
  skip_space();
  if (peek() != c) return false;
  ++pos_;
  return true;
}

void Parser::expect(char c) {
  if (!accept(c)) fail(std::string("expected '") + c + "', found '" + near() + "'");
}

std::string Parser::near() const {
  std::size_t end = pos_;
  while (end < text_.size() && end < pos_ + 24 && text_[end] != '\n') ++end;
  return std::string(text_.substr(pos_, end - pos_));
}

std::string_view Parser::name() {
  skip_space();
  const std::size_t start = pos_;
  if (!starts_name(peek())) fail("expected a name, found '" + near() + "'");
  ++pos_;
  while (in_name(peek())) ++pos_;
  return text_.substr(start, pos_ - start);
}

std::string_view Parser::dotted() {
  skip_space();
  const std::size_t start = pos_;
  while (in_name(peek()) || peek() == '.' || peek() == '%' || (peek() == ':' && peek(1) == ':') ||
         (peek() == ':' && pos_ > start && text_[pos_ - 1] == ':'))
    ++pos_;
  if (pos_ == start) fail("expected a word, found '" + near() + "'");
  return text_.substr(start, pos_ - start);
}

std::string_view Parser::directive() {
  skip_space();
  const std::size_t start = pos_;
  if (peek() != '.' || !starts_name(peek(1))) fail("expected a directive, found '" + near() + "'");
  ++pos_;
  while (in_name(peek())) ++pos_;
  return text_.substr(start, pos_ - start);
}

bool Parser::accept_word(std::string_view word) {
  skip_space();
  if (text_.substr(pos_, word.size()) != word) return false;
  const char after = peek(word.size());
  if (in_name(after)) return false;
  pos_ += word.size();
  return true;
}

std::string Parser::quoted() {
  expect('"');
  std::string result;
  const auto octal = [&](std::size_t ahead) { return peek(ahead) >= '0' && peek(ahead) <= '7'; };
  while (!at_end() && peek() != '"') {
    const bool escaped = peek() == '\\' && pos_ + 1 < text_.size();
    if (escaped) ++pos_;
    // A byte beyond ASCII, as of an umlaut in a folder's name: \303.
    if (escaped && octal(0) && octal(1) && octal(2)) {
      result += static_cast<char>((peek(0) - '0') * 64 + (peek(1) - '0') * 8 + peek(2) - '0');
      pos_ += 3;
    } else {
      result += text_[pos_++];
    }
  }
  if (at_end()) fail("string without end");
  ++pos_;
  return result;
}

bool Parser::number(std::int64_t& value, int& bits) {
  skip_space();
  std::size_t p = pos_;
  bool negative = false;
  if (p < text_.size() && (text_[p] == '-' || text_[p] == '+')) negative = text_[p++] == '-';
  if (p >= text_.size() || !std::isdigit(static_cast<unsigned char>(text_[p]))) return false;
  bits = 0;
  std::uint64_t v = 0;
  auto digits = [&](int base) {
    const std::size_t start = p;
    while (p < text_.size()) {
      const char c = static_cast<char>(std::tolower(static_cast<unsigned char>(text_[p])));
      const int d = std::isdigit(static_cast<unsigned char>(c)) ? c - '0'
                    : c >= 'a' && c <= 'f'                      ? c - 'a' + 10
                                                                : 99;
      if (d >= base) break;
      v = v * base + d;
      ++p;
    }
    return p > start;
  };
  const char second = p + 1 < text_.size() ? text_[p + 1] : '\0';
  if (text_[p] == '0' && (second == 'x' || second == 'X')) {
    p += 2;
    if (!digits(16)) fail("bad hexadecimal number");
  } else if (text_[p] == '0' && (second == 'b' || second == 'B')) {
    p += 2;
    if (!digits(2)) fail("bad binary number");
  } else if (text_[p] == '0' && (second == 'f' || second == 'F')) {
    p += 2;
    if (!digits(16)) fail("bad 0f number");
    bits = 32;
  } else if (text_[p] == '0' && (second == 'd' || second == 'D')) {
    p += 2;
    if (!digits(16)) fail("bad 0d number");
    bits = 64;
  } else {
    std::size_t q = p;
    while (q < text_.size() && std::isdigit(static_cast<unsigned char>(text_[q]))) ++q;
    if (q < text_.size() && (text_[q] == '.' || text_[q] == 'e' || text_[q] == 'E')) {
      const std::string copy(text_.substr(p, 64));
      char* end = nullptr;
      const double d = std::strtod(copy.c_str(), &end);
      p += end - copy.c_str();
      std::memcpy(&v, &d, 8);
      bits = 64;
    } else if (text_[p] == '0' && q > p + 1) {
      digits(8);
    } else {
      digits(10);
    }
  }
  if (bits == 0 && p < text_.size() && text_[p] == 'U') ++p;
  if (negative) v = bits == 32 ? v ^ 0x80000000u : bits == 64 ? v ^ (1ull << 63) : 0 - v;
  value = static_cast<std::int64_t>(v);
  pos_ = p;
  return true;
}

std::int64_t Parser::integer() {
  std::int64_t value;
  int bits;
  if (!number(value, bits) || bits != 0) fail("expected an integer, found '" + near() + "'");
  return value;
}

}  // namespace vgpu
