// SPDX-License-Identifier: Apache-2.0
#include "ddp/reduction.hpp"
#include "comm/kernels.hpp"
#include <algorithm>
#include <cstring>

namespace ujoin {

void Reduction::begin(Round &round, const Usage &usage) {
    started_ns_ = now_ns();
    const std::vector<size_t> &params = bucket().params;
    for (size_t k = 0; usage.finds_unused && k < params.size(); k++) {
        if (!round.shadow() && (*usage.used)[params[k]]) continue;
        absent_.resize(params.size());
        absent_[k] = true;
    }
    start(round);
    if (!in_flight()) note_finished();
}

bool Reduction::then(Round &) { return false; }

std::optional<Error> Reduction::wait(Group &group) {
    std::optional<Error> failure;
    for (const std::shared_ptr<Work> &work : works_) {
        std::optional<Error> its = wait_to_the_end(group, *work);
        if (!failure) failure = std::move(its);
    }
    works_.clear();
    return failure;
}

bool Reduction::in_flight() const {
    return std::any_of(works_.begin(), works_.end(), [](const auto &work) { return !work->done(); });
}

char *Reduction::scratch(size_t bytes) {
    std::vector<char> &memory = loan().scratch[place_.index];
    if (memory.size() < bytes) memory.resize(bytes);
    return memory.data();
}

Release Reduction::keep() {
    auto self = std::make_unique<std::shared_ptr<Reduction>>(shared_from_this());
    const auto done = [](void *p) {
        const std::unique_ptr<std::shared_ptr<Reduction>> kept(static_cast<std::shared_ptr<Reduction> *>(p));
        (*kept)->note_finished();
    };
    return Release(done, self.release());
}

namespace {

/// The gradients where they lie; zeros in the place of those that are absent.
class InPlace final : public Reduction {
  public:
    using Reduction::Reduction;
    void start(Round &round) override {
        if (any_absent()) substitute();
        put_in_flight(round.submit_sum(bucket().dtype, any_absent() ? memory_ : bucket().gradients, keep()));
    }
    void end(Round &round, const std::vector<int32_t> &used) override {
        const char *from = substitutes_;
        for (size_t k = 0; any_absent() && k < bucket().params.size(); k++) {
            if (!absent(k)) continue;
            if (writes(round, k, used)) std::memcpy(param(k).grad, from, param(k).bytes());
            from += param(k).bytes();
        }
    }

  private:
    void substitute() {
        size_t bytes = 0;
        for (size_t k = 0; k < bucket().params.size(); k++)
            if (absent(k)) bytes += param(k).bytes();
        substitutes_ = scratch(bytes);
        std::memset(substitutes_, 0, bytes);
        char *next = substitutes_;
        for (size_t k = 0; k < bucket().params.size(); k++) {
            append_segment(memory_, absent(k) ? next : param(k).grad, param(k).bytes());
            if (absent(k)) next += param(k).bytes();
        }
    }
    std::vector<Segment> memory_;
    char *substitutes_ = nullptr;
};

template <class T> void convert_as(ujoin_dtype from, const char *in, char *out, size_t count) {
    visit_dtype(from, [&](auto zero) {
        using F = decltype(zero);
        for (size_t i = 0; i < count; i++) {
            F value;
            std::memcpy(&value, in + i * sizeof(F), sizeof(F));
            const T result(static_cast<float>(value));
            std::memcpy(out + i * sizeof(T), &result, sizeof(T));
        }
    });
}
void convert(ujoin_dtype from, const char *in, ujoin_dtype to, char *out, size_t count) {
    visit_dtype(to, [&](auto zero) { convert_as<decltype(zero)>(from, in, out, count); });
}

/// f32 and f64 travel as a 16-bit type, and are summed and divided in f32.
class Compressed final : public Reduction {
  public:
    Compressed(Place place, ujoin_dtype as) : Reduction(std::move(place)), as_(as) {}
    void start(Round &round) override {
        const size_t bytes = bucket().bytes / dtype_size(bucket().dtype) * dtype_size(as_);
        memory_ = {{scratch(bytes), bytes}};
        for (size_t k = 0; round.reads() && k < bucket().params.size(); k++) {
            char *to = at(k);
            if (reads(round, k))
                convert(bucket().dtype, static_cast<const char *>(param(k).grad), as_, to, param(k).elements);
            else
                std::memset(to, 0, param(k).elements * dtype_size(as_));
        }
        put_in_flight(round.submit_sum(as_, memory_, keep()));
    }
    void end(Round &round, const std::vector<int32_t> &used) override {
        for (size_t k = 0; k < bucket().params.size(); k++)
            if (writes(round, k, used))
                convert(as_, at(k), bucket().dtype, static_cast<char *>(param(k).grad), param(k).elements);
    }

