"""The package has all its exports, and does not import rarely used modules."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import blobsync


@pytest.mark.parametrize("name", blobsync.__all__)
def test_each_name_is_there_and_is_no_module(name: str) -> None:
    found = getattr(blobsync, name)

    assert not isinstance(found, type(sys))


def test_unknown_name_is_told() -> None:
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = blobsync.no_such_thing


def test_each_name_comes_from_where_type_checkers_are_told() -> None:
    told = {
        alias.name: (node.module or "").removeprefix("blobsync.")
        for node in ast.walk(ast.parse(Path(blobsync.__file__).read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("blobsync.")
        for alias in node.names
    }

    assert told == {name: "errors" for name in told if name.endswith("Error")} | blobsync._MODULES
    assert sorted(told) == sorted(blobsync.__all__) == [name for name in dir(blobsync) if name in told]


@pytest.mark.parametrize(
    "module",
    [
        "boto3",
        "botocore",
        "blobsync.collection",
        "blobsync.publishing",
        "blobsync.replicas",
        "http.client",
        "rich",
        "ssl",
    ],
)
def test_package_is_imported_without_what_few_programs_need(module: str) -> None:
    loaded = "blobsync, blobsync.cli.syncing, blobsync.s3.reader"
    code = f"import sys, {loaded}; sys.exit({module!r} in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
