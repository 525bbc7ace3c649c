// SPDX-License-Identifier: Apache-2.0
// Handles as capsules; sequences and dicts as arrays of C.
#pragma once
#include "memory.hpp"
#include <memory>
#include <string_view>

namespace ujoin_py {

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
    if (box->destroy && box->handle) {
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
consteval bool any_thread(std::string_view function) {
    constexpr std::string_view free[] = {
        "ujoin_store_prefix",      "ujoin_store_url",   "ujoin_store_abort",  "ujoin_group_rank", "ujoin_group_size",
        "ujoin_group_get_info",    "ujoin_group_abort", "ujoin_work_test",    "ujoin_work_abort", "ujoin_joinable_create",
        "ujoin_ctx_stop",          "ujoin_ctx_abort",   "ujoin_ddp_joinable", "ujoin_ddp_ready",  "zero_joinable",
        "ujoin_ddp_gradient",      "pctx_failed",       "pctx_first_failure", "pctx_signal",      "pctx_abort",
        "ujoin_work_contributors", "ujoin_memory_data", "ujoin_memory_size"};
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
        box_ = static_cast<Box *>(PyCapsule_GetPointer(object, name));
        if (!box_) return wrong(object, name);
        if (!box_->handle) {
            return refuse(UJOIN_E_STATE, std::string(name) + ": this object is over: it was there for one call of a hook, "
                                                             "or the library has taken it");
        }
        if (any_thread) return true;
        if (box_->busy.exchange(true, std::memory_order_acquire)) {
            return refuse(UJOIN_E_STATE,
                          std::string(name) +
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
    static bool wrong(PyObject *object, const char *name) {
        PyErr_Clear();
        if (object == Py_None) return refuse(UJOIN_E_STATE, std::string(name) + ": this object is closed");
        PyErr_Format(PyExc_TypeError, "expected a handle of type %s", name);
        return false;
    }
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
    size_t size() const { return held_ ? static_cast<size_t>(view_.len) : other_.count() * dtype_size(other_.dtype()); }

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

inline bool as_int32(PyObject *object, int32_t *out) {
    const long value = PyLong_AsLong(object);
    if (value == -1 && PyErr_Occurred()) return false;
    *out = static_cast<int32_t>(value);
    if (value == *out) return true;
    PyErr_SetString(PyExc_OverflowError, "a number does not fit into 32 bits");
    return false;
}

/// A sequence of numbers of 32 bits; None = not given.
class Ints {
  public:
    bool read(PyObject *object) {
        given_ = object != Py_None;
        const Ref items(given_ ? PySequence_Tuple(object) : PyTuple_New(0));
        if (!items) return false;
        for (Py_ssize_t i = 0; i < PyTuple_Size(items.get()); i++) {
            values_.push_back(0);
            if (!as_int32(PyTuple_GetItem(items.get(), i), &values_.back())) return false;
        }
        return true;
    }
    const int32_t *data() const {
        static constexpr int32_t none = 0;
        return !given_ ? nullptr : values_.empty() ? &none : values_.data();
    }
    size_t size() const { return values_.size(); }

  private:
    std::vector<int32_t> values_;
    bool given_ = false;
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

/// Memory in a sequence.
class Buffers {
  public:
    bool read(PyObject *object) {
        const Ref items(PySequence_Tuple(object));
        if (!items) return false;
        for (Py_ssize_t i = 0; i < PyTuple_Size(items.get()); i++) {
            Memory memory;
            const std::string name = "buffer " + std::to_string(i);
            if (!memory.read(PyTuple_GetItem(items.get(), i), true, name.c_str())) return false;
            buffers_.push_back(memory.as_buffer());
            memory_.push_back(std::move(memory));
        }
        return true;
    }
    std::vector<Memory> take_memory() { return std::move(memory_); }
    const ujoin_buffer *data() const { return buffers_.data(); }
    size_t size() const { return buffers_.size(); }

  private:
    std::vector<ujoin_buffer> buffers_;
    std::vector<Memory> memory_;
};

/// A sequence of (kind, reduction, peer, send, recv, send counts, recv counts); None for what is not given of the last four.
class Operations {
  public:
    bool read(PyObject *object) {
        const Ref items(PySequence_Tuple(object));
        if (!items) return false;
        for (Py_ssize_t i = 0; i < PyTuple_Size(items.get()); i++)
            if (!read_one(PyTuple_GetItem(items.get(), i), "ops[" + std::to_string(i) + "].")) return false;
        return true;
    }
    /// The library reads a count for each rank.
    ujoin_status check_counts(const ujoin_group *group) const {
        const int32_t ranks = ujoin_group_size(group);
        for (const Counts &counts : counts_) {
            if (ranks < 0 || counts.values.size() == static_cast<size_t>(ranks)) continue; // the library says what is wrong
            const std::string text = "rank " + std::to_string(ujoin_group_rank(group)) + ": " + counts.name + " has " +
                                     std::to_string(counts.values.size()) + " elements; expected " + std::to_string(ranks) +
                                     ", one for each rank";
            return ujoin_set_last_error(UJOIN_E_INVALID, text.c_str());
        }
        return UJOIN_OK;
    }
    std::vector<Memory> &memory() { return memory_; }
    const ujoin_op *data() const { return ops_.data(); }
    size_t size() const { return ops_.size(); }

  private:
    struct Counts {
        std::string name;
        std::vector<size_t> values;
    };

    bool read_one(PyObject *item, const std::string &place) {
        if (!PyTuple_Check(item) || PyTuple_Size(item) != 7) {
            PyErr_SetString(PyExc_TypeError,
                            "expected tuples (kind, reduction, peer, send, recv, send counts, recv counts)");
            return false;
        }
        ujoin_op op{};
        op.size = sizeof op;
        if (!as_int32(PyTuple_GetItem(item, 0), &op.kind) || !as_int32(PyTuple_GetItem(item, 1), &op.reduce) ||
            !as_int32(PyTuple_GetItem(item, 2), &op.peer))
            return false;
        if (!read_memory(PyTuple_GetItem(item, 3), false, place + "send") ||
            !read_memory(PyTuple_GetItem(item, 4), true, place + "recv"))
            return false;
        if (const Memory &send = memory_[memory_.size() - 2]; send.held()) op.send = send.as_const();
        if (const Memory &recv = memory_.back(); recv.held()) op.recv = recv.as_buffer();
        ops_.push_back(op);
        return read_counts(PyTuple_GetItem(item, 5), place + "send_counts", ops_.back().send_counts) &&
               read_counts(PyTuple_GetItem(item, 6), place + "recv_counts", ops_.back().recv_counts);
    }
    bool read_memory(PyObject *object, bool writable, const std::string &name) {
        memory_.emplace_back();
        return object == Py_None || memory_.back().read(object, writable, name.c_str());
    }
    bool read_counts(PyObject *object, const std::string &name, const size_t *&counts) {
        if (object == Py_None) return true;
        const Ref items(PySequence_Tuple(object));
        if (!items) return false;
        counts_.push_back({name, {}});
        std::vector<size_t> &values = counts_.back().values;
        for (Py_ssize_t i = 0; i < PyTuple_Size(items.get()); i++) {
            const Py_ssize_t value = PyLong_AsSsize_t(PyTuple_GetItem(items.get(), i));
            if (value == -1 && PyErr_Occurred()) return false;
            if (value < 0) return refuse(UJOIN_E_INVALID, name + "[" + std::to_string(i) + "] is " + std::to_string(value));
            values.push_back(static_cast<size_t>(value));
        }
        counts = values.data(); // stays where it is when the list of counts grows: vectors move
        return true;
    }

    std::vector<ujoin_op> ops_;
    std::vector<Memory> memory_; ///< two for each: send, recv
    std::vector<Counts> counts_;
};

/// A sequence of (name or None, memory, gradient's memory or None, flags); the memory of what is ignored may be None. It
/// is held by a Kept, of which one owner is the library from lend() on.
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
    /// More memory that is held as long as theirs.
    void add(Buffers &buffers) {
        for (Memory &memory : buffers.take_memory()) kept_->memory.push_back(std::move(memory));
    }
    std::vector<Memory> take_memory() { return std::move(kept_->memory); }
    const ujoin_param *data() const { return params_.data(); }
    size_t size() const { return params_.size(); }

  private:
    bool read_one(PyObject *item) {
        if (!PyTuple_Check(item) || PyTuple_Size(item) != 4) {
            PyErr_SetString(PyExc_TypeError, "expected tuples (name, memory, gradient, flags)");
            return false;
        }
        ujoin_param param{};
        param.flags = static_cast<int32_t>(PyLong_AsLong(PyTuple_GetItem(item, 3)));
        if (param.flags == -1 && PyErr_Occurred()) return false;
        const char *text = nullptr;
        if (!as_text(PyTuple_GetItem(item, 0), &text)) return false;
        names_.push_back(std::make_unique<std::string>(text ? text : std::to_string(params_.size())));
        const std::string what = "parameter \"" + *names_.back() + "\"", grad = "gradient of " + what;
        Memory memory;
        const bool nowhere = (param.flags & UJOIN_PARAM_IGNORED) && PyTuple_GetItem(item, 1) == Py_None;
        if (!nowhere && !memory.read(PyTuple_GetItem(item, 1), true, what.c_str(), true)) return false;
        shapes_.push_back(std::make_unique<std::vector<int64_t>>(memory.shape()));
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

} // namespace ujoin_py
