// SPDX-License-Identifier: Apache-2.0
// Random programs over join contexts: what every rank sees must be what a simulation without concurrency says.
// UJOIN_TEST_SEED=n repeats the programs from that seed on, UJOIN_TEST_PROGRAMS=1 only that one.
#include "api/handles.hpp"
#include "harness/join_kit.hpp"
#include "harness/join_programs.hpp"
#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <random>
#include <set>
#include <sys/mman.h>
#include <unistd.h>

using namespace ujoin;
using namespace harness;
using namespace harness::programs;

namespace {

using Numbers = std::vector<double>;

/// Runs one rank of a program, and keeps what it sees.
class Rank {
  public:
    Rank(Group &g, const Program &program)
        : group_(g), handle_(g.shared_from_this()), program_(program), reducer_(std::make_shared<Reducer>(*this)),
          silent_(std::make_shared<Plain>(*this, "silent", 1, 0)),
          several_(std::make_shared<Plain>(*this, "several", 2, 3)) {
        joinables_ = {reducer_, silent_, several_};
        optimizers_.reserve(static_cast<size_t>(program.optimizers));
        for (int z = 0; z < program.optimizers; z++) {
            optimizers_.push_back(std::make_unique<Optimizer>(*this, z));
            joinables_.push_back(optimizers_.back()->zero->joinable.object);
        }
    }

    void run() {
        std::shared_ptr<JoinContext> context;
        for (size_t p = 0; p < program_.passes.size(); p++) {
            pass_ = &program_.passes[p];
            number_ = p;
            const bool same =
                context && pass_->throws == program_.passes[p - 1].throws && pass_->strict == program_.passes[p - 1].strict;
            if (!same) {
                JoinOptions options;
                options.throw_on_exhausted = pass_->throws;
                options.strict = pass_->strict;
                context = JoinContext::create(joinables_, options);
            }
            run_pass(*context);
        }
    }
    const Numbers &seen() const { return seen_; }

  private:
    /// A joinable whose operations give i * (rank + 1); it tells of its hooks.
    class Plain : public Joinable {
      public:
        Plain(Rank &rank, std::string name, int index, int operations)
            : Joinable(rank.group_.shared_from_this(), std::move(name)), rank_(rank), index_(index),
              operations_(operations) {}
        virtual void work(bool) {
            for (int i = 1; i <= operations_; i++)
                rank_.put(rank_.operation(i * (rank_.group_.rank() + 1.0), Divide::none).first);
        }
        void main_hook(const HookArgs &args) override {
            if (rank_.pass_->fault == Fault::hook && rank_.pass_->rank == rank_.group_.rank())
                fail(UJOIN_E_CALLBACK, "as planned");
            rank_.put(of_hook + index_);
            rank_.put(static_cast<double>(args.round));
            work(true);
        }
        void post_hook(const HookArgs &args) override {
            rank_.put(of_post_hook + index_);
            rank_.put(args.is_last_joiner);
            rank_.put(args.authoritative_rank);
            if (index_ != 0) return;
            double uses = args.is_last_joiner ? 100 + rank_.uses_ : 0;
            rank_.group_.broadcast(Memory(&uses, sizeof uses), args.authoritative_rank);
            rank_.put(uses);
        }

      protected:
        Rank &rank_;

