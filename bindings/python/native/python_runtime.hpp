// SPDX-License-Identifier: Apache-2.0
// What the wrappers of bindings/swig/python.i are made of: handles as capsules, memory of Python objects, errors, callbacks.
// Included once, by the generated file, under CPython's limited API 3.11. "Locked" means: the thread holds the interpreter
// lock.
#pragma once
#include <Python.h>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <memory>
#include <pthread.h>
#include <string>
#include <string_view>
#include <ujoin.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace ujoin_py {

// ------------------------------------------------------------------------------------------------------ interpreter lock

/// Set when the interpreter begins to end: from then on no thread of the library takes its lock, nothing is given back.
inline std::atomic<bool> g_leaving{false};
inline pthread_t g_main_thread;

/// The thread state of a foreign thread, kept until the thread ends: making one for each callback costs 30 times as much.
class KeptThreadState {
  public:
    void make() {
        if (saved_ || PyGILState_GetThisThreadState()) return;
        state_ = PyGILState_Ensure();
        saved_ = PyEval_SaveThread();
    }
    ~KeptThreadState() {
        if (!saved_ || g_leaving) return;
        PyEval_RestoreThread(saved_);
        PyGILState_Release(state_);
    }

  private:
    PyThreadState *saved_ = nullptr;
    PyGILState_STATE state_{};
};
inline thread_local KeptThreadState t_kept_state;

/// Runs `body` locked on a thread that may be any. Up to CPython 3.13 a thread that wants the lock of an ending interpreter
/// is ended by an unwinding that must not pass through the library: it stays here instead, as it would from 3.14 on.
template <class Body> ujoin_status locked(Body &&body) {
    if (g_leaving) return ujoin_set_last_error(UJOIN_E_CALLBACK, "the Python interpreter is ending");
    try {
        t_kept_state.make();
        const PyGILState_STATE state = PyGILState_Ensure();
        const ujoin_status status = body();
        PyGILState_Release(state);
        return status;
    } catch (abi::__forced_unwind &) {
        for (;;) pause();
    }
}

