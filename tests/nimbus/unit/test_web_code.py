"""The lines of code that a failed task's page shows: those of the release, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from nimbus.domain.errors import NimbusError
from nimbus.domain.ids import PipelineName, ReleaseDigest
from nimbus.domain.pipelines.catalog import ReleaseOf
from nimbus.domain.pipelines.release_files import ReleaseFile
from nimbus.web.task.page import failed_code

RELEASE = ReleaseOf(PipelineName("sums"), ReleaseDigest("a" * 64))
SOURCE = "\n".join(f"line_{number}()" for number in range(1, 41)).encode()
FILES = {
    "tasks/bad.py": SOURCE,
    "big.py": b"x\n" * (200 << 10),
    "latin.py": b"\xe9\n" * 9,
    "long.py": b"<b>" * 80_000 + b"\r\nsecond\x1b[31m\xe2\x80\xae\n",
    "../up.py": b"never asked for by this name",
}


class _Releases:
    def __init__(self, *, here: bool = True) -> None:
        self.here = here
        self.read: list[str] = []

    def is_here(self, _release: ReleaseOf) -> bool:
        return self.here

    def files(self, _release: ReleaseOf) -> Sequence[ReleaseFile]:
        names = [name for name in FILES if not name.startswith("..")]
        return [ReleaseFile(name, len(FILES[name]), "", "task", False) for name in names]

    def content(self, _release: ReleaseOf, path: str) -> bytes | None:
        self.read.append(path)
        return FILES[path]


def _found(log: str, releases: Any = None) -> Any:
    given: Any = releases or _Releases()
    return failed_code(given, RELEASE, log)


def _trace(*frames: str) -> str:
    lines = "".join(f"  {frame}\n    code\n" for frame in frames)
    return f"starting\nTraceback (most recent call last):\n{lines}ValueError: no\n"


USER = 'File "tasks/bad.py", line 12, in load'


def test_innermost_line_of_the_release_is_shown_with_those_around_it() -> None:
    found = _found(
        _trace('File "tasks/bad.py", line 30, in main', USER, 'File "/usr/lib/json.py", line 3, in x')
    )

    assert (found.path, found.line, found.function) == ("tasks/bad.py", 12, "load")
    assert found.lines == tuple((number, f"line_{number}()") for number in range(8, 17))


@pytest.mark.parametrize(
    "frame",
    [
        f'File "/data/blobs/trees/{"a" * 64}/tasks/bad.py", line 12, in load',  # of a Python worker of Spark
        'File "tasks/bad.py", line 12',  # a syntax error
        '| File "tasks/bad.py", line 12, in load',  # of an exception group
    ],
)
def test_other_forms_of_frames_are_found(frame: str) -> None:
    assert _found(_trace(frame)).line == 12


@pytest.mark.parametrize(
    "log",
    [
        "no traceback",
        _trace('File "../up.py", line 1, in x'),
        _trace('File "/etc/passwd", line 1, in x'),
        _trace(f'File "/x/{"b" * 64}/tasks/bad.py", line 1, in x'),
        _trace(f'File "/x/{"a" * 64}/../up.py", line 1, in x'),
        _trace('File "tasks/bad.py", line 0, in x'),
        _trace('File "tasks/bad.py", line 99, in x'),
        _trace('File "tasks/bad.py", line 99999999999999999999, in x'),
        _trace('File "big.py", line 1, in x'),
        _trace('File "latin.py", line 1, in x'),
        _trace('File "tasks/bad.py\0", line 1, in x'),
        "Traceback (most recent call last):\n" + 'File "' * 10_000,
        f"{_trace(USER)}handled\nTraceback (most recent call last):\nValueError: another\n",
    ],
)
def test_what_is_not_in_the_release_is_not_shown(log: str) -> None:
    releases = _Releases()

    assert _found(log, releases) is None
    assert set(releases.read) <= {"tasks/bad.py", "latin.py"}


def test_giant_lines_are_cut_and_control_characters_spelled() -> None:
    (first, second, _) = _found(_trace('File "long.py", line 2, in x')).lines

    assert (len(first[1]), second[1]) == (300, "second\\x1b[31m\\u202e")


def test_nothing_is_shown_of_a_release_that_is_not_on_this_disk_or_cannot_be_read() -> None:
    class Broken(_Releases):
        def content(self, _release: ReleaseOf, path: str) -> bytes | None:
            raise NimbusError("the disk failed")

    assert _found(_trace(USER), _Releases(here=False)) is None
    assert _found(_trace(USER), Broken()) is None
