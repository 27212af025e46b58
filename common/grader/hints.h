// Hints by the words of a message: first stage, second stage.
#pragma once

#include <string>

namespace lab::grader {

// What to think about after findings of the virtual GPU or an error of CUDA; "" for other messages.
// text: the source that their lines are of.
std::string hint_for(const std::string& message, const std::string& text = "");
// The first stage of the same: what is seen, and where to look.
std::string first_look(const std::string& message);

}  // namespace lab::grader