      private:
        int index_;
        int operations_;
    };
    /// Sums what its rank accumulated; also a joined rank gets the gradient.
    class Reducer final : public Plain {
      public:
        explicit Reducer(Rank &rank) : Plain(rank, "reducer", 0, 0) {}
        void work(bool shadow) override {
            const auto [sum, n] = rank_.operation(shadow ? std::nan("") : rank_.accumulated_,
                                                  rank_.program_.by_active ? Divide::contributors : Divide::ranks);
            rank_.accumulated_ = 0;
            rank_.put(sum);
            rank_.put(n);
            for (const auto &optimizer : rank_.optimizers_) optimizer->set_gradient(sum);
        }
    };
    struct Optimizer {
        Rank &rank;
        int index;
        Numbers data = Numbers(6, 1), grad = Numbers(6, 0);
        ujoin_zero *zero = nullptr;
        Optimizer(Rank &of, int i) : rank(of), index(i) {
            std::vector<ujoin_param> params;
            size_t at = 0;
            for (const int count : param_counts) {
                ujoin_param param{};
                param.data = &data[at];
                param.grad = &grad[at];
                param.count = static_cast<size_t>(count);
                param.dtype = UJOIN_F64;
                params.push_back(param);
                at += param.count;
            }
            const ujoin_hyper lr{"lr", learning_rate};
            ujoin_zero_options options{};
            options.size = sizeof options;
            options.hyper = &lr;
            options.hyper_count = 1;
            const ujoin_status status =
                zero_create(&rank.handle_, UJOIN_OPTIMIZER_SGD, params.data(), params.size(), &options, &zero);
            if (status >= 0) return;
            throw Error(status, ujoin_last_error())
                .with_ranks(missing()); // of one that is through already, and has failed since
        }
        Optimizer(const Optimizer &) = delete;
        ~Optimizer() { zero_destroy(zero); }
        void set_gradient(double value) {
            for (size_t i = 0; i < grad.size(); i++) grad[i] = value * static_cast<double>(i + 1) * (index + 1);
        }
    };

    void put(double number) { seen_.push_back(number); }

    std::pair<double, int32_t> operation(double number, Divide divide) {
        OpArgs op;
        op.kind = OpKind::all_reduce;
        op.dtype = UJOIN_F64;
        op.count = 1;
        op.divide = divide;
        op.recv = Memory(&number, sizeof number);
        group_.run(op);
        return {number, op.outcome.contributors};
    }

    void run_pass(JoinContext &context) {
        uses_ = 0;
        accumulated_ = 0;
        context.start();
        try {
            for (int round = 0; round < pass_->inputs[static_cast<size_t>(group_.rank())]; round++) {
                begin_round(context, round);
                for (const Action &action : pass_->rounds[static_cast<size_t>(round)]) run_action(action, round);
                if (context.stopped()) break;
            }
            context.finish();
        } catch (const Error &error) {
            context.abort("the pass failed"); // as a program does on every way out that is not the good one
            if (error.code() != UJOIN_E_EXHAUSTED) throw;
            return put(of_exhausted);
        }
        put(of_end);
        for (const int64_t n : context.rounds()) put(static_cast<double>(n));
        const JoinReport report = context.report();
        put(static_cast<double>(report.rounds));
        put(static_cast<double>(report.shadow_rounds));
        put(static_cast<double>(report.shadow_uses));
        put(report.stopped);
        for (const auto &optimizer : optimizers_)
            for (const double value : optimizer->data) put(value);
    }

    void begin_round(JoinContext &context, int round) {
        accumulated_ += input_of(group_.rank(), number_, round);
        if (pass_->rank != group_.rank() || pass_->round != round) return;
        if (pass_->fault == Fault::stop) context.stop();
        if (pass_->fault == Fault::kill) {
            expect_death(SIGKILL);
            kill(getpid(), SIGKILL);
        }
        if (pass_->fault == Fault::abort) {
            context.abort("as planned");
            fail(UJOIN_E_CALLBACK, "as planned");
        }
    }

    void run_action(const Action &action, int round) {
        if (!action.is_use()) return run_metric(static_cast<Metric>(action.index), round);
        if (!pass_->strict || action.kind == Kind::reduce) uses_++;
        if (action.kind == Kind::optimizer) {
            Optimizer &optimizer = *optimizers_[static_cast<size_t>(action.index)];
            if (const ujoin_status status = zero_step(optimizer.zero, nullptr); status < 0)
                throw Error(status, ujoin_last_error()).with_ranks(missing());
            for (const double value : optimizer.data) put(value);
            return;
        }
        Plain &joinable = *(action.kind == Kind::reduce ? reducer_ : action.kind == Kind::silent ? silent_ : several_);
        joinable.notify();
        joinable.work(false);
    }
    static std::vector<int32_t> missing() {
        std::vector<int32_t> ranks(8);
        ranks.resize(ujoin_last_missing(ranks.data(), ranks.size()));
        return ranks;
    }

