"""Choosing the files of a release: unsafe files are refused."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from blobsync import (
    BlobSyncConfigError,
    LocalStoreError,
    Role,
    SourceFile,
    UnmatchedPatternError,
    UnsafeSourceError,
    collect,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    tree = {
        "main.py": "1",
        "lib/util.py": "2",
        "lib/deep/more.py": "3",
        "conf/a.yaml": "4",
        "wheels/x.whl": "5",
        "lib/__pycache__/util.pyc": "6",
        ".git/config": "7",
        ".hidden/x.py": "8",
        "lib/.swp": "9",
    }
    for name, text in tree.items():
        path = tmp_path / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "src"


def names(files: Sequence[SourceFile]) -> list[str]:
    return [item.path for item in files]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("**", ["conf/a.yaml", "lib/deep/more.py", "lib/util.py", "main.py", "wheels/x.whl"]),
        ("**/*.py", ["lib/deep/more.py", "lib/util.py", "main.py"]),
        ("*.py", ["main.py"]),
        ("lib/*.py", ["lib/util.py"]),
        ("lib/**", ["lib/deep/more.py", "lib/util.py"]),
        ("lib/**/more.py", ["lib/deep/more.py"]),
        ("**/util.py", ["lib/util.py"]),
        ("mai?.py", ["main.py"]),
        ("[lm]ain.py", ["main.py"]),
        ("./main.py", ["main.py"]),
        (".hidden/*", [".hidden/x.py"]),
    ],
)
def test_patterns_mean_what_a_shell_means(root: Path, pattern: str, expected: list[str]) -> None:
    assert names(collect(root, include=[pattern])) == expected


@pytest.mark.parametrize("name", ["nothing-here", "n" * 300])
def test_folder_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(LocalStoreError, match=name):
        collect(tmp_path / name, include=["*"])


def test_most_special_role_wins(root: Path) -> None:
    files = collect(root, include=["**"], configuration=["conf/*"], dependencies=["wheels/*.whl"])

    assert {item.path: item.role for item in files} == {
        "main.py": Role.CODE,
        "lib/util.py": Role.CODE,
        "lib/deep/more.py": Role.CODE,
        "conf/a.yaml": Role.CONFIGURATION,
        "wheels/x.whl": Role.DEPENDENCY,
    }


def test_executable_files_stay_so(root: Path) -> None:
    (root / "main.py").chmod(0o755)

    assert [item.path for item in collect(root, include=["**"]) if item.executable] == ["main.py"]


@pytest.mark.parametrize("pattern", ["*.jar", "lib/__pycache__/*", ".git/config", "lib"])
def test_pattern_that_matches_nothing_is_named(root: Path, pattern: str) -> None:
    with pytest.raises(UnmatchedPatternError) as refused:
        collect(root, include=["**", pattern])
    assert refused.value.pattern == pattern
    assert ("write lib/**" in str(refused.value)) == (pattern == "lib")


@pytest.mark.parametrize("pattern", ["/etc/passwd", "../x", "a/../../x", "", "a//b"])
def test_pattern_that_leaves_the_root_is_refused(root: Path, pattern: str) -> None:
    with pytest.raises(BlobSyncConfigError):
        collect(root, include=[pattern])


def test_link_out_of_the_tree_is_refused_and_one_within_is_taken(root: Path, tmp_path: Path) -> None:
    (root / "inside.py").symlink_to("main.py")
    assert "inside.py" in names(collect(root, include=["*.py"]))

    (tmp_path / "secret.py").write_text("x")
    (root / "outside.py").symlink_to(tmp_path / "secret.py")
    with pytest.raises(UnsafeSourceError, match=r"outside\.py is a link to"):
        collect(root, include=["*.py"])


@pytest.mark.parametrize("target", ["/etc", "lib", "nowhere"])
def test_link_to_a_folder_or_to_nothing_is_refused(root: Path, target: str) -> None:
    (root / "linked").symlink_to(target)

    with pytest.raises(UnsafeSourceError, match="linked"):
        collect(root, include=["**"])


@pytest.mark.parametrize("pattern", ["linked/*.py", "linked/**/*.py", "l*/x/y.py", "linked/main.py"])
def test_pattern_below_a_linked_folder_is_refused_with_the_link(
    root: Path, tmp_path: Path, pattern: str
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (root / "linked").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(UnsafeSourceError, match="linked is a link to"):
        collect(root, include=[pattern])
    assert collect(root, include=["**/main.py"]), "a link that is not named does not matter"


def test_pipe_is_refused(root: Path) -> None:
    os.mkfifo(root / "pipe")

    with pytest.raises(UnsafeSourceError, match="no regular file"):
        collect(root, include=["**"])


@pytest.mark.parametrize(
    ("one", "other"), [("a.py", "A.py"), ("x/b.py", "X/c.py"), ("\u00e9.py", "e\u0301.py")]
)
def test_names_that_collide_elsewhere_are_refused(root: Path, one: str, other: str) -> None:
    for name in (one, other):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("x")

    with pytest.raises(UnsafeSourceError):
        collect(root, include=["**"])


@pytest.mark.parametrize(
    "name", ["id_rsa", "conf/server.pem", "deep/er/key.p12", ".env", ".env.prod", ".aws/config"]
)
def test_secret_by_name_is_refused_unless_allowed(root: Path, name: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text("x")

    with pytest.raises(UnsafeSourceError, match="secret"):
        collect(root, include=["**", name])
    assert name in names(collect(root, include=["**", name], allow_secrets=[name]))


def test_link_to_a_secret_is_refused_under_any_name(root: Path) -> None:
    (root / "conf/server.pem").write_text("x")
    (root / "innocent.py").symlink_to("conf/server.pem")

    with pytest.raises(UnsafeSourceError, match="secret"):
        collect(root, include=["*.py"])