/// A reference that is dropped at the end of a scope, locked.
class Ref {
  public:
    explicit Ref(PyObject *object = nullptr) : object_(object) {}
    Ref(Ref &&other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
    Ref(const Ref &) = delete;
    Ref &operator=(const Ref &) = delete;
    ~Ref() { Py_XDECREF(object_); }
    PyObject *get() const { return object_; }
    PyObject *take() { return std::exchange(object_, nullptr); }
    explicit operator bool() const { return object_ != nullptr; }

  private:
    PyObject *object_;
};

// ---------------------------------------------------------------------------------------------------------------- errors

inline PyObject *g_errors = nullptr;  // status -> class
inline PyObject *g_adapter = nullptr; // object -> (buffer or DLPack capsule, dtype), for what is neither

/// What a callback of this thread raised, until the call that ran it has ended.
struct Raised {
    PyObject *exception = nullptr;
    bool by_signal = false; ///< raised by the interpreter's signal handlers, not by a callback of ujoin
};
inline thread_local Raised t_raised;

inline PyObject *fetch_exception() {
    PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (value && trace) PyException_SetTraceback(value, trace);
    Py_XDECREF(type);
    Py_XDECREF(trace);
    return value;
}

inline void throw_exception(PyObject *value) { // steals
    PyErr_SetObject(reinterpret_cast<PyObject *>(Py_TYPE(value)), value);
    Py_DECREF(value);
}

/// "ValueError: text", for the library's own text.
inline std::string text_of(PyObject *exception) {
    const Ref name(PyObject_GetAttrString(reinterpret_cast<PyObject *>(Py_TYPE(exception)), "__name__"));
    const Ref text(PyObject_Str(exception));
    const char *a = name ? PyUnicode_AsUTF8AndSize(name.get(), nullptr) : nullptr;
    const char *b = text ? PyUnicode_AsUTF8AndSize(text.get(), nullptr) : nullptr;
    std::string result = std::string(a ? a : "an exception") + (b && *b ? ": " : "") + (b ? b : "");
    PyErr_Clear();
    return result;
}

/// The pending exception becomes the cause of the call that runs the callback.
inline ujoin_status callback_failed(bool by_signal) {
    PyObject *exception = fetch_exception();
    const std::string text = exception ? text_of(exception) : "an error without an exception";
    Py_XDECREF(t_raised.exception);
    t_raised = {exception, by_signal};
    return ujoin_set_last_error(UJOIN_E_CALLBACK, text.c_str());
}

/// Raises the error of this thread's last call. What a signal handler raised, and what is not meant to be handled
/// (KeyboardInterrupt, SystemExit), goes on as it is; else it is the cause.
inline void raise(ujoin_status status) {
    const Raised raised = std::exchange(t_raised, Raised{});
    if (raised.exception && (raised.by_signal || !PyObject_IsInstance(raised.exception, PyExc_Exception))) {
        throw_exception(raised.exception);
        return;
    }
    std::vector<int32_t> ranks(ujoin_last_missing(nullptr, 0));
    ujoin_last_missing(ranks.data(), ranks.size());
    const Ref list(PyTuple_New(static_cast<Py_ssize_t>(ranks.size())));
    const Ref key(PyLong_FromLong(status));
    const Ref text(PyUnicode_DecodeUTF8(ujoin_last_error(), static_cast<Py_ssize_t>(strlen(ujoin_last_error())), "replace"));
    for (size_t i = 0; list && i < ranks.size(); i++)
        PyTuple_SetItem(list.get(), static_cast<Py_ssize_t>(i), PyLong_FromLong(ranks[i]));
    PyObject *type = list && key && g_errors ? PyDict_GetItemWithError(g_errors, key.get()) : nullptr;
    if (!type) type = PyExc_RuntimeError; // before the package has registered its classes
    const Ref number(PyLong_FromLong(ujoin_last_errno()));
    Ref error(text && number ? PyObject_CallFunctionObjArgs(type, text.get(), key.get(), number.get(), list.get(), nullptr)
                             : nullptr);
    if (!error) {
        Py_XDECREF(raised.exception);
        return;
    }
    if (raised.exception) PyException_SetCause(error.get(), raised.exception); // steals
    throw_exception(error.take());
}

inline void drain();
inline std::atomic<struct Kept *> g_free{nullptr};

/// After each call, locked: false with an exception set if it failed.
inline bool check(ujoin_status status) {
    if (g_free.load(std::memory_order_relaxed)) drain();
    if (status >= 0 && !t_raised.exception) return true;
    if (status >= 0) { // the call succeeded, but a signal's handler has raised meanwhile: that must not be lost
        throw_exception(std::exchange(t_raised, Raised{}).exception);
        return false;
    }
    raise(status);
    return false;
}

/// An error that the library itself does not know of.
inline bool refuse(ujoin_status status, const std::string &text) {
    ujoin_set_last_error(status, text.c_str());
    raise(status);
    return false;
}

inline bool as_text(PyObject *object, const char **out) {
    Py_ssize_t size = 0;
    *out = nullptr;
    if (object == Py_None) return true;
    if (PyUnicode_Check(object)) {
        *out = PyUnicode_AsUTF8AndSize(object, &size);
    } else if (PyBytes_Check(object)) {
        char *bytes = nullptr;
        if (PyBytes_AsStringAndSize(object, &bytes, &size) == 0) *out = bytes;
    } else {
        PyErr_SetString(PyExc_TypeError, "expected str, bytes or None");
    }
    if (!*out) return false;
    if (strlen(*out) == static_cast<size_t>(size)) return true;
    PyErr_SetString(PyExc_ValueError, "embedded null character");
    return false;
}

inline PyObject *from_text(const char *text) {
    if (!text) return Py_NewRef(Py_None);
    return PyUnicode_DecodeUTF8(text, static_cast<Py_ssize_t>(strlen(text)), "surrogateescape");
}

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
    case 'f': dtype = UJOIN_F32; break;
    case 'd': dtype = UJOIN_F64; break;
    case 'e': dtype = UJOIN_F16; break;
    case 'i': dtype = UJOIN_I32; break;
    case 'q': dtype = UJOIN_I64; break;
    case 'l': dtype = itemsize == 8 ? UJOIN_I64 : UJOIN_I32; break;
    case 'B':
    case 'c': dtype = UJOIN_U8; break;
    default: break;
    }
    return dtype_size(dtype) == static_cast<size_t>(itemsize) ? dtype : 0;
}

