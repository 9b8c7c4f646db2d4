"""Empty objects whose keys end with a slash, as consoles make "folders", are no records."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from blobsync.testing.memory import MemoryObjectStore
from nimbus.adapters.s3_history import S3History
from nimbus.adapters.s3_logs import S3LogArchive
from nimbus.adapters.s3_purges import S3Purges
from nimbus.domain.cluster.terms import EndCause, Leader, begun, ended
from nimbus.domain.commands import PurgeRuns
from nimbus.domain.ids import AttemptId, CommandId, RunId
from nimbus.domain.runs.purge import PurgeOrder
from nimbus.domain.runs.run import RunPart
from nimbus.scheduler.output_deletion import delete_with_uploads
from tests.nimbus.contract.test_history import NOW, RUN, TASK, a_refusal

WHAT = PurgeRuns(parts=(RunPart.LOGS,), reason="space", run_id=RUN.id)
EARLIER = RunId("earlier")
LOGGED, PACKED = (AttemptId(RUN.id, TASK.name, number) for number in (1, 2))


@pytest.fixture
def store() -> MemoryObjectStore:
    """Everything that Nimbus writes, and a folder and a note of somebody in each of its folders."""
    store = MemoryObjectStore()
    history, logs = S3History(store), S3LogArchive(store)
    history.store(RUN)
    history.store_outcomes([a_refusal(1), replace(a_refusal(2), accepted=True)])
    leader = Leader(id="s1", host="h", boot_id="b", version="1")
    history.store_terms([ended(begun(leader, 8, None, NOW), EndCause.STOPPED, NOW)])
    store.write(f"history/reused/{EARLIER}/{RUN.id}", b"1")
    history.order_purge(CommandId("c"), PurgeOrder(what=WHAT, at=NOW, by="ann"))
    logs.append(LOGGED, 0, b"log")
    logs.append_all({PACKED: b"packed"})
    for key in list(store.writes):
        parts = key.split("/")[:-1]
        for depth in range(len(parts)):
            store.plant("/".join(parts[: depth + 1]) + "/")
    return store


def test_history_is_read_past_folders(store: MemoryObjectStore) -> None:
    history, purges = S3History(store), S3Purges(store)
    later = NOW + timedelta(days=1)

    assert history.recent(None, 10).runs == (RUN,)
    assert history.recent(RUN.pipeline, 10).runs == (RUN,)
    assert len(history.outcomes(None, 10)) == 2
    assert history.terms(10**6, 10)
    assert list(history.created_before(later, None)) == [RUN.id]
    assert history.reusers(EARLIER) == (RUN.id,)
    assert [command for command, _ in purges.orders()] == ["c"]
    assert [place.id for place in purges.unpurged_before(later, {RunPart.LOGS}, None)] == [RUN.id]
    assert list(purges.unfinished()) == []


def test_logs_are_read_past_folders(store: MemoryObjectStore) -> None:
    logs = S3LogArchive(store)

    assert (logs.read(LOGGED), logs.size(LOGGED)) == (b"log", 3)
    assert (logs.read(PACKED), logs.size(PACKED)) == (b"packed", 6)


def test_deletion_of_a_folder_leaves_only_what_others_made(store: MemoryObjectStore) -> None:
    assert delete_with_uploads(store, f"logs/{RUN.id}/", lambda: True, lambda _count, _bytes: None)

    assert {info.key for info in store.list(f"logs/{RUN.id}/")} == {
        f"logs/{RUN.id}/",
        f"logs/{RUN.id}/{TASK.name}.1/",
        f"logs/{RUN.id}/_packs/",
    }
