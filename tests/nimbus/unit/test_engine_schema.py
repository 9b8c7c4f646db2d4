"""The cluster's schema: the leader's writes with it, and when the leader raises it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from leader import FencedOutError
from nimbus.domain import writes as w
from nimbus.domain.cluster import schema
from nimbus.domain.cluster.schedulers import ElectionRole, SchedulerInfo
from nimbus.domain.commands import Abdication
from nimbus.domain.ids import RunId, TaskName, WorkerId
from nimbus.domain.runs.run import RunState
from nimbus.domain.runs.task_run import Outcome
from nimbus.engine.decision import ResignLeadership
from nimbus.engine.policy import Policy
from nimbus.ports import StoreUnavailableError
from tests.nimbus.dict_cluster import DictLeaderStore
from tests.nimbus.engine_bench import ATTEMPT, NOW, START, WORKER, Bench

HOUR_S = 3600.0
NEWEST_SCHEMA = schema.NEWEST_SCHEMA + 1
POLICY = Policy(newest_schema=NEWEST_SCHEMA)
RAISED = f"the cluster's schema was raised from 1 to {NEWEST_SCHEMA}"


@pytest.mark.parametrize(
    ("stored", "remedy"),
    [
        (5, "newer release wrote it. Start that release"),
        (2, "run the release that knows 3 until .* schema 3"),
    ],
)
def test_records_of_a_schema_that_this_release_does_not_know_are_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, stored: int, remedy: str
) -> None:
    monkeypatch.setattr(schema, "NEWEST_SCHEMA", 4)

    for known in (3, 4):
        schema.check_known(known, "/nimbus")
    with pytest.raises(schema.SchemaUnknownError, match=f"/nimbus has schema {stored}, .* knows 4.*{remedy}"):
        schema.check_known(stored, "/nimbus")


def a_scheduler(name: str, newest_schema: int = NEWEST_SCHEMA) -> SchedulerInfo:
    return SchedulerInfo(
        id=name,
        boot_id=name,
        host=WORKER.host,
        hostname="h",
        address="http://h",
        pid=1,
        version="1",
        started_at=NOW,
        reported_at=NOW,
        role=ElectionRole.LEADER,
        newest_schema=newest_schema,
    )


class DeafStore(DictLeaderStore):
    """Executes each write. The answer to the one that raises the schema is lost."""

    def _commit(self, writes: Sequence[w.Write]) -> None:
        super()._commit(writes)
        if any(isinstance(write, w.RaiseSchema) for write in writes):
            raise StoreUnavailableError("no answer")


def upgraded(store: type[DictLeaderStore] = DictLeaderStore) -> Bench:
    """A cluster of schema 1 in which all processes know the newest one. Epoch 2 has just begun."""
    bench = Bench()
    bench.cluster.change(
        schedulers=(a_scheduler("s1"), a_scheduler("s2")),
        workers={WORKER.id: replace(WORKER, newest_schema=NEWEST_SCHEMA)},
    )
    bench.elect(2, store, POLICY)
    bench.decide()
    return bench


def pass_s(bench: Bench, seconds: float) -> None:
    bench.clocks.pass_s(seconds)
    bench.term.tend()
    bench.decide()


def resignations(bench: Bench) -> list[str]:
    return [effect.reason for effect in bench.effects if isinstance(effect, ResignLeadership)]


def test_leader_raises_the_schema_and_resigns_when_nobody_was_older_for_long_enough() -> None:
    bench = upgraded()

    pass_s(bench, HOUR_S - 1)
    assert (bench.cluster.world.schema, resignations(bench)) == (1, [])
    pass_s(bench, 2)

    assert bench.cluster.world.schema == NEWEST_SCHEMA
    assert bench.cluster.world.abdication == Abdication(epoch=2, reason=RAISED)
    assert resignations(bench) == [RAISED]
    bench.submit(START)
    with pytest.raises(FencedOutError):
        bench.decide()


def test_leader_of_a_cluster_of_the_newest_schema_raises_nothing() -> None:
    bench = upgraded()
    bench.cluster.change(schema=NEWEST_SCHEMA)
    bench.elect(3, policy=POLICY)

    pass_s(bench, HOUR_S + 1)
    pass_s(bench, HOUR_S + 1)

    assert resignations(bench) == []


@pytest.mark.parametrize("who", ["scheduler", "worker"])
def test_schema_is_not_raised_until_an_older_participant_was_gone_for_long_enough(who: str) -> None:
    bench = upgraded()
    world = bench.cluster.world
    pass_s(bench, HOUR_S / 2)
    if who == "scheduler":
        bench.cluster.change(schedulers=(*world.schedulers, a_scheduler("old", 1)))
    else:
        old = replace(WORKER, id=WorkerId("old"))
        bench.cluster.change(workers={**world.workers, old.id: old})
    pass_s(bench, HOUR_S)
    bench.cluster.change(schedulers=world.schedulers, workers=world.workers)
    pass_s(bench, 10)
    pass_s(bench, HOUR_S - 1)
    assert bench.cluster.world.schema == 1

    pass_s(bench, 2)

    assert bench.cluster.world.schema == NEWEST_SCHEMA


def test_schema_is_not_raised_while_no_scheduler_is_registered() -> None:
    bench = upgraded()
    bench.cluster.change(schedulers=())
    bench.elect(3, policy=POLICY)

    pass_s(bench, HOUR_S + 1)
    pass_s(bench, HOUR_S + 1)

    assert bench.cluster.world.schema == 1


def test_clock_of_the_schema_goes_on_when_everything_is_read_again() -> None:
    bench = upgraded()
    pass_s(bench, HOUR_S / 2)
    bench.term.recover()

    pass_s(bench, HOUR_S / 2 + 1)

    assert bench.cluster.world.schema == NEWEST_SCHEMA


def test_leader_that_lost_the_answer_to_the_raise_resigns_when_it_has_read_again() -> None:
    bench = upgraded(DeafStore)
    bench.clocks.pass_s(HOUR_S + 1)
    with pytest.raises(StoreUnavailableError):
        bench.decide()
    assert (bench.cluster.world.schema, resignations(bench)) == (NEWEST_SCHEMA, [])

    bench.term.recover()
    bench.decide()

    assert resignations(bench) == [RAISED]


def test_successor_of_a_leader_that_died_after_the_raise_goes_on_with_its_runs() -> None:
    bench = upgraded()
    bench.submit(START)
    bench.decide()
    pass_s(bench, HOUR_S + 1)
    bench.effects.clear()

    bench.elect(3, policy=POLICY)
    bench.claim()
    bench.end(ATTEMPT, Outcome.SUCCEEDED)
    bench.submit(replace(START, run_id=RunId("p-2")))
    bench.decide()

    run = bench.run()
    assert RunId("p-2") in bench.cluster.world.runs
    assert run.tasks[TaskName("a")].tried == 1
    assert run.state in (RunState.RUNNING, RunState.SUCCEEDED)
    assert resignations(bench) == [], "the record names the epoch of its predecessor"


def test_successor_of_a_leader_that_died_before_the_raise_waits_anew_and_raises_it() -> None:
    bench = upgraded()
    pass_s(bench, HOUR_S - 1)

    bench.elect(3, policy=POLICY)
    bench.decide()
    pass_s(bench, HOUR_S - 1)
    assert bench.cluster.world.schema == 1
    pass_s(bench, 2)

    assert bench.cluster.world.schema == NEWEST_SCHEMA
