// SPDX-License-Identifier: Apache-2.0
#include "os/shared_memory.hpp"
#include "base/error.hpp"
#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace ujoin::os {

Fd create_shared_memory(size_t bytes) {
    Fd memory(memfd_create("ujoin", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!memory) fail_errno(errno, "cannot make shared memory (memfd_create)");
    const auto size = static_cast<off_t>(bytes);
    if (ftruncate(memory.get(), size) != 0) fail_errno(errno, cat("cannot make ", bytes, " bytes of shared memory"));
    int code = 0;
    do {
        code = fallocate(memory.get(), 0, 0, size) == 0 ? 0 : errno;
    } while (code == EINTR);
    if (code != 0)
        throw Error(UJOIN_E_NO_MEMORY, cat("cannot reserve ", bytes, " bytes of shared memory: ", errno_text(code)))
            .with_errno(code);
    if (fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        fail_errno(errno, "cannot seal shared memory");
    return memory;
}

std::shared_ptr<void> map_shared_memory(const Fd &memory, size_t bytes) {
    struct stat facts {};
    if (fstat(memory.get(), &facts) != 0) fail_errno(errno, "cannot look at a peer's shared memory");
    if (static_cast<size_t>(facts.st_size) != bytes)
        fail(UJOIN_E_MISMATCH, "a peer's shared memory has ", facts.st_size, " bytes, expected ", bytes,
             "; do all ranks use the same version of ujoin?");
    const int seals = fcntl(memory.get(), F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK))
        fail(UJOIN_E_MISMATCH, "a peer's shared memory is not sealed against shrinking");
    void *address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
    if (address == MAP_FAILED)
        throw Error(UJOIN_E_NO_MEMORY, cat("cannot map ", bytes, " bytes: ", errno_text(errno))).with_errno(errno);
    return {address, [bytes](void *p) { munmap(p, bytes); }};
}

} // namespace ujoin::os
