// SPDX-License-Identifier: Apache-2.0
#include "base/random.hpp"
#include "base/error.hpp"
#include <cerrno>
#include <sys/random.h>

namespace ujoin {

std::string random_bytes(size_t count) {
    std::string bytes(count, '\0');
    for (size_t done = 0; done < count;) {
        const ssize_t n = getrandom(bytes.data() + done, count - done, 0);
        if (n < 0 && errno != EINTR) fail_errno(errno, "cannot get random bytes");
        if (n > 0) done += static_cast<size_t>(n);
    }
    return bytes;
}

std::string random_hex(size_t bytes) {
    std::string text;
    for (const char c : random_bytes(bytes)) {
        const auto byte = static_cast<unsigned char>(c);
        text += "0123456789abcdef"[byte >> 4];
        text += "0123456789abcdef"[byte & 15];
    }
    return text;
}

} // namespace ujoin
