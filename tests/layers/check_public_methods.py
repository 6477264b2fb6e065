# SPDX-License-Identifier: Apache-2.0
"""Fails on a class with more than LIMIT public methods: check_public_methods.py ROOT.

Counts what a class declares itself: each overload, static methods and templates too. Leaves out constructors,
destructors, operators, deleted and defaulted functions, friends, and data members that hold a function. In
Python, a method is public if its name has no leading underscore; overloads and the functions of a property
count once.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import tree_sitter_cpp
from tree_sitter import Language, Node, Parser

LIMIT = 30

# Classes that may have more, and why.
EXCEPTIONS = {
    "torch_glue/cuda_allocator/cuda_allocator.h: SpillwayAllocator": "overrides torch's CUDAAllocator",
}

CPP = ("include", "allocator", "hooks", "interpose", "torch_glue", "emulator")
PYTHON = ("python/spillway",)

PARSER = Parser(Language(tree_sitter_cpp.language()))
DEFAULT_ACCESS = {"class_specifier": "private", "struct_specifier": "public", "union_specifier": "public"}
MEMBERS = ("field_declaration", "function_definition", "declaration")
# What stands around the declarator of a function that returns a pointer or a reference.
AROUND = ("pointer_declarator", "reference_declarator")

# The grammar expands no macro, so directives and annotations (of mutex.h, visibility, calling convention) are
# blanked. It has no `= {}` for a parameter either.
DIRECTIVE = re.compile(rb"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
ANNOTATION = re.compile(
    rb"\b(?:(?:SPILLWAY_(?:GUARDED_BY|REQUIRES|UNCHECKED_LOCKS|ATTRIBUTE|EXPORT|API|TORCH_API)|__attribute__)\b"
    rb"(?:\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))?|CUPTIAPI\b)"
)
SYMBOL_TYPE = re.compile(rb"\bElfW\((\w+)\)")


class Count(NamedTuple):
    file: str
    name: str  # with the classes around it
    methods: int

    @property
    def key(self) -> str:
        return f"{self.file}: {self.name}"


class UnreadableError(Exception):
    """The parser does not understand a class."""


def readable(source: bytes) -> bytes:
    """The source in the parser's grammar, with the same lines."""
    for pattern in (DIRECTIVE, ANNOTATION):
        source = pattern.sub(lambda found: re.sub(rb"[^\n]", b" ", found[0]), source)
    return SYMBOL_TYPE.sub(rb"ElfW_\1_", source).replace(b"= {}", b"= 0 ")


def text(node: Node | None) -> str:
    return node.text.decode() if node is not None and node.text is not None else ""


def first_error(node: Node) -> Node | None:
    """The first thing in it that the parser does not understand, outside of function bodies."""
    for child in node.children:
        if child.type == "compound_statement":
            continue
        if child.is_error or child.is_missing:
            return child
        if child.has_error and (found := first_error(child)) is not None:
            return found
    return None


def method_name(member: Node) -> str | None:
    """The name of the method that a member of a class declares; None for other members."""
    if any(each.type in ("delete_method_clause", "default_method_clause") for each in member.children):
        return None
    declarator = member.child_by_field_name("declarator")
    while declarator is not None and declarator.type in AROUND:
        declarator = declarator.named_children[-1]
    if declarator is None or declarator.type != "function_declarator":
        return None
    name = declarator.child_by_field_name("declarator")
    # Others are destructors, operators, and data members that point to a function, in parentheses.
    return text(name) if name is not None and name.type in ("field_identifier", "identifier") else None


def public_methods(of: Node, body: Node) -> int:
    constructor = text(of.child_by_field_name("name")).split("<")[0]
    access = DEFAULT_ACCESS[of.type]
    count = 0
    for member in body.named_children:
        if member.type == "access_specifier":
            access = text(member).rstrip(": ")
        if member.type == "template_declaration":
            member = member.named_children[-1]
        if access == "public" and member.type in MEMBERS:
            count += method_name(member) not in (None, constructor)
    return count


def cpp_classes(path: str, source: bytes) -> Iterator[Count]:
    def walk(node: Node, around: str) -> Iterator[Count]:
        body = node.child_by_field_name("body") if node.type in DEFAULT_ACCESS else None
        if body is not None:
            around = f"{around}::" * bool(around) + (text(node.child_by_field_name("name")) or "unnamed")
            if (error := first_error(body)) is not None:
                raise UnreadableError(f"{path}:{error.start_point[0] + 1}")
            yield Count(path, around, public_methods(node, body))
        for child in node.children:
            if node.is_error and child.type in ("class", "struct", "union"):
                raise UnreadableError(f"{path}:{child.start_point[0] + 1}")
            yield from walk(child, around)

    yield from walk(PARSER.parse(readable(source)).root_node, "")


def python_classes(path: str, source: str) -> Iterator[Count]:
    def walk(node: ast.AST, around: str) -> Iterator[Count]:
        if isinstance(node, ast.ClassDef):
            around = f"{around}." * bool(around) + node.name
            functions = [
                each for each in node.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))
            ]
            yield Count(path, around, len({each.name for each in functions if not each.name.startswith("_")}))
        for child in ast.iter_child_nodes(node):
            yield from walk(child, around)

    yield from walk(ast.parse(source), "")


def classes(root: Path) -> Iterator[Count]:
    for folder in CPP:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix in (".h", ".cpp"):
                yield from cpp_classes(file.relative_to(root).as_posix(), file.read_bytes())
    for folder in PYTHON:
        for file in sorted((root / folder).rglob("*.py")):
            yield from python_classes(file.relative_to(root).as_posix(), file.read_text(encoding="utf-8"))


def problems(found: list[Count]) -> Iterator[str]:
    many = {each.key: each for each in found if each.methods > LIMIT}
    for key, each in many.items():
        if key not in EXCEPTIONS:
            yield f"{key} has {each.methods} public methods, the limit is {LIMIT}. Split it by concept."
    for key in EXCEPTIONS:
        if key not in many:
            yield f"{key} needs no exception. Remove it from EXCEPTIONS."


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or not Path(arguments[0], "allocator").is_dir():
        print("usage: check_public_methods.py ROOT, where ROOT holds the folder allocator", file=sys.stderr)
        return 2
    try:
        found = list(classes(Path(arguments[0])))
    except UnreadableError as error:
        print(f"{error}: the parser does not understand this part of a class. Extend readable().")
        return 1
    why = list(problems(found))
    print("\n".join(why) if why else f"no other of {len(found)} classes has more than {LIMIT} public methods")
    return 1 if why else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
