// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"
#include <cstdlib>
#include <system_error>

namespace ujoin {

std::string errno_text(int error_number) { return std::generic_category().message(error_number); }

void fail_errno(int error_number, const std::string &what) {
    throw Error(UJOIN_E_SYSTEM, cat(what, ": ", errno_text(error_number))).with_errno(error_number);
}

const char *status_name(ujoin_status status) {
    switch (status) {
    case UJOIN_OK:
        return "UJOIN_OK";
    case UJOIN_PENDING:
        return "UJOIN_PENDING";
    case UJOIN_JOINED:
        return "UJOIN_JOINED";
    case UJOIN_SKIPPED:
        return "UJOIN_SKIPPED";
    case UJOIN_E_INVALID:
        return "UJOIN_E_INVALID";
    case UJOIN_E_STATE:
        return "UJOIN_E_STATE";
    case UJOIN_E_UNSUPPORTED:
        return "UJOIN_E_UNSUPPORTED";
    case UJOIN_E_NO_MEMORY:
        return "UJOIN_E_NO_MEMORY";
    case UJOIN_E_TIMEOUT:
        return "UJOIN_E_TIMEOUT";
    case UJOIN_E_ABORTED:
        return "UJOIN_E_ABORTED";
    case UJOIN_E_PEER_LOST:
        return "UJOIN_E_PEER_LOST";
    case UJOIN_E_MISMATCH:
        return "UJOIN_E_MISMATCH";
    case UJOIN_E_EXHAUSTED:
        return "UJOIN_E_EXHAUSTED";
    case UJOIN_E_SYSTEM:
        return "UJOIN_E_SYSTEM";
    case UJOIN_E_BACKEND:
        return "UJOIN_E_BACKEND";
    case UJOIN_E_CALLBACK:
        return "UJOIN_E_CALLBACK";
    case UJOIN_E_CHILD_FAILED:
        return "UJOIN_E_CHILD_FAILED";
    case UJOIN_E_INTERNAL:
        return "UJOIN_E_INTERNAL";
    default:
        return "UJOIN_E_?";
    }
}

LastError &last_error() {
    thread_local LastError error;
    return error;
}

namespace {

/// There is no memory for the text. That of an error before would mislead; so short a one needs no memory.
void forget_text() noexcept {
    LastError &last = last_error();
    last.text.clear();
    last.text.append("out of memory");
    last.system_errno = 0;
    last.ranks.clear();
}

} // namespace

ujoin_status record(const Error &error) noexcept {
    try {
        LastError &last = last_error();
        last.text = error.text();
        last.system_errno = error.system_errno();
        last.ranks = error.ranks();
    } catch (...) {
        forget_text();
    }
    return error.code();
}

ujoin_status record(ujoin_status code, const char *where, const char *what) noexcept {
    try {
        last_error() = {cat(where, *where ? ": " : "", what), 0, {}};
    } catch (...) {
        forget_text();
    }
    return code;
}

std::string pack(const Error &error) { return cat(error.code(), " ", error.text()); }

Error unpack_error(const std::string &packed) {
    char *end = nullptr;
    const long code = std::strtol(packed.c_str(), &end, 10);
    return {static_cast<ujoin_status>(code), *end ? end + 1 : ""};
}

} // namespace ujoin
