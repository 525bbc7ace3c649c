// SPDX-License-Identifier: Apache-2.0
#include "ddp/config.hpp"
#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>

namespace ujoin {
namespace {

/// What a rank tells the others: its error, if any, and values that must be equal, each with what it is.
struct Note {
    ujoin_status code = UJOIN_OK;
    std::string text;
    std::vector<std::string> values;
};

std::string value_of(const GradParam &param) {
    if (param.ignored) return "(ignored)";
    return cat('"', param.name, "\" ", dtype_name(param.dtype), ' ', param.shape);
}

std::string buffers_text(const std::vector<ujoin_buffer> &buffers) {
    std::vector<std::string> texts;
    texts.reserve(buffers.size());
    for (const ujoin_buffer &buffer : buffers) texts.push_back(cat(dtype_name(buffer.dtype), '[', buffer.count, ']'));
    return texts.empty() ? "none" : join_list(texts);
}

Note note_of(const DdpConfig &config, const std::optional<Error> &local) {
    Note note;
    if (local) {
        note.code = local->code();
        note.text = local->text();
        return note;
    }
    note.values = {std::to_string(config.params.size()),  std::to_string(config.division),
                   std::to_string(config.gradient_kind),  std::to_string(config.initial_broadcast ? 0 : 1),
                   std::to_string(config.source_rank),    std::to_string(config.first_bucket_bytes),
                   std::to_string(config.bucket_bytes),   std::to_string(config.find_unused),
                   std::to_string(config.static_graph),   std::to_string(config.buffer_broadcast ? 0 : 1),
                   buffers_text(config.buffers),          std::to_string(config.to_owner ? 2 : 1),
                   std::to_string(config.params_released)};
    for (const GradParam &param : config.params) note.values.push_back(value_of(param));
    return note;
}

std::string name_of_value(size_t index) {
    static constexpr const char *names[] = {"the number of parameters",
                                            "division",
                                            "gradient_kind",
                                            "no_initial_broadcast",
                                            "source_rank",
                                            "first_bucket_bytes",
                                            "bucket_bytes",
                                            "find_unused",
                                            "static_graph",
                                            "no_buffer_broadcast",
                                            "buffers",
                                            "gradient_sync",
                                            "params_released_on_ready"};
    constexpr size_t count = std::size(names);
    return index < count ? names[index] : cat("parameter ", index - count);
}

void pack(std::string &out, const std::string &item) { out += cat(item.size(), ':', item); }

std::string pack(const Note &note) {
    std::string out;
    pack(out, std::to_string(note.code));
    pack(out, note.text);
    for (const std::string &value : note.values) pack(out, value);
    return out;
}

Note unpack(const std::string &packed, size_t rank) {
    std::vector<std::string> items;
    for (size_t at = 0; at < packed.size();) {
        const size_t colon = packed.find(':', at);
        const size_t length = colon == std::string::npos ? packed.size() : std::strtoull(packed.c_str() + at, nullptr, 10);
        if (length >= packed.size() || colon + 1 > packed.size() - length)
            fail(UJOIN_E_MISMATCH, "rank ", rank, " did something other than create a gradient reducer");
        items.push_back(packed.substr(colon + 1, length));
        at = colon + 1 + length;
    }
    if (items.size() < 2) fail(UJOIN_E_MISMATCH, "rank ", rank, " did something other than create a gradient reducer");
    Note note;
    note.code = static_cast<ujoin_status>(std::strtol(items[0].c_str(), nullptr, 10));
    note.text = items[1];
    note.values.assign(items.begin() + 2, items.end());
    return note;
}

void throw_if_any_failed(const std::vector<Note> &notes, const std::optional<Error> &local) {
    if (local) throw *local;
    std::vector<std::string> texts;
    std::vector<int32_t> ranks;
    ujoin_status code = UJOIN_OK;
    for (size_t rank = 0; rank < notes.size(); rank++) {
        if (notes[rank].code == UJOIN_OK) continue;
        if (code == UJOIN_OK) code = notes[rank].code;
        texts.push_back(cat("rank ", rank, ": ", notes[rank].text));
        ranks.push_back(static_cast<int32_t>(rank));
    }
    if (code != UJOIN_OK) throw Error(code, join_list(texts, "; ")).with_ranks(std::move(ranks));
}

/// Throws if the ranks differ in value `index`.
void compare(const std::vector<Note> &notes, size_t index) {
    constexpr size_t shown = 8;
    std::vector<std::string> texts{cat(notes[0].values[index], " on rank 0")};
    std::vector<int32_t> ranks;
    for (size_t rank = 1; rank < notes.size(); rank++) {
        if (notes[rank].values[index] == notes[0].values[index]) continue;
        if (ranks.size() < shown) texts.push_back(cat(notes[rank].values[index], " on rank ", rank));
        ranks.push_back(static_cast<int32_t>(rank));
    }
    if (ranks.empty()) return;
    if (ranks.size() > shown) texts.push_back(cat("and ", ranks.size() - shown, " ranks more that differ from rank 0"));
    throw Error(UJOIN_E_MISMATCH, cat("ranks differ in ", name_of_value(index), ": ", join_list(texts),
                                      "; register the same parameters with the same options on every rank"))
        .with_ranks(std::move(ranks));
}

} // namespace

void agree_on_config(Group &group, const DdpConfig &config, const std::optional<Error> &local) {
    const std::vector<std::string> packed = group.exchange(pack(note_of(config, local)));
    std::vector<Note> notes;
    for (size_t rank = 0; rank < packed.size(); rank++) notes.push_back(unpack(packed[rank], rank));
    throw_if_any_failed(notes, local);
    compare(notes, 0); // the number of parameters: after it all lists are equally long
    for (size_t i = 1; i < notes[0].values.size(); i++) compare(notes, i);
}

} // namespace ujoin
