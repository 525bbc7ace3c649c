// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "base/text.hpp"
#include "ujoin.h"
#include <exception>
#include <string>
#include <vector>

namespace ujoin {

/// A failure on its way to the caller. Inside the library errors are thrown; api/guard.hpp turns them into a status and
/// the thread's text. `ranks` are those the error is about (missing, lost, aborted).
class Error : public std::exception {
  public:
    Error(ujoin_status code, std::string text) : code_(code), text_(std::move(text)) {}

    ujoin_status code() const { return code_; }
    const std::string &text() const { return text_; }
    const char *what() const noexcept override { return text_.c_str(); }
    int32_t system_errno() const { return errno_; }
    const std::vector<int32_t> &ranks() const { return ranks_; }

    Error &with_errno(int32_t value) {
        errno_ = value;
        return *this;
    }
    Error &with_ranks(std::vector<int32_t> ranks) {
        ranks_ = std::move(ranks);
        return *this;
    }
    /// Puts where it happened in front of the text: "zero_step: rank 1: ...".
    Error &in(const std::string &place) {
        text_ = place + ": " + text_;
        return *this;
    }

  private:
    ujoin_status code_;
    std::string text_;
    int32_t errno_ = 0;
    std::vector<int32_t> ranks_;
};

template <class... Parts> [[noreturn]] void fail(ujoin_status code, const Parts &...parts) {
    throw Error(code, cat(parts...));
}
template <class... Parts> [[noreturn]] void fail_invalid(const Parts &...parts) { fail(UJOIN_E_INVALID, parts...); }
template <class... Parts> [[noreturn]] void fail_state(const Parts &...parts) { fail(UJOIN_E_STATE, parts...); }
/// UJOIN_E_SYSTEM with the text of `error_number` at the end.
[[noreturn]] void fail_errno(int error_number, const std::string &what);
std::string errno_text(int error_number);

const char *status_name(ujoin_status status);

/// The last failed call of this thread, as ujoin_last_error and its siblings show it.
struct LastError {
    std::string text;
    int32_t system_errno = 0;
    std::vector<int32_t> ranks;
};
LastError &last_error();
/// Records an error as this thread's last one; never throws.
ujoin_status record(const Error &error) noexcept;
/// The same for an error that is known by a place and a text alone, where there may be no memory for an Error.
ujoin_status record(ujoin_status code, const char *where, const char *what) noexcept;

/// Status and text as one, for another process, and back.
std::string pack(const Error &error);
Error unpack_error(const std::string &packed);

} // namespace ujoin
