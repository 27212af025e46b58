// What the tests of chapters 2 to 6 share: each function is the body of a doctest case about one
// step of the ladder. Without a device, real or virtual, those that need one say so and pass. What knows
// nothing of attention is in testing/checks.h.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "inputs.h"
#include "test_cases.h"
#include "testing/checks.h"

namespace lab::testing {

// ---- Right results ------------------------------------------------------------------------------

// Right on this case, within its tolerance.
void check_right(const AnyAttention& attention, const AttentionCase& problem);
// On the course's shapes, ragged tails and all.
void check_every_shape(const AnyAttention& attention);
// On scores beyond +-88, where exp of a score overflows; with a scale that is not positive; on
// scores that fall and rise from tile to tile.
void check_unusual_scores(const AnyAttention& attention);
// O is rounded once, to nearest: exactly, where it can be.
void check_rounding(const AnyAttention& attention);
// On arrays from PyTorch, and on those of a trained DeiT-Tiny where they are there.
void check_pytorch(const AnyAttention& attention);
void check_deit_tiny(const AnyAttention& attention);
// The same bits when it runs again, and when it is replayed from a CUDA graph.
void check_same_bits(const AnyAttention& attention);
// std::invalid_argument for shapes it cannot do, naming shape and limit, and for each of the first
// `aligned` of Q, K, V and O that does not start at a multiple of 16 bytes.
void check_refusals(const AnyAttention& attention, int aligned);

// ---- Planted bugs, checks, machine code ---------------------------------------------------------

// Kernel number `number` of the mutants as an attention function.
using MutantAttention = std::function<AnyAttention(const Mutants& mutants, size_t number)>;
// The kernel as it is passes on all cases without a finding of the virtual GPU's checks, and each
// mutant is caught by what it says: an Outcome's word, or "check" where a race, init or sync check
// sees it, whatever the result. An "error" stays in the device: it comes last. For a test
// case whose name begins with "planted bugs". instances: of a kernel that is a template, those that
// `attention` launches; no others are compiled.
void check_planted_bugs(const std::string& file, const std::string& name_space,
                        const std::vector<Mutant>& mutants, const MutantAttention& attention,
                        const std::string& instances = "");

// Right on a few problems with race, init and sync checks on, without a finding. For a test case
// whose name begins with "checked".
void check_without_findings(const AnyAttention& attention);

// check_all_checks() of a program of attention, on three problems.
void check_all_checks(const std::string& program);

// The program runs a small problem: exit 0, a line for each of `steps`, their ratio, and a picture.
void check_program(const std::string& program, const std::vector<std::string>& steps);

// The program runs `variant` where --step names it, and then not `kept`, and nowhere else.
void check_variant(const std::string& program, const std::string& variant, const std::string& kept);

// ---- Counters -----------------------------------------------------------------------------------

// Runs attention once on a random problem and leaves its counters as those of the last launch.
void run_for_counters(const AnyAttention& attention, int batch, int heads, int tokens,
                      int head_dim);
void run_for_counters(const AnyAttention& attention, const AttentionProblem& problem);
// A random problem whose scores are all equal: no maximum grows after the first tile.
AttentionProblem equal_scores(int heads, int tokens, int head_dim);

}  // namespace lab::testing
