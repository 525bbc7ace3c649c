// SPDX-License-Identifier: Apache-2.0
// libuv closes descriptors by syscall(SYS_close), which ThreadSanitizer does not see: it then takes the next user of a
// number for a rival of the last. Programs of the tests therefore have a syscall() that makes such a close a plain one.
#if defined(__SANITIZE_THREAD__)
#include <cstdarg>
#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

using Syscall = long (*)(long, ...);

Syscall find_system_call() { return reinterpret_cast<Syscall>(dlsym(RTLD_NEXT, "syscall")); }

/// Found before main: a child that shares our memory until it executes another program may not look for it.
const Syscall system_call = find_system_call();

} // namespace

extern "C" __attribute__((no_sanitize("thread"))) long syscall(long number, ...) noexcept {
    long argument[6];
    va_list list;
    va_start(list, number);
    for (long &a : argument) a = va_arg(list, long); // more than were passed: registers and words of the stack, not used
    va_end(list);
    if (number == SYS_close) return close(static_cast<int>(argument[0]));
    return (system_call ? system_call : find_system_call())(number, argument[0], argument[1], argument[2], argument[3],
                                                            argument[4], argument[5]);
}
#endif