inline ujoin_dtype dtype_of(const DLTensor &tensor) {
    if (tensor.lanes != 1) return 0;
    switch (tensor.code * 256 + tensor.bits) {
    case 0x020: return UJOIN_I32;
    case 0x040: return UJOIN_I64;
    case 0x108: return UJOIN_U8;
    case 0x210: return UJOIN_F16;
    case 0x220: return UJOIN_F32;
    case 0x240: return UJOIN_F64;
    case 0x410: return UJOIN_BF16;
    default: return 0;
    }
}

/// The memory of one Python object, held until this ends: a buffer's export, or a DLPack capsule. Never a copy.
class Memory {
  public:
    Memory() = default;
    Memory(Memory &&other) noexcept { *this = std::move(other); }
    Memory &operator=(Memory &&other) noexcept {
        release();
        view_ = other.view_;
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
        const std::string text =
            dtype_ ? "items of " + std::to_string(item) + " bytes are not of the given dtype"
                   : "element type \"" + format + "\" is none of float32, float64, float16, int32, int64, uint8; for bfloat16 "
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
            auto *managed =
                static_cast<DLManagedTensorVersioned *>(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
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
            return refuse(UJOIN_E_INVALID,
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

    Py_buffer view_{};
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

/// The options of one operation; work in flight takes the memory with it.
class Operation {
  public:
    Operation(int64_t timeout_ms, bool async, ujoin_work **out_work, Memory *send, Memory *recv)
        : out_(async ? out_work : nullptr) {
        options_.size = sizeof options_;
        options_.timeout_ms = timeout_ms;
        if (!async) return;
        auto *kept = new Kept;
        if (send && send->held()) kept->memory.push_back(std::move(*send));
        kept->memory.push_back(std::move(*recv));
        options_.release = give_back;
        options_.release_data = kept;
    }
    const ujoin_op_options *options() const { return &options_; }
    ujoin_work **out() const { return out_; }

  private:
    ujoin_op_options options_{};
    ujoin_work **out_;
};

// --------------------------------------------------------------------------------------------------------------- handles

/// What a handle's capsule points to.
struct Box {
    void *handle = nullptr;
    void (*destroy)(void *) = nullptr;
    PyObject *owner = nullptr; ///< of a borrowed handle: the capsule that keeps it alive
    Kept *kept = nullptr;      ///< of ddp and zero: their memory, shared with the library's notice
    std::atomic<bool> busy{false};

    void keep(Memory &&memory) {
        if (!memory.held()) return;
        if (!kept) kept = new Kept;
        kept->memory.push_back(std::move(memory));
    }
    void keep(class Params &params);
};

inline void end_box(PyObject *capsule) {
    auto *box = static_cast<Box *>(PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule)));
    if (!box) return;
    if (box->destroy) {
        PyThreadState *state = PyEval_SaveThread(); // a library thread that destroy may meet can be waiting for the lock
        box->destroy(box->handle);
        PyEval_RestoreThread(state);
    }
    if (!g_leaving) {
        Kept::drop(box->kept);
        Py_XDECREF(box->owner);
        if (g_free.load(std::memory_order_relaxed)) drain();
    }
    delete box;
}

template <class Type, void (*destroy)(Type *)> PyObject *wrap(Type *handle, const char *name) {
    auto *box = new Box;
    box->handle = handle;
    box->destroy = [](void *pointer) { destroy(static_cast<Type *>(pointer)); };
    PyObject *capsule = PyCapsule_New(box, name, end_box);
    if (capsule) return capsule;
    destroy(handle);
    delete box;
    return nullptr;
}

inline PyObject *borrow(void *handle, PyObject *owner, const char *name) {
    if (!handle) {
        raise(UJOIN_E_STATE);
        return nullptr;
    }
    auto *box = new Box;
    box->handle = handle;
    box->owner = Py_NewRef(owner);
    PyObject *capsule = PyCapsule_New(box, name, end_box);
    if (!capsule) delete box;
    return capsule;
}

/// The functions that may be called while another thread is inside a call on the same handle.
constexpr bool any_thread(std::string_view function) {
    constexpr std::string_view free[] = {
        "ujoin_store_prefix", "ujoin_store_url",   "ujoin_store_abort",  "ujoin_group_rank", "ujoin_group_size",
        "ujoin_group_get_info", "ujoin_group_abort", "ujoin_work_test",    "ujoin_work_abort", "ujoin_joinable_create",
        "ujoin_ctx_stop",     "ujoin_ctx_abort",   "ujoin_ddp_joinable", "ujoin_ddp_ready",  "zero_joinable",
        "pctx_failed",        "pctx_first_failure", "pctx_signal",       "pctx_abort"};
    for (const std::string_view name : free)
        if (name == function) return true;
    return false;
}

/// A handle in use by one call. The caller's arguments keep the capsule, so nothing is destroyed under a call; a second
/// call on a handle that allows only one is an error, not a race.
class Use {
  public:
    Use() = default;
    Use(const Use &) = delete;
    Use &operator=(const Use &) = delete;
    ~Use() {
        if (entered_) box_->busy.store(false, std::memory_order_release);
    }
    bool enter(PyObject *object, const char *name, bool any_thread) {
        capsule_ = object;
        if (object == Py_None) return closed(name);
        if (!PyCapsule_IsValid(object, name)) {
            PyErr_Format(PyExc_TypeError, "expected a handle of type %s", name);
            return false;
        }
        box_ = static_cast<Box *>(PyCapsule_GetPointer(object, name));
        if (any_thread) return true;
        if (box_->busy.exchange(true, std::memory_order_acquire)) {
            return refuse(UJOIN_E_STATE, std::string(name) +
                                             ": a call on this object is in progress; it takes one call at a time, from one "
                                             "thread, and none from its own callbacks");
        }
        entered_ = true;
        return true;
    }
    void *handle() const { return box_ ? box_->handle : nullptr; }
    Box *box() const { return box_; }
    PyObject *capsule() const { return capsule_; }

  private:
    static bool closed(const char *name) { return refuse(UJOIN_E_STATE, std::string(name) + ": this object is closed"); }
    Box *box_ = nullptr;
    PyObject *capsule_ = nullptr;
    bool entered_ = false;
};

// ------------------------------------------------------------------------------------------------------------- containers

/// str or bytes in a sequence; None = not given.
class Strings {
  public:
    bool read(PyObject *object) {
        given_ = object != Py_None;
        if (!given_) return true;
        sequence_ = PySequence_Tuple(object);
        if (!sequence_) return false;
        for (Py_ssize_t i = 0; i < PyTuple_Size(sequence_); i++) {
            const char *text = nullptr;
            if (!as_text(PyTuple_GetItem(sequence_, i), &text)) return false;
            pointers_.push_back(text);
        }
        return true;
    }
    Strings() = default;
    Strings(const Strings &) = delete;
    Strings &operator=(const Strings &) = delete;
    ~Strings() {
        if (!g_leaving) Py_XDECREF(sequence_);
    }
    bool given() const { return given_; }
    const char *const *data() const {
        static const char *const none[1] = {nullptr};
        return pointers_.empty() ? none : pointers_.data();
    }
    size_t size() const { return pointers_.size(); }

  private:
    PyObject *sequence_ = nullptr; // keeps the texts
    std::vector<const char *> pointers_;
    bool given_ = false;
};

/// A dict of names and numbers.
class Hypers {
  public:
    bool read(PyObject *object) {
        if (!PyDict_Check(object)) {
            PyErr_SetString(PyExc_TypeError, "expected a dict of names and numbers");
            return false;
        }
        PyObject *key = nullptr, *value = nullptr;
        Py_ssize_t at = 0;
        while (PyDict_Next(object, &at, &key, &value)) {
            const char *name = nullptr;
            if (!as_text(key, &name)) return false;
            const double number = PyFloat_AsDouble(value);
            if (number == -1.0 && PyErr_Occurred()) return false;
            names_.push_back(std::make_unique<std::string>(name ? name : ""));
            hypers_.push_back({names_.back()->c_str(), number});
        }
        return true;
    }
    const ujoin_hyper *data() const { return hypers_.data(); }
    size_t size() const { return hypers_.size(); }

  private:
    std::vector<std::unique_ptr<std::string>> names_;
    std::vector<ujoin_hyper> hypers_;
};

/// Any contiguous bytes, those of a tensor too.
class Bytes {
  public:
    bool read(PyObject *object) {
        if (!PyObject_CheckBuffer(object)) return other_.read(object, false, "value");
        held_ = PyObject_GetBuffer(object, &view_, PyBUF_SIMPLE) == 0;
        return held_;
    }
    Bytes() = default;
    Bytes(const Bytes &) = delete;
    Bytes &operator=(const Bytes &) = delete;
    ~Bytes() {
        if (held_ && !g_leaving) PyBuffer_Release(&view_);
    }
    const void *data() const { return held_ ? view_.buf : other_.data(); }
    size_t size() const {
        return held_ ? static_cast<size_t>(view_.len) : other_.count() * dtype_size(other_.dtype());
    }

  private:
    Py_buffer view_{};
    bool held_ = false;
    Memory other_; ///< a tensor without the buffer protocol
};

/// A sequence of integers.
class Shape {
  public:
    bool read(PyObject *object) {
        const Ref items(PySequence_Tuple(object));
        if (!items) return false;
        for (Py_ssize_t i = 0; i < PyTuple_Size(items.get()); i++) {
            extents_.push_back(PyLong_AsLongLong(PyTuple_GetItem(items.get(), i)));
            if (PyErr_Occurred()) return false;
        }
        return true;
    }
    const int64_t *data() const { return extents_.empty() ? nullptr : extents_.data(); }
    size_t size() const { return extents_.size(); }

  private:
    std::vector<int64_t> extents_;
};

/// Capsules of joinables.
class Joinables {
  public:
    bool read(PyObject *object) {
        const Ref items(PySequence_Tuple(object));
        if (!items) return false;
        for (Py_ssize_t i = 0; i < PyTuple_Size(items.get()); i++) {
            PyObject *item = PyTuple_GetItem(items.get(), i);
            if (!PyCapsule_IsValid(item, "ujoin_joinable")) {
                PyErr_SetString(PyExc_TypeError, "expected handles of type ujoin_joinable");
                return false;
            }
            auto *box = static_cast<Box *>(PyCapsule_GetPointer(item, "ujoin_joinable"));
            handles_.push_back(static_cast<ujoin_joinable *>(box->handle));
        }
        return true;
    }
    ujoin_joinable *const *data() const { return handles_.data(); }
    size_t size() const { return handles_.size(); }

  private:
    std::vector<ujoin_joinable *> handles_;
};

/// A sequence of (name or None, memory, gradient's memory or None). The memory is held by a Kept, of which one owner is the
/// library from lend() on.
class Params {
  public:
    Params() = default;
    Params(const Params &) = delete;
    Params &operator=(const Params &) = delete;
    ~Params() {
        if (kept_ && !g_leaving) Kept::drop(kept_);
    }
    bool read(PyObject *object) {
        const Ref items(PySequence_Tuple(object));
        if (!items) return false;
        kept_ = new Kept;
        for (Py_ssize_t i = 0; i < PyTuple_Size(items.get()); i++)
            if (!read_one(PyTuple_GetItem(items.get(), i))) return false;
        return true;
    }
    /// For the library's notice, which comes exactly once.
    void *lend() {
        kept_->owners++;
        return kept_;
    }
    /// The object that was made with these parameters shares them.
    bool attach_to(PyObject *capsule) {
        if (!capsule || !PyCapsule_CheckExact(capsule)) return false;
        static_cast<Box *>(PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule)))->kept = std::exchange(kept_, nullptr);
        return true;
    }
    std::vector<Memory> take_memory() { return std::move(kept_->memory); }
    const ujoin_param *data() const { return params_.data(); }
    size_t size() const { return params_.size(); }

