# SPDX-License-Identifier: Apache-2.0
# Lets the functions that SWIG has written take their arguments as CPython passes them (METH_FASTCALL), without a tuple for
# each call: cmake -DWRAPPER=... -P fastcall.cmake changes the file in place. It fails where the file is not as expected.
file(READ "${WRAPPER}" text)
string(REGEX MATCHALL "_wrap_[a-z0-9_]+, METH_VARARGS, " entries "${text}")
foreach(entry IN LISTS entries)
  string(REGEX REPLACE "^_wrap_(.*), METH_VARARGS, $" "\\1" name "${entry}")
  set(signature "PyObject *_wrap_${name}(PyObject *self, PyObject *args)")
  string(FIND "${text}" "${signature}" found)
  if(found EQUAL -1)
    message(FATAL_ERROR "${WRAPPER} has no \"${signature}\"")
  endif()
  string(REPLACE "${signature}" "PyObject *_wrap_${name}(PyObject *self, PyObject *const *args, Py_ssize_t arg_count)"
         text "${text}")
  string(REPLACE "${entry}" "ujoin_py::as_method(_wrap_${name}), METH_FASTCALL, " text "${text}")
  string(REGEX REPLACE "SWIG_Python_UnpackTuple\\(args, \"${name}\", [0-9]+, [0-9]+, swig_obj\\)"
         "ujoin_py::take(args, arg_count, \"${name}\", swig_obj)" text "${text}")
endforeach()
if(NOT entries OR text MATCHES "_wrap_[a-z0-9_]+, METH_VARARGS|UnpackTuple\\(args, [^,]+, [0-9]+, [0-9]+, swig_obj")
  message(FATAL_ERROR "${WRAPPER}: functions take their arguments in a form that is not known here")
endif()
file(WRITE "${WRAPPER}" "${text}")
