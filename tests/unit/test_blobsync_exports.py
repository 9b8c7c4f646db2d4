"""What the package offers is there, and what few need is not imported with it."""

from __future__ import annotations

import subprocess
import sys

import pytest

import blobsync


@pytest.mark.parametrize("name", blobsync.__all__)
def test_each_name_is_there_and_is_no_module(name: str) -> None:
    found = getattr(blobsync, name)

    assert not isinstance(found, type(sys))


def test_unknown_name_is_told() -> None:
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = blobsync.no_such_thing


@pytest.mark.parametrize("module", ["boto3", "botocore", "blobsync.collection", "blobsync.replicas", "rich"])
def test_package_is_imported_without_what_few_programs_need(module: str) -> None:
    code = f"import sys, blobsync, blobsync.cli.syncing; sys.exit({module!r} in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
