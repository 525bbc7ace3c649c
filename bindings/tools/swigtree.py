# SPDX-License-Identifier: Apache-2.0
"""Reads SWIG's parse tree of ujoin.h (swig -python -doxygen -xmlout) into plain objects. Whatever the tree cannot say
truly (SWIG leaves things out without a word) ends in `Unsupported`, so that nobody binds a wrong layout."""
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field


class Unsupported(Exception):
    """The header has something that cannot be bound from the tree; the text says where and what."""


# ------------------------------------------------------------------------------------------------------------- types --


@dataclass(frozen=True)
class Name:
    """A type by its name: `char`, `int32_t`, `ujoin_group`."""
    name: str


@dataclass(frozen=True)
class Pointer:
    to: object
    const: bool  # what it points to is const


@dataclass(frozen=True)
class Array:
    of: object
    count: int


@dataclass(frozen=True)
class Callback:
    """A pointer to a function."""
    result: object
    params: tuple  # of Param


@dataclass(frozen=True)
class Param:
    name: str
    type: object


def parse_type(text, where):
    """SWIG's notation, read from the left: p. pointer, q(const). qualifier, a(4). array, f(...). function."""
    kind, argument, rest = _operator(text)
    if kind is None:
        return Name(text.removeprefix("struct ").removeprefix("enum "))
    if kind == "p":
        if rest.startswith("f("):
            _, arguments, result = _operator(rest)
            params = [Param(f"arg{i}", parse_type(p, where)) for i, p in enumerate(_split(arguments))]
            return Callback(parse_type(result, where), tuple(params))
        const = rest.startswith("q(const).")
        return Pointer(parse_type(rest.removeprefix("q(const)."), where), const)
    if kind == "a" and argument.isdigit():
        return Array(parse_type(rest, where), int(argument))
    raise Unsupported(f"{where}: the type {text!r} cannot be bound")


def _operator(text):
    """'a(4).int' -> 'a', '4', 'int'; a plain name has no operator."""
    match = re.match(r"([pqafmv])(\(|\.)", text)
    if not match or (match[2] == "." and match[1] != "p"):
        return None, "", text
    if match[2] == ".":
        return match[1], "", text[2:]
    depth, end = 0, 1
    for end in range(1, len(text)):
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        if depth == 0:
            break
    return match[1], text[2:end], text[end + 1:].removeprefix(".")


def _split(arguments):
    """The arguments of f(...), at the commas that are not inside of brackets; (void) has none."""
    parts, depth = [""], 0
    for character in arguments:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part for part in parts if part not in ("", "void")]


# ------------------------------------------------------------------------------------------------------------- items --


@dataclass
class Item:
    name: str
    doc: list  # lines without comment marks


@dataclass
class Constant(Item):
    value: object  # int or str


@dataclass
class Handle(Item):
    """An opaque struct."""


@dataclass
class Typedef(Item):
    type: object


@dataclass
class Enum(Item):
    items: list = field(default_factory=list)  # of Constant
    type_name: str = ""  # the typedef whose values these are: ujoin_status for ujoin_status_value; else ""


@dataclass
class Struct(Item):
    fields: list = field(default_factory=list)  # of Typedef: name, type, doc


@dataclass
class Function(Item):
    result: object = None
    params: list = field(default_factory=list)


@dataclass
class Api:
    items: list

    def of(self, kind):
        return [item for item in self.items if type(item) is kind]


# -------------------------------------------------------------------------------------------------------------- tree --


def read(tree_path, header_path):
    """The API of the header, in the header's order."""
    root = ElementTree.parse(tree_path).getroot()
    header = [node for node in root.iter("include") if _attributes(node).get("name", "").endswith("/ujoin.h")]
    if len(header) != 1:
        raise Unsupported(f"{tree_path} has {len(header)} trees of ujoin.h, not one")
    nodes = [(node, _attributes(node)) for node in header[0] if node.tag != "attributelist"]
    structs = {a["name"] for node, a in nodes if node.tag == "class"}
    items = [item for node, a in nodes if (item := _item(node, a, structs)) is not None]
    _name_enum_types(items)
    _check_macros(items, header_path)
    return Api(items)


def _attributes(node):
    found = node.find("attributelist")
    return {} if found is None else {a.get("name"): a.get("value") for a in found.findall("attribute")}


def _item(node, a, structs):
    name = a.get("name", "")
    if node.tag == "constant":
        return Constant(name, _doc(a), _number_or_text(a, name))
    if node.tag == "enum":
        return _enum(node, a)
    if node.tag == "class":
        return _struct(node, a)
    if node.tag == "cdecl" and a.get("kind") == "typedef":
        return _typedef(node, a, structs)
    if node.tag == "cdecl" and a.get("kind") == "function":
        return _function(node, a)
    what = f"{node.tag} {a.get('kind', '')} {name!r}"
    raise Unsupported(f"ujoin.h: {what} is none of: number, enum, struct, typedef, function")


