// SPDX-License-Identifier: Apache-2.0
// The program's functions that work on the library's memory: hooks of buckets, optimizer rules; and function workers.
#pragma once
#include "answers.hpp"
#include "callbacks.hpp"

namespace ujoin_py {

// ------------------------------------------------------------------------------------------------- the library's memory

/// An object that exports memory of the library's; it holds what keeps that memory.
struct Span {
    PyObject head;
    void *data;
    Py_ssize_t bytes;
    PyObject *owner;
};

inline PyObject *span_type() {
    static PyObject *type = nullptr;
    if (type) return type;
    static const auto get_buffer = [](PyObject *self, Py_buffer *view, int flags) -> int {
        const auto *span = reinterpret_cast<Span *>(self);
        return PyBuffer_FillInfo(view, self, span->data, span->bytes, 0, flags);
    };
    static const auto end = [](PyObject *self) {
        PyTypeObject *own = Py_TYPE(self);
        Py_XDECREF(reinterpret_cast<Span *>(self)->owner);
        reinterpret_cast<freefunc>(PyType_GetSlot(own, Py_tp_free))(self);
        Py_DECREF(own);
    };
    static PyType_Slot slots[] = {
        {Py_bf_getbuffer, reinterpret_cast<void *>(static_cast<int (*)(PyObject *, Py_buffer *, int)>(get_buffer))},
        {Py_tp_dealloc, reinterpret_cast<void *>(static_cast<destructor>(end))},
        {0, nullptr},
    };
    static PyType_Spec spec = {"ujoin._ujoin.Span", sizeof(Span), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                               slots};
    return type = PyType_FromSpec(&spec);
}

/// A memoryview of bytes over the library's memory. `owner` keeps it; nullptr: it is there for the time of one call.
inline PyObject *view_of(const void *data, size_t bytes, PyObject *owner) {
    static char nothing = 0;
    PyObject *type = span_type();
    if (!type) return nullptr;
    const Ref object(PyType_GenericAlloc(reinterpret_cast<PyTypeObject *>(type), 0));
    if (!object) return nullptr;
    auto *span = reinterpret_cast<Span *>(object.get());
    span->data = data ? const_cast<void *>(data) : &nothing;
    span->bytes = static_cast<Py_ssize_t>(bytes);
    span->owner = Py_XNewRef(owner);
    return PyMemoryView_FromObject(object.get());
}

/// The view holds the reducer.
inline PyObject *ddp_gradient(PyObject *capsule, size_t index, size_t bytes) {
    Use use;
    if (!use.enter(capsule, "ujoin_ddp", true)) return nullptr;
    const void *data = unlocked([&] { return ujoin_ddp_gradient(static_cast<ujoin_ddp *>(use.handle()), index); });
    return data ? view_of(data, bytes, capsule) : Py_NewRef(Py_None);
}

/// The view holds the memory.
inline PyObject *memory_data(PyObject *capsule) {
    Use use;
    if (!use.enter(capsule, "ujoin_memory", true)) return nullptr;
    const auto *memory = static_cast<ujoin_memory *>(use.handle());
    return view_of(ujoin_memory_data(memory), ujoin_memory_size(memory), capsule);
}

/// The view holds the optimizer.
inline PyObject *param_data(PyObject *capsule, size_t index, size_t bytes) {
    Use use;
    if (!use.enter(capsule, "ujoin_zero", false)) return nullptr;
    const void *data = unlocked([&] { return zero_param_data(static_cast<ujoin_zero *>(use.handle()), index); });
    return data ? view_of(data, bytes, capsule) : Py_NewRef(Py_None);
}

template <class Number> PyObject *as_long_tuple(const Number *values, size_t count) {
    Ref tuple(PyTuple_New(static_cast<Py_ssize_t>(values ? count : 0)));
    for (size_t i = 0; tuple && values && i < count; i++)
        PyTuple_SetItem(tuple.get(), static_cast<Py_ssize_t>(i), PyLong_FromLongLong(static_cast<long long>(values[i])));
    return tuple.take();
}

// -------------------------------------------------------------------------------------------------------- bucket hooks

/// A group's handle for the time of one call.
class Lent {
  public:
    explicit Lent(ujoin_group *group) : capsule_(borrow(group, Py_None, "ujoin_group")) {}
    ~Lent() {
        if (!capsule_) return;
        static_cast<Box *>(PyCapsule_GetPointer(capsule_.get(), "ujoin_group"))->handle = nullptr;
    }
    PyObject *get() const { return capsule_.get(); }

