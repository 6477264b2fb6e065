# SPDX-License-Identifier: Apache-2.0
"""Public methods are counted as documented, and a class with too many is named."""

import subprocess
import sys
from pathlib import Path

import pytest
from check_public_methods import EXCEPTIONS

CHECK = Path(__file__).with_name("check_public_methods.py")
#: As many methods as a class may have.
FULL = " ".join(f"void f{each}();" for each in range(30))


def check(root: Path, path: str, source: str) -> subprocess.CompletedProcess[str]:
    """Runs the check over a tree with this file, and with the classes that are exceptions."""
    sources = {"allocator/a.h": ""}
    for file, name in (each.split(": ") for each in EXCEPTIONS):
        sources[file] = f"class {name} {{ public: {FULL} void more(); }};\n"
    for file, text in (sources | {path: source}).items():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(text)
    return subprocess.run([sys.executable, CHECK, root], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "member",
    [
        "int f() const;",
        "int f() const { return 0; }",
        "void f0(int);",  # an overload
        "static int* f();",
        "Result<int>& f(int a = {}) noexcept;",
        "virtual int f() = 0;",
        "int f() override;",
        "template <typename T> int f(T value);",
        "[[nodiscard]] auto f() const -> int;",
        "int f() SPILLWAY_REQUIRES(mutex) SPILLWAY_REQUIRES(other(a, b).mutex);",
        "private: int hidden(); public: int f();",
        "\n#if 1\n int f();\n#endif\n",
    ],
)
def test_a_method_too_many_is_named(tmp_path: Path, member: str) -> None:
    result = check(tmp_path, "allocator/b.h", f"namespace a {{ class B {{ public: {FULL} {member} }}; }}\n")
    assert result.returncode == 1
    assert "allocator/b.h: B has 31 public methods" in result.stdout


@pytest.mark.parametrize(
    "member",
    [
        "B(); explicit B(int); ~B();",
        "B& operator=(const B&); bool operator==(const B&) const; operator bool() const;",
        "void f() = delete; B(const B&) = default;",
        "friend void f(B&);",
        "std::function<int()> f; int (*g)(int); using H = int (*)(int); int i SPILLWAY_GUARDED_BY(mutex);",
        "private: int f(); protected: int g();",
        "struct C { int f(); };",
        "int field = call();",
    ],
)
def test_what_is_no_public_method_of_the_class_is_not_counted(tmp_path: Path, member: str) -> None:
    result = check(tmp_path, "allocator/b.h", f"class B {{ public: {FULL} {member} }};\n")
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("path", "source", "name"),
    [
        ("hooks/b.cpp", f"namespace {{ struct B {{ {FULL} int f(); }}; }}", "B"),
        ("interpose/b.h", f"class A {{ struct B final : C {{ {FULL} int f(); }}; }};", "A::B"),
        ("emulator/b.h", f"class alignas(64) B {{ public: {FULL} int f(); }};", "B"),
        (
            "include/b.h",
            f"template <typename T> class SPILLWAY_TORCH_API B {{ public: {FULL} int f(); }};",
            "B",
        ),
        ("emulator/b.cpp", f"int a() {{ struct B {{ {FULL} int f(); }}; return 0; }}", "B"),
    ],
)
def test_classes_are_found_anywhere(tmp_path: Path, path: str, source: str, name: str) -> None:
    assert f"{path}: {name} has 31 public methods" in check(tmp_path, path, source).stdout


def test_classes_of_python_are_counted(tmp_path: Path) -> None:
    methods = "".join(f"  def f{each}(self): ...\n" for each in range(30))
    path = "python/spillway/b.py"
    private = "  def _f(self): ...\n  def __len__(self): ...\n  def f0(self): ...\n  f = print\n"
    assert check(tmp_path, path, f"class B:\n{methods}{private}").returncode == 0
    result = check(tmp_path, path, f"class B:\n{methods}  async def f(self): ...\n")
    assert f"{path}: B has 31 public methods" in result.stdout


@pytest.mark.parametrize(
    "source", ["class B { public: int f() MACRO(a) MACRO; };", "MACRO (a) class B { int f("]
)
def test_a_class_that_cannot_be_read_fails(tmp_path: Path, source: str) -> None:
    result = check(tmp_path, "allocator/b.h", source)
    assert result.returncode == 1
    assert "allocator/b.h:1: the parser does not understand" in result.stdout


def test_an_exception_that_is_not_needed_fails(tmp_path: Path) -> None:
    result = check(tmp_path, "torch_glue/cuda_allocator/cuda_allocator.h", "class SpillwayAllocator {};\n")
    assert result.returncode == 1
    assert "SpillwayAllocator needs no exception" in result.stdout
