"""The class-data archive of a driver, and when one is made."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from nimbus.worker import class_archive_maker
from nimbus.worker.class_archive import archive_key, archive_name, find_archive
from nimbus.worker.class_archive_upkeep import ClassArchiveUpkeep
from nimbus.worker.environment import spark_settings
from nimbus.worker.loop import Loop
from tests.nimbus.worker_bench import eventually

JAVA = "#!/bin/sh\necho 'openjdk version \"17.0.15\"' >&2\n"
MAKES = "import sys, pathlib\npathlib.Path(sys.argv[1], sys.argv[2] + '-3.jsa').write_text('abc')\n"
FAILS = "import sys\nprint('no room for an archive')\nsys.exit(1)\n"
WAITS = "import sys\nsys.stdin.read()\n"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment with a Java that prints its version, and a Spark of two jars."""
    java = tmp_path / "jre" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(JAVA)
    java.chmod(0o755)
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    for name in ("a.jar", "b.jar"):
        (tmp_path / "spark" / "jars" / name).write_text("x")
    return {
        "JAVA_HOME": str(tmp_path / "jre"),
        "SPARK_HOME": str(tmp_path / "spark"),
        "PATH": os.defpath,
    }


def _archive(work_dir: Path, environment: Mapping[str, str], content: bytes = b"classes") -> Path:
    place = work_dir / "class-archives" / archive_name(archive_key(environment), len(content))
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
    return place


def _options(archive: Path | None, **conf: str) -> str:
    made = spark_settings(
        application="r.t.1",
        master="local[2]",
        worker_conf={},
        task_conf=conf,
        temporary=Path("/at/tmp"),
        class_archive=archive,
    )
    return made["spark.driver.extraJavaOptions"]


# What a driver gets.


def test_archive_goes_before_the_java_options_of_the_user() -> None:
    options = _options(Path("/w/k-7.jsa"), **{"spark.driver.extraJavaOptions": "-Xss4m"})

    assert options.startswith("-Djava.io.tmpdir=/at/tmp -XX:SharedArchiveFile=/w/k-7.jsa -Xshare:auto ")
    assert "-XX:+VerifySharedSpaces" in options
    assert options.endswith(" -Xss4m")


@pytest.mark.parametrize(
    "own", ["-XX:SharedArchiveFile=/mine.jsa", "-Xshare:off", "-XX:ArchiveClassesAtExit=/m"]
)
@pytest.mark.parametrize("key", ["spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions"])
def test_users_own_archive_options_win(own: str, key: str) -> None:
    assert "/w/k-7.jsa" not in _options(Path("/w/k-7.jsa"), **{key: own})


