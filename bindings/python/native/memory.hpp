// SPDX-License-Identifier: Apache-2.0
// Memory of Python objects, and what the library holds of it.
#pragma once
#include "numpy_array.hpp"
#include <array>

namespace ujoin_py {

// ---------------------------------------------------------------------------------------------------------------- memory

// DLPack, as its specification lays it out.
struct DLTensor {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};
struct DLManagedTensor {
    DLTensor tensor;
    void *context;
    void (*deleter)(DLManagedTensor *);
};
struct DLManagedTensorVersioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(DLManagedTensorVersioned *);
    uint64_t flags; // bit 0: read-only
    DLTensor tensor;
};

inline size_t dtype_size(ujoin_dtype dtype) {
    static constexpr std::array<uint8_t, 8> sizes = {0, 4, 8, 2, 2, 4, 8, 1};
    return dtype > 0 && static_cast<size_t>(dtype) < sizes.size() ? sizes[static_cast<size_t>(dtype)] : 0;
}

/// Of a buffer's format (struct module's letters); 0 = none of ujoin's.
inline ujoin_dtype dtype_of(const char *format, Py_ssize_t itemsize) {
    if (!format) return UJOIN_U8;
    if (*format == '@' || *format == '=' || *format == '<') format++; // only little-endian machines are supported
    if (!*format || format[1]) return 0;
    ujoin_dtype dtype = 0;
    switch (*format) {
    case 'f':
        dtype = UJOIN_F32;
        break;
    case 'd':
        dtype = UJOIN_F64;
        break;
    case 'e':
        dtype = UJOIN_F16;
        break;
    case 'i':
        dtype = UJOIN_I32;
        break;
    case 'q':
        dtype = UJOIN_I64;
        break;
    case 'l':
        dtype = itemsize == 8 ? UJOIN_I64 : UJOIN_I32;
        break;
    case 'B':
    case 'c':
        dtype = UJOIN_U8;
        break;
    default:
        break;
    }
    return dtype_size(dtype) == static_cast<size_t>(itemsize) ? dtype : 0;
}

inline ujoin_dtype dtype_of(const DLTensor &tensor) {
    if (tensor.lanes != 1) return 0;
    switch (tensor.code * 256 + tensor.bits) {
    case 0x020:
        return UJOIN_I32;
    case 0x040:
        return UJOIN_I64;
    case 0x108:
        return UJOIN_U8;
    case 0x210:
        return UJOIN_F16;
    case 0x220:
        return UJOIN_F32;
    case 0x240:
        return UJOIN_F64;
    case 0x410:
        return UJOIN_BF16;
    default:
        return 0;
    }
}

/// The memory of one Python object, held until this ends: a buffer's export, or a DLPack capsule. Never a copy.
class Memory {
  public:
    Memory() = default;
    Memory(Memory &&other) noexcept { *this = std::move(other); }
    Memory &operator=(Memory &&other) noexcept {
        release();
        if (other.held_) view_ = other.view_;
        held_ = std::exchange(other.held_, false);
        owner_ = std::exchange(other.owner_, nullptr);
        data_ = other.data_;
        count_ = other.count_;
        dtype_ = other.dtype_;
        shape_ = std::move(other.shape_);
        return *this;
    }
    Memory(const Memory &) = delete;
    Memory &operator=(const Memory &) = delete;
    ~Memory() { release(); }

    bool held() const { return held_ || owner_; }
    ujoin_const_buffer as_const() const { return {data_, count_, dtype_, UJOIN_DEVICE_HOST, 0, 0}; }
    ujoin_buffer as_buffer() const { return {data_, count_, dtype_, UJOIN_DEVICE_HOST, 0, 0}; }
    size_t count() const { return count_; }
    ujoin_dtype dtype() const { return dtype_; }
    void *data() const { return data_; }
    /// Only after read(..., with_shape).
    const std::vector<int64_t> &shape() const { return shape_; }

