"""Shares of teams: of slots, of running runs and of pools. A team is the owner of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nimbus.domain.cluster.settings import ClusterSettings, TeamShare
from nimbus.domain.commands import SetShare
from nimbus.domain.ids import PipelineName, ReleaseDigest, RunId, TaskName
from nimbus.domain.pipelines.catalog import PipelineRecord, PipelineState, Profile
from nimbus.domain.pipelines.pipeline import Priority
from nimbus.domain.runs import lifecycle
from nimbus.domain.runs.run import Run, RunState
from nimbus.domain.runs.task_run import TaskState
from nimbus.domain.starts.admission import task_rank
from nimbus.engine.policy import Policy
from nimbus.engine.ready import ReadyTasks
from nimbus.engine.report import report
from nimbus.engine.state import State
from tests.nimbus.unit.test_engine_gates import NOW, WORKER, a_run, a_task, asked, at, end, open_all

DIGEST = ReleaseDigest("0" * 64)


def owned(name: str, owner: str | None) -> PipelineRecord:
    return PipelineRecord(
        name=PipelineName(name),
        state=PipelineState.ACTIVE,
        published=DIGEST,
        release=DIGEST,
        owner=owner,
        profile=Profile(),
        updated_at=NOW,
    )


def many(team: str, count: int, *, pools: Mapping[str, int] | None = None, name: str = "") -> Run:
    """A run of a team's pipeline with many ready tasks."""
    run = a_run(f"{team}{name}", *(a_task(f"t{number:02}", pools=pools) for number in range(count)))
    return replace(run, pipeline=PipelineName(team))


def shared(*runs: Run, slots: int = 8, most: int | None = None, **weights: int) -> State:
    state = State(epoch=3, schema=1, policy=Policy(max_running=most))
    shares = {team: TeamShare(weight=weight, set_at=NOW) for team, weight in weights.items()}
    state.put_settings(ClusterSettings(shares=shares, pools={"db": 4}), at())
    state.put_workers([replace(WORKER, slots=slots)], at())
    for team in ("finance", "sales", "ops"):
        state.put_pipeline(owned(team, team))
    for run in runs:
        state.runs.put(run, at())
    state.finish_loading()
    return state


def held(state: State) -> dict[str, int]:
    return {team: use.slots for team, use in report(state).limits.teams.items() if use.slots}


def test_team_with_many_older_tasks_leaves_others_their_share() -> None:
    late = replace(many("sales", 20), created_at=NOW + timedelta(hours=1), priority=Priority.LOW)
    state = shared(many("finance", 20), late)

    open_all(state)

    assert held(state) == {"finance": 4, "sales": 4}


def test_share_follows_the_weights() -> None:
    state = shared(many("finance", 20), many("sales", 20), many("ops", 20), finance=2)

    open_all(state)

    assert held(state) == {"finance": 4, "ops": 2, "sales": 2}


def test_idle_share_is_lent_and_given_back_as_attempts_end() -> None:
    state = shared(many("finance", 40))
    opened = open_all(state)
    assert held(state) == {"finance": 8}
    state.runs.put(many("sales", 20), at())
    assert open_all(state) == []

    for attempt in opened[:3]:
        end(state, attempt)
        assert [name.partition(".")[0] for name in open_all(state)] == ["sales"]
    assert held(state) == {"finance": 5, "sales": 3}
    for attempt in opened[3:5]:
        end(state, attempt)
        open_all(state)

    assert held(state) == {"finance": 4, "sales": 4}


def test_priority_counts_within_a_team() -> None:
    urgent = replace(many("finance", 2, name="-urgent"), priority=Priority.HIGHEST)
    state = shared(many("finance", 20), urgent, many("sales", 20), slots=4)

    assert sorted(open_all(state)) == [
        "finance-urgent.t00.1",
        "finance-urgent.t01.1",
        "sales.t00.1",
        "sales.t01.1",
    ]


def test_slots_with_a_label_are_shared_apart_from_others() -> None:
    """A team with much else does not lose its share of slots that few workers have."""

    def gpu(run: Run) -> Run:
        tasks = (replace(task, spec=replace(task.spec, runs_on=("gpu",))) for task in run.tasks.values())
        return replace(run, id=RunId(f"{run.id}-gpu"), tasks=run.tasks.replaced(tasks))

    state = shared(many("finance", 8))
    state.put_workers(
        [
            replace(WORKER, slots=8),
            replace(WORKER, id=type(WORKER.id)("gpu"), slots=0, labels=("gpu",)),
        ],
        at(),
    )
    assert len(open_all(state)) == 8
    state.put_workers(
        [replace(WORKER, slots=8), replace(WORKER, id=type(WORKER.id)("gpu"), slots=4, labels=("gpu",))], at()
    )
    state.runs.put(gpu(many("finance", 20)), at())
    state.runs.put(gpu(many("sales", 20)), at())

    assert sorted(name.partition(".")[0] for name in open_all(state)) == [
        *("finance-gpu", "finance-gpu"),
        *("sales-gpu", "sales-gpu"),
    ]


