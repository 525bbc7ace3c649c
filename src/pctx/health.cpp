// SPDX-License-Identifier: Apache-2.0
#include "pctx/health.hpp"
#include "base/deadline.hpp"
#include "base/text.hpp"
#include <algorithm>
#include <cstdio>

namespace ujoin {
namespace {

constexpr size_t most_named = 16;

std::string age_text(int64_t ns) {
    char text[40];
    const double seconds = static_cast<double>(std::max<int64_t>(0, ns)) / 1e9;
    std::snprintf(text, sizeof text, seconds < 10 ? "%.1f s" : "%.0f s", seconds);
    return text;
}

/// "rank 3", "ranks 1, 3 and 20 others"
std::string ranks_text(const std::vector<int32_t> &ranks) {
    if (ranks.size() == 1) return cat("rank ", ranks[0]);
    if (ranks.size() <= most_named) return cat("ranks ", join_list(ranks));
    const std::vector<int32_t> named(ranks.begin(), ranks.begin() + most_named);
    return cat("ranks ", join_list(named), " and ", ranks.size() - most_named, " others");
}

std::string doing_text(const os::HealthView &view, int64_t age_ns) {
    std::string text;
    if (view.in_operation)
        text = cat("in ", view.waiting ? view.what : view.kind, ", operation ", view.sequence);
    else if (view.waiting)
        text = cat("after operation ", view.sequence, ", waits for ", view.what);
    else
        text = cat("between operations, after operation ", view.sequence);
    if (view.armed) text += cat(", round ", view.round);
    if (view.joined) text += ", joined";
    text += cat(", for ", age_text(age_ns));
    if (view.in_operation && !view.missing.empty()) text += cat("; waits for ", ranks_text(view.missing));
    if (view.broken) text += "; the group is broken";
    if (!view.name.empty()) text += cat(" (group \"", view.name, "\")");
    return text;
}

} // namespace

WorkerHealth::WorkerHealth(const JobPlan &plan, const WorkerRecord &record, size_t index, int64_t last_output_ns)
    : index_(index), record_(record), last_output_ns_(last_output_ns), now_ns_(os::realtime_ns()) {
    const bool runs = record.state == UJOIN_WORKER_RUNNING;
    view_ = plan.page->health(index, runs);
    if (view_) {
        const int64_t now = now_ns();
        const int64_t age = now - std::clamp<int64_t>(view_->since_ns, 0, now);
        since_ns_ = now_ns_ - age;
        doing_ = doing_text(*view_, runs ? age : std::max<int64_t>(0, age - (now_ns_ - record.end_ns)));
    }
    describe(plan, record);
}

WorkerHealth WorkerHealth::not_started(int32_t first_rank, size_t index) {
    WorkerHealth health;
    health.index_ = index;
    health.text_ = cat("rank ", first_rank + static_cast<int32_t>(index), ": not started");
    return health;
}

void WorkerHealth::describe(const JobPlan &plan, const WorkerRecord &record) {
    if (record.state == UJOIN_WORKER_CREATED) {
        text_ = cat("rank ", plan.rank_of(index_), ": not started");
    } else if (record.state != UJOIN_WORKER_RUNNING) {
        text_ = cat(describe_end(plan, record, index_), " ", age_text(now_ns_ - record.end_ns), " ago");
        if (!doing_.empty()) text_ += cat("; it was ", doing_);
    } else {
        text_ = cat("rank ", plan.rank_of(index_), " (pid ", record.pid, "): ", doing_.empty() ? "no group" : doing_);
    }
    if (record.state == UJOIN_WORKER_RUNNING && last_output_ns_ != 0)
        text_ += cat("; last output ", age_text(now_ns_ - last_output_ns_), " ago");
}

ujoin_worker_health WorkerHealth::fill() const {
    ujoin_worker_health out{};
    out.state = record_.state;
    out.rank = static_cast<int32_t>(index_);
    out.pid = record_.pid;
    out.group_rank = -1;
    out.round = -1;
    out.last_output_ns = last_output_ns_;
    out.operation = out.waiting_for = out.group = "";
    out.text = text_.c_str();
    if (!view_) return out;
    out.group_pid = view_->pid;
    out.group_rank = view_->rank;
    out.group_size = view_->size;
    out.groups = view_->groups;
    out.sequence = static_cast<int64_t>(view_->sequence);
    out.round = view_->round;
    out.since_ns = since_ns_;
    out.in_operation = view_->in_operation ? 1 : 0;
    out.in_context = view_->armed ? 1 : 0;
    out.joined = view_->joined ? 1 : 0;
    out.broken = view_->broken ? 1 : 0;
    out.operation = view_->kind.c_str();
    out.waiting_for = view_->what.c_str();
    out.group = view_->name.c_str();
    out.missing = view_->missing.empty() ? nullptr : view_->missing.data();
    out.missing_count = view_->missing.size();
    return out;
}

} // namespace ujoin
