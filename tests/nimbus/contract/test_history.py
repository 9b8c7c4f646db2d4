"""The history on a real S3 server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest

from blobsync import S3Config, S3ObjectStore, Secret
from blobsync.testing.memory import MemoryObjectStore
from nimbus.adapters import s3_history
from nimbus.adapters.s3_history import S3History
from nimbus.domain.cluster.access import AccessRole, Principal, PrincipalSource
from nimbus.domain.cluster.terms import EndCause, Leader, begun, ended
from nimbus.domain.commands import CommandOutcome, PurgeRuns
from nimbus.domain.data.publications import Partitioning, Publication, interval_in
from nimbus.domain.errors import NimbusError
from nimbus.domain.ids import CommandId, DatasetName, PipelineName, ReleaseDigest, RunId, TaskName, WorkerId
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import FailureStrategy, Priority, TaskKind, TaskSpec
from nimbus.domain.runs.purge import KeptReason, PurgeOrder
from nimbus.domain.runs.run import Run, RunCause, RunPart, RunState, place
from nimbus.domain.runs.task_run import Attempt, Outcome, Reused, TaskRun, TaskState
from nimbus.domain.runs.tasks import Tasks
from nimbus.localstack.s3 import S3Server
from nimbus.ports import History

NOW = datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC)
TASK = TaskSpec(name=TaskName("t"), kind=TaskKind.PYTHON, script="t.py")
ATTEMPT = Attempt(
    number=1,
    worker=WorkerId("w1"),
    opened_at=NOW,
    opened_by_epoch=3,
    outcome=Outcome.SUCCEEDED,
    started_at=NOW,
    ended_at=NOW + timedelta(seconds=2),
    exit_code=0,
    output="p/r/t/1",
)
RUN = Run(
    id=RunId("r"),
    pipeline=PipelineName("p"),
    release=ReleaseDigest("0" * 64),
    parameters={"month": 1, "name": "ü"},
    logical_date=NOW,
    created_at=NOW,
    cause=RunCause.MANUAL,
    priority=Priority.LOW,
    failure_strategy=FailureStrategy.END,
    state=RunState.SUCCEEDED,
    finished_at=NOW + timedelta(minutes=1),
    tasks=Tasks([TaskRun(spec=TASK, state=TaskState.SUCCEEDED, attempts=(ATTEMPT,))]),
)


@dataclass
class Bench:
    history: History
    break_down: Callable[[], None]


@pytest.fixture
def bench(s3_server: S3Server, s3_bucket: str) -> Iterator[Bench]:
    config = S3Config(
        endpoint_url=s3_server.endpoint_url,
        bucket=s3_bucket,
        access_key_id=s3_server.access_key,
        secret_access_key=Secret(s3_server.secret_key),
    )
    store = S3ObjectStore(config)
    dead = S3ObjectStore(
        replace(config, endpoint_url="http://127.0.0.1:9", connect_timeout=timedelta(milliseconds=200))
    )
    history = S3History(store)
    yield Bench(history, lambda: vars(history).update(vars(S3History(dead))))
    store.close()
    dead.close()


def a_run(run_id: str, *, pipeline: str = "p", minutes: int = 0) -> Run:
    return replace(
        RUN, id=RunId(run_id), pipeline=PipelineName(pipeline), created_at=NOW + timedelta(minutes=minutes)
    )


def test_a_run_is_read_as_it_was_stored(bench: Bench) -> None:
    assert bench.history.read(RUN.id) is None
    bench.history.store(RUN)

    assert bench.history.read(RUN.id) == RUN
    assert bench.history.recent(None, 10).runs == (RUN,)


def test_storing_again_changes_nothing(bench: Bench) -> None:
    for _ in range(2):  # a new leader does not know what its predecessor has stored
        bench.history.store(RUN)

    assert bench.history.recent(None, 10).runs == (RUN,)
    assert bench.history.recent(RUN.pipeline, 10).runs == (RUN,)


def test_runs_are_stored_by_several_threads_at_once(bench: Bench) -> None:
    runs = [a_run(f"r{number}", minutes=number) for number in range(24)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(bench.history.store, runs))

    assert bench.history.recent(RUN.pipeline, 99).runs == tuple(reversed(runs))
    assert bench.history.recent(None, 99).runs == tuple(reversed(runs))


def test_the_newest_come_first_and_no_more_than_asked_for(bench: Bench) -> None:
    assert bench.history.recent(None, 10).runs == ()
    for minutes in (3, 1, 4, 0, 2):
        bench.history.store(a_run(f"r{minutes}", minutes=minutes))

    assert [run.id for run in bench.history.recent(None, 3).runs] == ["r4", "r3", "r2"]
    assert [run.id for run in bench.history.recent(None, 10).runs] == ["r4", "r3", "r2", "r1", "r0"]
    assert bench.history.recent(None, 0).runs == ()


def test_history_is_read_page_by_page_in_the_order_of_lists(bench: Bench) -> None:
    runs = [a_run(f"r{number}", minutes=number // 3) for number in range(8)]
    for run in runs:
        bench.history.store(run)

    seen: list[Run] = []
    after, pages = None, 0
    while pages == 0 or after is not None:
        page = bench.history.recent(None, 3, after)
        seen, after, pages = [*seen, *page.runs], page.more_after, pages + 1

    assert seen == sorted(runs, key=place)
    assert pages == 3


def test_runs_of_one_pipeline_are_told_apart_also_from_one_that_begins_alike(bench: Bench) -> None:
    for number, name in enumerate(("p", "p-q", "q", "p")):
        bench.history.store(a_run(f"{name}-{number}", pipeline=name, minutes=number))

    assert [run.id for run in bench.history.recent(PipelineName("p"), 10).runs] == ["p-3", "p-0"]
    assert [run.id for run in bench.history.recent(PipelineName("p-q"), 10).runs] == ["p-q-1"]
    assert bench.history.recent(PipelineName("nobody"), 10).runs == ()


@pytest.mark.parametrize("state", [RunState.SUCCEEDED, RunState.FAILED, RunState.STOPPED])
@pytest.mark.parametrize("pipeline", [None, "p"])
def test_runs_in_a_state_are_read_page_by_page(bench: Bench, state: RunState, pipeline: str | None) -> None:
    states = (RunState.SUCCEEDED, RunState.FAILED, RunState.SUCCEEDED, RunState.STOPPED)
    runs = [
        replace(
            a_run(f"r{number}", pipeline="pq"[number % 3 // 2], minutes=number // 3), state=states[number % 4]
        )
        for number in range(13)
    ]
    for run in runs:
        bench.history.store(run)

    seen: list[Run] = []
    after, pages = None, 0
    while pages == 0 or after is not None:
        page = bench.history.recent(pipeline and PipelineName(pipeline), 2, after, state=state)
        seen, after, pages = [*seen, *page.runs], page.more_after, pages + 1

    wanted = [
        run for run in sorted(runs, key=place) if run.state is state and pipeline in (None, run.pipeline)
    ]
    assert wanted
    assert seen == wanted
    assert pages == -(-len(wanted) // 2)


def test_a_search_for_successful_runs_goes_on_after_many_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_history, "MAX_SCANNED", 3)
    for number in range(5):
        state = RunState.FAILED if number else RunState.SUCCEEDED
        bench.history.store(replace(a_run(f"r{number}", minutes=number), state=state))

    first = bench.history.recent(None, 2, state=RunState.SUCCEEDED)
    assert first.runs == ()
    second = bench.history.recent(None, 2, first.more_after, state=RunState.SUCCEEDED)
    assert [run.id for run in second.runs] == ["r0"]
    assert second.more_after is None


@pytest.mark.parametrize("state", [None, RunState.SUCCEEDED])
def test_runs_since_a_time_are_the_last_ones(bench: Bench, state: RunState | None) -> None:
    for minutes in range(4):
        bench.history.store(a_run(f"r{minutes}", minutes=minutes))

    found = bench.history.recent(None, 9, since=NOW + timedelta(minutes=2), state=state)

    assert [run.id for run in found.runs] == ["r3", "r2"]
    assert found.more_after is None


def test_a_history_that_does_not_answer_says_so_and_may_later(bench: Bench) -> None:
    bench.history.store(RUN)
    bench.break_down()

    for call in (
        lambda: bench.history.store(RUN),
        lambda: bench.history.read(RUN.id),
        lambda: bench.history.recent(None, 1),
    ):
        with pytest.raises(NimbusError) as raised:
            call()
        assert raised.value.retryable


def a_refusal(number: int, pipeline: str = "p") -> CommandOutcome:
    return CommandOutcome(
        command=CommandId(f"cmd-{number:010d}"),
        accepted=False,
        code="busy",
        message="not now",
        decided_at=NOW + timedelta(minutes=number),
        epoch=1,
        kind="start_run",
        pipeline=PipelineName(pipeline),
        submitted_by="ann",
    )


def test_terms_are_listed_newest_first_below_an_epoch(bench: Bench) -> None:
    leader = Leader(id="s1", host="h", boot_id="b", version="1")
    terms = [ended(begun(leader, epoch, None, NOW), EndCause.STOPPED, NOW) for epoch in (8, 9, 10, 11)]
    assert bench.history.terms(100, 5) == ()
    bench.history.store_terms(terms[:3])
    bench.history.store_terms(terms[2:])

    assert bench.history.terms(100, 5) == tuple(terms[::-1])
    assert bench.history.terms(11, 2) == (terms[2], terms[1])
    bench.break_down()
    with pytest.raises(NimbusError):
        bench.history.terms(11, 2)


def test_refusals_are_listed_newest_first_each_once_and_by_pipeline(bench: Bench) -> None:
    assert bench.history.outcomes(None, 10) == ()
    first, second, third, fourth = (a_refusal(n, "q" if n == 2 else "p") for n in range(4))
    bench.history.store_outcomes([first, second])
    bench.history.store_outcomes([first, second])
    bench.history.store_outcomes([second, third])  # by a successor: the first leader has not deleted them yet
    bench.history.store_outcomes([fourth])

    assert bench.history.outcomes(None, 10) == (fourth, third, second, first)
    assert bench.history.outcomes(None, 2) == (fourth, third)
    assert bench.history.outcomes(PipelineName("q"), 10) == (third,)
    bench.break_down()
    for call in (lambda: bench.history.outcomes(None, 1), lambda: bench.history.store_outcomes([first])):
        with pytest.raises(NimbusError) as raised:
            call()
        assert raised.value.retryable


def test_accepted_commands_are_kept_beside_refusals_with_who_asked(bench: Bench) -> None:
    by = Principal(
        name="ann",
        role=AccessRole.OPERATOR,
        source=PrincipalSource.TOKEN,
        token_id="0" * 12,
        address="10.0.0.7",
        reason="incident 7",
    )
    done = replace(a_refusal(1), accepted=True, code="ok", asked_by=by)
    bench.history.store_outcomes([a_refusal(0), done, a_refusal(2)])
    bench.history.store_outcomes([done])

    assert bench.history.outcomes(None, 10) == (a_refusal(2), done, a_refusal(0))
    assert bench.history.outcomes(None, 2) == (a_refusal(2), done)
    assert bench.history.outcomes(None, 10, refused=True) == (a_refusal(2), a_refusal(0))


def test_refusals_in_history_that_cannot_be_read_hide_no_others() -> None:
    store = MemoryObjectStore()
    history = S3History(store)
    history.store_outcomes([a_refusal(1)])
    store.write("history/refusals/0000000000~cmd-9.json", b"broken")

    assert history.outcomes(None, 10) == (a_refusal(1),)


def test_a_run_in_history_that_cannot_be_read_hides_no_other() -> None:
    store = MemoryObjectStore()
    history = S3History(store)
    for minutes in range(3):
        history.store(a_run(f"r{minutes}", minutes=minutes))
    store.write("history/runs/r1.json", b"{broken")

    assert [run.id for run in history.recent(None, 10).runs] == ["r2", "r0"]


def publishing(run_id: str, number: int, hour: int, keep: timedelta | None = None) -> Run:
    start = NOW + timedelta(hours=hour)
    publication = Publication(dataset=DatasetName("hours"), partition=Partitioning.INTERVAL, keep=keep)
    task = replace(TASK, publishes=(publication,))
    return replace(
        a_run(run_id),
        number=number,
        data_interval=DataInterval(start=start, end=start + timedelta(hours=1)),
        tasks=Tasks([TaskRun(spec=task, state=TaskState.SUCCEEDED, attempts=(ATTEMPT,))]),
    )


def with_sequence(run: Run, sequence: int) -> Run:
    (task,) = run.tasks.in_order()
    return replace(run, tasks=Tasks([replace(task, sequence=sequence)]))


def test_versions_come_with_their_runs_the_last_publication_first(bench: Bench) -> None:
    numbered = [("a", 9, 1), ("b", 7, 1), ("c", 8, 0), ("d", 1 << 60, 0)]
    runs = [with_sequence(publishing(*one), place * 256) for place, one in enumerate(numbered, 1)]
    for run in runs:
        bench.history.store(run)
    hours = DatasetName("hours")

    found = bench.history.versions(hours, 10)

    assert [(one.partition[:13], one.run) for one in found] == [
        ("2026-03-01T12", "d"),
        ("2026-03-01T12", "c"),
        ("2026-03-01T13", "b"),
        ("2026-03-01T13", "a"),
    ]
    assert bench.history.versions(hours, 1) == found[:1]
    for count, one in enumerate(found, 1):
        assert bench.history.versions(hours, 10, before=one.sequence) == found[count:]
    shown = found[3]
    assert bench.history.version(hours, shown.partition) == shown
    assert bench.history.versions(hours, 10, shown.partition) == (shown, found[2])
    assert bench.history.versions(hours, 10, shown.partition, shown.number) == (found[2],)
    assert bench.history.versions(DatasetName("hour"), 10) == ()
    assert [bench.history.kept_version(run, NOW) for run in runs] == [
        KeptReason.PUBLISHED,
        None,
        None,
        KeptReason.PUBLISHED,
    ]


def test_newer_versions_come_in_the_order_of_publication(bench: Bench) -> None:
    runs = [
        with_sequence(publishing("slow", 2, 3), 1280),
        with_sequence(publishing("old", 3, 1), 512),
        with_sequence(publishing("new", 4, 1), 1024),
        with_sequence(publishing("read", 6, 2), 768),
        with_sequence(publishing("late", 5, 2), 1536),  # after a newer run, so it is never shown
    ]
    for run in runs:
        bench.history.store(run)
    hours = DatasetName("hours")

    assert [one.run for one in bench.history.newer_versions(hours, 0)] == ["read", "new", "slow"]
    assert [one.run for one in bench.history.newer_versions(hours, 768)] == ["new", "slow"]
    assert [one.run for one in bench.history.newer_versions(hours, 1280)] == []
    bench.history.forget_versions(runs[2])
    assert [one.run for one in bench.history.newer_versions(hours, 512)] == ["read", "slow"]
    bench.history.forget_dataset(hours, 2000)
    assert list(bench.history.newer_versions(hours, 0)) == []


def test_foreign_objects_beside_the_marks_of_versions_are_left_out() -> None:
    store = MemoryObjectStore()
    history = S3History(store)
    history.store(with_sequence(publishing("a", 1, 0), 256))
    for name in ("x", "1~2~3", f"{'9' * 19}~a~b", "keep/.x"):
        store.write(f"history/published/hours/{name}", b"")

    assert [one.run for one in history.newer_versions(DatasetName("hours"), 0)] == ["a"]


def test_version_is_kept_until_it_is_replaced_or_too_old(bench: Bench) -> None:
    run = publishing("a", 1, 0, keep=timedelta(days=3))
    bench.history.store(run)

    assert bench.history.kept_version(run, NOW + timedelta(days=3))
    assert not bench.history.kept_version(run, NOW + timedelta(days=4))
    bench.history.forget_versions(run)
    assert not bench.history.kept_version(run, NOW)
    assert bench.history.versions(DatasetName("hours"), 10) == ()


def test_as_many_of_the_newest_versions_are_kept_as_the_newest_says(bench: Bench) -> None:
    day = timedelta(days=1)
    runs = [publishing(name, number, 0, keep=3 * day) for number, name in enumerate("abcd", 1)]
    for run in runs:
        (task,) = run.tasks.in_order()
        (publication,) = task.spec.publishes
        several = replace(publication, keep_versions=1 if run.id == "c" else 3)
        spec = replace(task.spec, publishes=(several,))
        bench.history.store(replace(run, tasks=Tasks([replace(task, spec=spec)])))

    def kept(now: datetime) -> list[KeptReason | None]:
        return [bench.history.kept_version(run, now) for run in runs]

    assert kept(NOW) == [None, KeptReason.VERSIONS, KeptReason.VERSIONS, KeptReason.PUBLISHED]
    assert kept(NOW + 4 * day) == [None] * 4
    bench.history.forget_versions(runs[3])
    assert kept(NOW) == [None, None, KeptReason.PUBLISHED, None]


def test_versions_that_repeat_a_run_are_forgotten_with_it(bench: Bench) -> None:
    name, wrong, run = DatasetName("hours"), publishing("b", 2, 0), publishing("a", 1, 0)
    for one in (run, wrong):
        bench.history.store(one)
    (first,) = (one for one in bench.history.versions(name, 10) if one.run == "a")
    bench.history.store_versions(name, [replace(first, number=3)])
    assert [bench.history.kept_version(one, NOW) for one in (run, wrong)] == [KeptReason.PUBLISHED, None]

    bench.history.forget_versions(run)

    assert [one.run for one in bench.history.versions(name, 10)] == ["b"]


def test_version_that_is_published_again_is_kept_from_then_on() -> None:
    history, name = S3History(MemoryObjectStore()), DatasetName("regions")
    task = replace(TASK, publishes=(Publication(dataset=name, keep=timedelta(days=3)),))
    run = replace(RUN, tasks=Tasks([replace(RUN.tasks[TASK.name], spec=task)]))
    history.store(run)
    (first,) = history.versions(name, 10)
    later = NOW + timedelta(days=10)
    assert not history.kept_version(run, later)
    history.store_versions(name, [replace(first, number=3, at=later)])

    assert history.kept_version(run, later + timedelta(days=2))
    assert not history.kept_version(run, later + timedelta(days=4))


def test_versions_are_found_beside_one_that_covers_thousands_of_years() -> None:
    history = S3History(MemoryObjectStore())
    history.store(publishing("a", 1, 0))
    (version,) = history.versions(DatasetName("hours"), 10)
    interval = interval_in(version.partition)

    found = history.newest_versions(DatasetName("hours"), interval, timedelta(days=365 * 7000))

    assert list(found) == [version]


def test_dataset_is_forgotten_and_no_other_one(bench: Bench) -> None:
    bench.history.store(publishing("a", 1, 0))
    (version,) = bench.history.versions(DatasetName("hours"), 10)
    bench.history.store_versions(DatasetName("hours_2"), [version])
    for _ in range(2):
        bench.history.forget_dataset(DatasetName("hours"), 2)

    assert bench.history.versions(DatasetName("hours"), 10) == ()
    assert bench.history.versions(DatasetName("hours_2"), 10) == (version,)


def test_late_removal_leaves_the_versions_of_a_dataset_that_was_created_again(bench: Bench) -> None:
    name = DatasetName("hours")
    for run in (publishing("old", 512, 0), publishing("again", 1024, 0), publishing("next", 1280, 1)):
        bench.history.store(with_sequence(run, run.number + 256))
    bench.history.forget_dataset(name, 1024)

    assert [one.run for one in bench.history.versions(name, 10)] == ["next", "again"]
    assert [one.run for one in bench.history.newer_versions(name, 0)] == ["again", "next"]
    assert [one.run for one in bench.history.newest_versions(name, None, timedelta(0))] == ["again", "next"]


def test_results_are_read_as_they_were_stored(bench: Bench) -> None:
    results = {TaskName("a"): {"rows": 3, "parts": ["ü", None]}, TaskName("b"): {}}
    assert bench.history.given(RUN.id).results == {}
    for _ in range(2):
        bench.history.store_results(RUN.id, results)

    assert bench.history.given(RUN.id).results == results
    bench.break_down()
    with pytest.raises(NimbusError):
        bench.history.given(RUN.id)


def test_places_of_runs_created_before_a_moment_are_listed_newest_first(bench: Bench) -> None:
    for number, name in enumerate(("p", "p-q", "p", "p")):
        bench.history.store(a_run(f"{name}-{number}", pipeline=name, minutes=number))

    def before(minutes: int, pipeline: str | None) -> list[str]:
        name = None if pipeline is None else PipelineName(pipeline)
        return [*bench.history.created_before(NOW + timedelta(minutes=minutes), name)]

    assert before(9, None) == ["p-3", "p-2", "p-q-1", "p-0"]
    assert before(3, "p") == ["p-2", "p-0"]
    assert before(0, None) == []
    bench.break_down()
    with pytest.raises(NimbusError):
        before(9, None)


def test_run_names_those_that_reuse_what_it_did(bench: Bench) -> None:
    reused = TaskRun(spec=TASK, state=TaskState.SUCCEEDED, reused=Reused(run=RUN.id, attempt=ATTEMPT))
    bench.history.store(RUN)
    assert bench.history.reusers(RUN.id) == ()

    for number in (2, 1):
        bench.history.store(replace(a_run(f"r{number}"), tasks=Tasks([reused])))
    bench.history.store(replace(a_run("q"), id=RunId("r-1")))  # its name has the same beginning

    assert bench.history.reusers(RUN.id) == ("r1", "r2")
    bench.break_down()
    with pytest.raises(NimbusError):
        bench.history.reusers(RUN.id)


def test_purge_is_kept_until_somebody_does_it(bench: Bench) -> None:
    what = PurgeRuns(parts=(RunPart.LOGS,), reason="space", run_id=RUN.id)
    assert bench.history.purged(RUN.id) is None
    for _ in range(2):
        bench.history.order_purge(CommandId("cmd-1"), PurgeOrder(what=what, at=NOW, by="ann"))

    bench.break_down()
    for call in (
        lambda: bench.history.order_purge(CommandId("cmd-1"), PurgeOrder(what=what, at=NOW, by="ann")),
        lambda: bench.history.purged(RUN.id),
    ):
        with pytest.raises(NimbusError) as raised:
            call()
        assert raised.value.retryable
