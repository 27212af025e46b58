// Mutations: of bytes, and of text by its tokens.
#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <string_view>

#include "fuzz.h"

namespace vgpu::fuzz {
namespace {

constexpr std::size_t kMostBytes = 1u << 18;

constexpr std::uint64_t kNumbers[] = {0,
                                      1,
                                      2,
                                      7,
                                      31,
                                      32,
                                      33,
                                      255,
                                      256,
                                      1024,
                                      65535,
                                      65536,
                                      0x7fffffff,
                                      0x80000000,
                                      0xffffffff,
                                      0x100000000,
                                      0x7fffffffffffffff,
                                      0x8000000000000000,
                                      0xffffffffffffffff,
                                      0xfffffffffffffff0};

constexpr std::string_view kTokens[] = {"-1",
                                        "0",
                                        "16",
                                        "99999999999",
                                        "0x7fffffff",
                                        "4294967296",
                                        "18446744073709551615",
                                        "-9223372036854775808",
                                        "1e999",
                                        "0f7F800000",
                                        "0d7FF0000000000000",
                                        "{",
                                        "}",
                                        "[",
                                        "]",
                                        "(",
                                        ")",
                                        ";",
                                        ",",
                                        ":",
                                        "|",
                                        "!",
                                        "_",
                                        "+",
                                        "\"",
                                        "/*",
                                        "//",
                                        "<",
                                        ">",
                                        "=",
                                        "@",
                                        "%p1",
                                        "%p0",
                                        "%h1",
                                        "%rs1",
                                        "%r1",
                                        "%rd1",
                                        "%f1",
                                        "%fd1",
                                        "%q1",
                                        "%tid.x",
                                        "%laneid",
                                        "%clock64",
                                        "%envreg1",
                                        "WARP_SZ",
                                        ".global",
                                        ".shared",
                                        ".local",
                                        ".const",
                                        ".param",
                                        ".v2",
                                        ".v4",
                                        ".v8",
                                        ".pred",
                                        ".b8",
                                        ".u16",
                                        ".b32",
                                        ".u64",
                                        ".f32",
                                        ".f64",
                                        ".b128",
                                        ".align",
                                        ".extern",
                                        ".reg",
                                        ".entry",
                                        ".func",
                                        ".visible",
                                        ".branchtargets",
                                        ".callprototype",
                                        "bra",
                                        "call",
                                        "ret;",
                                        "exit;",
                                        "trap;",
                                        "brx.idx",
                                        "bar.sync",
                                        "1073741824"};

bool word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%' ||
         c == '.';
}

std::vector<std::string> tokens_of(std::string_view text) {
  std::vector<std::string> tokens;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i + 1;
    if (word(text[i]))  // "ld.global.u32" is three tokens, so that modifiers change places
      while (end < text.size() && word(text[end]) && text[end] != '.') ++end;
    tokens.emplace_back(text.substr(i, end - i));
    i = end;
  }
  return tokens;
}
std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t end = std::min(text.find('\n', i), text.size() - 1) + 1;
    lines.emplace_back(text.substr(i, end - i));
    i = end;
  }
  return lines;
}
std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts)
    if (text.size() + part.size() <= kMostBytes) text += part;
  return text;
}
bool is_number(const std::string& token) {
  return !token.empty() && std::isdigit(static_cast<unsigned char>(token[0]));
}

// The same kind of token from somewhere else: a register for a register, a modifier for a modifier.
std::string relative(const std::vector<std::string>& tokens, const std::string& token,
                     Random& random) {
  for (int tries = 0; tries < 60; ++tries) {
    const std::string& other = random.pick(tokens);
    if (other != token && other[0] == token[0]) return other;
  }
  return std::string(random.pick(kTokens));
}