  private:
    bool read_one(PyObject *item) {
        if (!PyTuple_Check(item) || PyTuple_Size(item) != 3) {
            PyErr_SetString(PyExc_TypeError, "expected tuples (name, memory, gradient)");
            return false;
        }
        const char *text = nullptr;
        if (!as_text(PyTuple_GetItem(item, 0), &text)) return false;
        names_.push_back(std::make_unique<std::string>(text ? text : std::to_string(params_.size())));
        const std::string what = "parameter \"" + *names_.back() + "\"", grad = "gradient of " + what;
        Memory memory;
        if (!memory.read(PyTuple_GetItem(item, 1), true, what.c_str(), true)) return false;
        shapes_.push_back(std::make_unique<std::vector<int64_t>>(memory.shape()));
        ujoin_param param{};
        param.name = names_.back()->c_str();
        param.data = memory.data();
        param.count = memory.count();
        param.dtype = memory.dtype();
        param.shape = shapes_.back()->empty() ? nullptr : shapes_.back()->data();
        param.ndim = static_cast<int32_t>(shapes_.back()->size());
        if (!read_gradient(PyTuple_GetItem(item, 2), grad.c_str(), param)) return false;
        params_.push_back(param);
        kept_->memory.push_back(std::move(memory));
        return true;
    }
    bool read_gradient(PyObject *object, const char *name, ujoin_param &param) {
        if (object == Py_None) return true;
        Memory memory;
        if (!memory.read(object, true, name)) return false;
        if (memory.count() != param.count)
            return refuse(UJOIN_E_INVALID, std::string(name) + ": it has " + std::to_string(memory.count()) +
                                               " elements, the parameter " + std::to_string(param.count));
        param.grad = memory.data();
        param.grad_dtype = memory.dtype();
        kept_->memory.push_back(std::move(memory));
        return true;
    }

