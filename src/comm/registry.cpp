// SPDX-License-Identifier: Apache-2.0
#include "comm/registry.hpp"

namespace ujoin {

const BackendFactory &choose_backend(const std::string &asked, const RanksAre &ranks) {
    std::vector<std::string> names;
    std::vector<std::string> reasons;
    for (const BackendFactory &factory : backend_factories()) {
        names.emplace_back(factory.name);
        if (asked != "auto" && asked != factory.name) continue;
        const std::string why_not = factory.why_not(ranks);
        if (why_not.empty()) return factory;
        reasons.push_back(cat(factory.name, ": ", why_not));
    }
    if (reasons.empty())
        fail(UJOIN_E_UNSUPPORTED, "backend \"", asked, "\" is not in this build; it has ", join_list(names),
             " (and \"auto\")");
    fail(UJOIN_E_UNSUPPORTED, "no backend for this group of ", ranks.size, " ranks (", join_list(reasons, "; "), ")");
}

std::string describe_backends() {
    std::string text;
    for (const BackendFactory &factory : backend_factories()) text += cat(factory.name, "\tyes\t", factory.about, "\n");
    return text;
}

} // namespace ujoin
