// SPDX-License-Identifier: Apache-2.0
#include "base/dtype.hpp"
#include "base/error.hpp"
#include "comm/together.hpp"
#include "zero/checkpoint.hpp"
#include "zero/index.hpp"
#include "zero/safetensors.hpp"
#include "zero/zero.hpp"
#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>
#include <set>

namespace ujoin {
namespace {

/// Runs `body`; its errors get the file's name in front.
template <class Body> void about(const std::string &path, Body &&body) {
    try {
        body();
    } catch (Error &error) {
        throw error.in(cat('"', path, '"'));
    }
}

/// "state/exp_avg/layer/weight" -> "exp_avg", "layer/weight", if it begins with "state/".
bool split_name(const std::string &name, const std::string &prefix, std::string &key, std::string &rest) {
    if (name.rfind(prefix, 0) != 0) return false;
    const size_t slash = name.find('/', prefix.size());
    if (slash == std::string::npos) return false;
    key = name.substr(prefix.size(), slash - prefix.size());
    rest = name.substr(slash + 1);
    return !rest.empty();
}

/// Whose files have the state of a parameter, by parameter.
using SavedPieces = std::vector<std::vector<SavedPiece>>;

SavedPieces saved_pieces(const Layout &layout, const CheckpointIndex &index) {
    SavedPieces pieces;
    std::vector<size_t> next(index.groups.size());
    for (const ZeroParam &param : layout.params) {
        const auto group = static_cast<size_t>(param.group);
        pieces.push_back(index.groups[group].pieces[next[group]++]);
        if (const uint64_t count = pieces.back().back().offset + pieces.back().back().count; count != param.count)
            fail(UJOIN_E_MISMATCH, "the pieces of parameter \"", param.name, "\" have ", count, " elements; here it has ",
                 param.count);
    }
    return pieces;
}

/// The ranks that have something of this rank's pieces.
std::set<uint64_t> wanted_files(const Layout &layout, const SavedPieces &saved) {
    std::set<uint64_t> ranks;
    for (size_t i = 0; i < saved.size(); i++) {
        if (!layout.owns(i)) continue;
        const Piece &own = layout.own(i);
        for (const SavedPiece &piece : saved[i])
            if (own.count == 0 || (piece.offset < own.offset + own.count && own.offset < piece.offset + piece.count))
                ranks.insert(piece.rank);
    }
    return ranks;
}

/// Reads one rank's file. Numbers and the program's items are collected first and taken when all has been read.
class StateFile {
  public:
    StateFile(const Layout &layout, Staging &staging, SafetensorsReader &reader, const SavedPieces &pieces, uint64_t rank,
              bool with_program)
        : layout_(layout), staging_(staging), reader_(reader), pieces_(pieces), rank_(rank), with_program_(with_program) {}

    void read() {
        const size_t count = reader_.tensors().size();
        places_.resize(count);
        about(reader_.path(), [&] {
            for (size_t i = 0; i < count; i++) prepare(i);
        });
        reader_.read([&](size_t i) { return places_[i]; });
        about(reader_.path(), [&] {
            for (const auto &[index, value] : steps_) staging_.take_step(index, static_cast<double>(value));
            for (const auto &[index, value] : numbers_) staging_.take_number(index, value);
            if (!with_program_) return;
            for (StateItem &item : program_) {
                if (item.kind == UJOIN_ITEM_NUMBER) std::memcpy(&item.number, item.data.data(), sizeof item.number);
                if (item.kind == UJOIN_ITEM_NUMBER) item.data.clear();
                staging_.extra.set(std::move(item));
            }
        });
    }

