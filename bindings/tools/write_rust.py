# SPDX-License-Identifier: Apache-2.0
"""The Rust crate ujoin-sys: the header as Rust declarations, with its documentation."""
import re
import textwrap

from swigtree import Array, Callback, Constant, Enum, Function, Handle, Name, Pointer, Struct, Typedef, Unsupported

HEAD = """\
// SPDX-License-Identifier: Apache-2.0
// Written by bindings/tools/gen.sh from SWIG's tree of ujoin.h: change the header, not this file.
//! `ujoin.h` as Rust declarations: join contexts, sharded optimizers and process contexts for data-parallel training.
//! The crate `ujoin` is made for programs; this one is what it stands on. The header's manual says what each item means,
//! which memory is borrowed and how long, and which calls may run at the same time.
#![no_std]
#![allow(non_camel_case_types)]

use core::ffi::{c_char, c_void};
use core::marker::{PhantomData, PhantomPinned};
"""

PRIMITIVES = {
    "char": "c_char", "void": "c_void", "double": "f64", "float": "f32", "size_t": "usize", "uintptr_t": "usize",
    "int8_t": "i8", "int16_t": "i16", "int32_t": "i32", "int64_t": "i64",
    "uint8_t": "u8", "uint16_t": "u16", "uint32_t": "u32", "uint64_t": "u64",
}
KEYWORDS = {"type", "match", "ref", "move", "in", "fn", "impl", "loop", "mod", "use", "self", "box", "where", "as"}


def rust_name(name):
    return f"r#{name}" if name in KEYWORDS else name


def rust_type(t):
    if isinstance(t, Name):
        if t.name not in PRIMITIVES and not t.name.startswith("ujoin_"):
            raise Unsupported(f"ujoin.h: the type {t.name} has no fixed size in every language; use one of <stdint.h>")
        return PRIMITIVES.get(t.name, t.name)
    if isinstance(t, Pointer):
        return f"*{'const' if t.const else 'mut'} {rust_type(t.to)}"
    if isinstance(t, Array):
        return f"[{rust_type(t.of)}; {t.count}]"
    return f"Option<unsafe extern \"C\" fn({_params(t.params)}){_result(t.result)}>"


def _params(params):
    return ", ".join(f"{rust_name(p.name)}: {rust_type(p.type)}" for p in params)


def _result(t):
    return "" if t == Name("void") else f" -> {rust_type(t)}"


def _doc(lines, indent=""):
    text = [line for line in lines if not line.startswith("@")]
    wrapped = textwrap.wrap(_markdown(" ".join(text)), 110, break_long_words=False, break_on_hyphens=False)
    tags = [re.sub(r"(@\w+)", r"`\1`", line.replace("@since", "since")) for line in lines if line.startswith("@")]
    lines = [*wrapped, "", *tags] if wrapped and tags else wrapped + tags
    return "".join(f"{indent}/// {line}".rstrip() + "\n" for line in lines)


def _markdown(text):
    """Brackets would be taken for links and tags, asterisks for emphasis."""
    return re.sub(r"([<\[*])", r"\\\1", text)


def _constant(item):
    if isinstance(item.value, str):
        return f"{_doc(item.doc)}pub const {item.name}: &core::ffi::CStr = c\"{item.value}\";\n"
    return f"{_doc(item.doc)}pub const {item.name}: i32 = {item.value};\n"


def _handle(item):
    """Neither Send nor Sync nor movable, as nothing is known of what is behind."""
    text = item.doc[0] if item.doc else ""
    doc = [f"Opaque handle: {text.removeprefix('Opaque handles. ')}."]
    return (f"{_doc(doc)}#[repr(C)]\npub struct {item.name} {{\n    _data: (),\n"
            "    _marker: PhantomData<(*mut u8, PhantomPinned)>,\n}\n")


def _typedef(item):
    return f"{_doc(item.doc)}pub type {item.name} = {rust_type(item.type)};\n"


