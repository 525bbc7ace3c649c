/* SPDX-License-Identifier: Apache-2.0 */
/* What calls from Python cost at least: an extension module written by hand for two calls, which is as safe as the binding's
 * (checks handle, type and memory, holds the buffer, releases the interpreter lock, raises the library's text). Beside them:
 * uses of a joinable from C. bindings_python builds it. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <ujoin.h>

/* The handle is the first thing that a capsule of the binding points to. */
static void *handle_of(PyObject *capsule, const char *type) {
    void **box = PyCapsule_GetPointer(capsule, type);
    return box ? *box : NULL;
}

static PyObject *result_of(ujoin_status status) {
    if (status >= 0) Py_RETURN_NONE;
    PyErr_SetString(PyExc_RuntimeError, ujoin_last_error());
    return NULL;
}

static PyObject *rank(PyObject *module, PyObject *capsule) {
    (void)module;
    const ujoin_group *group = handle_of(capsule, "ujoin_group");
    return group ? PyLong_FromLong(ujoin_group_rank(group)) : NULL;
}

static PyObject *all_reduce(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    static char busy;
    ujoin_group *group = count == 2 ? handle_of(args[0], "ujoin_group") : NULL;
    Py_buffer view;
    if (!group || __atomic_exchange_n(&busy, 1, __ATOMIC_ACQUIRE))
        return PyErr_Format(PyExc_TypeError, "all_reduce(group, array)");
    if (PyObject_GetBuffer(args[1], &view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | PyBUF_WRITABLE) != 0) return NULL;
    if (!view.format || strcmp(view.format, "f") != 0) return PyErr_Format(PyExc_TypeError, "not float32");
    const ujoin_buffer memory = {.data = view.buf, .count = (size_t)view.len / sizeof(float), .dtype = UJOIN_F32};
    ujoin_status status;
    Py_BEGIN_ALLOW_THREADS status = ujoin_all_reduce(group, NULL, &memory, UJOIN_SUM, NULL, NULL);
    Py_END_ALLOW_THREADS PyBuffer_Release(&view);
    __atomic_store_n(&busy, 0, __ATOMIC_RELEASE);
    return result_of(status);
}

/* notify(joinable, count): so many uses, without the interpreter lock. */
static PyObject *notify(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    ujoin_joinable *joinable = count == 2 ? handle_of(args[0], "ujoin_joinable") : NULL;
    const long uses = joinable ? PyLong_AsLong(args[1]) : -1;
    if (uses < 0) return PyErr_Format(PyExc_TypeError, "notify(joinable, count)");
    ujoin_status status = UJOIN_OK;
    Py_BEGIN_ALLOW_THREADS for (long i = 0; i < uses && status >= 0; i++) status = ujoin_joinable_notify(joinable, NULL);
    Py_END_ALLOW_THREADS return result_of(status);
}

static PyMethodDef methods[] = {{"rank", rank, METH_O, NULL},
                                {"all_reduce", (PyCFunction)(void (*)(void))all_reduce, METH_FASTCALL, NULL},
                                {"notify", (PyCFunction)(void (*)(void))notify, METH_FASTCALL, NULL},
                                {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "python_by_hand", .m_size = -1, .m_methods = methods};
PyMODINIT_FUNC PyInit_python_by_hand(void) { return PyModule_Create(&module); }
