// SPDX-License-Identifier: Apache-2.0
#include "harness/join_programs.hpp"
#include <algorithm>
#include <random>
#include <sstream>

namespace harness::programs {
namespace {

/// A stop without operations takes effect after this many more uses (ujoin_ctx_stopped).
constexpr int stop_distance = 16;

bool counts_as_use(const Pass &pass, const Action &action) {
    return action.is_use() && (!pass.strict || action.kind == Kind::reduce);
}

/// Runs the ranks of a program as one: what all of them know is known at once.
class Simulator {
  public:
    Simulator(const Program &program, int rank)
        : program_(program), rank_(rank), gathered_(static_cast<size_t>(program.size)),
          params_(static_cast<size_t>(program.optimizers), std::vector<double>(6, 1)) {}

    Trace run() {
        for (size_t p = 0; p < program_.passes.size() && trace_.fault_rank < 0; p++) run_pass(p);
        return trace_;
    }

  private:
    int inputs(int k) const { return inputs_[static_cast<size_t>(k)]; }
    bool active(int k, int round) const { return inputs(k) > round; }
    int lowest_active(int round) const {
        int k = 0;
        while (!active(k, round)) k++;
        return k;
    }
    void put(double number) { trace_.numbers.push_back(number); }

    void run_pass(size_t p) {
        pass_ = &program_.passes[p];
        number_ = p;
        inputs_ = pass_->inputs;
        if (pass_->fault == Fault::stop) cut_by_stop();
        count_uses();
        uses_ = reduces_ = own_reduces_ = shadow_rounds_ = shadow_uses_ = 0;
        const int rounds = *std::max_element(inputs_.begin(), inputs_.end());
        const int least = *std::min_element(totals_.begin(), totals_.end());
        const bool exhausts = pass_->throws && least < *std::max_element(totals_.begin(), totals_.end());
        std::fill(gathered_.begin(), gathered_.end(), 0); // a new window
        for (int round = 0; round < rounds; round++) {
            for (int k = 0; k < program_.size; k++)
                if (active(k, round)) gathered_[static_cast<size_t>(k)] += input_of(k, number_, round);
            for (const Action &action : pass_->rounds[static_cast<size_t>(round)]) {
                if (exhausts && counts_as_use(*pass_, action) && uses_ == least) return put(of_exhausted);
                run_action(action, round);
            }
        }
        if (exhausts) return put(of_exhausted);
        if (breaks()) {
            trace_.fault_rank = pass_->rank;
            return; // what would follow is not reached
        }
        end_of_pass();
    }

    /// All leave after the same round: the first with an operation that carries the request, or the one in which 16 uses
    /// have passed since the first that followed it.
    void cut_by_stop() {
        const int asker = pass_->rank;
        int uses = 0, asked = -1;
        for (int round = 0; round < static_cast<int>(pass_->rounds.size()); round++) {
            bool told = false;
            for (const Action &action : pass_->rounds[static_cast<size_t>(round)]) {
                const bool requested = round >= pass_->round;
                if (counts_as_use(*pass_, action)) {
                    if (requested && asked < 0) asked = uses;
                    uses++;
                }
                // A joined rank has nothing to say in a metric.
                told = told || (requested && action.has_operation() && (action.is_use() || active(asker, round)));
            }
            if (!told && (asked < 0 || uses < asked + stop_distance)) continue;
            for (int &n : inputs_) n = std::min(n, round + 1);
            return;
        }
    }

    void count_uses() {
        totals_.assign(static_cast<size_t>(program_.size), 0);
        first_uses_ = totals_;
        for (int k = 0; k < program_.size; k++)
            for (int round = 0; round < inputs(k); round++)
                for (const Action &action : pass_->rounds[static_cast<size_t>(round)]) {
                    if (counts_as_use(*pass_, action)) totals_[static_cast<size_t>(k)]++;
                    if (action.kind == Kind::reduce) first_uses_[static_cast<size_t>(k)]++;
                }
    }

    bool breaks() const {
        if (pass_->fault == Fault::abort || pass_->fault == Fault::kill) return true;
        return pass_->fault == Fault::hook && hook_would_fail();
    }
    bool hook_would_fail() const {
        for (int round = inputs(pass_->rank); round < *std::max_element(inputs_.begin(), inputs_.end()); round++)
            for (const Action &action : pass_->rounds[static_cast<size_t>(round)])
                if (action.is_use() && action.kind != Kind::optimizer) return true;
        return false;
    }

    void run_action(const Action &action, int round) {
        if (!action.is_use()) return run_metric(static_cast<Metric>(action.index), round);
        const bool mine = active(rank_, round);
        if (counts_as_use(*pass_, action)) uses_++;
        if (action.kind == Kind::reduce) {
            reduces_++;
            (mine ? own_reduces_ : shadow_rounds_)++;
        }
        if (!mine) shadow_uses_++;
        if (!mine && action.kind != Kind::optimizer) {
            put(of_hook + action.joinable());
            put(std::max(0, reduces_ - 1)); // the round, as hooks are told it
        }
        int n = 0;
        double ranks = 0;
        for (int k = 0; k < program_.size; k++) {
            n += active(k, round);
            ranks += active(k, round) ? k + 1 : 0;
        }
        if (action.kind == Kind::several)
            for (int i = 1; i <= 3; i++) put(i * ranks);
        if (action.kind == Kind::reduce) {
            double sum = 0;
            for (int k = 0; k < program_.size; k++) {
                if (active(k, round)) sum += gathered_[static_cast<size_t>(k)];
                gathered_[static_cast<size_t>(k)] = 0;
            }
            gradient_ = sum / (program_.by_active ? n : program_.size);
            put(gradient_);
            put(n);
        }
        if (action.kind == Kind::optimizer) step(action.index, mine);
    }