    /// Locked; false with an exception set. `object`: a buffer, a tuple (buffer, dtype), or what the package's adapter turns
    /// into one of them or into a DLPack capsule.
    bool read(PyObject *object, bool writable, const char *name, bool with_shape = false) {
        const NumpyArray *array = as_numpy(object);
        if (array && array->is_plain(writable) && array->dtype()) return read_array(object, *array, with_shape);
        if (PyTuple_Check(object)) return read_pair(object, writable, name, with_shape);
        if (PyObject_CheckBuffer(object)) {
            if (read_buffer(object, 0, writable, name, with_shape)) return true;
            if (!is_owners_refusal()) return false;
        }
        return read_adapted(object, writable, name, with_shape);
    }

  private:
    void release() {
        if (g_leaving) return; // perhaps without the lock: better lost than wrong
        if (std::exchange(held_, false)) PyBuffer_Release(&view_);
        Py_CLEAR(owner_);
    }

    /// A reference is all that NumPy's own buffers hold of an array.
    bool read_array(PyObject *object, const NumpyArray &array, bool with_shape) {
        owner_ = Py_NewRef(object);
        data_ = array.data;
        count_ = array.count();
        dtype_ = array.dtype();
        if (with_shape) shape_.assign(array.extents, array.extents + array.dimensions);
        return true;
    }

    bool read_pair(PyObject *pair, bool writable, const char *name, bool with_shape) {
        if (PyTuple_Size(pair) != 2) {
            PyErr_Format(PyExc_TypeError, "%s: expected an array or a pair (buffer, dtype)", name);
            return false;
        }
        const long dtype = PyLong_AsLong(PyTuple_GetItem(pair, 1));
        if (dtype == -1 && PyErr_Occurred()) return false;
        if (!dtype_size(static_cast<ujoin_dtype>(dtype)))
            return refuse(UJOIN_E_INVALID, std::string(name) + ": " + std::to_string(dtype) + " is not a DType");
        PyObject *object = PyTuple_GetItem(pair, 0);
        if (!PyObject_CheckBuffer(object)) {
            PyErr_Format(PyExc_TypeError, "%s: the first of a pair (buffer, dtype) must have the buffer protocol", name);
            return false;
        }
        return read_buffer(object, static_cast<ujoin_dtype>(dtype), writable, name, with_shape) ||
               explain(object, writable, name);
    }

