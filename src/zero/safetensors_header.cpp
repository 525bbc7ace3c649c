// SPDX-License-Identifier: Apache-2.0
#include "zero/safetensors_header.hpp"
#include "base/dtype.hpp"
#include "base/error.hpp"
#include "zero/state.hpp"
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

namespace ujoin {
namespace {

struct DtypeName {
    ujoin_dtype dtype;
    const char *name;
};
constexpr DtypeName dtype_names[] = {{UJOIN_F32, "F32"}, {UJOIN_F64, "F64"}, {UJOIN_F16, "F16"}, {UJOIN_BF16, "BF16"},
                                     {UJOIN_I32, "I32"}, {UJOIN_I64, "I64"}, {UJOIN_U8, "U8"}};

/// Takes the header apart as it is parsed, so that no tree is built and nothing can nest deeper than the format does.
class HeaderHandler : public nlohmann::json_sax<nlohmann::json> {
  public:
    std::vector<FileTensor> tensors;
    std::map<std::string, std::string> metadata;
    std::string problem; ///< "" if all is well

    bool null() override { return wrong("null"); }
    bool boolean(bool) override { return wrong("a boolean"); }
    bool number_integer(number_integer_t value) override { return bad(cat("the number ", value, " is negative")); }
    bool number_float(number_float_t, const string_t &text) override {
        return bad(cat("the number ", text, " is no integer"));
    }
    bool binary(binary_t &) override { return wrong("binary data"); }

    bool number_unsigned(number_unsigned_t value) override {
        if (where_ != Where::shape && where_ != Where::offsets) return wrong("a number");
        if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
            return bad(cat("the number ", value, " is too large"));
        if (where_ == Where::shape) {
            if (tensors.back().shape.size() == max_dimensions) return bad("too many dimensions");
            tensors.back().shape.push_back(static_cast<int64_t>(value));
        } else {
            if (offset_count_ == 2) return bad("data_offsets has more than two numbers");
            (offset_count_++ == 0 ? tensors.back().offset : end_) = value;
        }
        return true;
    }
    bool string(string_t &value) override {
        if (where_ == Where::metadata) {
            if (!metadata.emplace(key_, std::move(value)).second) return bad("the name is given twice");
            return true;
        }
        if (where_ != Where::tensor || key_ != "dtype") return wrong("a text");
        for (const DtypeName &known : dtype_names)
            if (value == known.name) tensors.back().dtype = known.dtype;
        if (tensors.back().dtype == 0) return bad(cat("dtype \"", value, "\" is unknown"));
        return true;
    }
    bool start_object(std::size_t) override {
        if (where_ == Where::outside) {
            where_ = Where::header;
        } else if (where_ == Where::header && name_ == "__metadata__") {
            if (metadata_seen_) return bad("the name is given twice");
            metadata_seen_ = true;
            where_ = Where::metadata;
        } else if (where_ == Where::header) {
            where_ = Where::tensor;
            tensors.emplace_back().name = name_;
            seen_ = 0;
            offset_count_ = 0;
        } else {
            return wrong("an object");
        }
        return true;
    }
    bool key(string_t &value) override {
        if (where_ == Where::header) {
            name_ = std::move(value);
            key_.clear();
            return true;
        }
        key_ = std::move(value);
        if (where_ == Where::metadata) return true;
        const unsigned bit = key_ == "dtype" ? 1U : key_ == "shape" ? 2U : key_ == "data_offsets" ? 4U : 0U;
        if (bit == 0) return bad("the field is unknown");
        if ((seen_ & bit) != 0) return bad("the field is given twice");
        seen_ |= bit;
        return true;
    }
    bool end_object() override {
        if (where_ == Where::tensor) {
            key_.clear();
            if (seen_ != 7) return bad("dtype, shape or data_offsets is missing");
            where_ = Where::header;
            return finish_tensor();
        }
        where_ = where_ == Where::metadata ? Where::header : Where::outside;
        return true;
    }
    bool start_array(std::size_t) override {
        if (where_ != Where::tensor || (key_ != "shape" && key_ != "data_offsets")) return wrong("a list");
        where_ = key_ == "shape" ? Where::shape : Where::offsets;
        return true;
    }
    bool end_array() override {
        if (where_ == Where::offsets && offset_count_ != 2) return bad("data_offsets has fewer than two numbers");
        where_ = Where::tensor;
        return true;
    }
    bool parse_error(std::size_t position, const std::string &, const nlohmann::json::exception &) override {
        problem = cat("the header is no valid JSON (byte ", position, ")");
        return false;
    }

