// SPDX-License-Identifier: Apache-2.0
#include "zero/reduced.hpp"
#include "base/error.hpp"

namespace ujoin {

Reduced::Reduced(std::vector<GradParam> params) : params_(std::move(params)), index_of_(params_.size(), Layout::none) {
    for (size_t i = 0; i < params_.size(); i++) by_name_.emplace(params_[i].name, i);
}

void Reduced::check(const ZeroParam &param) const {
    if (!param.trained()) return;
    const auto found = by_name_.find(param.name);
    if (found == by_name_.end() || params_[found->second].ignored)
        fail_invalid("parameter \"", param.name, "\" is trained, but options.ddp does not reduce its gradient: ",
                     found == by_name_.end() ? "it has no parameter of that name" : "there it is ignored",
                     "; give it to the reducer, or freeze it");
    const GradParam &reduced = params_[found->second];
    if (param.count != reduced.elements)
        fail_invalid("parameter \"", param.name, "\" has ", param.count, " elements, that of options.ddp ",
                     reduced.elements);
    if (param.count != 0 && (param.grad != reduced.grad || param.grad_dtype != reduced.dtype))
        fail_invalid("the gradient of \"", param.name, "\" is not the one that options.ddp reduces: ",
                     param.grad == reduced.grad ? "its type differs" : "it lies elsewhere (see ujoin_ddp_gradient)");
}

void Reduced::find_in(const std::vector<ZeroParam> &params) noexcept {
    reduced_of_.assign(params.size(), Layout::none);
    for (size_t i = 0; i < params.size(); i++) {
        const auto found = by_name_.find(params[i].name);
        if (found == by_name_.end()) continue;
        index_of_[found->second] = i;
        reduced_of_[i] = found->second;
    }
}

} // namespace ujoin
