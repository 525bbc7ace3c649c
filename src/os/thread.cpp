// SPDX-License-Identifier: Apache-2.0
#include "os/thread.hpp"
#include "base/error.hpp"
#include <csignal>
#include <pthread.h>
#include <system_error>

namespace ujoin::os {
namespace {

/// The mask is inherited by threads that are started meanwhile.
class SignalsBlocked {
  public:
    SignalsBlocked() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old_);
    }
    ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &old_, nullptr); }
    SignalsBlocked(const SignalsBlocked &) = delete;
    SignalsBlocked &operator=(const SignalsBlocked &) = delete;

  private:
    sigset_t old_{};
};

} // namespace

std::thread start_thread(const char *name, std::function<void()> body) {
    const SignalsBlocked blocked;
    try {
        std::thread thread(std::move(body));
        pthread_setname_np(thread.native_handle(), name);
        return thread;
    } catch (const std::system_error &error) {
        fail_errno(error.code().value(), "cannot start a thread");
    }
}

} // namespace ujoin::os
