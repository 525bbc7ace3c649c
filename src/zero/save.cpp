// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"
#include "comm/together.hpp"
#include "zero/checkpoint.hpp"
#include "zero/files.hpp"
#include "zero/index.hpp"
#include "zero/safetensors.hpp"
#include "zero/zero.hpp"
#include <cerrno>
#include <cstdlib>
#include <deque>
#include <optional>
#include <sys/stat.h>

namespace ujoin {
namespace {

FileTensor bytes_tensor(std::string name, const StateItem &item) {
    return {std::move(name), UJOIN_U8, {static_cast<int64_t>(item.bytes)}, 0, item.bytes, item.data.data()};
}

void add_program_item(const StateItem &item, std::vector<FileTensor> &tensors) {
    switch (item.kind) {
    case UJOIN_ITEM_NUMBER:
        tensors.push_back({"program/number/" + item.key, UJOIN_F64, {}, 0, sizeof item.number, &item.number});
        break;
    case UJOIN_ITEM_TENSOR:
        tensors.push_back({"program/tensor/" + item.key, item.dtype, item.shape, 0, item.bytes, item.data.data()});
        break;
    case UJOIN_ITEM_TEXT:
        tensors.push_back(bytes_tensor("program/text/" + item.key, item));
        break;
    default:
        tensors.push_back(bytes_tensor("program/bytes/" + item.key, item));
    }
}

std::string write_state(const Zero &zero, const State &extra, NewFile &file) {
    const Layout &layout = zero.layout();
    std::vector<FileTensor> tensors;
    for (size_t i = 0; i < zero.states().size(); i++) {
        const ParamState &state = zero.states()[i];
        const ZeroParam &param = layout.params[i];
        if (!layout.owns(i)) continue;
        const Piece &piece = layout.own(i);
        for (size_t place = 0; place < layout.state_names.size(); place++)
            if ((state.valid >> place & 1U) != 0)
                tensors.push_back({cat("state/", layout.state_names[place], '/', param.name), layout.state_dtype(i),
                                   piece_shape(param, piece.count), 0, layout.state_bytes(i, piece.count),
                                   state.tensors[place].data()});
        if (state.step == 0) continue;
        if (layout.counts_steps())
            tensors.push_back({cat("state/step/", param.name), UJOIN_I64, {}, 0, sizeof state.step, &state.step});
        if (!layout.rule->number.empty())
            tensors.push_back({cat("state/", layout.rule->number, '/', param.name),
                               UJOIN_F64,
                               {},
                               0,
                               sizeof state.number,
                               &state.number});
    }
    for (size_t i = 0; i < extra.count(); i++) add_program_item(extra.at(i), tensors);
    return write_safetensors(file, std::move(tensors), {{"format", "ujoin-zero-state"}, {"rank", cat(layout.rank)}});
}

std::string write_parameters(const Zero &zero, NewFile &file) {
    std::vector<FileTensor> tensors;
    for (const ZeroParam &param : zero.layout().params)
        tensors.push_back({param.name, param.dtype, param.shape, 0, param.bytes, param.data});
    return write_safetensors(file, std::move(tensors), {});
}

CheckpointIndex describe(const Layout &layout) {
    CheckpointIndex index;
    index.optimizer = layout.rule->name;
    index.groups.resize(layout.hypers.size());
    for (size_t group = 0; group < layout.hypers.size(); group++)
        for (size_t i = 0; i < layout.rule->hypers.size(); i++)
            index.groups[group].hypers.emplace_back(layout.rule->hypers[i].name, layout.hypers[group][i]);
    for (const ZeroParam &param : layout.params) {
        CheckpointIndex::ParamGroup &group = index.groups[static_cast<size_t>(param.group)];
        group.params.push_back(param.name);
        group.pieces.emplace_back();
    }
    std::vector<std::vector<SavedPiece> *> pieces;
    for (CheckpointIndex::ParamGroup &group : index.groups)
        for (std::vector<SavedPiece> &of : group.pieces) pieces.push_back(&of);
    for (const Piece &piece : layout.partition.pieces())
        pieces[piece.param]->push_back({static_cast<uint64_t>(piece.rank), piece.offset, piece.count});
    return index;
}

void save_parameters_alone(Zero &zero, const SaveRequest &request, const std::string &id) {
    together(zero.group(), [&] {
        if (zero.group().rank() != 0) return;
        const std::string name = name_of(request.path);
        const std::string begin = cat('.', name, '.');
        const std::string directory = directory_of(request.path);
        if (name.empty()) fail_invalid("path \"", request.path, "\" names no file");
        NewFile file(cat(directory, '/', begin, id, ".tmp"));
        write_parameters(zero, file);
        file.finish(request.sync);
        file.rename_to(request.path);
        remove_files(directory, [&begin](std::string_view other) { // of saves that were killed
            return other.size() == begin.size() + 20 && other.starts_with(begin) && other.ends_with(".tmp") &&
                   is_random_id(other.substr(begin.size(), 16));
        });
        if (request.sync) sync_directory(directory);
    });
}

/// The files of one save, in a directory, on this rank.
class DirectorySave {
  public:
    DirectorySave(Zero &zero, const SaveRequest &request, std::string id)
        : zero_(zero), group_(zero.group()), request_(request), id_(std::move(id)) {}

