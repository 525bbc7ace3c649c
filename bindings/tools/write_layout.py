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

struct alignment_probe; /* offsetof in a struct of a char and the type is its alignment, in C99 too */
#define TYPE(name, type)                                                       \\
    do {                                                                       \\
        struct probe {                                                         \\
            char c;                                                            \\
            type t;                                                            \\
        };                                                                     \\
        printf("type %%s %%zu %%zu\\n", name, sizeof(type), offsetof(struct probe, t)); \\
    } while (0)
#define FIELD(type, field) printf("field " #type "." #field " %%zu %%zu\\n", offsetof(type, field), sizeof(((type *)0)->field))
#define VALUE(name) printf("value " #name " %%lld\\n", (long long)(name))
#define TEXT(name) printf("text " #name " %%s\\n", name)

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
    lines = []
    for item in _types(api):
        lines.append(f'    TYPE("{item.name}", {item.name});\n')
        lines += [f"    FIELD({item.name}, {f.name});\n" for f in getattr(item, "fields", [])]
    for value in _values(api):
        lines.append(f"    {'TEXT' if isinstance(value.value, str) else 'VALUE'}({value.name});\n")
    return (C_PROGRAM % (NOTE, "".join(lines))).replace("struct alignment_probe; /* ", "/* ")


def layout_rust(api):
    lines = []
    for item in _types(api):
        lines.append(f'    kind::<{item.name}>("{item.name}");\n')
        for f in getattr(item, "fields", []):
            name = rust_name(f.name)
            lines.append(f'    field("{item.name}.{f.name}", offset_of!({item.name}, {name}), |s: &{item.name}| &s.{name});\n')
    for value in _values(api):
        if isinstance(value.value, str):
            lines.append(f'    println!("text {value.name} {{}}", {value.name}.to_str().unwrap());\n')
        else:
            lines.append(f'    println!("value {value.name} {{}}", {value.name});\n')
    return RUST_PROGRAM % (NOTE, "".join(lines))


def _values(api):
    return api.of(Constant) + [value for enum in api.of(Enum) for value in enum.items]
