// SPDX-License-Identifier: Apache-2.0
// NumPy's arrays, read where they lie. Their buffer protocol writes the element type as text and allocates for it, each time:
// as much as the rest of a small call.
#pragma once
#include "errors.hpp"

namespace ujoin_py {

/// The heads of NumPy's structs, as its C API lays them out (ndarraytypes.h: PyArrayObject_fields, PyArray_Descr).
struct NumpyType {
    PyObject head;
    PyTypeObject *scalar;
    char kind, letter, byte_order, former_flags;
    int number;
};
struct NumpyArray {
    PyObject head;
    char *data;
    int dimensions;
    Py_ssize_t *extents, *strides;
    PyObject *base;
    NumpyType *type;
    int flags;

    static constexpr int plain = 0x1 | 0x100, writeable = 0x400, warns_on_write = static_cast<int>(1U << 31);
    /// C-contiguous, aligned, in this machine's byte order, and writable if asked. Else the buffer protocol says what is wrong.
    bool is_plain(bool writable) const {
        const int needed = plain | (writable ? writeable : 0);
        return (flags & (needed | warns_on_write)) == needed && (type->byte_order == '=' || type->byte_order == '|');
    }
    size_t count() const {
        size_t all = 1;
        for (int d = 0; d < dimensions; d++) all *= static_cast<size_t>(extents[d]);
        return all;
    }
    ujoin_dtype dtype() const {
        switch (type->number) { // NPY_TYPES
        case 2:
            return UJOIN_U8;
        case 5:
            return UJOIN_I32;
        case 7: // long
        case 9:
            return UJOIN_I64;
        case 11:
            return UJOIN_F32;
        case 12:
            return UJOIN_F64;
        case 23:
            return UJOIN_F16;
        default:
            return 0;
        }
    }
};
static_assert(sizeof(long) == 8);

/// numpy.ndarray, if NumPy is loaded and its structs are those above; it says so by the number of its binary interface.
inline PyTypeObject *find_numpy_type() {
    for (const char *name : {"numpy._core._multiarray_umath", "numpy.core._multiarray_umath"}) {
        const Ref key(PyUnicode_FromString(name));
        const Ref module(key ? PyImport_GetModule(key.get()) : nullptr);
        const Ref capsule(module ? PyObject_GetAttrString(module.get(), "_ARRAY_API") : nullptr);
        auto **api = static_cast<void **>(capsule ? PyCapsule_GetPointer(capsule.get(), nullptr) : nullptr);
        PyErr_Clear();
        if (!api) continue;
        const unsigned version = reinterpret_cast<unsigned (*)()>(api[0])(); // PyArray_GetNDArrayCVersion
        if (version != 0x01000009 && version != 0x02000000) return nullptr;
        return reinterpret_cast<PyTypeObject *>(Py_NewRef(static_cast<PyObject *>(api[2]))); // PyArray_Type
    }
    return nullptr;
}

/// `object` as an array of NumPy's own type; nullptr: it is none. A subclass may have changed the buffer protocol.
inline const NumpyArray *as_numpy(PyObject *object) {
    static PyTypeObject *array_type = nullptr, *other_type = nullptr; // the last that was none: do not look twice
    PyTypeObject *type = Py_TYPE(object);
    if (type == array_type) return reinterpret_cast<NumpyArray *>(object);
    if (array_type || type == other_type) return nullptr;
    array_type = find_numpy_type();
    other_type = type;
    return type == array_type ? reinterpret_cast<NumpyArray *>(object) : nullptr;
}

} // namespace ujoin_py
