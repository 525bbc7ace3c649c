// SPDX-License-Identifier: Apache-2.0
#include "zero/index.hpp"
#include "base/checksum.hpp"
#include "base/error.hpp"
#include "base/json.hpp"
#include "zero/files.hpp"
#include <algorithm>
#include <optional>

namespace ujoin {
namespace {

constexpr uint64_t max_index_bytes = uint64_t{64} << 20;
constexpr size_t max_depth = 8;
constexpr const char *format_name = "ujoin-zero";
constexpr int64_t format_version = 1;

std::string checksum_of(const Json &json) {
    Checksum sum;
    sum.text(json.dump()); // keys are sorted and numbers shortest: one text for one content
    return sum.hex();
}

Json file_json(const IndexFile &file) {
    return Json::Object{{"name", file.name}, {"bytes", file.bytes}, {"checksum", file.checksum}};
}

/// Without trees that could be large for a small text.
Json parse(const std::string &text) {
    Json json = parse_json(text, {max_depth, text.size() / 4 + 16});
    if (!json.as<Json::Object>()) fail(UJOIN_E_MISMATCH, "no JSON object");
    return json;
}

template <class Type> const Type &field(const Json &json, const char *name) {
    if (!json.as<Json::Object>()) fail(UJOIN_E_MISMATCH, "something that should be an object is none");
    const Json *found = json.find(name);
    if (!found) fail(UJOIN_E_MISMATCH, "field \"", name, "\" is missing");
    const Type *value = found->as<Type>();
    if (!value) fail(UJOIN_E_MISMATCH, "field \"", name, "\" has the wrong type");
    return *value;
}

IndexFile read_file(const Json &json) {
    IndexFile file{field<std::string>(json, "name"), field<uint64_t>(json, "bytes"), field<std::string>(json, "checksum")};
    if (id_in_name(file.name).empty()) fail(UJOIN_E_MISMATCH, "field \"name\" is no name that a save gives to a file");
    return file;
}

/// [[rank, elements], ...]
std::vector<SavedPiece> read_pieces(const Json &json) {
    const auto is_pair = [](const Json &item) {
        const auto *pair = item.as<Json::List>();
        return pair && pair->size() == 2 && pair->front().as<uint64_t>() && pair->back().as<uint64_t>();
    };
    const auto *list = json.as<Json::List>();
    if (!list || list->empty() || !std::all_of(list->begin(), list->end(), is_pair))
        fail(UJOIN_E_MISMATCH, "the pieces of a parameter are no list of ranks and numbers of elements");
    std::vector<SavedPiece> pieces;
    uint64_t offset = 0;
    for (const Json &item : *list) {
        const auto &pair = *item.as<Json::List>();
        const SavedPiece piece{*pair[0].as<uint64_t>(), offset, *pair[1].as<uint64_t>()};
        if (__builtin_add_overflow(offset, piece.count, &offset))
            fail(UJOIN_E_MISMATCH, "the pieces of a parameter have too many elements");
        if (!pieces.empty() && piece.rank <= pieces.back().rank)
            fail(UJOIN_E_MISMATCH, "the pieces of a parameter are not in the order of their ranks");
        pieces.push_back(piece);
    }
    return pieces;
}

std::optional<double> number_of(const Json &json) {
    if (const auto *number = json.as<double>()) return *number;
    if (const auto *count = json.as<uint64_t>()) return static_cast<double>(*count);
    if (const auto *whole = json.as<int64_t>()) return static_cast<double>(*whole);
    return std::nullopt;
}

CheckpointIndex::ParamGroup read_group(const Json &json) {
    CheckpointIndex::ParamGroup group;
    for (const auto &[name, value] : field<Json::Object>(json, "hyper")) {
        const std::optional<double> number = number_of(value);
        if (!number) fail(UJOIN_E_MISMATCH, "hyper-parameter \"", name, "\" is no number");
        group.hypers.emplace_back(name, *number);
    }
    for (const Json &name : field<Json::List>(json, "parameters")) {
        if (!name.as<std::string>()) fail(UJOIN_E_MISMATCH, "the name of a parameter is no text");
        group.params.push_back(*name.as<std::string>());
    }
    for (const Json &pieces : field<Json::List>(json, "pieces")) group.pieces.push_back(read_pieces(pieces));
    if (group.pieces.size() != group.params.size())
        fail(UJOIN_E_MISMATCH, "there are ", group.params.size(), " parameters, but pieces of ", group.pieces.size());
    return group;
}

CheckpointIndex read_text(const std::string &text) {
    Json json = parse(text);
    const std::string expected = field<std::string>(json, "checksum");
    if (field<std::string>(json, "format") != format_name)
        fail(UJOIN_E_MISMATCH, "field \"format\" is not \"", format_name, '"');
    if (const uint64_t version = field<uint64_t>(json, "version"); version != format_version)
        fail(UJOIN_E_UNSUPPORTED, "the format has version ", version, "; this library reads ", format_version);
    json.as<Json::Object>()->erase("checksum");
    if (checksum_of(json) != expected)
        fail(UJOIN_E_MISMATCH, "damaged: its checksum is ", checksum_of(json), ", it should be ", expected);
    CheckpointIndex index;
    index.optimizer = field<std::string>(json, "optimizer");
    for (const Json &group : field<Json::List>(json, "groups")) index.groups.push_back(read_group(group));
    for (const Json &file : field<Json::List>(json, "files")) index.files.push_back(read_file(file));
    for (const CheckpointIndex::ParamGroup &group : index.groups)
        for (const std::vector<SavedPiece> &pieces : group.pieces)
            if (const uint64_t last = pieces.back().rank; last >= index.files.size())
                fail(UJOIN_E_MISMATCH, "an owner is rank ", last, ", but there are ", index.files.size(), " files");
    if (const Json *file = json.find("parameters")) index.parameters = read_file(*file);
    return index;
}

Json group_json(const CheckpointIndex::ParamGroup &group) {
    Json::Object hyper;
    for (const auto &[name, value] : group.hypers) hyper[name] = value;
    Json::List names;
    for (const std::string &name : group.params) names.emplace_back(name);
    Json::List pieces;
    for (const std::vector<SavedPiece> &of_param : group.pieces) {
        Json::List list;
        for (const SavedPiece &piece : of_param) list.emplace_back(Json::List{piece.rank, piece.count});
        pieces.emplace_back(std::move(list));
    }
    Json::Object all;
    all["hyper"] = std::move(hyper);
    all["parameters"] = std::move(names);
    all["pieces"] = std::move(pieces);
    return all;
}

bool cut_prefix(std::string_view &text, std::string_view prefix) {
    if (!text.starts_with(prefix)) return false;
    text.remove_prefix(prefix.size());
    return true;
}

bool cut_suffix(std::string_view &text, std::string_view suffix) {
    if (!text.ends_with(suffix)) return false;
    text.remove_suffix(suffix.size());
    return true;
}

} // namespace

std::string index_text(const CheckpointIndex &index) {
    Json::List groups;
    for (const CheckpointIndex::ParamGroup &group : index.groups) groups.emplace_back(group_json(group));
    Json::List files;
    for (const IndexFile &file : index.files) files.emplace_back(file_json(file));
    Json::Object all = {{"format", format_name}, {"version", format_version}, {"optimizer", index.optimizer}};
    all["groups"] = std::move(groups);
    all["files"] = std::move(files);
    if (!index.parameters.name.empty()) all["parameters"] = file_json(index.parameters);
    Json json(std::move(all));
    try {
        (*json.as<Json::Object>())["checksum"] = checksum_of(json);
        return json.dump_lines() + "\n";
    } catch (const Error &) {
        fail_invalid("names of parameters must be UTF-8 to be saved");
    }
}

CheckpointIndex read_index(const std::string &path) {
    OldFile file(path);
    try {
        if (file.bytes() > max_index_bytes) fail(UJOIN_E_MISMATCH, "it has ", file.bytes(), " bytes; no index has so many");
        std::string text(file.bytes(), '\0');
        file.read(text.data(), text.size());
        return read_text(text);
    } catch (Error &error) {
        throw error.in(cat('"', path, '"'));
    }
}

std::string state_file_name(const std::string &id, int32_t rank) { return cat("state-", id, '-', rank, ".safetensors"); }
std::string parameters_file_name(const std::string &id) { return cat("parameters-", id, ".safetensors"); }
std::string new_index_name(const std::string &id) { return cat(".index-", id, ".json"); }

std::string_view id_in_name(std::string_view name) {
    std::string_view rest = name;
    if (cut_prefix(rest, "state-")) {
        if (!cut_suffix(rest, ".safetensors") || rest.size() < 18 || rest.size() > 27 || rest[16] != '-') return "";
        if (rest.find_first_not_of("0123456789", 17) != std::string_view::npos) return "";
        rest = rest.substr(0, 16);
    } else if (cut_prefix(rest, "parameters-")) {
        if (!cut_suffix(rest, ".safetensors")) return "";
    } else if (!cut_prefix(rest, ".index-") || !cut_suffix(rest, ".json")) {
        return "";
    }
    return is_random_id(rest) ? rest : "";
}

} // namespace ujoin