def test_pool_is_shared_although_a_team_has_many_other_tasks_ready() -> None:
    pooled = replace(many("finance", 20, pools={"db": 1}, name="-pooled"), priority=Priority.HIGH)
    state = shared(pooled, many("finance", 20), many("sales", 20, pools={"db": 1}), slots=16)

    opened = open_all(state)

    teams = [name.partition(".")[0] for name in opened if name.startswith(("finance-pooled", "sales"))]
    assert sorted(teams) == [*("finance-pooled",) * 2, *("sales",) * 2]


def test_running_runs_are_shared() -> None:
    runs = [
        replace(
            lifecycle.queued(many(team, 1, name=f"-{number}")),
            created_at=NOW + timedelta(minutes=number, hours=team == "sales"),
        )
        for team in ("finance", "sales")
        for number in range(4)
    ]
    state = shared(*runs, most=3, sales=2)

    open_all(state)

    running = [run.pipeline for run in state.runs.live.values() if run.state is not RunState.QUEUED]
    assert sorted(running) == ["finance", "sales", "sales"]
    assert report(state).limits.teams["sales"].runs == 2


def test_new_owner_takes_runs_and_attempts_with_it() -> None:
    state = shared(many("finance", 20, pools={"db": 1}), many("sales", 20), slots=4)
    open_all(state)
    assert held(state) == {"finance": 2, "sales": 2}

    state.put_pipeline(owned("finance", "sales"))

    assert held(state) == {"sales": 4}
    used = report(state).limits.teams
    assert (used["sales"].runs, used["sales"].waiting, used["sales"].pools) == (2, 36, {"db": 2})


def test_weight_is_set_with_who_and_why_and_removed() -> None:
    state = shared()

    assert asked(state, SetShare(team="finance", weight=3, reason="month end")).accepted
    share = state.settings.shares["finance"]
    assert (share.weight, share.reason, share.set_at) == (3, "month end", NOW)

    assert asked(state, SetShare(team="finance", weight=1)).accepted
    assert not state.settings.shares


def test_weight_of_a_team_that_owns_nothing_says_so() -> None:
    state = shared()

    mistyped, right = (asked(state, SetShare(team=team, weight=3)) for team in ("finanse", "finance"))

    assert "no pipeline has this owner" in mistyped.message
    assert right.message == "team finance has the weight 3"


@pytest.mark.parametrize("weight", [0, -1, 1001])
def test_weight_out_of_range_is_refused_with_what_to_do(weight: int) -> None:
    state = shared()

    refused = asked(state, SetShare(team="finance", weight=weight))

    assert refused.code == "bad_weight"
    assert "team finance" in refused.message
    assert "1 to 1000" in refused.message
    assert not state.settings.shares


_TASKS = st.lists(
    st.tuples(
        st.sampled_from(list(Priority)),
        st.integers(0, 3),
        st.sampled_from([(), ("gpu",), ("eu",)]),
        st.sampled_from([{}, {"db": 1}, {"db": 2}]),
    ),
    max_size=12,
)


@settings(deadline=None, max_examples=40)
@given(_TASKS, st.sampled_from(["", "finance"]))
def test_order_with_one_team_is_that_of_urgency(
    tasks: list[tuple[Priority, int, tuple[str, ...], dict[str, int]]], team: str
) -> None:
    """What a team has already changes nothing, however it is spread over labels and pools."""
    ready = ReadyTasks(lambda _: team, lambda want: float(hash(want) % 7))
    ranks = []
    for number, (priority, minute, labels, pools) in enumerate(tasks):
        spec = replace(a_task("t", pools=pools), runs_on=labels)
        run = replace(
            a_run(f"r{number}", spec, priority=priority), created_at=NOW + timedelta(minutes=minute)
        )
        ready.add(run, run.tasks[TaskName("t")])
        ranks.append((task_rank(run, run.tasks[TaskName("t")]), run.id))

    found = []
    while (first := ready.first()) is not None:
        found.append(first[0])
        ready.discard(*first)

    assert found == [run for _, run in sorted(ranks)]


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.tuples(st.sampled_from(["finance", "sales", "ops"]), st.integers(1, 3)), min_size=1, max_size=30
    ),
    st.integers(1, 3),
)
def test_teams_with_ready_tasks_get_their_shares_within_one_slot(
    ends: list[tuple[str, int]], weight: int
) -> None:
    """Whatever ends, no team that gets a slot has more of its share than a team that waits."""
    state = shared(*(many(team, 60) for team in ("finance", "sales", "ops")), slots=9, finance=weight)
    open_all(state)
    for team, count in ends:
        running = [str(one) for one in state.attempts.slots if state.runs.live[one.run].pipeline == team]
        for attempt in running[:count]:
            end(state, attempt)
        open_all(state)

        has = {team: held(state).get(team, 0) for team in ("finance", "sales", "ops")}
        parts = {team: state.settings.weight_of(team) for team in has}
        waits = {team for team in has if state.runs.live[RunId(team)].tasks.count(TaskState.WAITING)}
        for waiting in waits:
            smallest = has[waiting] / parts[waiting]
            assert all((has[team] - 1) / parts[team] <= smallest for team in has), (has, parts)
