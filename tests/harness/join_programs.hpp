// SPDX-License-Identifier: Apache-2.0
#pragma once
// Random programs over join contexts, and what they must give: the semantics once more, one rank after the other, with no
// concurrency and nothing of the library's.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace harness::programs {

enum class Kind : uint8_t {
    reduce,    ///< a use of the reducer: sums what was accumulated since its last use (joinable 0)
    silent,    ///< a use of a joinable without operations (joinable 1)
    several,   ///< a use of a joinable with three operations (joinable 2)
    optimizer, ///< a use of optimizer `index` (joinable 3 + index): steps with the gradient that was reduced last
    metric     ///< a collective of the program's own; `index` is a Metric
};
enum class Metric : uint8_t { sum, avg, min, max, gather, barrier, broadcast };
inline constexpr int metrics = 7;

struct Action {
    Kind kind = Kind::silent;
    int index = 0;
    int joinable() const { return kind == Kind::optimizer ? 3 + index : static_cast<int>(kind); }
    bool is_use() const { return kind != Kind::metric; }
    bool has_operation() const { return kind != Kind::silent; }
};
/// Without actions the round only accumulates its gradient.
using Round = std::vector<Action>;

enum class Fault : uint8_t { none, stop, abort, hook, kill };

struct Pass {
    bool throws = false;
    bool strict = false; ///< every round with a use has one of each joinable, in order
    std::vector<Round> rounds;
    std::vector<int> inputs; ///< rounds that each rank runs
    Fault fault = Fault::none;
    int rank = 0; ///< whose
    int round =
        0; ///< stop, abort, kill: as it begins this round of its own. hook: its first main hook that is no optimizer's
};

struct Program {
    int size = 1;
    bool metrics = false;   ///< the group shadows the program's own collectives
    bool by_active = false; ///< gradients are divided by the contributors, else by all ranks
    int optimizers = 0;
    std::vector<Pass> passes;
};

/// What one rank sees: numbers in their order, and how it ends.
struct Trace {
    std::vector<double> numbers;
    int fault_rank = -1; ///< >= 0: the last pass ends early because of this rank; the numbers may stop anywhere
};
Trace simulate(const Program &program, int rank);

/// `processes`: also with ranks that are killed.
Program random_program(uint64_t seed, bool processes);
/// Programs that are a little smaller.
std::vector<Program> smaller(const Program &program);
/// The smallest program near this one that fails too; `run` gives what is wrong, "" for nothing, and `wrong` follows it.
Program shrink(Program program, std::string &wrong, const std::function<std::string(const Program &)> &run);
std::string text(const Program &program);

/// What a rank gives in a round of a pass.
inline double input_of(int rank, size_t pass, int round) { return 1 + rank + 8 * (round % 5) + 64 * (pass % 3); }
inline constexpr double learning_rate = 0.125;
inline constexpr int param_counts[] = {3, 1, 2};
/// Begin the parts of a trace.
inline constexpr double of_hook = 1e9, of_post_hook = 2e9, of_end = 3e9, of_exhausted = 4e9;

} // namespace harness::programs
