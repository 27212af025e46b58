// Which of a chapter's steps a program runs.
#pragma once

#include <string>
#include <vector>

#include "errors.h"

namespace lab {

// The step of that name, or without a name all that are no variants. A step has a name; where it has
// `variant` and that is true, it was tried and not kept. Throws UsageError with all names where there
// is none, and with what else decides which there are: "--step 'x': must be tiled or fused, with --storage fp16".
template <class Step>
std::vector<Step> chosen_steps(const std::string& name, const std::vector<Step>& steps,
                               const std::string& what_else = "") {
  std::vector<Step> chosen;
  std::string names;
  for (const Step& step : steps) {
    names += (names.empty() ? "" : &step == &steps.back() ? " or " : ", ") + step.name;
    bool variant = false;
    if constexpr (requires { step.variant; }) variant = step.variant;
    if (name.empty() ? !variant : name == step.name) chosen.push_back(step);
  }
  if (chosen.empty()) throw UsageError("--step '" + name + "': must be " + names + what_else);
  return chosen;
}

}  // namespace lab
