// SPDX-License-Identifier: Apache-2.0
// The two files that launcher and function worker share.
#include "base/error.hpp"
#include "base/wire.hpp"
#include "pctx/function_worker.hpp"
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <utility>

namespace ujoin {
namespace {

constexpr uint64_t answer_head = 16; // state, size
constexpr uint64_t longest_call = uint64_t{4} << 30;

void put_text(std::string &out, const std::string &text) {
    wire::put_u64(out, text.size());
    out += text;
}

std::string take_text(wire::Reader &in) { return std::string(in.take(in.u64())); }

os::Fd memory_file(const char *name) {
    os::Fd file(memfd_create(name, MFD_CLOEXEC));
    if (!file) fail_errno(errno, "cannot make a file in memory");
    return file;
}

} // namespace

CallFiles call_files(const std::vector<ujoin_worker_fd> &wanted) {
    const auto next = [&](int number) {
        const auto takes = [&](const ujoin_worker_fd &fd) { return fd.to == number; };
        while (std::any_of(wanted.begin(), wanted.end(), takes)) number++;
        return number;
    };
    CallFiles files;
    files.call = next(3);
    files.answer = next(files.call + 1);
    return files;
}

CallFiles call_files(const os::SpawnRequest &request) { return {request.fd_numbers[3], request.fd_numbers[4]}; }

os::Fd pack_call(const FunctionCall &call) {
    std::string bytes;
    put_text(bytes, call.function);
    wire::put_u32(bytes, static_cast<uint32_t>(call.rank));
    wire::put_u32(bytes, static_cast<uint32_t>(call.nprocs));
    wire::put_u64(bytes, call.args.size());
    for (const std::string &arg : call.args) put_text(bytes, arg);
    put_text(bytes, call.input);
    os::Fd file = memory_file("ujoin-call");
    for (size_t at = 0; at < bytes.size();) {
        const ssize_t done = write(file.get(), bytes.data() + at, bytes.size() - at);
        if (done < 0 && errno != EINTR) fail_errno(errno, "cannot write a function's arguments");
        if (done > 0) at += static_cast<size_t>(done);
    }
    return file;
}

FunctionCall unpack_call(int fd) {
    struct stat info {};
    if (fstat(fd, &info) != 0) fail_errno(errno, "cannot read the function to run");
    if (static_cast<uint64_t>(info.st_size) > longest_call)
        fail(UJOIN_E_MISMATCH, "the function to run is no call of ujoin's");
    std::string bytes(static_cast<size_t>(info.st_size), '\0');
    for (size_t at = 0; at < bytes.size();) {
        const ssize_t got = pread(fd, bytes.data() + at, bytes.size() - at, static_cast<off_t>(at));
        if (got <= 0) fail_errno(got < 0 ? errno : EIO, "cannot read the function to run");
        at += static_cast<size_t>(got);
    }
    wire::Reader in(bytes);
    FunctionCall call;
    call.function = take_text(in);
    call.rank = static_cast<int32_t>(in.u32());
    call.nprocs = static_cast<int32_t>(in.u32());
    const uint64_t count = in.u64();
    for (uint64_t i = 0; i < count; i++) call.args.push_back(take_text(in));
    call.input = take_text(in);
    in.end();
    return call;
}

os::Fd make_answer() { return memory_file("ujoin-answer"); }

Answer::Answer(int fd) {
    struct stat info {};
    int64_t head[2] = {};
    static_assert(sizeof head == answer_head);
    if (fstat(fd, &info) != 0 || static_cast<uint64_t>(info.st_size) < answer_head) return;
    if (pread(fd, head, sizeof head, 0) != sizeof head) return;
    const auto size = static_cast<uint64_t>(head[1]);
    if (head[0] < 1 || head[0] > 2 || size != static_cast<uint64_t>(info.st_size) - answer_head) return;
    void *map = mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED) return;
    map_ = map;
    map_size_ = static_cast<size_t>(info.st_size);
    data_ = static_cast<const char *>(map) + answer_head;
    size_ = static_cast<size_t>(size);
    state_ = static_cast<AnswerState>(head[0]);
}

Answer::~Answer() {
    if (map_) munmap(map_, map_size_);
}

Answer::Answer(Answer &&other) noexcept { *this = std::move(other); }

Answer &Answer::operator=(Answer &&other) noexcept {
    if (this == &other) return *this;
    if (map_) munmap(map_, map_size_);
    state_ = std::exchange(other.state_, AnswerState::none);
    map_ = std::exchange(other.map_, nullptr);
    map_size_ = std::exchange(other.map_size_, 0);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    return *this;
}

} // namespace ujoin
