#include "pictures.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>

#include "../../../common/lab/files.h"

namespace training {
namespace {

using Colour = unsigned char[3];
constexpr Colour kInk = {40, 44, 52}, kGrey = {200, 204, 210}, kPale = {158, 196, 232},
                 kDark = {24, 92, 160}, kRed = {176, 44, 44};

// Columns of a letter from left to right, its lowest bit on top.
struct Glyph {
  char letter;
  unsigned char columns[5];
};
constexpr Glyph kGlyphs[] = {
    {'%', {0x23, 0x13, 0x08, 0x64, 0x62}}, {'(', {0x00, 0x1c, 0x22, 0x41, 0x00}},
    {')', {0x00, 0x41, 0x22, 0x1c, 0x00}}, {',', {0x00, 0x50, 0x30, 0x00, 0x00}},
    {'-', {0x08, 0x08, 0x08, 0x08, 0x08}}, {'.', {0x00, 0x60, 0x60, 0x00, 0x00}},
    {'/', {0x20, 0x10, 0x08, 0x04, 0x02}}, {':', {0x00, 0x36, 0x36, 0x00, 0x00}},
    {'0', {0x3e, 0x51, 0x49, 0x45, 0x3e}}, {'1', {0x00, 0x42, 0x7f, 0x40, 0x00}},
    {'2', {0x42, 0x61, 0x51, 0x49, 0x46}}, {'3', {0x21, 0x41, 0x45, 0x4b, 0x31}},
    {'4', {0x18, 0x14, 0x12, 0x7f, 0x10}}, {'5', {0x27, 0x45, 0x45, 0x45, 0x39}},
    {'6', {0x3c, 0x4a, 0x49, 0x49, 0x30}}, {'7', {0x01, 0x71, 0x09, 0x05, 0x03}},
    {'8', {0x36, 0x49, 0x49, 0x49, 0x36}}, {'9', {0x06, 0x49, 0x49, 0x29, 0x1e}},
    {'A', {0x7e, 0x11, 0x11, 0x11, 0x7e}}, {'B', {0x7f, 0x49, 0x49, 0x49, 0x36}},
    {'C', {0x3e, 0x41, 0x41, 0x41, 0x22}}, {'D', {0x7f, 0x41, 0x41, 0x22, 0x1c}},
    {'E', {0x7f, 0x49, 0x49, 0x49, 0x41}}, {'F', {0x7f, 0x09, 0x09, 0x09, 0x01}},
    {'G', {0x3e, 0x41, 0x49, 0x49, 0x7a}}, {'H', {0x7f, 0x08, 0x08, 0x08, 0x7f}},
    {'I', {0x00, 0x41, 0x7f, 0x41, 0x00}}, {'J', {0x20, 0x40, 0x41, 0x3f, 0x01}},
    {'K', {0x7f, 0x08, 0x14, 0x22, 0x41}}, {'L', {0x7f, 0x40, 0x40, 0x40, 0x40}},
    {'M', {0x7f, 0x02, 0x0c, 0x02, 0x7f}}, {'N', {0x7f, 0x04, 0x08, 0x10, 0x7f}},
    {'O', {0x3e, 0x41, 0x41, 0x41, 0x3e}}, {'P', {0x7f, 0x09, 0x09, 0x09, 0x06}},
    {'Q', {0x3e, 0x41, 0x51, 0x21, 0x5e}}, {'R', {0x7f, 0x09, 0x19, 0x29, 0x46}},
    {'S', {0x46, 0x49, 0x49, 0x49, 0x31}}, {'T', {0x01, 0x01, 0x7f, 0x01, 0x01}},
    {'U', {0x3f, 0x40, 0x40, 0x40, 0x3f}}, {'V', {0x1f, 0x20, 0x40, 0x20, 0x1f}},
    {'W', {0x3f, 0x40, 0x38, 0x40, 0x3f}}, {'X', {0x63, 0x14, 0x08, 0x14, 0x63}},
    {'Y', {0x07, 0x08, 0x70, 0x08, 0x07}}, {'Z', {0x61, 0x51, 0x49, 0x45, 0x43}},
};
constexpr int kLetter = 6, kLine = 9;  // pixels from letter to letter, from line to line

lab::Image white(int width, int height) {
  return {width, height, std::vector<unsigned char>(size_t(width) * size_t(height) * 3, 255)};
}

void dot(lab::Image& image, int x, int y, const Colour& colour) {
  if (x < 0 || y < 0 || x >= image.width || y >= image.height) return;
  std::memcpy(image.rgb.data() + (size_t(y) * size_t(image.width) + size_t(x)) * 3, colour, 3);
}

void line(lab::Image& image, double x0, double y0, double x1, double y1, int thick,
          const Colour& colour) {
  const int steps = int(std::max({std::abs(x1 - x0), std::abs(y1 - y0), 1.0})) * 2;
  for (int i = 0; i <= steps; ++i) {
    const int x = int(std::lround(x0 + (x1 - x0) * i / steps)),
              y = int(std::lround(y0 + (y1 - y0) * i / steps));
    for (int dy = 0; dy < thick; ++dy)
      for (int dx = 0; dx < thick; ++dx) dot(image, x + dx, y + dy, colour);
  }
}

// 1, 2 or 5 times a power of ten, so that at most `most` of them fill `whole`.
double tick_distance(double whole, int most) {
  for (double power = 1e-3;; power *= 10)
    for (const double factor : {1, 2, 5})
      if (whole / (factor * power) <= most) return factor * power;
}

}  // namespace

void draw_text(lab::Image& image, int x, int y, const std::string& text, int size,
               const unsigned char (&colour)[3]) {
  for (const char given : text) {
    const char letter = char(std::toupper(static_cast<unsigned char>(given)));
    for (const Glyph& glyph : kGlyphs)
      for (int i = 0; glyph.letter == letter && i < 5 * 7 * size * size; ++i) {
        const int across = i % (5 * size), down = i / (5 * size);
        if (glyph.columns[across / size] >> (down / size) & 1)
          dot(image, x + across, y + down, colour);
      }
    x += kLetter * size;
  }
}

lab::Image loss_curve(const std::vector<float>& losses, const std::string& below) {
  constexpr int kWidth = 720, kHeight = 420, kLeft = 64, kRight = 20, kTop = 34, kBottom = 64;
  lab::Image image = white(kWidth, kHeight);
  const double steps = std::max<double>(1, double(losses.size()) - 1);
  const double most = std::max(0.5, 1.05 * double(*std::max_element(losses.begin(), losses.end())));
  const auto x_of = [&](double step) { return kLeft + step / steps * (kWidth - kLeft - kRight); };
  const auto y_of = [&](double loss) {
    return kHeight - kBottom - loss / most * (kHeight - kTop - kBottom);
  };
  draw_text(image, kLeft, 10, "loss of each step, and the mean of 20", 2, kInk);
  const double tick = tick_distance(most, 6), step_tick = std::max(1.0, tick_distance(steps, 8));
  for (double value = 0; value <= most; value += tick) {
    line(image, kLeft, y_of(value), kWidth - kRight, y_of(value), 1, kGrey);
    draw_text(image, 10, int(y_of(value)) - 6, lab::format("%.1f", value), 2, kInk);
  }
  for (double step = 0; step <= steps; step += step_tick) {
    line(image, x_of(step), y_of(0), x_of(step), y_of(0) + 5, 1, kInk);
    const std::string text = lab::format("%.0f", step);
    draw_text(image, int(x_of(step)) - kLetter * int(text.size()), int(y_of(0)) + 9, text, 2, kInk);
  }
  double sum = 0, before = 0;
  for (size_t i = 0; i < losses.size(); ++i) {
    if (i > 0)
      line(image, x_of(double(i) - 1), y_of(losses[i - 1]), x_of(double(i)), y_of(losses[i]), 1,
           kPale);
  }
  for (size_t i = 0; i < losses.size(); ++i) {
    sum += losses[i] - (i >= 20 ? losses[i - 20] : 0.0f);
    const double mean = sum / double(std::min<size_t>(i + 1, 20));
    if (i > 0)
      line(image, x_of(double(i) - 1), y_of(before), x_of(double(i)), y_of(mean), 2, kDark);
    before = mean;
  }
  draw_text(image, kLeft, kHeight - 26, below, 2, kInk);
  return image;
}

lab::Image misread_sheet(const Dataset& data, const std::vector<Misread>& misread,
                         const std::string& title) {
  constexpr int kColumns = 6, kMost = 24, kZoom = 3, kCell = 132, kHead = 34,
                kRow = kSide * kZoom + 2 * 2 * kLine + 14;
  const int shown = std::min(int(misread.size()), kMost);
  lab::Image image =
      white(kColumns * kCell + 12, kHead + std::max(1, (shown + 5) / kColumns) * kRow);
  draw_text(image, 12, 10, title, 2, kInk);
  for (int i = 0; i < shown; ++i) {
    const Misread& one = misread[i];
    const int left = 12 + i % kColumns * kCell, top = kHead + i / kColumns * kRow;
    for (int y = 0; y < kSide * kZoom; ++y)
      for (int x = 0; x < kSide * kZoom; ++x) {
        const uint8_t value = data.images[(size_t(one.number) * kSide + size_t(y / kZoom)) * kSide +
                                          size_t(x / kZoom)];
        const Colour grey = {value, value, value};
        dot(image, left + x, top + y, grey);
      }
    const int text = top + kSide * kZoom + 5;
    draw_text(image, left, text, lab::format("is %s", class_name(one.label)), 1, kInk);
    draw_text(image, left, text + kLine + 3,
              lab::format("read %s %.0f%%", class_name(one.answer), 100 * one.probability), 1,
              kRed);
  }
  return image;
}

}  // namespace training
