// SPDX-License-Identifier: Apache-2.0
#include "zero/param_views.hpp"
#include "base/dtype.hpp"
#include <cstring>
#include <new>
#include <utility>

namespace ujoin {
namespace {

constexpr std::align_val_t alignment{64};

} // namespace

void ParamViews::Block::Delete::operator()(std::byte *memory) const { ::operator delete(memory, alignment); }

ParamViews::Block::Block(size_t bytes)
    : memory_(static_cast<std::byte *>(::operator new(bytes, alignment))), bytes_(bytes) {}

size_t ParamViews::bytes() const {
    size_t sum = 0;
    for (const Block &block : blocks_) sum += block.bytes();
    return sum;
}

ParamViews::Block ParamViews::place(Layout &layout, size_t first) {
    std::vector<std::pair<size_t, size_t>> places; // parameter, offset
    size_t end = 0;
    for (const Piece &piece : layout.partition.pieces()) {
        const ZeroParam &param = layout.params[piece.param];
        if (piece.param < first || piece.offset != 0 || param.frozen) continue;
        const size_t size = dtype_size(param.dtype);
        const size_t begin = (end + size - 1) / size * size;
        places.emplace_back(piece.param, begin);
        end = begin + param.bytes;
    }
    Block block(end);
    for (const auto &[index, offset] : places)
        layout.params[index].data = layout.params[index].view = block.begin() + offset;
    layout.arrange();
    return block;
}

void ParamViews::copy_in(const ZeroParam &param) noexcept {
    if (param.bytes != 0) std::memcpy(param.view, param.home, param.bytes);
}

void ParamViews::copy_out(const ZeroParam &param) noexcept {
    if (param.bytes != 0) std::memcpy(param.home, param.view, param.bytes);
}

} // namespace ujoin
