# SPDX-License-Identifier: Apache-2.0
"""compare_bindgen.py OURS.rs THEIRS.rs: what ujoin-sys declares and what bindgen declares for the same header. Prints one
line for each difference, then how many items were compared. Status 1 if they differ."""
import re
import sys

ITEM = re.compile(
    r"pub (?P<const>const) (?P<cname>\w+): [^=]+= (?P<value>[^;]+);"
    r"|pub (?P<type>type) (?P<tname>\w+) = (?P<target>[^;]+);"
    r"|pub (?P<struct>struct) (?P<sname>\w+) \{(?P<fields>[^}]*)\}"
    r"|pub (?P<fn>fn) (?P<fname>\w+)\((?P<params>[^;]*?)\)(?: -> (?P<result>[^;]+))?;")
# Ways to say the same thing, longest first.
SAME = [("::std::option::", ""), ("::std::os::raw::", ""), ("::core::ffi::", ""), ("size_t", "usize"),
        ("unsafe extern", "extern"), ("r#", ""), ("fn_:", "fn:")]


def items(path):
    """Of each item a line that says all about it."""
    text = re.sub(r"//[^\n]*", "", open(path, encoding="utf-8").read())
    for old, new in SAME:
        text = text.replace(old, new)
    text = re.sub(r"\s+", " ", re.sub(r"\b(\d+)usize", r"\1", text))
    return dict(filter(None, map(line, ITEM.finditer(text))))


def line(match):
    if match["const"]:
        name = re.sub(r"^\w+?_(?=UJOIN_)", "", match["cname"])  # bindgen: the enum's name in front
        return (name, f"{name} = {match['value']}")
    if match["type"]:
        if re.fullmatch(r"c_u?int", match["target"]) or re.match("usize|__", match["tname"]):
            return None  # bindgen's names for enums, and those of <stdint.h>
        return (match["tname"], f"type {match['tname']} = {spaced(match['target'])}")
    if match["struct"]:
        fields = "opaque" if re.search(r"\b_(data|unused)\b", match["fields"]) else spaced(match["fields"])
        return (match["sname"], f"struct {match['sname']} {{ {fields} }}")
    return (match["fname"], f"fn {match['fname']}({spaced(match['params'])}) -> {match['result'] or '()'}")


def spaced(text):
    text = re.sub(r"\s*([(),<>])\s*", r"\1", text.strip().replace("->", "returns"))
    return re.sub(r",([)>])", r"\1", text).rstrip(",")


def main(ours_path, theirs_path):
    ours, theirs = items(ours_path), items(theirs_path)
    names = [name for name in sorted(ours.keys() | theirs.keys()) if ours.get(name) != theirs.get(name)]
    for name in names:
        print(f"{name}: ours {ours.get(name, 'nothing')}; bindgen {theirs.get(name, 'nothing')}")
    print(f"{len(ours.keys() & theirs.keys())} items compared, {len(names)} differences")
    return 1 if names or len(ours) < 100 else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
