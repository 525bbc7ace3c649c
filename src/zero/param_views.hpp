// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "zero/layout.hpp"
#include <cstddef>
#include <memory>
#include <vector>

namespace ujoin {

/// Memory of the library's for trained parameters. A place in it belongs to its parameter for ever: freezing one moves no
/// other.
class ParamViews {
  public:
    class Block {
      public:
        Block() = default;
        explicit Block(size_t bytes);
        std::byte *begin() const { return memory_.get(); }
        size_t bytes() const { return bytes_; }

      private:
        struct Delete {
            void operator()(std::byte *memory) const;
        };
        std::unique_ptr<std::byte, Delete> memory_;
        size_t bytes_ = 0;
    };

    /// Moves the trained parameters from `first` on into a new block, in the order of the partition. Their values follow by
    /// copy_in, once nothing can fail.
    static Block place(Layout &layout, size_t first);
    static void copy_in(const ZeroParam &param) noexcept;
    /// Into the program's memory.
    static void copy_out(const ZeroParam &param) noexcept;

    /// Room for one more block, so that keep() cannot fail.
    void reserve() { blocks_.reserve(blocks_.size() + 1); }
    void keep(Block &&block) noexcept { blocks_.push_back(std::move(block)); }
    size_t bytes() const;

  private:
    std::vector<Block> blocks_;
};

} // namespace ujoin