    /// `dtype` 0: as the buffer says.
    bool read_buffer(PyObject *object, ujoin_dtype dtype, bool writable, const char *name, bool with_shape) {
        if (PyObject_GetBuffer(object, &view_, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0)) != 0)
            return false;
        held_ = true;
        const size_t item = static_cast<size_t>(view_.itemsize), bytes = static_cast<size_t>(view_.len);
        dtype_ = dtype ? dtype : dtype_of(view_.format, view_.itemsize);
        const size_t size = dtype_size(dtype_);
        if (!size || (item != size && item != 1) || bytes % size != 0) return refuse_dtype(name, item);
        data_ = view_.buf;
        count_ = bytes / size;
        if (with_shape && item == size && view_.shape) shape_.assign(view_.shape, view_.shape + view_.ndim);
        return true;
    }

    bool refuse_dtype(const char *name, size_t item) {
        const std::string format = view_.format ? view_.format : "B";
        const std::string text = dtype_ ? "items of " + std::to_string(item) + " bytes are not of the given dtype"
                                        : "element type \"" + format +
                                              "\" is none of float32, float64, float16, int32, int64, uint8; for bfloat16 "
                                              "give a pair (buffer, DType.BF16)";
        release();
        return refuse(UJOIN_E_INVALID, std::string(name) + ": " + text);
    }

    /// Whether the pending exception is that of an object that does not export its memory like this: not one of ours.
    static bool is_owners_refusal() {
        if (PyErr_ExceptionMatches(PyExc_BufferError)) return true;
        PyObject *type = PyErr_Occurred();
        return type == PyExc_ValueError;
    }

    /// By the package's adapter. `object` may have refused already, which is what is told if there is no other way.
    bool read_adapted(PyObject *object, bool writable, const char *name, bool with_shape) {
        Ref first(PyErr_Occurred() ? fetch_exception() : nullptr);
        const Ref adapted(PyObject_CallFunctionObjArgs(g_adapter, object, nullptr));
        if (adapted && adapted.get() != Py_None) return read_result(adapted.get(), writable, name, with_shape);
        if (!adapted && !(first && is_owners_refusal())) return false;
        PyErr_Clear();
        if (first) {
            throw_exception(first.take());
            return explain(object, writable, name);
        }
        const Ref type(PyObject_Type(object));
        PyErr_Format(PyExc_TypeError, "%s: %R has neither the buffer protocol nor DLPack", name, type.get());
        return false;
    }

    bool read_result(PyObject *adapted, bool writable, const char *name, bool with_shape) {
        PyObject *object = PyTuple_GetItem(adapted, 0);
        if (object && PyCapsule_CheckExact(object)) return read_dlpack(object, writable, name, with_shape);
        return object && read_pair(adapted, writable, name, with_shape);
    }

    bool read_dlpack(PyObject *capsule, bool writable, const char *name, bool with_shape) {
        DLTensor *tensor = nullptr;
        bool read_only = false;
        if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
            auto *managed = static_cast<DLManagedTensorVersioned *>(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
            tensor = &managed->tensor;
            read_only = (managed->flags & 1) != 0;
        } else if (PyCapsule_IsValid(capsule, "dltensor")) {
            tensor = &static_cast<DLManagedTensor *>(PyCapsule_GetPointer(capsule, "dltensor"))->tensor;
        } else {
            PyErr_Format(PyExc_TypeError, "%s: __dlpack__ gave a capsule of another kind", name);
            return false;
        }
        const std::string where = std::string(name) + ": ";
        dtype_ = dtype_of(*tensor);
        if (tensor->device_type != 1 && tensor->device_type != 3) // the host's, or page-locked host memory
            return refuse(UJOIN_E_UNSUPPORTED, where + "the tensor is in device memory; this version has host memory only");
        if (!dtype_)
            return refuse(
                UJOIN_E_INVALID,
                where + "the tensor's element type is none of float32, float64, float16, bfloat16, int32, int64, uint8");
        if (writable && read_only) return refuse(UJOIN_E_INVALID, where + "the memory is read-only, but it is written to");
        if (!is_row_major(*tensor)) return refuse(UJOIN_E_INVALID, where + "the memory is not C-contiguous");
        count_ = 1;
        for (int32_t d = 0; d < tensor->ndim; d++) count_ *= static_cast<size_t>(tensor->shape[d]);
        data_ = static_cast<char *>(tensor->data) + tensor->byte_offset;
        if (with_shape) shape_.assign(tensor->shape, tensor->shape + tensor->ndim);
        owner_ = Py_NewRef(capsule); // its destructor gives the tensor back
        return true;
    }

    static bool is_row_major(const DLTensor &tensor) {
        if (!tensor.strides) return true;
        int64_t expected = 1;
        for (int32_t d = tensor.ndim - 1; d >= 0; d--) {
            if (tensor.shape[d] == 0) return true;
            if (tensor.shape[d] != 1 && tensor.strides[d] != expected) return false;
            expected *= tensor.shape[d];
        }
        return true;
    }

    /// Says in our words what a buffer's owner refused, with its own error as the cause.
    bool explain(PyObject *object, bool writable, const char *name) {
        if (!is_owners_refusal()) return false;
        PyObject *cause = fetch_exception();
        Py_buffer any{};
        std::string text = "the memory cannot be used";
        if (PyObject_GetBuffer(object, &any, PyBUF_FULL_RO) == 0) {
            if (writable && any.readonly)
                text = "the memory is read-only, but it is written to";
            else if (!PyBuffer_IsContiguous(&any, 'C'))
                text = "the memory is not C-contiguous";
            PyBuffer_Release(&any);
        }
        PyErr_Clear();
        t_raised = {cause, false};
        return refuse(UJOIN_E_INVALID, std::string(name) + ": " + text);
    }

    Py_buffer view_; ///< only where held_: most calls have an argument that is not given
    bool held_ = false;
    PyObject *owner_ = nullptr;
    void *data_ = nullptr;
    size_t count_ = 0;
    ujoin_dtype dtype_ = 0;
    std::vector<int64_t> shape_;
};

