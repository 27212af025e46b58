// What a program throws where the user or the machine is at fault.
#pragma once

#include <stdexcept>

namespace lab {

// Bad usage or input: the message says what was wrong, with the value, and what would be right.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// This device or machine lacks what is asked.
struct LackError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace lab
