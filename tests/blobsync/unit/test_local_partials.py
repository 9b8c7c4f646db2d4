"""Which process may receive an object, also when the process that receives it is stopped."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from blobsync.local import partials
from blobsync.local.partials import STALLED_AFTER_S, OwnedPartial, Partials

Eventually = Callable[..., None]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Host:
    """Processes of one host, each with its own `Partials`, and the partial files that they hold."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder, Clock()
        self._all: list[tuple[Partials, list[OwnedPartial]]] = []

    def process(self) -> Callable[[], OwnedPartial | None]:
        found, claims = Partials(self.folder, self.clock), list[OwnedPartial]()
        self._all.append((found, claims))

        def claim() -> OwnedPartial | None:
            claimed = found.claim("object")
            if claimed is not None:
                claims.append(claimed)
            return claimed

        return claim

    def stop(self, number: int) -> None:
        """Stop a process: it does not update its files any more, but it keeps its locks."""
        self._all[number][0].close()

    def kill(self, number: int) -> None:
        found, claims = self._all[number]
        found.close()
        while claims:
            os.close(claims.pop().fd)

    def end(self) -> None:
        for number in range(len(self._all)):
            self.kill(number)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    made.end()


def test_object_is_received_by_one_and_by_the_next_when_that_is_gone(host: Host) -> None:
    first, second = host.process(), host.process()
    mine = first()
    assert mine is not None
    os.pwrite(mine.fd, b"some", 0)
    assert second() is None

    host.kill(0)
    taken_up = second()
    assert taken_up is not None
    assert os.pread(taken_up.fd, 10, 0) == b"some"


def test_file_of_somebody_who_does_not_run_holds_nobody_up_for_longer_than_said(host: Host) -> None:
    first, second, third = host.process(), host.process(), host.process()
    assert first() is not None
    host.stop(0)
    assert second() is None
    host.clock.now = STALLED_AFTER_S - 0.1
    assert second() is None

    host.clock.now = STALLED_AFTER_S
    other = second()
    assert other is not None
    assert other.path.name == "object.2"
    for later_s in range(int(STALLED_AFTER_S)):  # the new file, too, is taken over only after that time
        host.clock.now = STALLED_AFTER_S + later_s
        assert third() is None


def test_file_that_is_touched_is_left_to_its_owner_however_slow(
    host: Host, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setattr(partials, "BEAT_S", 0.01)
    first, second = host.process(), host.process()
    mine = first()
    assert mine is not None
    for _ in range(5):
        assert second() is None
        before = os.fstat(mine.fd).st_mtime_ns  # the time that the second process has seen, or a later one
        eventually(lambda before=before: os.fstat(mine.fd).st_mtime_ns > before)
        host.clock.now += STALLED_AFTER_S * 2

    assert second() is None


def test_first_file_is_not_taken_again_while_somebody_who_took_over_has_the_second(host: Host) -> None:
    first, second, third = host.process(), host.process(), host.process()
    assert first() is not None
    host.stop(0)
    assert second() is None
    host.clock.now = STALLED_AFTER_S
    assert second() is not None
    host.kill(0)

    assert third() is None
    assert [path.name for path in sorted(host.folder.iterdir())] == ["object.2"]
    host.kill(1)
    assert third() is not None


def test_file_that_was_let_go_is_touched_no_more(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setattr(partials, "BEAT_S", 0.01)
    touched: list[object] = []
    real = os.utime
    monkeypatch.setattr(os, "utime", lambda fd: (touched.append(fd), real(fd)))
    ours = Partials(tmp_path)
    one, other = ours.claim("one"), ours.claim("other")
    assert one is not None
    assert other is not None
    eventually(lambda: {one.fd, other.fd} <= set(touched))

    ours.release(one.fd)
    touched.clear()
    eventually(lambda: len(touched) > 3)
    assert set(touched) == {other.fd}
    ours.release(other.fd)
    ours.close()
    os.close(one.fd)
    os.close(other.fd)


def test_thread_ends_with_the_last_file_and_comes_back_with_the_next(tmp_path: Path) -> None:
    ours = Partials(tmp_path)
    for _ in range(50):
        claimed = ours.claim("object")
        assert claimed is not None
        assert [thread.name for thread in threading.enumerate()].count("blobsync-partials") == 1
        ours.release(claimed.fd)
        os.close(claimed.fd)
        assert "blobsync-partials" not in [thread.name for thread in threading.enumerate()]


def test_files_that_come_and_go_on_many_threads_wait_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partials, "_END_S", 3600.0)  # waiting for other threads would not end
    ours = Partials(tmp_path)

    def come_and_go(name: str) -> None:
        for _ in range(100):
            claimed = ours.claim(name)
            assert claimed is not None
            ours.release(claimed.fd)
            os.close(claimed.fd)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(come_and_go, "abcd"))
    ours.close()


def test_file_is_let_go_when_no_thread_can_be_started_to_touch_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setattr(partials, "BEAT_S", 0.01)
    ours = Partials(tmp_path)

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            ours.claim("object")

    with (tmp_path / "other").open("wb") as other:  # may get the number of the closed descriptor
        before = os.fstat(other.fileno()).st_mtime_ns
        claimed = ours.claim("object")
        assert claimed is not None
        os.utime(claimed.fd, (1, 1))
        eventually(lambda: os.fstat(claimed.fd).st_mtime > 1)
        assert os.fstat(other.fileno()).st_mtime_ns == before
    ours.release(claimed.fd)
    os.close(claimed.fd)
