# SPDX-License-Identifier: Apache-2.0
"""generate.py TREE.xml HEADER ROOT: writes into ROOT all that is made from SWIG's tree and committed (see gen.sh)."""
import pathlib
import sys

import swigtree
from swigtree import Function
from write_go import go
from write_layout import layout_c, layout_rust
from write_rust import rust, rust_reach


def functions(api):
    """The names of all public functions, one a line: each binding's test of reachability begins here."""
    return "".join(f"{f.name}\n" for f in api.of(Function))


OUTPUTS = {
    "bindings/rust/ujoin-sys/src/lib.rs": rust,
    "bindings/rust/ujoin-sys/tests/functions.rs": rust_reach,
    "bindings/rust/ujoin-sys/examples/layout.rs": layout_rust,
    "bindings/tools/generated/layout.c": layout_c,
    "bindings/tools/generated/functions.txt": functions,
    "bindings/go/consts.go": go,
}


def main(tree, header, root):
    try:
        api = swigtree.read(tree, header)
        texts = {name: write(api) for name, write in OUTPUTS.items()}
    except swigtree.Unsupported as problem:
        sys.exit(f"generate.py: {problem}")
    for name, text in texts.items():
        path = pathlib.Path(root, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