    std::vector<std::unique_ptr<std::string>> names_;
    std::vector<std::unique_ptr<std::vector<int64_t>>> shapes_;
    std::vector<ujoin_param> params_;
    Kept *kept_ = nullptr;
};

inline void Box::keep(Params &params) {
    for (Memory &memory : params.take_memory()) keep(std::move(memory));
}

// -------------------------------------------------------------------------------------------------------------- callbacks

/// The closure of a step: called by the library, its result kept for the caller.
class Closure {
  public:
    bool read(PyObject *object) {
        if (object != Py_None) function_ = object; // borrowed: the caller's arguments keep it
        return true;
    }
    Closure() = default;
    Closure(const Closure &) = delete;
    Closure &operator=(const Closure &) = delete;
    ~Closure() {
        if (!g_leaving) Py_XDECREF(result_);
    }
    ujoin_call_fn function() const { return function_ ? call : nullptr; }
    PyObject *take_result() { return result_ ? std::exchange(result_, nullptr) : Py_NewRef(Py_None); }

  private:
    static ujoin_status call(void *data) {
        auto *self = static_cast<Closure *>(data);
        return locked([self]() -> ujoin_status {
            Py_XDECREF(self->result_);
            self->result_ = PyObject_CallNoArgs(self->function_);
            return self->result_ ? UJOIN_OK : callback_failed(false);
        });
    }
    PyObject *function_ = nullptr;
    PyObject *result_ = nullptr;
};