  private:
    char *at(size_t k) const { return static_cast<char *>(memory_[0].data) + bucket().offsets[k] * dtype_size(as_); }
    ujoin_dtype as_;
    std::vector<Segment> memory_;
};

/// By the program's functions, on the gradients themselves where they lie end to end and all count.
class Custom final : public Reduction {
  public:
    Custom(Place place, std::shared_ptr<BucketHook> hook) : Reduction(std::move(place)), hook_(std::move(hook)) {}
    void start(Round &round) override {
        fill(round);
        call(round, &BucketHook::start);
    }
    bool then(Round &round) override {
        if (!again_) return false;
        call(round, &BucketHook::then);
        if (!again_) note_finished();
        return again_;
    }
    void end(Round &round, const std::vector<int32_t> &used) override {
        if (args_.data == bucket().gradients[0].data) return;
        for (size_t k = 0; k < bucket().params.size(); k++)
            if (writes(round, k, used)) std::memcpy(param(k).grad, at(k), param(k).bytes());
    }
    bool must_be_waited_for() const override { return in_flight(); }

  private:
    char *at(size_t k) const { return static_cast<char *>(args_.data) + bucket().offsets[k] * dtype_size(bucket().dtype); }
    void fill(Round &round) {
        const Agreed &agreed = round.agreed();
        args_.count = bucket().bytes / dtype_size(bucket().dtype);
        args_.dtype = bucket().dtype;
        args_.params = bucket().params.data();
        args_.offsets = bucket().offsets.data();
        args_.param_count = bucket().params.size();
        args_.divisor = agreed.divisor;
        args_.iteration = round.iteration();
        args_.index = static_cast<int32_t>(index());
        args_.is_last = is_last();
        args_.is_shadow = round.shadow();
        args_.source_rank = agreed.source_rank;
        const bool means = round.weighs_means();
        if (means && agreed.divisor != 0) args_.divisor = 1; // n g may be beyond a 16-bit type, this rank's share is not
        if (round.reads() && !means && !any_absent() && bucket().gradients.size() == 1) {
            args_.data = bucket().gradients[0].data;
            return;
        }
        args_.data = scratch(bucket().bytes);
        for (size_t k = 0; k < bucket().params.size(); k++) {
            if (reads(round, k))
                scale_elements(bucket().dtype, static_cast<const char *>(param(k).grad), at(k), param(k).elements,
                               means ? round.scale() / agreed.samples : 1);
            else
                std::memset(at(k), 0, param(k).bytes());
        }
    }
    void call(Round &round, std::shared_ptr<Work> (BucketHook::*part)(const BucketArgs &)) {
        try {
            std::shared_ptr<Work> work = (*hook_.*part)(args_);
            again_ = work != nullptr;
            if (work) put_in_flight(std::move(work));
        } catch (Error &error) {
            again_ = false;
            error.in(cat("the comm hook for bucket ", index(), " on rank ", round.group().rank()));
            round.group().abort(error.text());
            throw;
        }
    }
    std::shared_ptr<BucketHook> hook_;
    BucketArgs args_;
    bool again_ = false;
};

} // namespace

std::shared_ptr<Reduction> Reduction::make(const HookChoice &hook, Place place, const Round &round) {
    const bool is_16_bit = dtype_size((*place.buckets)[place.index].dtype) == 2;
    switch (hook.kind) {
    case UJOIN_COMM_HOOK_F16:
    case UJOIN_COMM_HOOK_BF16:
        if (is_16_bit) break;
        return std::make_shared<Compressed>(std::move(place), hook.kind == UJOIN_COMM_HOOK_F16 ? UJOIN_F16 : UJOIN_BF16);
    case UJOIN_COMM_HOOK_LOW_RANK:
        if (round.iteration() < hook.start_iteration) break;
        return make_low_rank(std::move(place), hook.rank);
    case UJOIN_COMM_HOOK_CUSTOM:
        return std::make_shared<Custom>(std::move(place), hook.custom);
    default:
        break;
    }
    return std::make_shared<InPlace>(std::move(place));
}

} // namespace ujoin
