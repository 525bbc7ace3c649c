// SPDX-License-Identifier: Apache-2.0
#include "comm/memory.hpp"
#include "comm/together.hpp"
#include "os/shared_memory.hpp"
#include <algorithm>
#include <cstring>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

namespace ujoin {
namespace {

constexpr size_t page = 4096;

/// Sizes by rank; what ranks must agree on is compared.
std::vector<size_t> sizes_of_all(Group &group, size_t bytes, bool one_copy) {
    const auto differ = [](const char *what, auto first, auto other, size_t rank) {
        throw Error(UJOIN_E_MISMATCH,
                    cat("ranks differ in ", what, ": rank 0 has ", first, ", rank ", rank, " has ", other))
            .with_ranks({0, static_cast<int32_t>(rank)});
    };
    std::vector<size_t> sizes;
    std::string first;
    for (const std::string &text : group.exchange(cat(one_copy ? 1 : 0, ' ', bytes))) {
        if (first.empty()) first = text;
        if (text[0] != first[0]) differ("options.one_per_host", first[0], text[0], sizes.size());
        sizes.push_back(std::stoull(text.substr(2)));
        if (one_copy && sizes.back() != sizes[0])
            differ("the size of memory that is one per host", sizes[0], sizes.back(), sizes.size() - 1);
    }
    return sizes;
}

/// More than this machine has would be taken page by page until the system ends a process.
void check_size(size_t bytes) {
    if (bytes == 0 || bytes > SIZE_MAX / 4) fail_invalid("bytes is ", bytes, "; expected 1 or more, as memory can hold");
    const auto pages = static_cast<size_t>(std::max(sysconf(_SC_PHYS_PAGES), 0L));
    if (pages != 0 && bytes / page > pages)
        fail(UJOIN_E_NO_MEMORY, "cannot reserve ", bytes, " bytes of shared memory: this machine has ", pages * page);
}

} // namespace

std::shared_ptr<SharedMemory> SharedMemory::create(const std::shared_ptr<Group> &group, size_t bytes, bool one_copy) {
    if (group->may_be_on_several_hosts())
        fail(UJOIN_E_UNSUPPORTED, "memory is shared by the ranks of one host; those of this group may be on several");
    std::shared_ptr<SharedMemory> memory;
    os::Fd own;
    together(*group, [&] {
        check_size(bytes);
        memory.reset(new SharedMemory(group->rank(), group->size(), bytes));
        own = os::create_shared_memory(one_copy && group->rank() != 0 ? page : bytes);
    });
    const std::vector<size_t> sizes = sizes_of_all(*group, bytes, one_copy);
    const std::vector<os::Fd> fds = group->pass(own);
    together(*group, [&] { memory->map(fds, sizes, one_copy); });
    group->memories().push_back(memory);
    return memory;
}

void SharedMemory::map(const std::vector<os::Fd> &fds, const std::vector<size_t> &sizes, bool one_copy) {
    for (size_t k = 0; k < (one_copy ? 1 : fds.size()); k++) mapped_.push_back(os::map_shared_memory(fds[k], sizes[k]));
}

void SharedMemory::withdraw() noexcept {
    const size_t length = (bytes_ + page - 1) / page * page;
    void *copy = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED) return;
    std::memcpy(copy, data(), bytes_);
    if (mremap(copy, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, data()) == MAP_FAILED) munmap(copy, length);
}

} // namespace ujoin