inline PyObject *as_dict(const ujoin_hyper *hypers, size_t count) {
    Ref dict(PyDict_New());
    for (size_t i = 0; dict && i < count; i++) {
        const Ref value(PyFloat_FromDouble(hypers[i].value));
        if (!value || PyDict_SetItemString(dict.get(), hypers[i].name, value.get()) != 0) return nullptr;
    }
    return dict.take();
}

/// Runs hook(post, round, active, is_last_joiner, authoritative_rank, options).
inline ujoin_status run_hook(void *data, const ujoin_hook_args *args, bool post) {
    return locked([&]() -> ujoin_status {
        const Ref options(as_dict(args->options, args->option_count));
        const Ref result(options ? PyObject_CallFunction(static_cast<Kept *>(data)->object, "iLiiiO", post ? 1 : 0,
                                                         static_cast<long long>(args->round), args->active,
                                                         args->is_last_joiner, args->authoritative_rank, options.get())
                                 : nullptr);
        return result ? UJOIN_OK : callback_failed(false);
    });
}

inline ujoin_status joinable_create(ujoin_group *group, PyObject *hook, const char *name, const Strings &options,
                                    ujoin_joinable **out) {
    Kept *kept = keep_object(hook);
    ujoin_hooks hooks{};
    hooks.size = sizeof hooks;
    hooks.main_hook = [](void *data, const ujoin_hook_args *args) { return run_hook(data, args, false); };
    hooks.post_hook = [](void *data, const ujoin_hook_args *args) { return run_hook(data, args, true); };
    hooks.user_data = kept;
    hooks.destroy = give_back;
    hooks.name = name;
    hooks.options = options.data();
    hooks.option_count = options.size();
    return ujoin_joinable_create(group, &hooks, out);
}