  private:
    Ref capsule_;
};

/// The library takes the handle of the work that a hook has passed out.
inline bool take_work(PyObject *result, ujoin_work **out) {
    *out = nullptr;
    if (result == Py_None) return true;
    auto *box = static_cast<Box *>(PyCapsule_GetPointer(result, "ujoin_work"));
    if (!box) return false;
    *out = static_cast<ujoin_work *>(std::exchange(box->handle, nullptr));
    if (*out) return true;
    PyErr_SetString(PyExc_ValueError, "the work that the hook passed out has been passed out before");
    return false;
}

/// Calls (start, then)[part](group, memory, dtype, params, offsets, divisor, iteration, index, is_last, is_shadow, source).
inline ujoin_status run_bucket(void *data, const ujoin_bucket *b, ujoin_work **out_work, Py_ssize_t part) {
    return locked([&]() -> ujoin_status {
        const Lent group(b->group);
        const Ref memory(view_of(b->buffer.data, b->buffer.count * dtype_size(b->buffer.dtype), nullptr));
        const Ref params(as_long_tuple(b->params, b->param_count)), offsets(as_long_tuple(b->offsets, b->param_count));
        if (!group.get() || !memory || !params || !offsets) return callback_failed(false);
        const Ref result(PyObject_CallFunction(PyTuple_GetItem(static_cast<Kept *>(data)->object, part), "OOiOOdLiiii",
                                               group.get(), memory.get(), b->buffer.dtype, params.get(), offsets.get(),
                                               b->divisor, (long long)b->iteration, b->index, b->is_last, b->is_shadow,
                                               b->source_rank));
        return result && take_work(result.get(), out_work) ? UJOIN_OK : callback_failed(false);
    });
}

inline ujoin_comm_hook make_comm_hook(int32_t kind, int32_t rank, int64_t start_iteration, PyObject *start,
                                      PyObject *then) {
    ujoin_comm_hook hook{};
    hook.size = sizeof hook;
    hook.kind = kind;
    hook.rank = rank;
    hook.start_iteration = start_iteration;
    if (start == Py_None) return hook;
    const Ref both(PyTuple_Pack(2, start, then));
    hook.start = [](void *data, const ujoin_bucket *b, ujoin_work **out) { return run_bucket(data, b, out, 0); };
    if (then != Py_None)
        hook.then = [](void *data, const ujoin_bucket *b, ujoin_work **out) { return run_bucket(data, b, out, 1); };
    hook.user_data = keep_object(both.get());
    hook.destroy = give_back;
    return hook;
}

// ------------------------------------------------------------------------------------------------------ optimizer rules

/// Of a tuple (name, step, init or None, state names, hyper-parameters, per tensor); None = no rule.
class Rule {
  public:
    bool read(PyObject *object) {
        if (object == Py_None) return true;
        if (!PyTuple_Check(object) || PyTuple_Size(object) != 6) {
            PyErr_SetString(PyExc_TypeError,
                            "expected a tuple (name, step, init, state names, hyper-parameters, per tensor)");
            return false;
        }
        const char *name = nullptr;
        if (!as_text(PyTuple_GetItem(object, 0), &name) || !state_.read(PyTuple_GetItem(object, 3)) ||
            !hyper_.read(PyTuple_GetItem(object, 4)))
            return false;
        rule_.size = sizeof rule_;
        rule_.name = name;
        rule_.step = [](void *data, const ujoin_rule_args *args) { return run(data, args, 1); };
        if (PyTuple_GetItem(object, 2) != Py_None)
            rule_.init = [](void *data, const ujoin_rule_args *args) { return run(data, args, 2); };
        rule_.state_names = state_.data();
        rule_.state_count = state_.size();
        rule_.hyper = hyper_.data();
        rule_.hyper_count = hyper_.size();
        rule_.per_tensor = PyObject_IsTrue(PyTuple_GetItem(object, 5)) == 1;
        kept_ = keep_object(object);
        return true;
    }
    Rule() = default;
    Rule(const Rule &) = delete;
    Rule &operator=(const Rule &) = delete;
    ~Rule() {
        if (kept_ && !g_leaving) Kept::drop(kept_);
    }
    /// The library owns the functions from here on.
    const ujoin_rule *lend() {
        if (!kept_) return nullptr;
        rule_.user_data = std::exchange(kept_, nullptr);
        rule_.destroy = give_back;
        return &rule_;
    }

