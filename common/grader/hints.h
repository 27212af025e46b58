// Hints by the words of a message.
#pragma once

#include <string>

namespace lab::grader {

struct Hint {
  std::string seen;   // first stage: what is seen, and where to look
  std::string cause;  // second stage: what it may come from
};

// What to think about after findings of the virtual GPU or an error of CUDA; empty for other messages.
// text: the source that their lines are of.
Hint hint_for(const std::string& message, const std::string& text = "");

}  // namespace lab::grader