/// What the library holds of Python's: memory in flight, a callback. Given back by a notice that may come on any thread,
/// with the interpreter's lock or without; freed where the lock is held.
struct Kept {
    std::vector<Memory> memory;
    PyObject *object = nullptr;
    std::atomic<int> owners{1};
    Kept *next = nullptr;
    static void drop(Kept *kept) { // locked
        if (!kept || kept->owners.fetch_sub(1) != 1) return;
        Py_XDECREF(kept->object);
        delete kept;
    }
};

inline std::atomic<bool> g_asked{false};

inline void drain() { // locked
    Kept *list = g_free.exchange(nullptr, std::memory_order_acquire);
    while (list) {
        Kept *kept = std::exchange(list, list->next);
        kept->memory.clear();
        Kept::drop(kept);
    }
}

/// The library's notice (ujoin_destroy_fn). Waits for nothing: a progress thread must not stand still for the interpreter.
inline void give_back(void *data) {
    auto *kept = static_cast<Kept *>(data);
    if (!kept || g_leaving) return;
    kept->next = g_free.load(std::memory_order_relaxed);
    while (!g_free.compare_exchange_weak(kept->next, kept, std::memory_order_release)) {
    }
    if (g_asked.exchange(true)) return;
    const auto run = [](void *) -> int {
        g_asked = false;
        drain();
        return 0;
    };
    if (Py_AddPendingCall(run, nullptr) != 0) g_asked = false; // the queue is full: the next call of ujoin drains
}

inline Kept *keep_object(PyObject *object) {
    auto *kept = new Kept;
    kept->object = Py_NewRef(object);
    return kept;
}

/// What is sent; nothing for an operation in place.
class Source {
  public:
    explicit Source(const Memory &memory) : buffer_(memory.as_const()), given_(memory.held()) {}
    const ujoin_const_buffer *get() const { return given_ ? &buffer_ : nullptr; }

  private:
    ujoin_const_buffer buffer_;
    bool given_;
};

/// The options of one call; work in flight takes the memory with it.
class Operation {
  public:
    Operation(int64_t timeout_ms, bool async, ujoin_work **out_work, Memory *send, Memory *recv)
        : Operation(timeout_ms, async, out_work) {
        if (!kept_) return;
        if (send && send->held()) kept_->memory.push_back(std::move(*send));
        kept_->memory.push_back(std::move(*recv));
    }
    Operation(int64_t timeout_ms, bool async, ujoin_work **out_work, std::vector<Memory> &memory)
        : Operation(timeout_ms, async, out_work) {
        if (kept_) kept_->memory = std::move(memory);
    }
    const ujoin_op_options *options() const { return &options_; }
    ujoin_work **out() const { return out_; }

  private:
    Operation(int64_t timeout_ms, bool async, ujoin_work **out_work) : out_(async ? out_work : nullptr) {
        options_.size = sizeof options_;
        options_.timeout_ms = timeout_ms;
        if (!async) return;
        kept_ = new Kept;
        options_.release = give_back;
        options_.release_data = kept_;
    }

    ujoin_op_options options_{};
    ujoin_work **out_;
    Kept *kept_ = nullptr; ///< the library's, from the call on
};

} // namespace ujoin_py
