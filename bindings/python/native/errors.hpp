// SPDX-License-Identifier: Apache-2.0
// The interpreter lock, arguments, errors, text. "Locked" means: the thread holds the interpreter lock.
#pragma once
#include <Python.h>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <cxxabi.h>
#include <pthread.h>
#include <string>
#include <ujoin.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace ujoin_py {

// ------------------------------------------------------------------------------------------------------ interpreter lock

/// Set when the interpreter begins to end: from then on no thread of the library takes its lock, nothing is given back.
inline std::atomic<bool> g_leaving{false};
inline std::atomic<pthread_t> g_leaver{}; ///< the thread that ends the interpreter
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

/// Runs `body` without the lock, which the caller holds.
template <class Body> auto unlocked(Body &&body) {
    PyThreadState *state = PyEval_SaveThread();
    auto result = body();
    PyEval_RestoreThread(state);
    return result;
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

// ------------------------------------------------------------------------------------------------------------- arguments

/// A function in the module's table that takes its arguments as an array (METH_FASTCALL, see fastcall.cmake).
using FastFunction = PyObject *(PyObject *self, PyObject *const *args, Py_ssize_t arg_count);
inline PyCFunction as_method(FastFunction *function) {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

/// False with an exception set: not as many as the function takes.
template <size_t count>
bool take(PyObject *const *args, Py_ssize_t arg_count, const char *function, PyObject *(&out)[count]) {
    if (arg_count == static_cast<Py_ssize_t>(count)) {
        memcpy(out, args, sizeof out);
        return true;
    }
    PyErr_Format(PyExc_TypeError, "%s() takes %zd arguments, %zd given", function, static_cast<Py_ssize_t>(count),
                 arg_count);
    return false;
}

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
    if (g_leaving && pthread_self() != g_leaver) { // a daemon's: what it would say of its end is nobody's business
        PyEval_SaveThread();
        for (;;) pause();
    }
    const Raised raised = std::exchange(t_raised, Raised{});
    if (raised.exception && (raised.by_signal || !PyObject_IsInstance(raised.exception, PyExc_Exception))) {
        throw_exception(raised.exception);
        return;
    }
    std::vector<int32_t> ranks(ujoin_last_missing(nullptr, 0));
    ujoin_last_missing(ranks.data(), ranks.size());
    const Ref list(PyTuple_New(static_cast<Py_ssize_t>(ranks.size())));
    const Ref key(PyLong_FromLong(status));
    const Ref text(
        PyUnicode_DecodeUTF8(ujoin_last_error(), static_cast<Py_ssize_t>(strlen(ujoin_last_error())), "replace"));
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

} // namespace ujoin_py