    void step(int index, bool mine) {
        std::vector<double> &params = params_[static_cast<size_t>(index)];
        for (size_t i = 0; i < params.size(); i++)
            params[i] -= learning_rate * gradient_ * static_cast<double>(i + 1) * (index + 1);
        for (const double value : params)
            if (mine) put(value); // a hook of the library's own tells nothing
    }

    void run_metric(Metric metric, int round) {
        if (!active(rank_, round)) return;
        const auto value = [&](int k) { return input_of(k, number_, round); };
        double sum = 0, least = 1e300, most = -1e300, n = 0;
        for (int k = 0; k < program_.size; k++) {
            if (!active(k, round)) continue;
            sum += value(k);
            least = std::min(least, -value(k));
            most = std::max(most, -value(k));
            n++;
        }
        switch (metric) {
        case Metric::sum:
            return put(sum);
        case Metric::avg:
            return put(sum / n);
        case Metric::min:
            return put(least);
        case Metric::max:
            return put(most);
        case Metric::gather:
            for (int k = 0; k < program_.size; k++) put(active(k, round) ? value(k) : -1);
            return;
        case Metric::broadcast:
            return put(value(lowest_active(round)));
        case Metric::barrier:
            return;
        }
    }

    void end_of_pass() {
        int most = 0, authoritative = 0;
        for (int k = 0; k < program_.size; k++)
            if (totals_[static_cast<size_t>(k)] >= most) {
                most = totals_[static_cast<size_t>(k)];
                authoritative = k;
            }
        const bool last = totals_[static_cast<size_t>(rank_)] == most;
        for (int j = 0; j < 3; j++) {
            put(of_post_hook + j);
            put(last);
            put(authoritative);
            if (j == 0) put(100 + most); // broadcast by the authoritative rank
        }
        put(of_end);
        for (const int n : first_uses_) put(n);
        put(own_reduces_);
        put(shadow_rounds_);
        put(shadow_uses_);
        put(pass_->fault == Fault::stop);
        for (const std::vector<double> &params : params_)
            for (const double value : params) put(value); // also on ranks that have joined
    }

    const Program &program_;
    int rank_;
    Trace trace_;
    const Pass *pass_ = nullptr;
    size_t number_ = 0;
    std::vector<int> inputs_;     ///< as they turn out
    std::vector<int> totals_;     ///< uses by rank
    std::vector<int> first_uses_; ///< of the first joinable, by rank
    int uses_ = 0, reduces_ = 0, own_reduces_ = 0, shadow_rounds_ = 0, shadow_uses_ = 0;
    std::vector<double> gathered_; ///< accumulated gradients by rank
    double gradient_ = 0;
    std::vector<std::vector<double>> params_;
};

class Generator {
  public:
    explicit Generator(uint64_t seed) : random_(seed) {}
    int below(int n) { return n <= 0 ? 0 : static_cast<int>(random_() % static_cast<unsigned>(n)); }
    bool one_in(int n) { return below(n) == 0; }

    Program program(bool processes) {
        Program made;
        made.size = 1 + below(6);
        made.metrics = one_in(2);
        made.by_active = one_in(2);
        made.optimizers = std::max(0, below(5) - 2);
        const int passes = 1 + below(3);
        for (int p = 0; p < passes; p++) made.passes.push_back(pass(made));
        Pass &last = made.passes.back();
        for (Pass &any : made.passes) {
            any.rank = below(made.size);
            any.round = below(any.inputs[static_cast<size_t>(any.rank)]);
            const bool has_rounds = any.inputs[static_cast<size_t>(any.rank)] > 0;
            if (!any.throws && has_rounds && one_in(4)) any.fault = Fault::stop;
            if (any.throws || &any != &last || !one_in(3)) continue;
            any.fault = Fault::hook;
            if (has_rounds && one_in(2)) any.fault = processes && one_in(2) ? Fault::kill : Fault::abort;
        }
        return made;
    }

