// SPDX-License-Identifier: Apache-2.0
// all_reduce of Gloo's C++ library over its TCP transport. Usage: all_reduce_gloo RANK SIZE DIRECTORY
// Halving-doubling: the fastest of its algorithms from 1 KB on. It leaves socket options behind that slow other sizes down,
// hence a context of its own for each.
#include "bench.h"
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace {

std::shared_ptr<gloo::rendezvous::Context> context;
float *memory;
std::map<size_t, std::unique_ptr<gloo::Algorithm>> by_count;

// An algorithm is bound to its memory: made at the first call for a count.
void sum(float *data, size_t count) {
    if (data != memory) by_count.clear();
    memory = data;
    auto &algorithm = by_count[count];
    if (!algorithm)
        algorithm = std::make_unique<gloo::AllreduceHalvingDoubling<float>>(context, std::vector<float *>{data},
                                                                            static_cast<int>(count));
    algorithm->run();
}

} // namespace

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    gloo::transport::tcp::attr attributes;
    attributes.hostname = "127.0.0.1";
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    gloo::rendezvous::FileStore files(argv[3]);
    for (const size_t bytes : bench_sizes) {
        gloo::rendezvous::PrefixStore store(std::to_string(bytes), files);
        context = std::make_shared<gloo::rendezvous::Context>(std::atoi(argv[1]), std::atoi(argv[2]));
        context->connectFullMesh(store, device);
        bench_all_reduce(sum, bytes);
        by_count.clear();
        context.reset();
    }
    return 0;
}