  private:
    /// Calls rule[part](name, data, grad, state, hyper, shape, offset, param, step, group, dtype).
    static ujoin_status run(void *user_data, const ujoin_rule_args *a, Py_ssize_t part) {
        return locked([&]() -> ujoin_status {
            PyObject *rule = static_cast<Kept *>(user_data)->object;
            const size_t bytes = a->count * dtype_size(a->dtype);
            const auto states = static_cast<size_t>(PySequence_Size(PyTuple_GetItem(rule, 3)));
            const auto hypers = static_cast<size_t>(PyDict_Size(PyTuple_GetItem(rule, 4)));
            const Ref name(from_text(a->name)), data(view_of(a->data, bytes, nullptr));
            const Ref grad(view_of(a->grad, a->grad ? bytes : 0, nullptr));
            const Ref state(PyTuple_New(static_cast<Py_ssize_t>(states)));
            const Ref hyper(PyTuple_New(static_cast<Py_ssize_t>(hypers)));
            const Ref shape(as_long_tuple(a->shape, static_cast<size_t>(a->ndim)));
            for (size_t i = 0; state && i < states; i++)
                PyTuple_SetItem(state.get(), (Py_ssize_t)i, view_of(a->state[i], bytes, nullptr));
            for (size_t i = 0; hyper && i < hypers; i++)
                PyTuple_SetItem(hyper.get(), (Py_ssize_t)i, PyFloat_FromDouble(a->hyper[i]));
            if (!name || !data || !grad || !state || !hyper || !shape) return callback_failed(false);
            const Ref result(PyObject_CallFunction(PyTuple_GetItem(rule, part), "OOOOOOKKLii", name.get(), data.get(),
                                                   grad.get(), state.get(), hyper.get(), shape.get(),
                                                   (unsigned long long)a->offset, (unsigned long long)a->param,
                                                   (long long)a->step, a->group, a->dtype));
            return result ? UJOIN_OK : callback_failed(false);
        });
    }
    ujoin_rule rule_{};
    Strings state_;
    Hypers hyper_;
    Kept *kept_ = nullptr;
};

// ------------------------------------------------------------------------------------------------------ worker processes

/// Calls output(rank, stream, bytes).
inline ujoin_status run_output(void *data, int32_t rank, ujoin_std stream, const char *bytes, size_t size) {
    return locked([&]() -> ujoin_status {
        const Ref result(PyObject_CallFunction(static_cast<Kept *>(data)->object, "iiy#", rank, stream, bytes,
                                               static_cast<Py_ssize_t>(size)));
        return result ? UJOIN_OK : callback_failed(false);
    });
}

/// Calls function(args, input, rank, nprocs); a text that it returns is that of its failure.
inline ujoin_status run_worker(void *data, const ujoin_worker_args *a) {
    return locked([&]() -> ujoin_status {
        const Ref args(PyTuple_New(static_cast<Py_ssize_t>(a->arg_count)));
        for (size_t i = 0; args && i < a->arg_count; i++)
            PyTuple_SetItem(args.get(), static_cast<Py_ssize_t>(i), from_text(a->args[i]));
        const Ref result(args ? PyObject_CallFunction(static_cast<Kept *>(data)->object, "Oy#ii", args.get(),
                                                      a->input ? static_cast<const char *>(a->input) : "",
                                                      static_cast<Py_ssize_t>(a->input_size), a->rank, a->nprocs)
                              : nullptr);
        if (!result) return callback_failed(false);
        const char *text = nullptr;
        if (result.get() == Py_None) return UJOIN_OK;
        return as_text(result.get(), &text) ? ujoin_set_last_error(UJOIN_E_CALLBACK, text) : callback_failed(false);
    });
}

inline ujoin_status register_worker(const char *name, PyObject *function) {
    return pctx_register(name, run_worker, keep_object(function), give_back);
}

/// (whether this process was a worker and has run, its exit code). What the function raised is in its record.
inline PyObject *worker_main() {
    int32_t code = 0;
    const ujoin_status status = unlocked([&] { return pctx_worker_main(&code); });
    Py_CLEAR(t_raised.exception);
    if (!check(status)) return nullptr;
    return Py_BuildValue("(ii)", status == UJOIN_DONE ? 1 : 0, code);
}

} // namespace ujoin_py
