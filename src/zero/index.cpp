// SPDX-License-Identifier: Apache-2.0
#include "zero/index.hpp"
#include "base/checksum.hpp"
#include "base/error.hpp"
#include "zero/files.hpp"
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

namespace ujoin {
namespace {

using Json = nlohmann::json;

constexpr uint64_t max_index_bytes = uint64_t{64} << 20;
constexpr int max_depth = 8;
constexpr const char *format_name = "ujoin-zero";
constexpr int64_t format_version = 1;

std::string checksum_of(const Json &json) {
    Checksum sum;
    sum.text(json.dump()); // keys are sorted and numbers shortest: one text for one content
    return sum.hex();
}

Json file_json(const IndexFile &file) { return {{"name", file.name}, {"bytes", file.bytes}, {"checksum", file.checksum}}; }

/// Parses without exceptions and without trees that could be large for a small text.
Json parse(const std::string &text) {
    std::string problem;
    std::vector<std::set<std::string>> names;
    size_t left = text.size() / 4 + 16;
    const auto look = [&](int depth, Json::parse_event_t event, Json &value) {
        if (depth > max_depth) problem = "nested too deeply";
        if (left-- == 0) problem = "too many values";
        if (event == Json::parse_event_t::object_start) names.emplace_back();
        if (event == Json::parse_event_t::object_end) names.pop_back();
        if (event == Json::parse_event_t::key && !names.back().insert(value.get<std::string>()).second)
            problem = cat("name ", value.dump(-1, ' ', true, Json::error_handler_t::replace), " is given twice");
        if (!problem.empty()) left = 1;
        return problem.empty();
    };
    Json json = Json::parse(text, look, false);
    if (!problem.empty()) fail(UJOIN_E_MISMATCH, problem);
    if (json.is_discarded() || !json.is_object()) fail(UJOIN_E_MISMATCH, "no valid JSON object");
    return json;
}

const Json &field(const Json &json, const char *name, Json::value_t type) {
    if (!json.is_object()) fail(UJOIN_E_MISMATCH, "something that should be an object is none");
    const auto found = json.find(name);
    if (found == json.end()) fail(UJOIN_E_MISMATCH, "field \"", name, "\" is missing");
    if (found->type() != type) fail(UJOIN_E_MISMATCH, "field \"", name, "\" has the wrong type");
    return *found;
}

std::string text_field(const Json &json, const char *name) {
    return field(json, name, Json::value_t::string).get<std::string>();
}
uint64_t count_field(const Json &json, const char *name) {
    return field(json, name, Json::value_t::number_unsigned).get<uint64_t>();
}

IndexFile read_file(const Json &json) {
    IndexFile file{text_field(json, "name"), count_field(json, "bytes"), text_field(json, "checksum")};
    if (id_in_name(file.name).empty()) fail(UJOIN_E_MISMATCH, "field \"name\" is no name that a save gives to a file");
    return file;
}

/// [[rank, elements], ...]
std::vector<SavedPiece> read_pieces(const Json &json) {
    const auto is_pair = [](const Json &pair) {
        return pair.is_array() && pair.size() == 2 && pair[0].is_number_unsigned() && pair[1].is_number_unsigned();
    };
    if (!json.is_array() || json.empty() || !std::all_of(json.begin(), json.end(), is_pair))
        fail(UJOIN_E_MISMATCH, "the pieces of a parameter are no list of ranks and numbers of elements");
    std::vector<SavedPiece> pieces;
    uint64_t offset = 0;
    for (const Json &pair : json) {
        const SavedPiece piece{pair[0].get<uint64_t>(), offset, pair[1].get<uint64_t>()};
        if (__builtin_add_overflow(offset, piece.count, &offset))
            fail(UJOIN_E_MISMATCH, "the pieces of a parameter have too many elements");
        if (!pieces.empty() && piece.rank <= pieces.back().rank)
            fail(UJOIN_E_MISMATCH, "the pieces of a parameter are not in the order of their ranks");
        pieces.push_back(piece);
    }
    return pieces;
}

CheckpointIndex::ParamGroup read_group(const Json &json) {
    CheckpointIndex::ParamGroup group;
    for (const auto &[name, value] : field(json, "hyper", Json::value_t::object).items()) {
        if (!value.is_number()) fail(UJOIN_E_MISMATCH, "hyper-parameter \"", name, "\" is no number");
        group.hypers.emplace_back(name, value.get<double>());
    }
    for (const Json &name : field(json, "parameters", Json::value_t::array)) {
        if (!name.is_string()) fail(UJOIN_E_MISMATCH, "the name of a parameter is no text");
        group.params.push_back(name.get<std::string>());
    }
    for (const Json &pieces : field(json, "pieces", Json::value_t::array)) group.pieces.push_back(read_pieces(pieces));
    if (group.pieces.size() != group.params.size())
        fail(UJOIN_E_MISMATCH, "there are ", group.params.size(), " parameters, but pieces of ", group.pieces.size());
    return group;
}

CheckpointIndex read_text(const std::string &text) {
    Json json = parse(text);
    const std::string expected = text_field(json, "checksum");
    if (text_field(json, "format") != format_name) fail(UJOIN_E_MISMATCH, "field \"format\" is not \"", format_name, '"');
    if (const uint64_t version = count_field(json, "version"); version != format_version)
        fail(UJOIN_E_UNSUPPORTED, "the format has version ", version, "; this library reads ", format_version);
    json.erase("checksum");
    if (checksum_of(json) != expected)
        fail(UJOIN_E_MISMATCH, "damaged: its checksum is ", checksum_of(json), ", it should be ", expected);
    CheckpointIndex index;
    index.optimizer = text_field(json, "optimizer");
    for (const Json &group : field(json, "groups", Json::value_t::array)) index.groups.push_back(read_group(group));
    for (const Json &file : field(json, "files", Json::value_t::array)) index.files.push_back(read_file(file));
    for (const CheckpointIndex::ParamGroup &group : index.groups)
        for (const std::vector<SavedPiece> &pieces : group.pieces)
            if (const uint64_t last = pieces.back().rank; last >= index.files.size())
                fail(UJOIN_E_MISMATCH, "an owner is rank ", last, ", but there are ", index.files.size(), " files");
    if (json.contains("parameters")) index.parameters = read_file(json["parameters"]);
    return index;
}

bool cut_prefix(std::string &text, const char *prefix) {
    if (text.rfind(prefix, 0) != 0) return false;
    text.erase(0, std::string(prefix).size());
    return true;
}

bool cut_suffix(std::string &text, const std::string &suffix) {
    if (text.size() < suffix.size() || text.compare(text.size() - suffix.size(), suffix.size(), suffix) != 0) return false;
    text.resize(text.size() - suffix.size());
    return true;
}

} // namespace

std::string index_text(const CheckpointIndex &index) {
    Json json = {{"format", format_name}, {"version", format_version}, {"optimizer", index.optimizer}};
    json["groups"] = Json::array();
    json["files"] = Json::array();
    for (const CheckpointIndex::ParamGroup &group : index.groups) {
        Json hyper = Json::object();
        for (const auto &[name, value] : group.hypers) hyper[name] = value;
        Json pieces = Json::array();
        for (const std::vector<SavedPiece> &of_param : group.pieces) {
            Json list = Json::array();
            for (const SavedPiece &piece : of_param) list.push_back(Json::array({piece.rank, piece.count}));
            pieces.push_back(list);
        }
        json["groups"].push_back({{"hyper", hyper}, {"parameters", group.params}, {"pieces", pieces}});
    }
    for (const IndexFile &file : index.files) json["files"].push_back(file_json(file));
    if (!index.parameters.name.empty()) json["parameters"] = file_json(index.parameters);
    try {
        json["checksum"] = checksum_of(json);
        return json.dump(1) + "\n";
    } catch (const Json::exception &) {
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

std::string id_in_name(const std::string &name) {
    std::string rest = name;
    if (cut_prefix(rest, "state-")) {
        if (!cut_suffix(rest, ".safetensors") || rest.size() < 18 || rest.size() > 27 || rest[16] != '-') return "";
        if (rest.find_first_not_of("0123456789", 17) != std::string::npos) return "";
        rest.resize(16);
    } else if (cut_prefix(rest, "parameters-")) {
        if (!cut_suffix(rest, ".safetensors")) return "";
    } else if (!cut_prefix(rest, ".index-") || !cut_suffix(rest, ".json")) {
        return "";
    }
    return is_random_id(rest) ? rest : "";
}

} // namespace ujoin
