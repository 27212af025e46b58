// Pictures of a training: the curve of its losses, and the images that it misreads.
#pragma once

#include <string>
#include <vector>

#include "../../../common/lab/images.h"
#include "data.h"

namespace training {

// 5 x 7 pixels a letter, times `size`: capitals (small letters are drawn as such), digits, "
// %(),-.:/".
void draw_text(lab::Image& image, int x, int y, const std::string& text, int size,
               const unsigned char (&colour)[3]);

// Losses of the steps (pale) and their mean over the last 20 steps (dark), from 0 on; `below`
// stands under it.
lab::Image loss_curve(const std::vector<float>& losses, const std::string& below);

// A held-out image, what it is and what the net took it for, with its probability.
struct Misread {
  int number, label, answer;
  double probability;
};
// The first 24 of them, each three times as large over two lines of text; `title` stands above.
lab::Image misread_sheet(const Dataset& data, const std::vector<Misread>& misread,
                         const std::string& title);

}  // namespace training