  private:
    enum class Where : uint8_t { outside, header, metadata, tensor, shape, offsets };

    bool bad(const std::string &text) {
        problem = "the header";
        if (!name_.empty()) problem += cat(", tensor \"", std::string_view(name_).substr(0, 200), '"');
        if (!key_.empty()) problem += cat(", field \"", std::string_view(key_).substr(0, 200), '"');
        problem += cat(": ", text);
        return false;
    }
    bool wrong(const char *what) { return bad(cat("unexpected ", what)); }
    bool finish_tensor() {
        FileTensor &tensor = tensors.back();
        if (end_ < tensor.offset) return bad("data_offsets end before they begin");
        tensor.bytes = end_ - tensor.offset;
        size_t count = 0;
        try {
            count = shape_count(tensor.shape.data(), tensor.shape.size(), dtype_size(tensor.dtype), "shape");
        } catch (const Error &error) {
            return bad(error.text());
        }
        if (count * dtype_size(tensor.dtype) != tensor.bytes)
            return bad(cat("data_offsets span ", tensor.bytes, " bytes, but ", dtype_name(tensor.dtype), ' ',
                           shape_text(tensor.shape), " has ", count * dtype_size(tensor.dtype)));
        return true;
    }

    Where where_ = Where::outside;
    std::string name_; ///< of the tensor
    std::string key_;
    unsigned seen_ = 0;
    int offset_count_ = 0;
    size_t end_ = 0;
    bool metadata_seen_ = false;
};

void check_names(const std::vector<FileTensor> &tensors) {
    std::vector<const std::string *> names;
    names.reserve(tensors.size());
    for (const FileTensor &tensor : tensors) names.push_back(&tensor.name);
    std::sort(names.begin(), names.end(), [](const std::string *a, const std::string *b) { return *a < *b; });
    const auto twice =
        std::adjacent_find(names.begin(), names.end(), [](const std::string *a, const std::string *b) { return *a == *b; });
    if (twice != names.end()) fail(UJOIN_E_MISMATCH, "the header: tensor \"", **twice, "\" is given twice");
}

} // namespace

const char *safetensors_dtype_name(ujoin_dtype dtype) {
    for (const DtypeName &known : dtype_names)
        if (known.dtype == dtype) return known.name;
    return "";
}

void read_safetensors_header(const std::string &text, uint64_t data_bytes, std::vector<FileTensor> &tensors,
                             std::map<std::string, std::string> &metadata) {
    HeaderHandler handler;
    const bool parsed = nlohmann::json::sax_parse(text, &handler);
    if (!parsed) fail(UJOIN_E_MISMATCH, handler.problem.empty() ? "the header is no valid JSON" : handler.problem);
    check_names(handler.tensors);
    std::stable_sort(handler.tensors.begin(), handler.tensors.end(), [](const FileTensor &a, const FileTensor &b) {
        return a.offset != b.offset ? a.offset < b.offset : a.bytes < b.bytes;
    });
    size_t end = 0;
    for (const FileTensor &tensor : handler.tensors) {
        if (tensor.offset != end)
            fail(UJOIN_E_MISMATCH, "the header: the data of tensor \"", tensor.name, "\" begins at byte ", tensor.offset,
                 ", expected ", end);
        end += tensor.bytes; // no overflow: offset + bytes is a number that was read
    }
    if (end != data_bytes)
        fail(UJOIN_E_MISMATCH, "the tensors have ", end, " bytes of data, but the file has ", data_bytes);
    tensors = std::move(handler.tensors);
    metadata = std::move(handler.metadata);
}

} // namespace ujoin
