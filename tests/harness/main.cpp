// SPDX-License-Identifier: Apache-2.0
#include "harness/descriptors.hpp"
#include <gtest/gtest.h>
#include <uv.h>

// Where a program has functions that are workers: runs one if this process is to, and says so.
extern "C" int worker_entry(int *exit_code) __attribute__((weak));

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
    int code = 0;
    if (worker_entry && worker_entry(&code)) return code;
    testing::InitGoogleTest(&argc, argv);
    // libuv keeps a pipe for the whole process from its first loop on: have it before anybody counts.
    uv_loop_t loop;
    if (uv_loop_init(&loop) == 0) uv_loop_close(&loop);
    testing::UnitTest::GetInstance()->listeners().Append(new DescriptorListener);
    return RUN_ALL_TESTS();
}
