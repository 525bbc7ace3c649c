// SPDX-License-Identifier: Apache-2.0
#include "optim/batch.hpp"

namespace ujoin::optim {

void Batch::reserve(size_t updates, size_t elements) {
    jobs_.reserve(updates);
    pieces_.reserve(updates);
    sums_.reserve((elements / piece_elements + 2) * max_sums);
}

/// What cannot be cut, or need not be, is one piece. A large parameter of a per_tensor rule goes by itself.
void Batch::run(const Rule &rule, Parallel &parallel) {
    pieces_.clear();
    for (const Job &job : jobs_) {
        const bool apart = rule.per_tensor && job.update.count > piece_elements;
        pieces_.add(job.update.offset, apart ? 0 : job.update.count);
    }
    pieces_.run(parallel, [&](const Pieces::Piece &piece, size_t) {
        const Job &job = jobs_[piece.range];
        apply(rule, *job.hyper, part_of(job.update, piece.begin - job.update.offset, piece.count));
    });
    for (const Job &job : jobs_)
        if (rule.per_tensor && job.update.count > piece_elements) run_whole(rule, job, parallel);
}

void Batch::run_whole(const Rule &rule, const Job &job, Parallel &parallel) {
    pieces_.clear();
    pieces_.add(0, job.update.count);
    sums_.assign(pieces_.size() * max_sums, 0);
    pieces_.run(parallel, [&](const Pieces::Piece &piece, size_t index) {
        Update part = part_of(job.update, piece.begin, piece.count);
        part.sums = &sums_[index * max_sums];
        rule.measure(*job.hyper, part);
    });
    double sums[max_sums] = {};
    for (size_t i = 0; i < sums_.size(); i++) sums[i % max_sums] += sums_[i];
    pieces_.run(parallel, [&](const Pieces::Piece &piece, size_t) {
        Update part = part_of(job.update, piece.begin, piece.count);
        part.sums = sums;
        rule.apply(*job.hyper, part);
    });
}

} // namespace ujoin::optim
