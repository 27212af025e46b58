// How a wrong output is wrong, as far as its numbers tell: the first stage of a hint says that, the
// second what it comes from.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "task.h"

namespace lab::grader {

struct Symptom {
  enum Kind {
    unwritten,    // the first wrong element was never written
    not_finite,   // it is NaN or infinite
    zero,         // all wrong elements are 0
    constant,     // all wrong elements are one number
    factor,       // each wrong row is the right one, times a number
    exchanged,    // each wrong part along one axis is the right one of another index
    alternative,  // the output is one of Case::alternatives
    rounding,     // each element is right, all together are too far off
    other
  } kind = other;
  std::string words;  // first stage: what is seen
  std::string cause;  // second stage
};
const char* symptom_name(Symptom::Kind kind);

// What is wrong with an output that did not pass the comparison. untouched: elements that nobody
// wrote.
Symptom find_symptom(const Case& problem, const std::vector<double>& got,
                     const std::vector<bool>& untouched);

// What the right problems have in common and the wrong ones do not, by their sizes: "right are the
// problems with up to 64 keys, wrong are those from 65 on"; "" where nothing shows.
std::string find_pattern(const std::vector<Case>& cases, const std::set<size_t>& right);

}  // namespace lab::grader
