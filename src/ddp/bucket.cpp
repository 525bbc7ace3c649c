// SPDX-License-Identifier: Apache-2.0
#include "ddp/bucket.hpp"
#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

namespace ujoin {

void append_segment(std::vector<Segment> &list, void *data, size_t bytes) {
    if (bytes == 0) return;
    if (!list.empty() && static_cast<char *>(list.back().data) + list.back().bytes == data)
        list.back().bytes += bytes;
    else
        list.push_back({data, bytes});
}

std::vector<size_t> backward_order(size_t params) {
    std::vector<size_t> order(params);
    std::iota(order.rbegin(), order.rend(), size_t{0});
    return order;
}

std::vector<Bucket> assign_buckets(const std::vector<GradParam> &params, const std::vector<size_t> &order,
                                   size_t first_bytes, size_t bucket_bytes) {
    struct Open {
        Bucket bucket;
        size_t last = 0; ///< place in the walk
        bool first = true;
    };
    std::map<ujoin_dtype, Open> open;
    std::vector<Open> closed;
    const auto close = [&](Open &filling) {
        filling.bucket.limit = filling.first ? first_bytes : bucket_bytes;
        closed.push_back({std::move(filling.bucket), filling.last, filling.first});
        filling.bucket = {};
        filling.first = false;
    };
    for (size_t place = 0; place < order.size(); place++) {
        const GradParam &param = params[order[place]];
        if (param.elements == 0) continue;
        Open &filling = open[param.dtype];
        filling.last = place;
        filling.bucket.dtype = param.dtype;
        filling.bucket.params.push_back(order[place]);
        filling.bucket.bytes += param.bytes();
        if (filling.bucket.bytes >= (filling.first ? first_bytes : bucket_bytes)) close(filling);
    }
    for (auto &[dtype, filling] : open)
        if (!filling.bucket.params.empty()) close(filling);
    std::sort(closed.begin(), closed.end(), [](const Open &a, const Open &b) { return a.last < b.last; });

    std::vector<Bucket> buckets;
    for (Open &done : closed) {
        Bucket &bucket = done.bucket;
        std::sort(bucket.params.begin(), bucket.params.end());
        size_t offset = 0;
        for (const size_t i : bucket.params) {
            append_segment(bucket.gradients, params[i].grad, params[i].bytes());
            bucket.offsets.push_back(offset);
            offset += params[i].elements;
        }
        buckets.push_back(std::move(bucket));
    }
    return buckets;
}

void check_gradients_apart(const std::vector<GradParam> &params) {
    std::vector<size_t> order;
    for (size_t i = 0; i < params.size(); i++)
        if (params[i].elements != 0) order.push_back(i);
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return std::less<>()(params[a].grad, params[b].grad); });
    for (size_t k = 1; k < order.size(); k++) {
        const GradParam &low = params[order[k - 1]];
        const GradParam &high = params[order[k]];
        if (static_cast<char *>(low.grad) + low.bytes() > static_cast<char *>(high.grad))
            fail_invalid("params: the gradients of parameters ", order[k - 1], " (\"", low.name, "\") and ", order[k],
                         " (\"", high.name, "\") share memory; list a shared parameter once");
    }
}

} // namespace ujoin
