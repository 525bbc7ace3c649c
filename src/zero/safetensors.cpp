// SPDX-License-Identifier: Apache-2.0
#include "zero/safetensors.hpp"
#include "base/checksum.hpp"
#include "base/dtype.hpp"
#include "base/error.hpp"
#include "base/json.hpp"
#include "zero/safetensors_header.hpp"
#include <algorithm>
#include <cstring>

namespace ujoin {
namespace {

void add_description(Checksum &checksum, const FileTensor &tensor) {
    checksum.text(tensor.name);
    checksum.word(static_cast<uint64_t>(tensor.dtype));
    checksum.word(tensor.shape.size());
    for (const int64_t size : tensor.shape) checksum.word(static_cast<uint64_t>(size));
}

std::string quoted_name(const std::string &text) {
    try {
        return quoted_json(text);
    } catch (const Error &) {
        fail_invalid("a name in the file must be UTF-8; this is not: ", text);
    }
}

std::string header_text(const std::vector<FileTensor> &tensors, const std::map<std::string, std::string> &metadata) {
    std::string text = "{\"__metadata__\":{";
    for (const auto &[key, value] : metadata)
        text += cat(text.back() == '{' ? "" : ",", quoted_name(key), ':', quoted_name(value));
    text += '}';
    for (const FileTensor &tensor : tensors)
        text += cat(',', quoted_name(tensor.name), ":{\"dtype\":\"", safetensors_dtype_name(tensor.dtype), "\",\"shape\":[",
                    join_list(tensor.shape, ","), "],\"data_offsets\":[", tensor.offset, ',', tensor.offset + tensor.bytes,
                    "]}");
    text += '}';
    text.append((8 - text.size() % 8) % 8, ' ');
    return text;
}

} // namespace

std::string write_safetensors(NewFile &file, std::vector<FileTensor> tensors, std::map<std::string, std::string> metadata) {
    std::stable_sort(tensors.begin(), tensors.end(),
                     [](const FileTensor &a, const FileTensor &b) { return dtype_size(a.dtype) > dtype_size(b.dtype); });
    Checksum checksum;
    size_t offset = 0;
    for (FileTensor &tensor : tensors) {
        if (tensor.name == "__metadata__") fail_invalid("a tensor in a safetensors file cannot be called \"__metadata__\"");
        tensor.offset = offset;
        offset += tensor.bytes;
        add_description(checksum, tensor);
        checksum.bytes(tensor.data, tensor.bytes);
    }
    metadata[checksum_key] = checksum.hex();
    const std::string header = header_text(tensors, metadata);
    if (header.size() > max_safetensors_header)
        fail(UJOIN_E_UNSUPPORTED, "the header of \"", file.path(), "\" would have ", header.size(),
             " bytes; the format allows ", max_safetensors_header);
    unsigned char length[8];
    for (size_t i = 0; i < 8; i++) length[i] = static_cast<unsigned char>(header.size() >> (8 * i));
    file.write(length, sizeof length);
    file.write(header.data(), header.size());
    for (const FileTensor &tensor : tensors) file.write(tensor.data, tensor.bytes);
    return checksum.hex();
}

SafetensorsReader::SafetensorsReader(const std::string &path) : file_(path) {
    if (file_.bytes() < 8)
        fail(UJOIN_E_MISMATCH, "\"", path, "\" is no safetensors file: it has ", file_.bytes(), " bytes");
    unsigned char bytes[8];
    file_.read(bytes, sizeof bytes);
    uint64_t length = 0;
    for (size_t i = 0; i < 8; i++) length |= uint64_t{bytes[i]} << (8 * i);
    if (length > max_safetensors_header || length > file_.bytes() - 8)
        fail(UJOIN_E_MISMATCH, "\"", path, "\": the header's length is ", length, ", but the file has ", file_.bytes(),
             " bytes");
    std::string header(length, '\0');
    file_.read(header.data(), header.size());
    try {
        read_safetensors_header(header, file_.bytes() - 8 - length, tensors_, metadata_);
    } catch (Error &error) {
        throw Error(UJOIN_E_MISMATCH, cat('"', path, "\": ", error.text()));
    }
}

std::string SafetensorsReader::metadata(const std::string &key) const {
    const auto found = metadata_.find(key);
    return found == metadata_.end() ? std::string() : found->second;
}

void SafetensorsReader::read(const std::function<ReadTarget(size_t index)> &place) {
    Checksum checksum;
    std::vector<std::byte> spare;
    for (size_t i = 0; i < tensors_.size(); i++) {
        const FileTensor &tensor = tensors_[i];
        const ReadTarget target = place(i);
        const bool whole = target.data && target.skip == 0 && target.bytes >= tensor.bytes;
        void *data = target.data;
        if (!whole && tensor.bytes != 0) {
            spare.resize(std::max(spare.size(), tensor.bytes));
            data = spare.data();
        }
        file_.read(data, tensor.bytes);
        add_description(checksum, tensor);
        checksum.bytes(data, tensor.bytes);
        if (!whole && target.data)
            std::memcpy(target.data, spare.data() + target.skip, std::min(target.bytes, tensor.bytes - target.skip));
    }
    const std::string expected = metadata(checksum_key);
    if (!expected.empty() && expected != checksum.hex())
        fail(UJOIN_E_MISMATCH, '"', path(), "\" is damaged: its checksum is ", checksum.hex(), ", it should be ", expected);
}

} // namespace ujoin
