// Which submissions of a folder are compiled together.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace lab::grader {

// Calls work(0), ..., work(count - 1) on all cores; the first exception is thrown again.
void in_parallel(size_t count, const std::function<void(size_t)>& work);

// Deals 0, ..., files - 1 out to so many groups and calls compiles(group) for each, on all cores. A group
// that does not compile is halved, and the halves are tried again, down to two files: one that does not
// compile, or two that do not go together, cost a few short calls and leave the others a group. Whoever
// is in no group that compiles is compiled alone.
using Group = std::vector<size_t>;
void try_groups(size_t files, size_t groups, const std::function<bool(const Group&)>& compiles);

}  // namespace lab::grader
