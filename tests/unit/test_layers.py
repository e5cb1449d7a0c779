"""Imports point down only: gateway, projector, producer, surfacelog; and the core reaches nothing outside."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("surfacelog", "producer", "projector", "gateway", "deploy", "sim", "tests")
ALLOWED = {
    "surfacelog": {"surfacelog"},
    "producer": {"producer", "surfacelog"},
    "projector": {"projector", "producer", "surfacelog"},
}
# What the core may use at all: pure computation, and nothing that reads, waits, or knows where it runs.
PURE = {
    "surfacelog",
    "msgspec",
    "zstandard",
    "__future__",
    "base64",
    "binascii",
    "bisect",
    "collections",
    "copy",
    "functools",
    "hashlib",
    "heapq",
    "itertools",
    "json",
    "math",
    "operator",
    "re",
    "string",
    "struct",
    "types",
    "typing",
    "unicodedata",
    "zlib",
}
# Ways to the outside that need no import.
DOORS = {"open", "input", "print", "exec", "eval", "compile", "__import__", "breakpoint"}


def imports(source: str) -> Iterator[str]:
    """The top names of all modules that the source imports, anywhere in it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield (node.module or "").partition(".")[0]


def doors(source: str) -> set[str]:
    """Calls of builtins that reach outside."""
    calls = (node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return {call.id for call in calls if isinstance(call, ast.Name)} & DOORS


def modules(room: str) -> list[Path]:
    """The modules of a room."""
    return sorted((ROOT / room).rglob("*.py"))


@pytest.mark.parametrize("room", sorted(ALLOWED))
def test_a_room_imports_only_what_lies_below_it(room: str) -> None:
    assert modules(room)
    for path in modules(room):
        above = set(imports(path.read_text())) & set(ROOMS) - ALLOWED[room]
        assert not above, f"{path.relative_to(ROOT)} imports {above}"


def test_the_core_does_no_io_and_knows_no_clock_and_no_environment() -> None:
    for path in modules("surfacelog"):
        source = path.read_text()
        outside = set(imports(source)) - PURE
        assert not outside, f"{path.relative_to(ROOT)} imports {outside}"
        assert not doors(source), f"{path.relative_to(ROOT)} calls {doors(source)}"


def test_nothing_that_is_shipped_imports_its_tests_or_the_simulation() -> None:
    for room in ("surfacelog", "producer", "projector", "gateway", "deploy"):
        for path in modules(room):
            assert not {"tests", "sim"} & set(imports(path.read_text())), path


@pytest.mark.parametrize(
    "planted",
    [
        "import os",
        "from time import time",
        "def f():\n    import redis.asyncio",
        "import socket as s",
        "from os.path import join",
    ],
)
def test_a_planted_import_is_found(planted: str) -> None:
    assert set(imports(planted)) - PURE


def test_a_planted_call_is_found() -> None:
    assert doors("def f():\n    return open('x')") == {"open"}
