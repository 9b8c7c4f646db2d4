"""The LogArchive on a real S3 server, and on the store in memory of other tests."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from blobsync import S3Config, S3ObjectStore, Secret
from blobsync.testing.memory import MemoryObjectStore
from nimbus.adapters.s3_logs import S3LogArchive
from nimbus.domain.errors import NimbusError
from nimbus.domain.ids import AttemptId, RunId, TaskName
from nimbus.localstack.s3 import S3Server
from nimbus.ports import KeptLog, LogArchive

ATTEMPT = AttemptId(RunId("r"), TaskName("t"), 1)


@pytest.fixture(params=["memory", "s3"])
def logs(request: pytest.FixtureRequest) -> Iterator[LogArchive]:
    if request.param == "memory":
        yield S3LogArchive(MemoryObjectStore())
        return
    store = S3ObjectStore(
        s3_config(request.getfixturevalue("s3_server"), request.getfixturevalue("s3_bucket"))
    )
    yield S3LogArchive(store)
    store.close()


def s3_config(server: S3Server, bucket: str) -> S3Config:
    return S3Config(
        endpoint_url=server.endpoint_url,
        bucket=bucket,
        access_key_id=server.access_key,
        secret_access_key=Secret(server.secret_key),
    )


def test_what_was_never_written_is_empty(logs: LogArchive) -> None:
    assert logs.read(ATTEMPT) == b""
    assert logs.read(ATTEMPT, 100) == b""


def test_chunks_are_read_as_one_text(logs: LogArchive) -> None:
    logs.append(ATTEMPT, 0, b"one\n")
    logs.append(ATTEMPT, 4, b"two\n")
    logs.append(ATTEMPT, 8, bytes(range(256)))

    assert logs.read(ATTEMPT) == b"one\ntwo\n" + bytes(range(256))


@pytest.mark.parametrize(
    ("offset", "limit", "found"),
    [
        (0, 3, b"012"),
        (0, 100, b"0123456789ab"),
        (3, 4, b"3456"),
        (5, 1, b"5"),
        (6, 100, b"6789ab"),
        (11, 5, b"b"),
        (12, 5, b""),
        (100, 5, b""),
        (4, 0, b""),
    ],
)
def test_any_part_can_be_read_across_chunks(logs: LogArchive, offset: int, limit: int, found: bytes) -> None:
    for start, data in ((0, b"01234"), (5, b"5"), (6, b"6789ab")):
        logs.append(ATTEMPT, start, data)

    assert logs.read(ATTEMPT, offset, limit) == found


def test_storing_again_changes_nothing(logs: LogArchive) -> None:
    for _ in range(2):
        logs.append(ATTEMPT, 0, b"0123")
        logs.append(ATTEMPT, 4, b"4567")

    assert logs.read(ATTEMPT) == b"01234567"


@pytest.mark.parametrize(
    "chunks",
    [
        ((0, b"0123"), (0, b"01234567"), (8, b"89")),  # a retry with more bytes
        ((0, b"01234567"), (4, b"456789")),
        ((0, b"01234567"), (2, b"23"), (8, b"89")),  # one chunk within another
        ((0, b"012"), (3, b"345"), (1, b"123456789")),
    ],
)
def test_chunks_that_overlap_are_read_once(logs: LogArchive, chunks: tuple[tuple[int, bytes], ...]) -> None:
    for offset, data in chunks:
        logs.append(ATTEMPT, offset, data)

    assert logs.read(ATTEMPT) == b"0123456789"
    assert logs.read(ATTEMPT, 5, 3) == b"567"


def test_logs_of_attempts_with_names_that_begin_alike_are_told_apart(logs: LogArchive) -> None:
    others = [
        AttemptId(RunId("r"), TaskName("t"), 11),
        AttemptId(RunId("r"), TaskName("t1"), 1),
        AttemptId(RunId("r1"), TaskName("t"), 1),
    ]
    for number, attempt in enumerate([ATTEMPT, *others]):
        logs.append(attempt, 0, str(number).encode())

    assert [logs.read(attempt) for attempt in [ATTEMPT, *others]] == [b"0", b"1", b"2", b"3"]


def test_logs_that_are_stored_together_are_read_one_by_one(logs: LogArchive) -> None:
    other = AttemptId(RunId("r"), TaskName("t"), 2)
    elsewhere = AttemptId(RunId("r2"), TaskName("t"), 1)
    logs.append_all({ATTEMPT: b"one\n", other: b"", elsewhere: b"three\n"})
    logs.append_all({AttemptId(RunId("r"), TaskName("u"), 1): b"four\n"})

    assert logs.read(ATTEMPT) == b"one\n"
    assert (logs.read(ATTEMPT, 1, 2), logs.read(ATTEMPT, 4), logs.read(ATTEMPT, 9)) == (b"ne", b"", b"")
    assert (logs.read(other), logs.read(elsewhere)) == (b"", b"three\n")
    assert logs.read(AttemptId(RunId("r"), TaskName("u"), 1)) == b"four\n"


def test_storing_logs_together_again_changes_nothing(logs: LogArchive) -> None:
    for _ in range(2):
        logs.append_all({ATTEMPT: b"one\n"})

    assert logs.read(ATTEMPT) == b"one\n"


def test_reading_goes_on_where_it_stopped_while_the_log_grows(logs: LogArchive) -> None:
    text = b"".join(b"line %d\n" % number for number in range(200))
    seen = b""
    for offset in range(0, len(text), 100):
        logs.append(ATTEMPT, offset, text[offset : offset + 100])
        seen += logs.read(ATTEMPT, len(seen), 70)
    while part := logs.read(ATTEMPT, len(seen), 70):
        seen += part

    assert seen == text


def test_size_of_a_log_is_where_reading_ends(logs: LogArchive) -> None:
    assert logs.size(ATTEMPT) == 0
    for offset, data in ((0, b"0123"), (4, b"4567"), (2, b"23")):
        logs.append(ATTEMPT, offset, data)
    logs.append(ATTEMPT, 0, b"and", KeptLog.EVENTS)
    packed = AttemptId(RunId("r"), TaskName("u"), 1)
    logs.append_all({packed: b"four\n"})

    assert (logs.size(ATTEMPT), logs.size(packed)) == (8, 5)
    assert logs.size(AttemptId(RunId("r"), TaskName("t"), 2)) == 0


# S3 only: chunks are separate objects, and small logs of a run share one.


def test_many_small_logs_of_a_run_are_one_object(
    s3_logs: S3LogArchive, s3_server: S3Server, s3_bucket: str
) -> None:
    many = {AttemptId(RunId("r"), TaskName(f"t{n}"), 1): b"%d\n" % n for n in range(5_000)}
    s3_logs.append_all(many)

    store = S3ObjectStore(s3_config(s3_server, s3_bucket))
    assert len(list(store.list("logs/r/"))) == 1
    store.close()
    assert [s3_logs.read(attempt) for attempt in list(many)[::999]] == list(many.values())[::999]


@pytest.fixture
def s3_logs(s3_server: S3Server, s3_bucket: str) -> Iterator[S3LogArchive]:
    store = S3ObjectStore(s3_config(s3_server, s3_bucket))
    yield S3LogArchive(store)
    store.close()


def test_a_gap_ends_what_can_be_read_until_it_is_filled(s3_logs: S3LogArchive) -> None:
    s3_logs.append(ATTEMPT, 0, b"0123")
    s3_logs.append(ATTEMPT, 8, b"89")
    assert s3_logs.read(ATTEMPT) == b"0123"
    assert s3_logs.read(ATTEMPT, 4) == b""
    assert s3_logs.read(ATTEMPT, 8) == b"89"
    assert s3_logs.size(ATTEMPT) == 4

    s3_logs.append(ATTEMPT, 4, b"4567")
    assert s3_logs.read(ATTEMPT) == b"0123456789"


def test_a_storage_that_does_not_answer_is_told_and_may_later(s3_server: S3Server) -> None:
    from dataclasses import replace

    config = replace(
        s3_config(s3_server, "any"),
        endpoint_url="http://127.0.0.1:9",
        connect_timeout=timedelta(milliseconds=200),
    )
    store = S3ObjectStore(config)
    dead = S3LogArchive(store)
    for call in (lambda: dead.append(ATTEMPT, 0, b"x"), lambda: dead.read(ATTEMPT)):
        with pytest.raises(NimbusError) as raised:
            call()
        assert raised.value.retryable
    store.close()


def test_event_log_of_an_attempt_is_kept_apart_from_its_log(logs: LogArchive) -> None:
    logs.append(ATTEMPT, 0, b"what it printed")
    logs.append(ATTEMPT, 0, b"what ", KeptLog.EVENTS)
    logs.append(ATTEMPT, 5, b"happened", KeptLog.EVENTS)

    assert logs.read(ATTEMPT) == b"what it printed"
    assert logs.read(ATTEMPT, 0, 100, KeptLog.EVENTS) == b"what happened"
    assert logs.read(AttemptId(RunId("r"), TaskName("t"), 2), 0, 100, KeptLog.EVENTS) == b""