  private:
    void prepare(size_t i) {
        const FileTensor &tensor = reader_.tensors()[i];
        std::string key;
        std::string rest;
        if (split_name(tensor.name, "state/", key, rest)) {
            const size_t index = staging_.find(rest);
            const auto piece = std::find_if(pieces_[index].begin(), pieces_[index].end(),
                                            [&](const SavedPiece &of) { return of.rank == rank_; });
            if (piece == pieces_[index].end())
                fail(UJOIN_E_MISMATCH, "tensor \"", tensor.name, "\" belongs to rank ", pieces_[index][0].rank);
            if (key == "step") {
                places_[i] = number_place(tensor, UJOIN_I64, index, steps_);
            } else if (!layout_.rule->number.empty() && key == layout_.rule->number) {
                places_[i] = number_place(tensor, UJOIN_F64, index, numbers_);
            } else {
                places_[i] = staging_.take_tensor(index, key, tensor.dtype, tensor.shape, piece->offset, piece->count);
            }
        } else if (split_name(tensor.name, "program/", key, rest)) {
            places_[i] = program_item(tensor, key, rest);
        } else {
            fail(UJOIN_E_MISMATCH, "tensor \"", tensor.name, "\" is no part of a saved state");
        }
    }

    template <class Number> static void *number_place(const FileTensor &tensor, ujoin_dtype dtype, size_t index,
                                                      std::deque<std::pair<size_t, Number>> &list) {
        if (tensor.dtype != dtype || !tensor.shape.empty())
            fail(UJOIN_E_MISMATCH, "tensor \"", tensor.name, "\" is no ", dtype_name(dtype), " []");
        return &list.emplace_back(index, Number{}).second;
    }

    void *program_item(const FileTensor &tensor, const std::string &kind, const std::string &key) {
        StateItem &item = program_.emplace_back();
        item.key = key;
        item.bytes = tensor.bytes;
        if (kind == "number" && tensor.dtype == UJOIN_F64 && tensor.shape.empty()) {
            item.kind = UJOIN_ITEM_NUMBER;
            item.bytes = 0;
        } else if (kind == "tensor") {
            item.kind = UJOIN_ITEM_TENSOR;
            item.dtype = tensor.dtype;
            item.shape = tensor.shape;
        } else if ((kind == "text" || kind == "bytes") && tensor.dtype == UJOIN_U8 && tensor.shape.size() == 1) {
            item.kind = kind == "text" ? UJOIN_ITEM_TEXT : UJOIN_ITEM_BYTES;
        } else {
            fail(UJOIN_E_MISMATCH, "tensor \"", tensor.name, "\" is no item that a save writes");
        }
        item.data.resize(tensor.bytes + 1); // with a NUL, so that a text can be printed
        return item.data.data();
    }