  private:
    Pass pass(const Program &of) {
        Pass made;
        made.throws = one_in(5);
        made.strict = one_in(5);
        const int most = one_in(6) ? below(21) : below(6);
        for (int k = 0; k < of.size; k++) made.inputs.push_back(one_in(4) ? most : below(most + 1));
        const int window = 1 + below(3); // of accumulation
        const bool quiet = one_in(6);    // no operations at all
        for (int r = 0; r < most; r++) made.rounds.push_back(round(of, made, r % window == window - 1, quiet));
        return made;
    }
    Round round(const Program &of, const Pass &pass, bool reduces, bool quiet) {
        Round made;
        if (pass.strict) {
            if (!reduces) return made;
            made = {{Kind::reduce, 0}, {Kind::silent, 0}, {Kind::several, 0}};
            for (int z = 0; z < of.optimizers; z++) made.push_back({Kind::optimizer, z});
        } else if (quiet) {
            made.resize(static_cast<size_t>(below(4)));
        } else {
            for (int n = below(3); n > 0; n--) made.push_back({one_in(2) ? Kind::silent : Kind::several, 0});
            if (reduces) made.push_back({Kind::reduce, 0});
            for (int z = 0; z < of.optimizers; z++) // one may skip steps that the other does
                if (reduces && !one_in(3)) made.push_back({Kind::optimizer, z});
        }
        if (!of.metrics || quiet || (pass.throws && made.empty())) return made;
        for (int n = below(3); n > 0; n--) { // in throw mode after a use: nobody shadows there
            const int at = pass.throws ? static_cast<int>(made.size()) : below(static_cast<int>(made.size()) + 1);
            made.insert(made.begin() + at, {Kind::metric, below(metrics)});
        }
        return made;
    }

    std::mt19937_64 random_;
};

} // namespace

Trace simulate(const Program &program, int rank) { return Simulator(program, rank).run(); }
Program random_program(uint64_t seed, bool processes) { return Generator(seed).program(processes); }

std::vector<Program> smaller(const Program &program) {
    std::vector<Program> list;
    const auto change = [&](auto &&how) {
        Program copy = program;
        how(copy);
        list.push_back(std::move(copy));
    };
    for (size_t p = 0; p < program.passes.size() && program.passes.size() > 1; p++)
        change([&](Program &of) { of.passes.erase(of.passes.begin() + static_cast<std::ptrdiff_t>(p)); });
    const auto blamed = [&](int rank) {
        return std::any_of(program.passes.begin(), program.passes.end(),
                           [&](const Pass &pass) { return pass.fault != Fault::none && pass.rank == rank; });
    };
    for (int rank = program.size - 1; rank >= 0 && program.size > 1; rank--) {
        if (blamed(rank)) continue;
        change([&](Program &of) {
            of.size--;
            for (Pass &pass : of.passes) {
                pass.inputs.erase(pass.inputs.begin() + rank);
                if (pass.rank > rank) pass.rank--;
            }
        });
    }
    for (size_t p = 0; p < program.passes.size(); p++) {
        const Pass &pass = program.passes[p];
        if (pass.fault != Fault::none) change([&](Program &of) { of.passes[p].fault = Fault::none; });
        for (size_t k = 0; k < pass.inputs.size(); k++)
            if (pass.inputs[k] > (pass.fault != Fault::none && static_cast<int>(k) == pass.rank ? pass.round + 1 : 0))
                change([&](Program &of) { of.passes[p].inputs[k]--; });
        if (pass.strict) continue; // its rounds have one form
        for (size_t r = 0; r < pass.rounds.size(); r++)
            for (size_t a = 0; a < pass.rounds[r].size(); a++) {
                const bool guards = pass.throws && pass.rounds[r][a].is_use() && a + 1 < pass.rounds[r].size();
                if (guards) continue; // a metric of throw mode comes after a use
                change([&](Program &of) {
                    Round &round = of.passes[p].rounds[r];
                    round.erase(round.begin() + static_cast<std::ptrdiff_t>(a));
                });
            }
    }
    return list;
}

Program shrink(Program program, std::string &wrong, const std::function<std::string(const Program &)> &run) {
    constexpr int most_tries = 2000;
    int tries = 0;
    const auto step = [&] {
        for (Program &next : smaller(program)) {
            std::string why = run(next);
            tries++;
            if (why.empty()) continue;
            program = std::move(next);
            wrong = std::move(why);
            return true;
        }
        return false;
    };
    while (tries < most_tries && step()) {
    }
    return program;
}

std::string text(const Program &program) {
    static const char *const kinds[] = {"reduce", "silent", "several", "optimizer", "metric"};
    static const char *const faults[] = {"", "stop", "abort", "hook fails", "kill"};
    std::ostringstream out;
    out << program.size << " ranks, " << program.optimizers << " optimizers" << (program.metrics ? ", metrics" : "")
        << (program.by_active ? ", divided by the active" : "") << "\n";
    for (const Pass &pass : program.passes) {
        out << "  pass:" << (pass.throws ? " throws" : "") << (pass.strict ? " strict" : "") << " inputs";
        for (const int n : pass.inputs) out << " " << n;
        if (pass.fault != Fault::none)
            out << "; " << faults[static_cast<size_t>(pass.fault)] << " by rank " << pass.rank << " in round "
                << pass.round;
        out << "\n";
        for (const Round &round : pass.rounds) {
            out << "    round:";
            for (const Action &action : round) {
                out << " " << kinds[static_cast<size_t>(action.kind)];
                if (action.kind == Kind::optimizer || action.kind == Kind::metric) out << action.index;
            }
            out << "\n";
        }
    }
    return out.str();
}

} // namespace harness::programs