def _enum(item):
    """Plain numbers: a Rust enum would make an unknown value from C undefined behaviour."""
    kind = item.type_name or "i32"
    values = "".join(f"{_doc(v.doc)}pub const {v.name}: {kind} = {v.value};\n" for v in item.items)
    about = f"// enum {item.name}{': ' + ' '.join(item.doc) if item.doc else ''}\n"
    return "".join(_wrapped_comment(about)) + values


def _wrapped_comment(line, width=118):
    words, current = line[3:].split(), "//"
    for word in words:
        if len(current) + 1 + len(word) > width:
            yield current + "\n"
            current = "//"
        current += " " + word
    yield current + "\n"


def _struct(item, structs):
    fields = "".join(f"{_doc(f.doc, '    ')}    pub {rust_name(f.name)}: {rust_type(f.type)},\n" for f in item.fields)
    return f"{_doc(item.doc)}#[repr(C)]\n#[derive(Clone, Copy)]\npub struct {item.name} {{\n{fields}}}\n" \
        + _zeroed(item, structs)


def _zeroed(item, structs):
    """What C writes as `{.size = sizeof s}`, or `{0}` for structs without a size."""
    values = [f"            {rust_name(f.name)}: {_zero(f, structs)},\n" for f in item.fields]
    return (f"impl {item.name} {{\n    /// All zero{_sized(item)}: every field has its default.\n"
            f"    pub const fn new() -> Self {{\n        Self {{\n{''.join(values)}        }}\n    }}\n}}\n"
            f"impl Default for {item.name} {{\n    fn default() -> Self {{\n        Self::new()\n    }}\n}}\n")


def _sized(item):
    return ", but for `size`" if item.fields[0].name == "size" else ""


def _zero(f, structs):
    t = f.type
    if isinstance(t, Name) and t.name in structs:
        return f"{t.name}::new()"
    if f.name == "size" and t == Name("size_t"):
        return "size_of::<Self>()"
    if isinstance(t, Pointer):
        return f"core::ptr::null{'' if t.const else '_mut'}()"
    if isinstance(t, Callback) or (isinstance(t, Name) and t.name.endswith("_fn")):
        return "None"
    if isinstance(t, Array):
        return f"[{_zero(Typedef(f.name, [], t.of), structs)}; {t.count}]"
    return "0.0" if t == Name("double") else "0"


def _function(item):
    return (f"{_doc(item.doc, '    ')}    pub fn {item.name}({_params(item.params)}){_result(item.result)};\n")


def rust(api):
    """The text of ujoin-sys/src/lib.rs; rustfmt gives it its form."""
    structs = {item.name for item in api.of(Struct)}
    writers = {Constant: _constant, Handle: _handle, Typedef: _typedef, Enum: _enum,
               Struct: lambda item: _struct(item, structs)}
    blocks = [writers[type(item)](item) for item in api.items if type(item) in writers]
    functions = "\n".join(_function(item) for item in api.of(Function))
    return HEAD + "\n" + "\n".join(blocks) + "\nunsafe extern \"C\" {\n" + functions + "}\n"


# ------------------------------------------------------------------------------------------------- every function, linked --

REACH = """\
// SPDX-License-Identifier: Apache-2.0
// Written by bindings/tools/gen.sh from SWIG's tree of ujoin.h: change the header, not this file.
//! Every function of the header is declared here with the header's types, and the library that is linked exports it.

#[test]
fn every_function_is_exported() {
    let functions: &[(&str, *const ())] = &[
%s    ];
    for (name, address) in functions {
        assert!(!address.is_null(), "{name} has no address");
    }
    assert_eq!(functions.len(), %d);
}
"""


def rust_reach(api):
    """A test that names every function, with its type, so that it must link."""
    lines = []
    for f in api.of(Function):
        kind = f"unsafe extern \"C\" fn({', '.join('_' for _ in f.params)}) -> _"
        lines.append(f"        (\"{f.name}\", ujoin_sys::{f.name} as {kind} as *const ()),\n")
    return REACH % ("".join(lines), len(lines))
