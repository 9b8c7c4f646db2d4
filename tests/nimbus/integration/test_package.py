"""What is built from the sources: the wheel has what is there now, the sdist has everything."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner
from prometheus_client import CollectorRegistry, generate_latest

import nimbus
from nimbus.cli.main import cli
from nimbus.telemetry import build
from tests.thorough import thorough

PROJECT = Path(__file__).parents[3]
COMMIT = "0123456789abcdef" * 2 + "01234567"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (COMMIT + "\n", "0.1.0+0123456789ab"),
        (f"{COMMIT}-dirty\n", "0.1.0+0123456789ab-dirty"),
        ("\n", "0.1.0"),
    ],
)
def test_release_names_the_commit_that_it_was_built_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, said: str
) -> None:
    (tmp_path / "COMMIT").write_text(content)
    monkeypatch.setattr(nimbus, "__file__", str(tmp_path / "__init__.py"))
    monkeypatch.setattr(nimbus, "__version__", "0.1.0")
    monkeypatch.setattr(build, "commit", build.commit.__wrapped__)
    registry = CollectorRegistry()
    build.tell_build(registry)

    assert build.release() == said
    assert f'commit="{content.strip()}"' in generate_latest(registry).decode()


def test_version_is_told_by_an_option_too() -> None:
    option, command = CliRunner().invoke(cli, ["--version"]), CliRunner().invoke(cli, ["version"])

    assert option.stdout == command.stdout
    assert option.stdout.startswith(f"nimbus {nimbus.__version__}")


def test_distribution_is_refused_when_the_tag_names_another_version(tmp_path: Path) -> None:
    for name in ("scripts/dist", "nimbus/__init__.py"):
        (tmp_path / name).parent.mkdir()
        shutil.copy2(PROJECT / name, tmp_path / name)
    git = ("git", "-c", "user.name=test", "-c", "user.email=test@localhost")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "test"), ("tag", "v9.9.9")):
        _run(*git, *words, cwd=tmp_path)
    words = [tmp_path / "scripts" / "dist"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 1
    assert f"is v9.9.9, but nimbus/__init__.py says v{nimbus.__version__}" in done.stderr


def test_licences_are_listed_for_each_locked_package() -> None:
    listed = {
        line.split(",")[0] + "==" + line.split(",")[1]
        for line in (PROJECT / "docs" / "licences.csv").read_text().splitlines()[1:]
    }
    locked = {
        line.split()[0]
        for name in ("requirements.lock", "requirements-scheduler.lock", "requirements-worker.lock")
        for line in (PROJECT / name).read_text().splitlines()
        if line[:1].isalnum()
    }

    assert listed == locked


def _run(*words: str | Path, cwd: Path) -> str:
    return subprocess.run(words, cwd=cwd, check=True, capture_output=True, text=True, timeout=300).stdout


@thorough
@pytest.mark.timeout(600)
def test_wheel_has_no_deleted_module_and_sdist_is_complete(tmp_path: Path) -> None:
    sources, dist = tmp_path / "sources", tmp_path / "dist"
    tracked = set(_run("git", "ls-files", cwd=PROJECT).splitlines())
    for name in tracked:
        (sources / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(PROJECT / name, sources / name)
    identity = ("-c", "user.name=test", "-c", "user.email=test@localhost")
    for words in (("init", "-q"), ("add", "-A"), (*identity, "commit", "-qm", "test")):
        _run("git", *words, cwd=sources)
    commit = _run("git", "rev-parse", "HEAD", cwd=sources)
    stale = sources / "build" / "lib" / "nimbus" / "gone.py"
    stale.parent.mkdir(parents=True)
    stale.touch()
    python = tmp_path / "env" / "bin" / "python"
    _run(sys.executable, "-m", "venv", tmp_path / "env", cwd=tmp_path)
    _run(python, "-m", "pip", "install", "-q", "setuptools>=77", cwd=tmp_path)

    make = "import sys; from setuptools import build_meta as b; print(getattr(b, sys.argv[1])(sys.argv[2]))"
    _run(python, "-c", make, "build_sdist", dist, cwd=sources)
    _run(python, "-c", make, "build_wheel", dist, cwd=sources)
    (archive,), (wheel,) = dist.glob("*.tar.gz"), dist.glob("*.whl")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    _run(python, "-c", make, "build_wheel", tmp_path / "again", cwd=unpacked)
    (again,) = (tmp_path / "again").glob("*.whl")
    files = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()}
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(again) as other:
        names = set(one.namelist())
        assert one.read("nimbus/COMMIT").decode() == other.read("nimbus/COMMIT").decode() == commit
        assert {file.filename: file.CRC for file in other.infolist()} == {
            file.filename: file.CRC for file in one.infolist()
        }

    assert tracked - files == set()
    modules = {name for name in tracked if name.startswith(("nimbus/", "leader/", "blobsync/"))}
    assert modules - names == set()
    shipped = {name.removeprefix("nimbus/shipped/") for name in names if name.startswith("nimbus/shipped/")}
    assert shipped == {name for name in tracked if name.startswith(("configs/", "deploy/", "examples/"))}
    ours = {name for name in names if ".dist-info/" not in name and "/shipped/" not in name}
    assert ours - modules == {"nimbus/COMMIT"}