inline void run_sink(void *data, ujoin_log_level level, const char *text) {
    if (g_leaving) return;
    locked([&]() -> ujoin_status {
        PyObject *sink = static_cast<Kept *>(data)->object;
        const Ref line(from_text(text));
        const Ref result(line ? PyObject_CallFunction(sink, "iO", level, line.get()) : nullptr);
        if (!result) PyErr_WriteUnraisable(sink); // a log line is never worth a failure
        return UJOIN_OK;
    });
}

inline PyObject *set_log_sink(int32_t level, PyObject *sink) {
    const bool given = sink != Py_None;
    Kept *kept = given ? keep_object(sink) : nullptr;
    PyThreadState *state = PyEval_SaveThread(); // waits for the old sink, which may wait for the lock
    const ujoin_status status =
        ujoin_set_log_sink(level, given ? run_sink : nullptr, kept, given ? give_back : nullptr);
    PyEval_RestoreThread(state);
    return check(status) ? Py_NewRef(Py_None) : nullptr;
}

/// Lets Ctrl-C, and any other signal with a handler in Python, end a wait of the main thread.
inline ujoin_status look_for_signals(void *) {
    if (g_leaving || !pthread_equal(pthread_self(), g_main_thread)) return UJOIN_OK;
    return locked([]() -> ujoin_status { return PyErr_CheckSignals() == 0 ? UJOIN_OK : callback_failed(true); });
}

/// The interpreter runs signal handlers on its main thread only; threading calls it by this number. 0: no check.
inline PyObject *set_interrupt_check(size_t main_thread) {
    g_main_thread = static_cast<pthread_t>(main_thread);
    return check(ujoin_set_interrupt_check(main_thread ? look_for_signals : nullptr, nullptr, nullptr)) ? Py_NewRef(Py_None)
                                                                                                        : nullptr;
}

inline PyObject *install(PyObject *errors, PyObject *adapter) {
    g_errors = Py_NewRef(errors);
    g_adapter = Py_NewRef(adapter);
    return Py_NewRef(Py_None);
}

inline PyObject *leave() {
    g_leaving = true;
    return Py_NewRef(Py_None);
}

inline PyObject *after_fork() {
    g_main_thread = pthread_self();
    g_asked = false;
    return Py_NewRef(Py_None);
}

// ---------------------------------------------------------------------------------------------------------------- answers

inline PyObject *describe(PyObject *object, bool writable) {
    Memory memory;
    if (!memory.read(object, writable, "memory", true)) return nullptr;
    Ref shape(PyTuple_New(static_cast<Py_ssize_t>(memory.shape().size())));
    for (size_t d = 0; shape && d < memory.shape().size(); d++)
        PyTuple_SetItem(shape.get(), static_cast<Py_ssize_t>(d), PyLong_FromLongLong(memory.shape()[d]));
    if (!shape) return nullptr;
    return Py_BuildValue("(KKiN)", static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(memory.data())),
                         static_cast<unsigned long long>(memory.count()), memory.dtype(), shape.take());
}

inline PyObject *as_list(const std::vector<int64_t> &values) {
    Ref list(PyList_New(static_cast<Py_ssize_t>(values.size())));
    for (size_t i = 0; list && i < values.size(); i++)
        PyList_SetItem(list.get(), static_cast<Py_ssize_t>(i), PyLong_FromLongLong(values[i]));
    return list.take();
}

