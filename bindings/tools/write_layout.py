# SPDX-License-Identifier: Apache-2.0
"""Two programs, in C and in Rust, that print the same lines if both languages see the same layouts and numbers."""
from swigtree import Constant, Enum, Struct, Typedef
from write_rust import rust_name

NOTE = "Written by bindings/tools/gen.sh from SWIG's tree of ujoin.h: change the header, not this file."

C_PROGRAM = """\
/* SPDX-License-Identifier: Apache-2.0 */
/* %s */
#include <stdio.h>
#include <ujoin.h>

/* offsetof in a struct of a char and the type is its alignment, in C99 too. */
#define TYPE(name, type)                                               \\
    do {                                                               \\
        struct probe {                                                 \\
            char c;                                                    \\
            type t;                                                    \\
        };                                                             \\
        size_t alignment = offsetof(struct probe, t);                  \\
        printf("type %%s %%zu %%zu\\n", name, sizeof(type), alignment); \\
    } while (0)
#define FIELD(type, field) \\
    printf("field " #type "." #field " %%zu %%zu\\n", offsetof(type, field), sizeof(((type *)0)->field))
#define VALUE(name) printf("value " #name " %%lld\\n", (long long)(name))
#define TEXT(name) printf("text " #name " %%s\\n", name)

%s
int main(void) {
%s    return 0;
}
"""

RUST_PROGRAM = """\
// SPDX-License-Identifier: Apache-2.0
// %s
//! Prints sizes, alignments, offsets and values as this crate has them; the same program in C must print the same.
use std::mem::{align_of, offset_of, size_of};
use ujoin_sys::*;

fn field<T, F>(name: &str, offset: usize, _of: fn(&T) -> &F) {
    println!("field {name} {offset} {}", size_of::<F>());
}

fn kind<T>(name: &str) {
    println!("type {name} {} {}", size_of::<T>(), align_of::<T>());
}

fn main() {
%s}
"""


def _types(api):
    return [item for item in api.items if type(item) in (Struct, Typedef)]


def layout_c(api):
    """A function for each struct and each enum, called in the header's order."""
    functions, calls = [], []
    for item in [*_types(api), Enum("macros", [], api.of(Constant)), *api.of(Enum)]:
        lines = [f'    TYPE("{item.name}", {item.name});\n'] if type(item) in (Struct, Typedef) else []
        lines += [f"    FIELD({item.name}, {f.name});\n" for f in getattr(item, "fields", [])]
        lines += [f"    {'TEXT' if isinstance(v.value, str) else 'VALUE'}({v.name});\n" for v in getattr(item, "items", [])]
        functions.append(f"static void print_{item.name}(void) {{\n{''.join(lines)}}}\n")
        calls.append(f"    print_{item.name}();\n")
    return C_PROGRAM % (NOTE, "".join(functions), "".join(calls))


def layout_rust(api):
    lines = []
    for item in _types(api):
        lines.append(f'    kind::<{item.name}>("{item.name}");\n')
        for f in getattr(item, "fields", []):
            of, name = item.name, rust_name(f.name)
            lines.append(f'    field("{of}.{f.name}", offset_of!({of}, {name}), |s: &{of}| &s.{name});\n')
    for value in _values(api):
        if isinstance(value.value, str):
            lines.append(f'    println!("text {value.name} {{}}", {value.name}.to_str().unwrap());\n')
        else:
            lines.append(f'    println!("value {value.name} {{}}", {value.name});\n')
    return RUST_PROGRAM % (NOTE, "".join(lines))


def _values(api):
    return api.of(Constant) + [value for enum in api.of(Enum) for value in enum.items]
