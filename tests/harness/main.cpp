// SPDX-License-Identifier: Apache-2.0
#include "harness/descriptors.hpp"
#include <gtest/gtest.h>
#include <uv.h>

// libuv closes descriptors by a raw system call that ThreadSanitizer does not see: it then takes the next user of a number
// for a rival of the last. The loop's own hand-over (io::Loop::post) has a lock of its own, which stays visible.
extern "C" const char *__tsan_default_suppressions(); // NOLINT(bugprone-reserved-identifier)
extern "C" const char *__tsan_default_suppressions() {
    return "called_from_lib:libuv.so.1\n";
} // NOLINT(bugprone-reserved-identifier)

namespace {

/// Fails a test that leaves more descriptors open than it found.
class DescriptorListener : public testing::EmptyTestEventListener {
    void OnTestStart(const testing::TestInfo &) override { before_ = harness::open_descriptors(); }
    void OnTestEnd(const testing::TestInfo &) override {
        if (const std::string left = harness::leaked_descriptors(before_); !left.empty()) {
            ADD_FAILURE() << "descriptors left open:\n" << left;
        }
    }
    harness::Descriptors before_;
};

} // namespace

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    // libuv keeps a pipe for the whole process from its first loop on: have it before anybody counts.
    uv_loop_t loop;
    if (uv_loop_init(&loop) == 0) uv_loop_close(&loop);
    testing::UnitTest::GetInstance()->listeners().Append(new DescriptorListener);
    return RUN_ALL_TESTS();
}
