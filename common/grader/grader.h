// The grader of the chapters' exercises, as an exercise.cu sees it. A student writes a function in
// exercise.cuh; the grader compiles it, runs it on the virtual GPU in processes of their own with
// limits on time, memory and instructions, and gives points.
#pragma once

#include <vector>

#include "counters.h"
#include "task.h"

namespace lab::grader {

// main() of an exercise's program: flags, grading, report; the tasks are chosen between by name
// (--task; the first is the default). Exit codes as lab::ExitCode: kCorrect only at full points.
int grader_main(int argc, char** argv, const std::vector<Task>& tasks);

}  // namespace lab::grader
