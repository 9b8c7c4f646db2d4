"""The bundle runs on old versions of Python: its bootstrap on 3.8, a driver and its task on 3.9."""

from __future__ import annotations

import ast
import io
import sys
from collections.abc import Iterator
from zipfile import ZipFile

import pytest

from nimbus.worker.application.bundle import build_bundle

KEYWORDS = {
    *("slots", "kw_only", "match_args", "weakref_slot", "strict", "usedforsecurity", "cancel_futures"),
    *("process_group", "extra_groups", "pipesize"),
}
"""Keyword arguments of the standard library that came after Python 3.8."""
NAMES = {
    *("removeprefix", "removesuffix", "is_relative_to", "hardlink_to", "with_stem", "randbytes"),
    *("cache", "pairwise", "batched", "file_digest", "bit_count", "UTC", "to_thread", "add_note", "chdir"),
    *("TypeAlias", "ParamSpec", "Concatenate", "Self", "Unpack", "assert_never", "override", "StrEnum"),
    *("zoneinfo", "tomllib", "graphlib", "anext", "aiter", "ExceptionGroup", "BaseExceptionGroup", "eventfd"),
}
"""Its names that did."""
OF_3_9 = {
    "removeprefix",
    "removesuffix",
    "is_relative_to",
    "with_stem",
    "randbytes",
    "cache",
    "to_thread",
} | {"usedforsecurity="}
"""Those of them that Python 3.9 has."""
GENERIC = {"dict", "frozenset", "list", "set", "tuple", "type"}


class Bundle:
    """The modules of the archive that the bootstrap imports, directly or not."""

    def __init__(self) -> None:
        self._archive = ZipFile(io.BytesIO(build_bundle()))
        self._names = set(self._archive.namelist())
        self.modules: dict[str, ast.Module] = {}
        self.others: set[str] = set()
        """Names of other modules."""
        self._add("nimbus.worker.application.bootstrap")

    def _add(self, module: str) -> None:
        """Add a module, the packages that it is in, and what these import."""
        name = self._name_of(module)
        if name is None:
            self.others.add(module.partition(".")[0])
        elif name not in self.modules:
            self.modules[name] = tree = ast.parse(self._archive.read(name), name, feature_version=(3, 8))
            for imported in self._imported(tree):
                self._add(imported)
            if parent := module.rpartition(".")[0]:
                self._add(parent)

    def _name_of(self, module: str) -> str | None:
        place = module.replace(".", "/")
        return next((name for name in (f"{place}.py", f"{place}/__init__.py") if name in self._names), None)

    def _imported(self, tree: ast.Module) -> Iterator[str]:
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                names = (f"{node.module}.{alias.name}" for alias in node.names)
                yield from (name if self._name_of(name) else node.module for name in names)


def later_than_python_3_8(tree: ast.Module) -> list[str]:
    """What `tree` evaluates, outside of annotations, that Python 3.8 does not have."""
    return [f"line {node.lineno}: {what}" for node, what in _all_later(tree)]


def later_than_python_3_9(tree: ast.Module) -> list[str]:
    """Likewise, also outside of `if TYPE_CHECKING`, that Python 3.9 does not have."""
    return [
        f"line {node.lineno}: {what}"
        for node, what in _all_later(tree)
        if what not in OF_3_9 and not what.endswith("[...]") and not _joins_dictionaries(node)
    ]


def _joins_dictionaries(node: ast.AST) -> bool:
    match node:
        case ast.AugAssign() | ast.BinOp(left=ast.Dict() | ast.DictComp()) | ast.BinOp(right=ast.Dict()):
            return True
        case _:
            return False


def _all_later(tree: ast.Module) -> Iterator[tuple[ast.expr | ast.keyword | ast.stmt | ast.alias, str]]:
    generic = GENERIC | {
        alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module == "collections.abc"
        for alias in node.names
    }
    for node in _evaluated(tree):
        if what := _later(node, generic):
            yield node, what


def _evaluated(node: ast.AST) -> Iterator[ast.expr | ast.keyword | ast.stmt | ast.alias]:
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns"):
            continue
        if field == "body" and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.expr | ast.keyword | ast.stmt | ast.alias):
                yield child
            if isinstance(child, ast.AST):
                yield from _evaluated(child)


def _later(node: ast.AST, generic: set[str]) -> str:
    match node:
        case ast.keyword(arg=str(name)) if name in KEYWORDS:
            return f"{name}="
        case ast.Attribute(attr=name) | ast.alias(name=name) | ast.Name(id=name) if name in NAMES:
            return name
        case ast.Subscript(value=ast.Name(id=name)) if name in generic:
            return f"{name}[...]"
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return "|" if _is_no_number(left) or _is_no_number(right) else ""
        case ast.AugAssign(op=ast.BitOr(), value=value):
            return "|=" if _is_no_number(value) else ""
        case _:
            return ""


def _is_no_number(node: ast.expr) -> bool:
    """True of a dictionary, and of a type by its name: `|` of these is new."""
    match node:
        case ast.Dict() | ast.DictComp() | ast.Constant(value=None):
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name):
            is_type = name in GENERIC or (name[:1].isupper() and not name.isupper())
            return is_type or name in ("int", "str", "bytes", "float", "bool")
        case _:
            return False


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return Bundle()


def test_bootstrap_imports_only_the_standard_library_and_its_archive(bundle: Bundle) -> None:
    assert bundle.others <= sys.stdlib_module_names
    assert "nimbus/attempt/machine.py" in bundle.modules


def test_bootstrap_needs_nothing_that_came_after_python_3_8(bundle: Bundle) -> None:
    later = {name: found for name, tree in bundle.modules.items() if (found := later_than_python_3_8(tree))}

    assert not later


def test_task_and_its_driver_need_nothing_that_came_after_python_3_9() -> None:
    with ZipFile(io.BytesIO(build_bundle())) as archive:
        ours = [name for name in archive.namelist() if name.startswith(("nimbus/", "blobsync/"))]
        own = [name for name in ours if not name.startswith("blobsync/s3/")]  # for a bucket without a gateway
        trees = {name: ast.parse(archive.read(name), name, feature_version=(3, 9)) for name in own}
    later = {name: found for name, tree in trees.items() if (found := later_than_python_3_9(tree))}

    assert not later


@pytest.mark.parametrize(
    "text", ["@dataclass(kw_only=True)\nclass A: ...", "Name = Path | None", "from datetime import UTC"]
)
def test_what_came_after_python_3_9_is_found(text: str) -> None:
    assert later_than_python_3_9(ast.parse(text))


@pytest.mark.parametrize(
    "text",
    [
        "@dataclass(frozen=True, slots=True)\nclass A: ...",
        "'ab'.removeprefix('a')",
        "from datetime import UTC",
        "x = {**a} | b",
        "x |= {'a': 1}",
        "Name = Path | None",
        "x: list[int] = list[int]()",
        "from collections.abc import Callable\nWork = Callable[[], int]",
        "def f(x: int = dict[int, int]()) -> None: ...",
    ],
)
def test_what_came_after_python_3_8_is_found(text: str) -> None:
    assert later_than_python_3_8(ast.parse(text))


@pytest.mark.parametrize(
    "text",
    [
        "x: dict[str, int] | None = None",
        "def f(x: list[int] | None) -> tuple[int, ...]: return os.O_RDONLY | os.O_CREAT",
        "flags = _READ | 1\nflags |= os.O_CLOEXEC",
    ],
)
def test_annotations_and_flags_are_no_newer_than_python_3_8(text: str) -> None:
    assert not later_than_python_3_8(ast.parse(text))
