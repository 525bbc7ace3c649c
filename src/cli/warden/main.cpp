// SPDX-License-Identifier: Apache-2.0
// ujoin-warden: parent, subreaper and death anchor of a job's workers. Started by libujoin; see os/warden_protocol.hpp.
#include "os/warden_server.hpp"
#include <cstdio>

int main() {
    using namespace ujoin::os;
    if (!warden::is_started_by_launcher()) {
        std::fputs("ujoin-warden is started by libujoin to hold its workers; it is of no use by itself\n", stderr);
        return 2;
    }
    warden::serve(spawn);
    return 0;
}
