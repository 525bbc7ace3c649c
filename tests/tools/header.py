# SPDX-License-Identifier: Apache-2.0
"""What include/ujoin.h declares. Reads the style that this header is written in, not all of C."""
import re

from results import ROOT

HEADER = ROOT / "include" / "ujoin.h"


def text_without_comments():
    text = re.sub(r"/\*.*?\*/", " ", HEADER.read_text(), flags=re.DOTALL)
    return re.sub(r"//[^\n]*", " ", text)


def declarations():
    """The same without the lines of the preprocessor."""
    return re.sub(r"^\s*#[^\n]*$", "", text_without_comments(), flags=re.MULTILINE)


def functions():
    """Names of the exported functions, sorted."""
    return sorted(re.findall(r"\bUJOIN_API\b[^;(]*?\b(\w+)\s*\(", declarations()))


def structs():
    """name -> list of its fields, in order."""
    found = {}
    for body, name in re.findall(r"typedef\s+struct\s+\w*\s*\{(.*?)\}\s*(\w+)\s*;", text_without_comments(), re.DOTALL):
        fields = []
        for declaration in body.split(";"):
            declaration = re.sub(r"\[[^\]]*\]", "", declaration).strip()
            if declaration:
                fields += [re.search(r"(\w+)\s*$", part).group(1) for part in declaration.split(",")]
        found[name] = fields
    return found


def enums():
    """name -> list of its constants, in order."""
    found = {}
    for name, body in re.findall(r"\benum\s+(\w+)\s*\{(.*?)\}", text_without_comments(), re.DOTALL):
        found[name] = [part.split("=")[0].strip() for part in body.split(",") if part.strip()]
    return found
