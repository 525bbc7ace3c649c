// SPDX-License-Identifier: Apache-2.0
// Functions of the program that the library calls; what the package registers.
#pragma once
#include "handles.hpp"

namespace ujoin_py {

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
    /// For pctx_record: that a worker failed is told by its own status.
    ujoin_call_fn recorded() const { return function_ ? call_recorded : nullptr; }
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
    static ujoin_status call_recorded(void *data) {
        const ujoin_status status = call(data);
        if (status >= 0) return status;
        return locked([status]() -> ujoin_status {
            const Ref key(PyLong_FromLong(UJOIN_E_CHILD_FAILED));
            PyObject *type = key ? PyDict_GetItemWithError(g_errors, key.get()) : nullptr;
            const bool is_childs = type && t_raised.exception && PyObject_IsInstance(t_raised.exception, type) == 1;
            PyErr_Clear();
            return is_childs ? ujoin_set_last_error(UJOIN_E_CHILD_FAILED, text_of(t_raised.exception).c_str()) : status;
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

inline PyObject *as_tuple(const ujoin_hook_args &a) {
    Ref tuple(PyTuple_New(5));
    Py_ssize_t next = 0;
    const auto append = [&](PyObject *item) { return item && PyTuple_SetItem(tuple.get(), next++, item) == 0; };
    return tuple && append(PyLong_FromLongLong(a.round)) && append(PyLong_FromLong(a.active)) &&
                   append(PyBool_FromLong(a.is_last_joiner)) && append(PyLong_FromLong(a.authoritative_rank)) &&
                   append(as_dict(a.options, a.option_count))
               ? tuple.take()
               : nullptr;
}

/// Runs hook(post, (round, active, is_last_joiner, authoritative_rank, options)).
inline ujoin_status run_hook(void *data, const ujoin_hook_args *args, bool post) {
    return locked([&]() -> ujoin_status {
        const Ref told(as_tuple(*args));
        const Ref result(told ? PyObject_CallFunctionObjArgs(static_cast<Kept *>(data)->object, post ? Py_True : Py_False,
                                                             told.get(), nullptr)
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
    const ujoin_status status = ujoin_set_log_sink(level, given ? run_sink : nullptr, kept, given ? give_back : nullptr);
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

/// The interpreter begins to end: the library forgets what is Python's.
inline PyObject *leave() {
    g_leaver = pthread_self();
    g_leaving = true;
    PyThreadState *state = PyEval_SaveThread(); // a sink that runs may wait for the lock
    ujoin_set_interrupt_check(nullptr, nullptr, nullptr);
    ujoin_set_log_sink(0, nullptr, nullptr, nullptr);
    PyEval_RestoreThread(state);
    return Py_NewRef(Py_None);
}

inline PyObject *after_fork() {
    g_main_thread = pthread_self();
    g_asked = false;
    return Py_NewRef(Py_None);
}

} // namespace ujoin_py
