// 128 bits that stand for a text: the name of an entry on disk, the sign that it is whole. Not for
// secrets.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace vgpu::time {

struct Hash {
  std::uint64_t a = 0, b = 0;
  bool operator==(const Hash&) const = default;
  std::string hex() const {
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string text(32, '0');
    for (int i = 0; i < 16; ++i) {
      text[i] = kDigits[a >> (60 - 4 * i) & 15];
      text[16 + i] = kDigits[b >> (60 - 4 * i) & 15];
    }
    return text;
  }
};

// Two products of 64 x 64 bits for each 16 bytes, folded.
inline Hash hash_of(std::string_view text, Hash seed = {}) {
  const auto fold = [](std::uint64_t x, std::uint64_t y) {
    const unsigned __int128 product = static_cast<unsigned __int128>(x) * y;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  };
  constexpr std::uint64_t kOdd[4] = {0x9e3779b97f4a7c15, 0xc2b2ae3d27d4eb4f, 0xd6e8feb86659fd93,
                                     0xa0761d6478bd642f};
  std::uint64_t a = seed.a ^ kOdd[0], b = seed.b ^ kOdd[1] ^ text.size();
  for (std::size_t at = 0; at < text.size(); at += 16) {
    std::uint64_t word[2] = {};
    std::memcpy(word, text.data() + at, text.size() - at < 16 ? text.size() - at : 16);
    const std::uint64_t next = fold(a ^ word[0] ^ kOdd[2], b + (word[1] ^ kOdd[3]));
    b = fold(b ^ word[1] ^ kOdd[0], a + (word[0] ^ kOdd[1])) + next;
    a = next ^ (a << 23 | a >> 41);
  }
  return {fold(a ^ kOdd[3], b ^ kOdd[2]), fold(b + kOdd[0], a ^ kOdd[1])};
}

}  // namespace vgpu::time