    void run() {
        together(group_, [&] {
            if (group_.rank() == 0) make_directory(request_.path);
        });
        together(group_, [&] { write(); });
        for (const std::string &line : group_.exchange(cat(state_.bytes, ' ', state_.checksum))) {
            const size_t space = line.find(' ');
            const auto rank = static_cast<int32_t>(ranks_.size());
            ranks_.push_back(
                {state_file_name(id_, rank), std::strtoull(line.c_str(), nullptr, 10), line.substr(space + 1)});
        }
        for (NewFile &file : files_) file.keep(); // from here on rank 0 decides what becomes of them
        together(group_, [&] {
            if (group_.rank() == 0) commit();
        });
    }

  private:
    void write() {
        NewFile &file = files_.emplace_back(in_directory(state_file_name(id_, group_.rank())));
        state_.checksum = write_state(zero_, request_.extra, file);
        file.finish(request_.sync);
        state_.bytes = file.bytes();
        if (group_.rank() != 0 || (request_.parts & UJOIN_SAVE_PARAMETERS) == 0) return;
        NewFile &parameters = files_.emplace_back(in_directory(parameters_file_name(id_)));
        parameters_.checksum = write_parameters(zero_, parameters);
        parameters.finish(request_.sync);
        parameters_.bytes = parameters.bytes();
        parameters_.name = parameters_file_name(id_);
    }

    void commit() {
        std::string parent;
        try {
            parent = directory_of(request_.path); // once the index is renamed nothing needs memory
            check_files();
            CheckpointIndex index = describe(zero_.layout());
            index.files = ranks_;
            index.parameters = parameters_;
            const std::string text = index_text(index);
            NewFile file(in_directory(new_index_name(id_)));
            file.write(text.data(), text.size());
            file.finish(request_.sync);
            if (request_.sync) sync_directory(request_.path);
            file.rename_to(in_directory(index_name));
        } catch (...) {
            remove_files(request_.path, [this](std::string_view name) { return id_in_name(name) == id_; });
            throw;
        }
        if (request_.sync) {
            sync_directory(request_.path);
            sync_directory(parent); // it may be new
        }
        remove_files(request_.path, [this](std::string_view name) {
            const std::string_view id = id_in_name(name);
            return !id.empty() && id != id_;
        });
    }

    /// All ranks must see one directory.
    void check_files() const {
        for (const IndexFile &file : ranks_) {
            struct stat info {};
            const std::string path = in_directory(file.name);
            if (::stat(path.c_str(), &info) != 0)
                fail_errno(errno, cat("\"", path,
                                      "\", which another rank wrote, cannot be found; all ranks must see one directory"));
            if (static_cast<uint64_t>(info.st_size) != file.bytes)
                fail(UJOIN_E_SYSTEM, '"', path, "\" has ", info.st_size, " bytes, but ", file.bytes, " were written");
        }
    }

    std::string in_directory(const std::string &name) const { return cat(request_.path, '/', name); }

    Zero &zero_;
    Group &group_;
    const SaveRequest &request_;
    std::string id_;
    std::deque<NewFile> files_;
    IndexFile state_;
    IndexFile parameters_;
    std::vector<IndexFile> ranks_;
};

} // namespace

void save_checkpoint(Zero &zero, const SaveRequest &request) {
    check_same(zero.group(), {{"the parts to save", cat(request.parts)}, {"no_sync", cat(!request.sync)}});
    std::string own_id;
    together(zero.group(), [&] { own_id = random_id(); });
    const std::string id = zero.group().exchange(own_id)[0];
    if (request.parts == UJOIN_SAVE_PARAMETERS) return save_parameters_alone(zero, request, id);
    DirectorySave(zero, request, id).run();
}

} // namespace ujoin