    void run_metric(Metric metric, int round) {
        Numbers numbers{input_of(group_.rank(), number_, round)};
        if (metric == Metric::min || metric == Metric::max) numbers[0] = -numbers[0];
        const ujoin_const_buffer send{numbers.data(), 1, UJOIN_F64, 0, 0, 0};
        Numbers all(static_cast<size_t>(group_.size()), -1);
        const ujoin_buffer gathered{all.data(), all.size(), UJOIN_F64, 0, 0, 0}, one{numbers.data(), 1, UJOIN_F64, 0, 0, 0};
        ujoin_status status = UJOIN_OK;
        if (metric == Metric::barrier) {
            status = ujoin_barrier(&handle_, nullptr);
            numbers.clear();
        } else if (metric == Metric::gather) {
            status = ujoin_all_gather(&handle_, &send, &gathered, nullptr, nullptr);
            numbers = all;
        } else if (metric == Metric::broadcast) {
            int root = 0;
            while (pass_->inputs[static_cast<size_t>(root)] <= round) root++;
            status = ujoin_broadcast(&handle_, &one, root, nullptr, nullptr);
        } else {
            constexpr ujoin_reduce reductions[] = {UJOIN_SUM, UJOIN_AVG, UJOIN_MIN, UJOIN_MAX};
            status = ujoin_all_reduce(&handle_, nullptr, &one, reductions[static_cast<size_t>(metric)], nullptr, nullptr);
        }
        if (status < 0) throw Error(status, ujoin_last_error()).with_ranks(missing());
        seen_.insert(seen_.end(), numbers.begin(), numbers.end());
    }