inline PyObject *last_missing() {
    std::vector<int32_t> ranks(ujoin_last_missing(nullptr, 0));
    ujoin_last_missing(ranks.data(), ranks.size());
    return as_list({ranks.begin(), ranks.end()});
}

inline PyObject *ctx_rounds(ujoin_ctx *ctx) {
    std::vector<int64_t> rounds(ujoin_ctx_rounds(ctx, nullptr, 0));
    if (rounds.empty()) { // a group has at least one rank
        raise(UJOIN_E_STATE);
        return nullptr;
    }
    ujoin_ctx_rounds(ctx, rounds.data(), rounds.size());
    return as_list(rounds);
}

inline PyObject *parse_std(const char *text, int32_t nprocs) {
    std::vector<ujoin_std> values(nprocs > 0 ? static_cast<size_t>(nprocs) : 0);
    if (!check(pctx_parse_std(text, values.data(), values.size()))) return nullptr;
    return as_list({values.begin(), values.end()});
}

/// A value may be replaced between asking for its size and reading it.
inline ujoin_status store_get(ujoin_store *store, const char *key, int64_t timeout_ms, std::string &value) {
    size_t size = 4096;
    for (;;) {
        value.resize(size);
        const ujoin_status status = ujoin_store_get(store, key, timeout_ms, value.data(), value.size(), &size);
        if (status == UJOIN_E_INVALID && size > value.size()) continue;
        value.resize(status == UJOIN_OK ? size : 0);
        return status;
    }
}

inline PyObject *as_tuple(const ujoin_group_info &i) {
    return Py_BuildValue("(Niiiii)", from_text(i.backend), i.rank, i.world_size, i.local_rank, i.local_size, i.progress);
}
inline PyObject *as_tuple(const ujoin_ctx_report &r) {
    return Py_BuildValue("(LLLLLiiii)", (long long)r.rounds, (long long)r.shadow_rounds, (long long)r.shadow_uses,
                         (long long)r.shadow_us, (long long)r.wait_us, r.is_last_joiner, r.authoritative_rank, r.joined,
                         r.stopped);
}
inline PyObject *as_tuple(const ujoin_ddp_report &r) {
    return Py_BuildValue("(LddLLKi)", (long long)r.iterations, r.divisor, r.samples, (long long)r.reduce_us,
                         (long long)r.exposed_us, (unsigned long long)r.bucket_count, r.joined_uneven);
}
inline PyObject *as_tuple(const ujoin_shard &s) {
    return Py_BuildValue("(KKKii)", (unsigned long long)s.param, (unsigned long long)s.offset, (unsigned long long)s.count,
                         s.rank, s.group);
}
inline PyObject *as_tuple(const ujoin_item &i) {
    Ref shape(PyTuple_New(i.ndim));
    for (int32_t d = 0; shape && d < i.ndim; d++) PyTuple_SetItem(shape.get(), d, PyLong_FromLongLong(i.shape[d]));
    if (!shape) return nullptr;
    const char *data = i.data ? static_cast<const char *>(i.data) : "";
    return Py_BuildValue("(iiiNNdNiN)", i.kind, i.owner, i.group, from_text(i.param), from_text(i.key), i.number,
                         PyBytes_FromStringAndSize(data, (Py_ssize_t)i.bytes), i.dtype, shape.take());
}
inline PyObject *as_tuple(const ujoin_worker_result &r) {
    return Py_BuildValue("(iiiiiiiiLLLLLKKKNN)", r.state, r.rank, r.pid, r.exit_code, r.signal, r.failed, r.stopped,
                         r.containment, (long long)r.start_ns, (long long)r.end_ns, (long long)r.last_output_ns,
                         (long long)r.user_us, (long long)r.system_us, (unsigned long long)r.peak_bytes,
                         (unsigned long long)r.stdout_bytes, (unsigned long long)r.stderr_bytes, from_text(r.stdout_path),
                         from_text(r.stderr_path));
}

} // namespace ujoin_py
