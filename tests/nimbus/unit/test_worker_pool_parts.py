"""Parts of an executor: its queue to the board, its logs, and its analysis of user code."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nimbus.domain.attempts.slots import Claim, End
from nimbus.domain.ids import AttemptId
from nimbus.domain.runs.task_run import Outcome
from nimbus.ports import StoreUnavailableError
from nimbus.worker.attempt.folder import AttemptFolder
from nimbus.worker.host.files import read_untrusted
from nimbus.worker.host.loop import Loop
from nimbus.worker.pool.folder import ExitRecords, read_exits
from nimbus.worker.pool.logs import Logs
from nimbus.worker.pool.messages import Answer, NotPreloaded, SendQueue, Unstored, connected, receive_answer
from tests.nimbus.worker_bench import Bench, eventually

ATTEMPT = "run1.task.1"
NOW = datetime(2026, 3, 1, tzinfo=UTC)
CLAIM = Claim(attempt=ATTEMPT, claimed_at=NOW, nonce="n")
END = End(attempt=ATTEMPT, outcome=Outcome.SUCCEEDED, written_by="executor", ended_at=NOW, nonce="n")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def test_line_that_was_not_written_to_its_end_is_no_exit_record(tmp_path: Path) -> None:
    ExitRecords(tmp_path / "exits").note([END])
    whole = (tmp_path / "exits").read_bytes()
    (tmp_path / "exits").write_bytes(whole + whole[: len(whole) // 2])

    assert read_exits(tmp_path / "exits") == {ATTEMPT: END}


def test_exit_record_after_one_that_found_a_full_disk_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exits, room = ExitRecords(tmp_path / "exits"), [20]

    def write(fd: int, data: bytes) -> int:
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return written(fd, data[: room.pop()])

    written = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", write)
        exits.note([replace(END, attempt="run1.task.2")])

    exits.note([END])

    assert read_exits(tmp_path / "exits") == {ATTEMPT: END}


class Archive:
    """Stores logs, and loses replies."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.together: dict[AttemptId, bytes] = {}
        self.broken: str | None = None

    def append(self, attempt: AttemptId, offset: int, data: bytes) -> None:
        self.pieces.append(data)
        if offset == 0 and len(self.pieces) == 1:
            raise StoreUnavailableError("the reply is lost")

    def append_all(self, logs: Mapping[AttemptId, bytes]) -> None:
        self.together |= logs

    def read(self, attempt: AttemptId, offset: int = 0, limit: int = 1 << 20) -> bytes:
        return self.together.get(attempt, b"")


def _task(bench: Bench, attempt: str, text: bytes) -> AttemptFolder:
    folder = bench.folder(attempt)
    folder.create(bench.order("task.py", attempt=attempt))
    folder.log.write_bytes(text)
    return folder


def test_log_of_which_a_piece_may_be_stored_is_stored_in_pieces(bench: Bench) -> None:
    archive = Archive()
    folder = _task(bench, ATTEMPT, b"begin")
    logs = Logs(lambda: archive)
    logs.follow(folder, 1 << 20)
    eventually(lambda: archive.pieces, "the first piece")
    with folder.log.open("ab") as log:
        log.write(b" and end")

    logs.ended(folder)

    eventually(lambda: not folder.path.exists(), "the folder is removed")
    assert archive.pieces[-1] == b"begin and end"
    assert archive.together == {}
    logs.close(60.0)


def test_log_that_grows_fast_is_stored_in_many_pieces_at_once_and_then_others_have_their_turn(
    bench: Bench,
) -> None:
    archive = Archive()
    large = _task(bench, "run1.large.1", b"x" * (20 << 20))
    small = _task(bench, "run1.small.1", b"y" * (64 << 10))
    logs = Logs(lambda: archive)

    logs.follow(large, 1 << 30)
    logs.follow(small, 1 << 30)

    eventually(lambda: len(archive.pieces) == 22, "both are stored")
    first_of_which_the_reply_is_lost = 1
    sizes = [len(piece) for piece in archive.pieces[first_of_which_the_reply_is_lost:]]
    assert sizes == [1 << 20] * 16 + [64 << 10] + [1 << 20] * 4
    logs.close(60.0)


def test_log_that_cannot_be_stored_holds_up_no_other(bench: Bench) -> None:
    archive = Archive()
    bad, good = _task(bench, "run1.bad.1", b"bad"), _task(bench, "run1.good.1", b"good")
    bad.log.unlink()
    bad.log.mkdir()
    logs = Logs(lambda: archive)

    logs.ended(bad)
    logs.ended(good)

    eventually(lambda: not good.path.exists(), "the good one is removed")
    assert archive.together == {good.attempt: b"good"}
    bad.log.rmdir()
    logs.close(60.0)


@pytest.mark.parametrize("made", ["nothing", "folder", "link", "pipe", "large"])
def test_what_is_no_small_file_of_user_code_reads_as_nothing(tmp_path: Path, made: str) -> None:
    place, secret = tmp_path / "progress.json", tmp_path / "secret"
    secret.write_text("{}")
    if made == "folder":
        place.mkdir()
    elif made == "link":
        place.symlink_to(secret)
    elif made == "pipe":
        os.mkfifo(place)
    elif made == "large":
        place.write_bytes(b"x" * 101)

    assert read_untrusted(place, 100) is None


def test_file_that_cannot_be_read_reads_as_nothing() -> None:
    unreadable = Path("/proc/self/mem")  # EIO at its beginning
    assert unreadable.is_file()

    assert read_untrusted(unreadable, 100) is None


@pytest.mark.parametrize(
    "told",
    [
        Answer(ATTEMPT, "\U0001f600" * 5000),
        Unstored(1, "\U0001f600" * 5000),
        NotPreloaded("\U0001f600" * 5000),
    ],
)
def test_long_reason_in_any_script_reaches_the_worker(told: Answer | Unstored | NotPreloaded) -> None:
    worker, executor = connected()
    with worker, executor:
        executor.send(told.encode())

        assert "\U0001f600" * 1000 in repr(receive_answer(worker))


def test_message_that_can_never_be_sent_is_an_error_and_is_not_tried_for_ever() -> None:
    worker, executor = connected()
    with worker, executor:
        queue = SendQueue(executor, Loop())

        with pytest.raises(OSError, match="Message too long") as refused:
            queue.send(b"x" * (1 << 20))

    assert refused.value.errno == errno.EMSGSIZE


def test_logs_that_are_not_stored_are_told_once_and_once_that_they_are(bench: Bench) -> None:
    archive, opens, told = Archive(), iter([False, False, True]), list[Unstored]()

    def opened() -> Archive:
        if not next(opens):
            raise StoreUnavailableError("no credentials")
        return archive

    logs = Logs(opened, told.append)
    logs.ended(_task(bench, ATTEMPT, b"said"))

    eventually(lambda: told[-1:] == [Unstored()], "the log is stored")
    logs.close(60)
    assert told == [Unstored(1, "no credentials"), Unstored()]
    assert list(archive.together.values()) == [b"said"]