    const Layout &layout_;
    Staging &staging_;
    SafetensorsReader &reader_;
    const SavedPieces &pieces_;
    uint64_t rank_;
    bool with_program_;
    std::vector<ReadTarget> places_;
    std::deque<std::pair<size_t, int64_t>> steps_;
    std::deque<std::pair<size_t, double>> numbers_;
    std::deque<StateItem> program_;
};

void check_file(const SafetensorsReader &reader, const IndexFile &expected) {
    if (reader.bytes() != expected.bytes)
        fail(UJOIN_E_MISMATCH, '"', reader.path(), "\" has ", reader.bytes(), " bytes; the index says ", expected.bytes);
    if (reader.metadata(checksum_key) != expected.checksum)
        fail(UJOIN_E_MISMATCH, '"', reader.path(), "\" has checksum \"", reader.metadata(checksum_key),
             "\"; the index says ", expected.checksum);
}

void read_parameters(const Layout &layout, Staging &staging, SafetensorsReader &reader) {
    staging.params.resize(layout.params.size());
    std::vector<size_t> index(reader.tensors().size());
    about(reader.path(), [&] {
        for (size_t i = 0; i < index.size(); i++) {
            const FileTensor &tensor = reader.tensors()[i];
            index[i] = staging.find(tensor.name);
            const ZeroParam &param = layout.params[index[i]];
            if (tensor.dtype != param.dtype || tensor.shape != param.shape)
                fail(UJOIN_E_MISMATCH, "tensor \"", tensor.name, "\" is ", dtype_name(tensor.dtype), ' ',
                     shape_text(tensor.shape), ", but the parameter is ", dtype_name(param.dtype), ' ',
                     shape_text(param.shape));
        }
        if (index.size() == layout.params.size()) return; // names are unique: none is missing
        std::vector<bool> there(layout.params.size());
        for (const size_t i : index) there[i] = true;
        const auto missing = static_cast<size_t>(std::find(there.begin(), there.end(), false) - there.begin());
        fail(UJOIN_E_MISMATCH, "parameter \"", layout.params[missing].name, "\" is missing");
    });
    reader.read([&](size_t i) {
        std::vector<std::byte> &place = staging.params[index[i]];
        place.resize(layout.params[index[i]].bytes);
        return ReadTarget(place.data());
    });
}

void check_groups(const Layout &layout, const CheckpointIndex &index, Staging &staging) {
    if (index.optimizer != layout.rule->name)
        fail(UJOIN_E_MISMATCH, "it was saved by ", index.optimizer, "; this optimizer is ", layout.rule->name);
    if (index.groups.size() != layout.hypers.size())
        fail(UJOIN_E_MISMATCH, "it has ", index.groups.size(), " param groups; this optimizer has ", layout.hypers.size());
    for (size_t g = 0; g < index.groups.size(); g++) {
        std::vector<std::string> names;
        for (const ZeroParam &param : layout.params)
            if (static_cast<size_t>(param.group) == g) names.push_back(param.name);
        const std::vector<std::string> &saved = index.groups[g].params;
        if (saved.size() != names.size())
            fail(UJOIN_E_MISMATCH, "param group ", g, " has ", saved.size(), " parameters; here it has ", names.size());
        for (size_t i = 0; i < names.size(); i++)
            if (saved[i] != names[i])
                fail(UJOIN_E_MISMATCH, "parameter ", i, " of param group ", g, " is \"", saved[i], "\"; here it is \"",
                     names[i], '"');
        if (index.groups[g].hypers.size() != layout.rule->hypers.size())
            fail(UJOIN_E_MISMATCH, "param group ", g, " has ", index.groups[g].hypers.size(), " hyper-parameters; ",
                 layout.rule->name, " has ", layout.rule->hypers.size());
        for (const auto &[name, value] : index.groups[g].hypers) staging.take_hyper(static_cast<int64_t>(g), name, value);
    }
}

void read_directory(const Zero &zero, const SaveRequest &request, Staging &staging) {
    const Layout &layout = zero.layout();
    const std::string index_path = cat(request.path, '/', index_name);
    const CheckpointIndex index = read_index(index_path);
    SavedPieces saved;
    about(index_path, [&] {
        if (index.files.empty()) fail(UJOIN_E_MISMATCH, "it names no file of a rank");
        check_groups(layout, index, staging);
        saved = saved_pieces(layout, index);
        if ((request.parts & UJOIN_SAVE_PARAMETERS) != 0 && index.parameters.name.empty())
            fail(UJOIN_E_MISMATCH, "it was saved without parameters");
    });
    const auto rank = static_cast<uint64_t>(layout.rank);
    const uint64_t program_of = rank < index.files.size() ? rank : 0;
    std::set<uint64_t> wanted = wanted_files(layout, saved); // of as many ranks with the same partition: the own one alone
    wanted.insert(program_of);
    for (const uint64_t of : wanted) {
        const IndexFile &file = index.files[of];
        SafetensorsReader reader(cat(request.path, '/', file.name));
        check_file(reader, file);
        StateFile(layout, staging, reader, saved, of, of == program_of).read();
    }
    about(index_path, [&] { staging.check_state(); });
    if ((request.parts & UJOIN_SAVE_PARAMETERS) == 0) return;
    SafetensorsReader parameters(cat(request.path, '/', index.parameters.name));
    check_file(parameters, index.parameters);
    read_parameters(layout, staging, parameters);
}

} // namespace

State load_checkpoint(Zero &zero, const SaveRequest &request) {
    zero.check_between_steps("a load");
    check_same(zero.group(), {{"the parts to load", cat(request.parts)}});
    std::optional<Staging> staging;
    together(zero.group(), [&] {
        staging.emplace(zero.layout());
        if (request.parts == UJOIN_SAVE_PARAMETERS) {
            SafetensorsReader reader(request.path);
            read_parameters(zero.layout(), *staging, reader);
        } else {
            read_directory(zero, request, *staging);
        }
    });
    State extra = std::move(staging->extra);
    zero.commit(std::move(*staging), request.parts);
    return extra;
}

} // namespace ujoin