void change_tokens(std::string& text, const std::string& other, Random& random) {
  std::vector<std::string> tokens = tokens_of(text);
  if (tokens.empty()) return;
  std::size_t at = random.below(tokens.size());
  for (int tries = 0; tries < 8 && std::isspace(static_cast<unsigned char>(tokens[at][0])); ++tries)
    at = random.below(tokens.size());
  switch (random.below(9)) {
    case 0:
      tokens[at] = std::string(random.pick(kTokens));
      break;
    case 1:
    case 2:
    case 3:
      tokens[at] = relative(tokens, tokens[at], random);
      break;
    case 4:
      tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(at));
      break;
    case 5:
      tokens.insert(tokens.begin() + static_cast<std::ptrdiff_t>(at),
                    std::string(random.pick(kTokens)) + " ");
      break;
    case 6:
      std::swap(tokens[at], tokens[random.below(tokens.size())]);
      break;
    case 7:
      tokens[at] =
          relative(tokens_of(std::string_view(other).substr(0, 1u << 14)), tokens[at], random);
      break;
    default:  // a number becomes an extreme one
      for (std::size_t k = 0; k < tokens.size(); ++k) {
        std::string& token = tokens[(at + k) % tokens.size()];
        if (!is_number(token)) continue;
        token = std::to_string(random.pick(kNumbers) + random.below(3) - 1);
        break;
      }
  }
  text = joined(tokens);
}

void change_lines(std::string& text, const std::string& other, Random& random) {
  std::vector<std::string> lines = lines_of(text), more = lines_of(other);
  if (lines.empty()) return;
  const auto at = lines.begin() + static_cast<std::ptrdiff_t>(random.below(lines.size()));
  switch (random.below(6)) {
    case 0: {
      const std::string copy = *at;
      lines.insert(at, copy);
      break;
    }
    case 1:
      lines.erase(at);
      break;
    case 2:
      std::swap(*at, lines[random.below(lines.size())]);
      break;
    case 3:
      if (!more.empty()) {
        const std::string taken = random.pick(more);
        lines.insert(at, taken);
      }
      break;
    case 4: {  // many of one line
      const std::string copy = *at;
      lines.insert(at, 1 + random.below(300), copy);
      break;
    }
    default: {  // nested deep
      const std::string open(1 + random.below(2000), "{[(!|"[random.below(5)]);
      lines.insert(at, open);
    }
  }
  text = joined(lines);
}

}  // namespace

std::string mutate_bytes(std::string bytes, const std::string& other, Random& random) {
  for (std::uint64_t edits = 1 + random.below(4); edits-- > 0;) {
    if (bytes.empty()) bytes = "\0";
    const std::size_t at = random.below(bytes.size());
    const std::size_t length = std::min<std::size_t>(1 + random.below(64), bytes.size() - at);
    switch (random.below(8)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.below(8)));
        break;
      case 1:
        bytes[at] = static_cast<char>(random.engine());
        break;
      case 2:
        bytes.resize(at);
        break;
      case 3:
        bytes.erase(at, length);
        break;
      case 4:
        bytes.insert(at, bytes.substr(random.below(bytes.size()), length));
        break;
      case 5:
        if (!other.empty()) bytes.insert(at, other.substr(random.below(other.size()), length));
        break;
      default: {  // a length, a count, an offset
        const std::uint64_t value = random.pick(kNumbers) + random.below(3) - 1;
        const std::size_t width = std::size_t{1} << random.below(4);
        const std::size_t place = at / width * width;
        if (place + width <= bytes.size()) std::memcpy(bytes.data() + place, &value, width);
      }
    }
    if (bytes.size() > kMostBytes) bytes.resize(kMostBytes);
  }
  return bytes;
}

std::string mutate_text(const std::string& text, const std::string& other, Random& random) {
  if (random.chance(12)) return mutate_bytes(text, other, random);
  std::string result = text;
  for (std::uint64_t edits = 1 + random.below(4); edits-- > 0;) {
    if (random.chance(4))
      change_lines(result, other, random);
    else
      change_tokens(result, other, random);
  }
  return result;
}

}  // namespace vgpu::fuzz