    Group &group_;
    ujoin_group handle_;
    const Program &program_;
    std::shared_ptr<Plain> reducer_, silent_, several_;
    std::vector<std::unique_ptr<Optimizer>> optimizers_;
    std::vector<std::shared_ptr<Joinable>> joinables_;
    const Pass *pass_ = nullptr;
    size_t number_ = 0;
    int uses_ = 0;
    double accumulated_ = 0;
    Numbers seen_;
};

/// "" or what is wrong with what a rank saw.
std::string compare(const Program &program, int rank, const Numbers &seen, const Error &error) {
    const Trace expected = simulate(program, rank);
    const Numbers &want = expected.numbers;
    const bool broken = expected.fault_rank >= 0;
    for (size_t i = 0; i < seen.size(); i++)
        if (i >= want.size() || std::abs(seen[i] - want[i]) > 1e-7 * std::max(1.0, std::abs(want[i])))
            return cat("rank ", rank, ": number ", i, " is ", seen[i], ", expected ", i < want.size() ? want[i] : -1);
    if (!broken) {
        if (error.code() != UJOIN_OK) return cat("rank ", rank, " ended with ", error.text());
        if (seen.size() != want.size()) return cat("rank ", rank, ": ", seen.size(), " numbers, expected ", want.size());
        return "";
    }
    const Fault fault = program.passes.back().fault;
    const bool culprit = rank == expected.fault_rank;
    const ujoin_status code = culprit ? UJOIN_E_CALLBACK : fault == Fault::kill ? UJOIN_E_PEER_LOST : UJOIN_E_ABORTED;
    if (error.code() != code)
        return cat("rank ", rank, " ended with ", error.code(), " ", error.text(), ", expected ", code);
    if (!culprit && error.ranks() != std::vector<int32_t>{expected.fault_rank})
        return cat("rank ", rank, " does not name rank ", expected.fault_rank, ": ", error.text());
    return "";
}

/// Where the ranks, threads or processes, leave what is wrong: the first one's text stays.
class Verdict {
  public:
    Verdict()
        : shared_(static_cast<Shared *>(
              mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
        if (shared_ == MAP_FAILED) throw std::bad_alloc();
    }
    Verdict(const Verdict &) = delete;
    ~Verdict() { munmap(shared_, sizeof(Shared)); }
    void note(const std::string &wrong) {
        if (shared_->taken.exchange(true)) return;
        std::snprintf(shared_->text, sizeof shared_->text, "%s", wrong.c_str());
    }
    std::string text() const { return shared_->text; } // when all ranks have ended

  private:
    struct Shared {
        std::atomic<bool> taken;
        char text[2000];
    };
    Shared *shared_;
};

/// Runs a program; what is wrong on the first rank where something is.
std::string run_program(const Program &program, const std::string &backend) {
    Verdict verdict;
    with_groups(
        backend, program.size,
        [&](Group &g) {
            Numbers seen;
            const Error error = error_of([&] {
                Rank rank(g, program);
                try {
                    rank.run();
                } catch (...) {
                    seen = rank.seen();
                    throw;
                }
                seen = rank.seen();
            });
            if (const std::string wrong = compare(program, g.rank(), seen, error); !wrong.empty()) verdict.note(wrong);
        },
        [&](GroupConfig &config) { config.shadow_collectives = program.metrics; });
    return verdict.text();
}

int64_t number_from_env(const char *name, int64_t fallback) {
    const char *given = std::getenv(name);
    return given ? std::atoll(given) : fallback;
}

class JoinDifferential : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Parts, JoinDifferential, testing::Range(0, 8));

void run_many(int64_t count, const std::string &backend) {
    std::random_device device;
    const auto first = static_cast<uint64_t>(number_from_env("UJOIN_TEST_SEED", device() % 1'000'000'000));
    count = number_from_env("UJOIN_TEST_PROGRAMS", count);
    std::printf("UJOIN_TEST_SEED=%llu\n", static_cast<unsigned long long>(first));
    for (uint64_t i = 0; i < static_cast<uint64_t>(count); i++) {
        if (i % 50 == 0) { // one that hangs is among those after the last line
            std::printf("from %llu\n", static_cast<unsigned long long>(first + i));
            std::fflush(stdout);
        }
        const Program program = random_program(first + i, backend == "shm");
        std::string wrong = run_program(program, backend);
        if (testing::Test::HasFailure()) // a rank hung, or died unasked: that is told, and cannot be tried again here
            FAIL() << "UJOIN_TEST_SEED=" << first + i << "\n" << text(program);
        if (wrong.empty()) continue;
        const Program least = shrink(program, wrong, [&](const Program &next) { return run_program(next, backend); });
        FAIL() << "UJOIN_TEST_SEED=" << first + i << ": " << wrong << "\nThe smallest that fails:\n" << text(least);
    }
}

bool long_run() { return number_from_env("UJOIN_TEST_LONG", 0) != 0; }

} // namespace

TEST_P(JoinDifferential, random_programs_of_threads) { run_many(long_run() ? 12'250 : 210, "local"); }
TEST_P(JoinDifferential, random_programs_of_processes) { run_many(long_run() ? 250 : 40, "shm"); }
TEST_P(JoinDifferential, random_programs_over_connections) { run_many(long_run() ? 1'000 : 40, "tcp"); }

namespace {

bool has_action(const Pass &pass, Kind kind, int index) {
    for (const Round &round : pass.rounds)
        for (const Action &action : round)
            if (action.kind == kind && action.index == index) return true;
    return false;
}

/// Both optimizers step in a pass, and one leaves out a step that the other makes.
bool skips_steps(const Pass &pass) {
    const auto steps = [](const Round &round, int index) {
        return std::any_of(round.begin(), round.end(),
                           [&](const Action &action) { return action.kind == Kind::optimizer && action.index == index; });
    };
    return std::any_of(pass.rounds.begin(), pass.rounds.end(),
                       [&](const Round &round) { return steps(round, 0) != steps(round, 1); });
}

/// Several inputs are accumulated, then reduced at once.
bool accumulates(const Pass &pass) {
    return has_action(pass, Kind::reduce, 0) &&
           std::any_of(pass.rounds.begin(), pass.rounds.end(), [](const Round &round) { return round.empty(); });
}

} // namespace

TEST(JoinDifferentialPrograms, are_of_every_kind) {
    std::set<int> sizes, inputs, optimizers;
    std::set<size_t> passes;
    std::set<Fault> faults;
    std::set<std::string> kinds;
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        const Program program = random_program(seed, true);
        sizes.insert(program.size);
        optimizers.insert(program.optimizers);
        passes.insert(program.passes.size());
        for (const Pass &pass : program.passes) {
            inputs.insert(pass.inputs.begin(), pass.inputs.end());
            faults.insert(pass.fault);
            if (pass.throws) kinds.insert("throws");
            if (pass.strict) kinds.insert("strict");
            if (accumulates(pass)) kinds.insert("accumulates");
            if (program.optimizers == 2 && skips_steps(pass)) kinds.insert("skips steps");
            for (const Kind kind : {Kind::reduce, Kind::silent, Kind::several})
                if (has_action(pass, kind, 0)) kinds.insert("joinable " + std::to_string(static_cast<int>(kind)));
            for (int metric = 0; metric < metrics; metric++)
                if (has_action(pass, Kind::metric, metric)) kinds.insert("metric " + std::to_string(metric));
        }
    }
    EXPECT_EQ(sizes, (std::set<int>{1, 2, 3, 4, 5, 6}));
    EXPECT_EQ(inputs.size(), 21U);
    EXPECT_EQ(*inputs.begin(), 0);
    EXPECT_EQ(*inputs.rbegin(), 20);
    EXPECT_EQ(optimizers, (std::set<int>{0, 1, 2}));
    EXPECT_EQ(passes, (std::set<size_t>{1, 2, 3}));
    EXPECT_EQ(faults, (std::set<Fault>{Fault::none, Fault::stop, Fault::abort, Fault::hook, Fault::kill}));
    EXPECT_EQ(kinds.size(), 4U + 3U + metrics) << testing::PrintToString(kinds);
}

/// What fails only with two ranks, and an optimizer's step in a pass that is stopped, is shrunk to just that.
TEST(JoinDifferentialPrograms, that_fail_are_shrunk_to_what_matters) {
    const auto fails = [](const Program &program) -> std::string {
        for (const Pass &pass : program.passes)
            if (program.size >= 2 && pass.fault == Fault::stop && has_action(pass, Kind::optimizer, 1)) return "as planned";
        return "";
    };
    int tried = 0;
    for (uint64_t seed = 1; tried < 5; seed++) {
        const Program program = random_program(seed, false);
        const bool strict =
            std::any_of(program.passes.begin(), program.passes.end(), [](const Pass &p) { return p.strict; });
        if (strict || fails(program).empty()) continue; // the rounds of strict passes have one form
        tried++;
        std::string wrong = fails(program);
        const Program least = shrink(program, wrong, fails);
        SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + text(least));
        EXPECT_EQ(wrong, "as planned");
        ASSERT_EQ(least.passes.size(), 1U);
        int actions = 0;
        for (const Round &round : least.passes[0].rounds) actions += static_cast<int>(round.size());
        EXPECT_EQ(actions, 1);
        EXPECT_EQ(least.size, 2);
        for (int k = 0; k < least.size; k++)
            EXPECT_EQ(least.passes[0].inputs[static_cast<size_t>(k)],
                      k == least.passes[0].rank ? least.passes[0].round + 1 : 0);
    }
}