def _doc(a):
    """The comment's lines; a comment before and one behind the item are one text in the tree, with two spaces between."""
    lines = [re.sub(r"^ ?\* ?", "", line.strip()) for line in a.get("doxygen", "").strip().splitlines()]
    return [re.sub(r"  +", " ", line) for line in lines if line]


def _number_or_text(a, name):
    if a.get("type") == "p.q(const).char":
        return a["stringval"]
    if a.get("type") not in ("int", "unsigned int", "long", "unsigned long") or "numval" not in a:
        raise Unsupported(f"ujoin.h: the macro {name} = {a.get('value')} is neither a plain whole number nor a text")
    return int(a["numval"])


def _enum(node, a):
    if not a.get("name") or "unnamed" in a:
        raise Unsupported("ujoin.h: an enum without a name, or a typedef of one: values go into `enum <type>_value`")
    items = []
    for child in node.findall("enumitem"):
        item = _attributes(child)
        if "enumnumval" not in item:
            raise Unsupported(f"ujoin.h: {item['name']} needs its value as a plain number")
        items.append(Constant(item["name"], _doc(item), int(item["enumnumval"])))
        if not -2**31 <= items[-1].value < 2**31:
            raise Unsupported(f"ujoin.h: {item['name']} does not fit 32 bits with a sign")
    return Enum(a["name"], _doc(a), items)


def _struct(node, a):
    where = f"ujoin.h: struct {a['name']}"
    if a.get("kind") != "struct" or "nested" in a:
        raise Unsupported(f"{where}: unions and nested types cannot be bound")
    fields = []
    for child in node.findall("cdecl"):
        member = _attributes(child)
        if member.get("kind") != "variable" or "bitfield" in member:
            raise Unsupported(f"{where}.{member['name']}: bit-fields, functions and types inside cannot be bound")
        if member["sym_symtab"] != a["symtab"]:
            raise Unsupported(f"{where}.{member['name']} lies in an anonymous struct or union: the layout would be wrong")
        fields.append(Typedef(member["name"], _doc(member), _declared(child, member, f"{where}.{member['name']}")))
    return Struct(a["name"], _doc(a), fields)


def _typedef(node, a, structs):
    name, target = a["name"], a["type"]
    if target == f"struct {name}" and not a["decl"]:
        return None if name in structs else Handle(name, _doc(a))
    return Typedef(name, _doc(a), _declared(node, a, f"ujoin.h: typedef {name}"))


def _function(node, a):
    where = f"ujoin.h: {a['name']}()"
    if a.get("storage") or "v(...)" in a["decl"]:
        raise Unsupported(f"{where}: static, inline and variadic functions cannot be bound")
    _, _, result = _operator(a["decl"] + a["type"])
    return Function(a["name"], _doc(a), parse_type(result, where), [_decayed(p) for p in _params(node, where)])


def _decayed(param):
    """An array as an argument is a pointer."""
    return Param(param.name, Pointer(param.type.of, False)) if isinstance(param.type, Array) else param


def _declared(node, a, where):
    """The type of a field or typedef; a function pointer's arguments get their names."""
    declared = parse_type(a["decl"] + a["type"], where)
    if isinstance(declared, Callback):
        return Callback(declared.result, tuple(_params(node, where)))
    return declared


def _params(node, where):
    found = node.find("attributelist/parmlist")
    params = []
    for index, parm in enumerate([] if found is None else found.findall("parm")):
        p = _attributes(parm)
        if p["type"] == "void":
            continue
        if not p.get("name"):
            raise Unsupported(f"{where}: argument {index + 1} has no name")
        params.append(Param(p["name"], parse_type(p["type"], where)))
    return params


def _name_enum_types(items):
    typedefs = {item.name for item in items if type(item) is Typedef}
    for enum in (item for item in items if type(item) is Enum):
        stem = enum.name.removesuffix("_value")
        enum.type_name = stem if stem in typedefs else ""


def _check_macros(items, header_path):
    """SWIG leaves out macros with casts, sizeof and the like without a word: whatever the header defines must be there."""
    known = {item.name for item in items if type(item) is Constant}
    for line, text in enumerate(open(header_path, encoding="utf-8"), 1):
        match = re.match(r"\s*#\s*define\s+(\w+)(\(.*\)|)\s*(\S?)", text)
        if match and match[1] not in known | {"UJOIN_API", "UJOIN_H"}:
            raise Unsupported(f"{header_path}:{line}: SWIG cannot read the macro {match[1]}: give it a plain number or text")