def test_archive_is_found_as_long_as_java_and_the_jars_are_the_same(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    place = _archive(tmp_path, environment)

    assert find_archive(tmp_path, environment) == place
    (tmp_path / "spark" / "jars" / "a.jar").write_text("newer")
    assert find_archive(tmp_path, environment) is None


def test_archive_is_not_used_when_others_can_write_beside_it(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    place = _archive(tmp_path, environment)
    place.parent.chmod(0o777)

    assert find_archive(tmp_path, environment) is None


def test_archive_that_was_cut_off_is_made_anew(
    tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = _archive(tmp_path, environment, b"of another size")
    os.truncate(place, 3)
    made: list[Path] = []

    def make(_scratch: Path, part: Path) -> None:
        part.write_bytes(b"classes")
        made.append(part)

    for name in ("_run_spark", "_lower_priority", "_end_with_worker"):
        monkeypatch.setattr(class_archive_maker, name, make if name == "_run_spark" else lambda: None)
    key = archive_key(environment)
    for _ in range(2):
        assert class_archive_maker.main([str(place.parent), key]) == 0
    signal.alarm(0)

    assert len(made) == 1
    assert [file.name for file in place.parent.glob("*.jsa")] == [archive_name(key, len(b"classes"))]


def test_archive_is_not_found_for_another_java(tmp_path: Path, environment: dict[str, str]) -> None:
    _archive(tmp_path, environment)
    java = tmp_path / "jre" / "bin" / "java"
    java.write_text(JAVA.replace("17.0.15", "17.0.16"))
    os.utime(java, ns=(1, 1))

    assert find_archive(tmp_path, environment) is None


def test_archive_that_was_cut_off_is_not_used_since_it_would_crash_the_jvm(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    place = _archive(tmp_path, environment)
    os.truncate(place, 3)

    assert find_archive(tmp_path, environment) is None


@pytest.mark.parametrize("name", ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"])
def test_archive_is_not_used_when_the_environment_names_one(
    tmp_path: Path, environment: dict[str, str], name: str
) -> None:
    _archive(tmp_path, environment)

    assert find_archive(tmp_path, environment | {name: "-Xshare:off"}) is None


def test_machine_without_java_has_no_archive(tmp_path: Path, environment: dict[str, str]) -> None:
    _archive(tmp_path, environment)

    assert find_archive(tmp_path, environment | {"JAVA_HOME": "/nowhere", "PATH": ""}) is None


# When it is made.


@pytest.fixture
def made(tmp_path: Path) -> Iterator[list[ClassArchiveUpkeep]]:
    upkeeps: list[ClassArchiveUpkeep] = []
    yield upkeeps
    for upkeep in upkeeps:
        upkeep.close()


def _upkeep(
    tmp_path: Path, made: list[ClassArchiveUpkeep], program: str, *, enabled: bool = True
) -> tuple[ClassArchiveUpkeep, Loop]:
    (tmp_path / "maker.py").write_text(program)
    loop = Loop()
    upkeep = ClassArchiveUpkeep(
        tmp_path, loop, enabled=enabled, maker=(sys.executable, "-I", str(tmp_path / "maker.py"))
    )
    made.append(upkeep)
    return upkeep, loop


def _turn(loop: Loop, upkeep: ClassArchiveUpkeep, *, until: str) -> None:
    def look() -> None:
        if upkeep.state.startswith(until):
            loop.stop()
        else:
            loop.after(0.02, look)

    loop.after(0, look)
    loop.after(20, loop.stop)
    loop.run()
    assert upkeep.state.startswith(until), upkeep.state


def test_archive_is_made_when_a_spark_task_was_there_and_no_attempt_runs(
    tmp_path: Path, environment: dict[str, str], made: list[ClassArchiveUpkeep]
) -> None:
    upkeep, loop = _upkeep(tmp_path, made, MAKES)

    upkeep.make_if(idle=True)
    assert upkeep.state == "none yet: made after the first Spark task"
    upkeep.want(environment)
    upkeep.make_if(idle=False)
    assert upkeep.state == "none yet: made when no attempt runs"
    upkeep.make_if(idle=True)
    assert upkeep.state == "being made"

    _turn(loop, upkeep, until="ready")
    assert find_archive(tmp_path, environment) is not None


def test_archive_that_could_not_be_made_is_not_tried_again(
    tmp_path: Path, environment: dict[str, str], made: list[ClassArchiveUpkeep]
) -> None:
    upkeep, loop = _upkeep(tmp_path, made, FAILS)
    upkeep.want(environment)
    upkeep.make_if(idle=True)

    _turn(loop, upkeep, until="could not be made")

    assert "no room for an archive" in upkeep.state
    upkeep.want(environment)
    upkeep.make_if(idle=True)
    assert upkeep.state.startswith("could not be made")


def test_archive_is_not_made_when_its_folder_cannot_be(
    tmp_path: Path, environment: dict[str, str], made: list[ClassArchiveUpkeep]
) -> None:
    upkeep, _loop = _upkeep(tmp_path, made, MAKES)
    (tmp_path / "class-archives").touch()
    upkeep.want(environment)

    upkeep.make_if(idle=True)

    assert upkeep.state.startswith("could not be made: "), upkeep.state


def test_archive_that_is_there_is_not_made_again(
    tmp_path: Path, environment: dict[str, str], made: list[ClassArchiveUpkeep]
) -> None:
    upkeep, _loop = _upkeep(tmp_path, made, FAILS)
    _archive(tmp_path, environment)

    upkeep.want(environment)
    upkeep.make_if(idle=True)

    assert upkeep.state == "ready"


def test_archive_is_not_made_when_it_is_turned_off(
    tmp_path: Path, environment: dict[str, str], made: list[ClassArchiveUpkeep]
) -> None:
    upkeep, _loop = _upkeep(tmp_path, made, FAILS, enabled=False)

    upkeep.want(environment)
    upkeep.make_if(idle=True)

    assert upkeep.state == "off"


def test_maker_ends_with_its_worker(
    tmp_path: Path, environment: dict[str, str], made: list[ClassArchiveUpkeep]
) -> None:
    upkeep, _loop = _upkeep(tmp_path, made, WAITS)
    upkeep.want(environment)
    upkeep.make_if(idle=True)
    process = upkeep.process
    assert process is not None

    upkeep.close()

    eventually(lambda: process.poll() is not None, "the maker's end")
