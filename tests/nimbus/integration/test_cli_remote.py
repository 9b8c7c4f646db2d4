"""The command line against a real API server: what it prints, and what it exits with."""

from __future__ import annotations

import getpass
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import zstandard
from click.testing import CliRunner, Result

from nimbus.cli.main import cli
from nimbus.client import Client
from nimbus.client.api import Api
from nimbus.client.errors import UnreachableError
from nimbus.domain.commands import Abdicate, DecideApproval, PauseRun, ResumeRun, StopRun
from nimbus.domain.ids import AttemptId, RunId, TaskName
from nimbus.domain.pipelines.catalog import Skips
from nimbus.domain.runs.task_run import Outcome
from nimbus.ports import KeptLog
from tests.nimbus.integration.web_samples import terms

Invoke = Callable[..., Result]


@pytest.fixture
def closed_ports() -> Iterator[tuple[int, int]]:
    """Two ports that refuse connections: bound, so that no other process gets them, and not listening."""
    with socket.socket() as one, socket.socket() as two:
        for held in (one, two):
            held.bind(("127.0.0.1", 0))
        yield int(one.getsockname()[1]), int(two.getsockname()[1])


def _command(world: Any) -> Any:
    (queued,) = world.reader.commands()
    return queued.command


def _instead_of_sleep(monkeypatch: pytest.MonkeyPatch, module: str, act: Callable[[float], Any]) -> None:
    """Act where a module sleeps. The server's threads in this process sleep, too: not instead of those."""
    monkeypatch.setattr(f"{module}.time", SimpleNamespace(sleep=act, monotonic=time.monotonic))


def test_participants_are_a_table_for_people_and_json_for_machines(nimbus: Invoke) -> None:
    table, document = nimbus("cluster", "participants"), nimbus("cluster", "participants", "-o", "json")

    assert table.exit_code == document.exit_code == 0
    first, second = table.stdout.splitlines()[2:4]
    assert re.search(r"^0 +s1 +leader +7 +ready", first)
    assert re.search(r"^1 +s2 +queued +lacks 1 file, 9 B", second)
    assert [row["id"] for row in json.loads(document.stdout)["participants"]] == ["s1", "s2"]


def test_participants_say_how_long_missing_files_still_take(world: Any, nimbus: Invoke) -> None:
    lacks = replace(world.health.me, id="s2", ready=False, missing_count=1, missing_bytes=9)
    world.cluster.put(replace(lacks, missing_eta_s=185.0))
    fetching = nimbus("cluster", "participants").stdout
    world.cluster.put(lacks)

    assert "lacks 1 file, 9 B, 3m05s left" in fetching
    assert "left" not in nimbus("cluster", "participants").stdout, "it cannot be estimated"


def test_participants_say_why_one_is_not_ready_if_no_missing_file_is_known(
    world: Any, nimbus: Invoke
) -> None:
    absent = replace(world.health.me, id="s2", ready=False, lacks="sums: absent: no such release")
    world.cluster.put(absent)
    now = nimbus("cluster", "participants").stdout
    world.cluster.put(replace(absent, lacks=""))

    assert "sums: absent: no such release" in now
    assert "not ready" in nimbus("cluster", "participants").stdout


def test_history_says_which_times_are_bounds_and_how_much_was_decided(world: Any, nimbus: Invoke) -> None:
    terms(world, 4)
    table = nimbus("cluster", "history").stdout.splitlines()
    newest, stopped, died, first = table[2:6]

    assert re.search(r" +1m00s +0\.2s .* 12 *$", newest), "the term before was ended by its own leader"
    assert re.search(r"Z +59m00s +stopped by ann +at most 1m00s +", stopped)
    assert re.search(r"Z +at least 59m00s +died +1m00s ", died)
    assert re.search(r"Z +59m00s +handed over by ann: ", first)


def test_history_of_terms_is_a_table_for_people_and_json_for_machines(world: Any, nimbus: Invoke) -> None:
    terms(world, 4)
    world.cluster.put(replace(world.health.me, id="s2"))
    table, document = nimbus("cluster", "history"), nimbus("cluster", "history", "--limit", "3", "-o", "json")
    succession, status = nimbus("cluster", "succession"), nimbus("cluster", "status")

    newest, stopped, died = table.stdout.splitlines()[2:5]
    assert re.search(r"^7 +s2 +0\.1\.0 .* leads, or nobody has led since +1m00s +0\.2s", newest)
    assert "2 runs, 4 attempts, 1 ended, 1 fenced" in newest
    assert "stopped by ann" in stopped
    assert "died" in died
    assert [term["epoch"] for term in json.loads(document.stdout)["terms"]] == [7, 6, 5]
    assert succession.stdout.startswith(
        "If the leader died now, s2, which is ready, would lead after about 0.2 s and adopt"
    )
    assert "At most 10s: the crash sentinel ends" in succession.stderr
    assert "succession" in status.stdout


def test_leader_exits_6_while_nobody_leads(world: Any, nimbus: Invoke) -> None:
    led = nimbus("cluster", "leader")
    world.health.leading = None
    unled = nimbus("cluster", "leader", "-o", "json")

    assert (led.exit_code, led.stdout.startswith("s1 leads epoch 7")) == (0, True)
    assert (unled.exit_code, json.loads(unled.stdout)) == (6, {"leader": None})
    assert "nobody leads" in unled.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("cluster", "status"),
        ("cluster", "workers"),
        ("pipeline", "list"),
        ("pipelines", "ls"),
        ("pipeline", "show", "sums"),
        ("run", "list", "--state", "running"),
        ("run", "show", "r1"),
    ],
)
def test_each_read_prints_a_table_and_a_json_document(
    world: Any, nimbus: Invoke, words: tuple[str, ...]
) -> None:
    world.opened(world.new_run("r1", parameters={"month": 3}), "extract")

    table, document = nimbus(*words), nimbus(*words, "-o", "json")

    assert (table.exit_code, document.exit_code, table.stderr) == (0, 0, "")
    assert len(table.stdout.splitlines()) >= 3
    assert "\x1b[" not in table.stdout  # without a terminal there are no colours
    assert json.loads(document.stdout)


@pytest.mark.parametrize(
    ("schema", "newest", "old", "words"),
    [
        (None, 2, False, "none before the first leader"),
        (2, 2, False, "2"),
        (1, 2, False, "1; the leader raises it to 2 after leadership.raise_schema_after"),
        (1, 2, True, "1; to raise it to 2, upgrade: scheduler s2"),
        (2, 2, True, "2; too old for it, upgrade: scheduler s2"),
        (3, 2, False, "3; the scheduler that answers knows 2 and cannot lead: upgrade it"),
    ],
)
def test_status_says_what_to_do_about_the_schema(
    world: Any, nimbus: Invoke, schema: int | None, newest: int, old: bool, words: str
) -> None:
    one, two = (replace(info, newest_schema=newest) for info in world.reader.schedulers())
    world.health.me, world.health.cluster_schema = one, schema
    two = replace(two, newest_schema=1) if old else two
    world.cluster.put(one, two, replace(world.worker, newest_schema=newest))

    shown = nimbus("cluster", "status").stdout

    assert re.search(rf"^schema +{re.escape(words)} *$", shown, re.MULTILINE)


@pytest.mark.parametrize(
    ("scheduler_s", "worker_s", "warns"), [(1.5, 0.0, False), (900.0, 0.0, True), (0.0, -900.0, True)]
)
def test_status_warns_of_clocks_that_differ(
    world: Any, nimbus: Invoke, scheduler_s: float, worker_s: float, warns: bool
) -> None:
    one, two = world.reader.schedulers()
    world.cluster.put(
        replace(one, clock_ahead_s=scheduler_s),
        replace(two, clock_ahead_s=0.0),
        replace(world.worker, clock_ahead_s=worker_s),
    )

    shown = nimbus("cluster", "status").stdout

    assert ("those of schedulers and workers differ by 900.0 s" in shown) is warns


def test_show_says_why_a_task_waits_and_draws_the_attempts(world: Any, nimbus: Invoke) -> None:
    world.failed("r1")

    shown = nimbus("run", "show", "r1").stdout

    assert "failed after 2 attempts: failed (missing_input): exit 1" in shown
    assert "not run: extract failed" in shown
    assert re.search(r"^extract #2 .*░.* failed \(missing_input\) on w1$", shown, re.MULTILINE)


def test_show_names_the_data_interval_that_a_run_was_started_with(nimbus: Invoke) -> None:
    interval = ("2026-01-30T00:00:00+01:00", "2026-01-31T00:00:00+01:00")
    assert nimbus("run", "start", "sums", "--run-id", "r1", "--data-interval", *interval).exit_code == 0

    shown, document = nimbus("run", "show", "r1").stdout, nimbus("run", "show", "r1", "-o", "json").stdout

    assert "from 2026-01-29 23:00:00Z to 2026-01-30 23:00:00Z" in shown
    answer = json.loads(document)
    assert answer["data_interval"] == {"start": "2026-01-29T23:00:00Z", "end": "2026-01-30T23:00:00Z"}
    assert answer["timezone"] == "UTC"


def test_show_lists_the_fire_times_that_a_pipeline_skipped(world: Any, nimbus: Invoke) -> None:
    fires = (datetime(2026, 1, 30, 6, tzinfo=UTC), datetime(2026, 1, 31, 6, tzinfo=UTC))
    skips = Skips().with_fires(fires, "missed, and catchup is none", after=None, now=fires[-1])
    world.cluster.put(replace(world.record, schedule_position=fires[-1], skips=skips))

    shown, document = nimbus("pipeline", "show", "sums"), nimbus("pipeline", "show", "sums", "-o", "json")

    assert re.search(
        r"^2026-01-30 06:00:00Z +2026-01-31 06:00:00Z +2 +missed, and catchup is none$",
        shown.stdout,
        re.MULTILINE,
    )
    answer = json.loads(document.stdout)
    assert answer["skipped_fires_total"] == 2
    assert answer["skipped_fires"] == [
        {
            "first": "2026-01-30T06:00:00Z",
            "last": "2026-01-31T06:00:00Z",
            "count": 2,
            "reason": "missed, and catchup is none",
            "at": "2026-01-31T06:00:00Z",
            "schedule": "",
        }
    ]


def test_show_and_watch_name_the_application_of_an_attempt_that_has_ended(world: Any, nimbus: Invoke) -> None:
    run = world.succeeded("r1")
    task = run.tasks[TaskName("load")]
    told = replace(task, attempts=(replace(task.attempts[0], application="app-7"),))
    world.cluster.put(replace(run, tasks=run.tasks.replaced([told])))

    shown, watched = nimbus("run", "show", "r1").stdout, nimbus("run", "watch", "r1").stdout

    assert re.search(r"^load +1 +app-7 *$", shown, re.MULTILINE)
    assert re.search(r"load  succeeded, attempt 1 on w1, application app-7$", watched, re.MULTILINE)


def test_start_prints_the_run_id_alone_on_stdout(world: Any, nimbus: Invoke) -> None:
    started = nimbus("run", "start", "sums", "--param", "n=3", "--param", "name=x y")

    assert started.exit_code == 0
    run_id = started.stdout.strip()
    assert re.fullmatch(r"sums-\d{8}t\d{6}z-[0-9a-f]{6}", run_id)
    assert world.reader.run(RunId(run_id)).parameters == {"n": 3, "name": "x y"}


def test_start_with_an_answer_that_is_lost_starts_one_run(
    world: Any, nimbus: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, posts = httpx.Client.request, 0

    def losing(self: httpx.Client, method: str, *given: Any, **more: Any) -> httpx.Response:
        nonlocal posts
        answer = request(self, method, *given, **more)
        posts += method == "POST"
        if method == "POST" and posts == 1:
            raise httpx.ReadError("connection reset")  # executed, but the answer is lost
        return answer

    monkeypatch.setattr(httpx.Client, "request", losing)

    started = nimbus("run", "start", "sums", "--param", "n=3")

    assert (started.exit_code, posts) == (0, 2)
    assert list(world.reader.run_list()) == [started.stdout.strip()]


def test_start_takes_parameters_from_stdin_and_lets_single_ones_win(world: Any, nimbus: Invoke) -> None:
    nimbus(
        "run",
        "start",
        "sums",
        "--run-id",
        "mine",
        "--params",
        "-",
        "--param",
        "b=2",
        stdin='{"a": 1, "b": 1}',
    )

    assert world.reader.run(RunId("mine")).parameters == {"a": 1, "b": 2}


def test_start_with_watch_exits_with_the_runs_result(world: Any, nimbus: Invoke) -> None:
    world.succeeded("good")
    world.failed("bad")

    good = nimbus("run", "start", "sums", "--run-id", "good", "--watch")
    bad = nimbus("run", "start", "sums", "--run-id", "bad", "--watch")

    assert (good.exit_code, bad.exit_code) == (0, 1)
    assert "run good succeeded" in good.stderr
    assert "extract  failed, attempt 2 on w1" in bad.stdout


def test_watch_prints_each_change_once_and_ends_with_the_run(
    world: Any, nimbus: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.opened(world.new_run("r1"), "extract")
    looks: Any = iter([lambda: None, lambda: None, lambda: world.succeeded("r1")])
    _instead_of_sleep(monkeypatch, "nimbus.client.client", lambda _s: next(looks)())

    watched = nimbus("run", "watch", "r1")

    assert watched.exit_code == 0
    lines = [line.partition("  ")[2] for line in watched.stdout.splitlines()]
    assert lines.count("extract  running, attempt 1 on w1") == 1
    assert lines[-1] == "run succeeded, 2/2 tasks ended"


@pytest.fixture
def undecided(world: Any, api: httpx.Client) -> None:
    """Run `r1` is requested, without a decision."""
    world.deciding = False
    api.post("/runs", json={"pipeline": "sums", "run_id": "r1"})


def test_show_tells_of_a_run_that_waits_for_a_decision_and_of_one_that_was_refused(
    world: Any, nimbus: Invoke, undecided: None
) -> None:
    pending, document = nimbus("run", "show", "r1"), nimbus("run", "show", "r1", "-o", "json")
    world.refuse = ("quarantined", "file lost")
    world.decide()
    refused = nimbus("run", "show", "r1")

    assert (pending.exit_code, document.exit_code, refused.exit_code) == (0, 0, 0)
    assert re.search(r"^state +pending$", pending.stdout, re.MULTILINE)
    assert re.search(r"^command +cmd-0000000000 \(pending\)$", pending.stdout, re.MULTILINE)
    assert json.loads(document.stdout)["state"] == "pending"
    assert re.search(r"^state +refused \(file lost\)$", refused.stdout, re.MULTILINE)


def test_watch_waits_for_a_run_that_is_pending(
    world: Any, nimbus: Invoke, monkeypatch: pytest.MonkeyPatch, undecided: None
) -> None:
    looks = iter([lambda: None, world.decide, lambda: world.succeeded("r1")])
    _instead_of_sleep(monkeypatch, "nimbus.client.client", lambda _s: next(looks)())

    watched = nimbus("run", "watch", "r1")

    assert (watched.exit_code, watched.stdout.splitlines()[-1][-15:]) == (0, "2/2 tasks ended")
    assert watched.stderr.count("it starts when a scheduler leads") == 1


def test_watch_of_a_run_whose_start_is_refused_is_exit_4_with_the_reason(
    world: Any, nimbus: Invoke, monkeypatch: pytest.MonkeyPatch, undecided: None
) -> None:
    world.refuse = ("quarantined", "file lost")
    _instead_of_sleep(monkeypatch, "nimbus.client.client", lambda _s: world.decide())

    watched = nimbus("run", "watch", "r1")

    assert (watched.exit_code, watched.stdout) == (4, "")
    assert watched.stderr.endswith("error: file lost\n")


def test_following_the_log_of_a_pending_run_waits_for_its_start(
    world: Any, nimbus: Invoke, monkeypatch: pytest.MonkeyPatch, undecided: None
) -> None:
    attempt = AttemptId(RunId("r1"), TaskName("extract"), 1)
    world.logs.append(attempt, 0, b"one\n")
    looks = iter([world.decide, lambda: world.succeeded("r1")])
    _instead_of_sleep(monkeypatch, "nimbus.client.client", lambda _s: next(looks, lambda: None)())
    monkeypatch.setattr("nimbus.client.client._LATE_S", 0.0)

    followed = nimbus("run", "logs", "r1", "extract", "-f")

    assert (followed.exit_code, followed.stdout) == (0, "one\n")


def test_watch_timeout_is_exit_5(world: Any, nimbus: Invoke) -> None:
    world.opened(world.new_run("r1"), "extract")

    watched = nimbus("run", "watch", "r1", "--watch-timeout", "0")

    assert watched.exit_code == 5
    assert "is not finished after" in watched.stderr


@pytest.mark.parametrize("stored", [b"", b"one\n"])
def test_logs_says_that_the_worker_could_not_store_its_logs(
    world: Any, nimbus: Invoke, stored: bytes
) -> None:
    world.succeeded("r1")
    if stored:
        world.logs.append(AttemptId(RunId("r1"), TaskName("extract"), 1), 0, stored)
    world.cluster.put(replace(world.worker, unstored_logs="2 not stored: no\ncredentials"))

    printed = nimbus("run", "logs", "r1", "extract")

    assert (printed.exit_code, printed.stdout) == (6, stored.decode())
    assert "worker w1 has logs on its disk that storage does not accept: 2 not stored: no cred" in (
        printed.stderr
    )


def test_logs_prints_the_bytes_of_the_last_attempt_or_the_one_asked_for(world: Any, nimbus: Invoke) -> None:
    world.failed("r1")
    for number, text in ((1, b"first\n"), (2, "zweit\xe4\n".encode())):
        world.logs.append(AttemptId(RunId("r1"), TaskName("extract"), number), 0, text)

    assert nimbus("run", "logs", "r1", "extract").stdout == "zweit\xe4\n"
    assert nimbus("run", "logs", "r1", "extract", "--attempt", "1").stdout == "first\n"


def test_following_a_log_goes_through_a_retry_to_the_end(
    world: Any, nimbus: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = world.opened(world.new_run("r1"), "extract")
    one, two = (AttemptId(RunId("r1"), TaskName("extract"), number) for number in (1, 2))
    world.logs.append(one, 0, b"a")

    def step() -> Any:
        nonlocal run
        world.logs.append(one, 1, b"b\n")
        run = world.ended(run, "extract", Outcome.FAILED)
        yield
        run = world.opened(run, "extract", minutes=3)
        world.logs.append(two, 0, b"c\n")
        yield
        run = world.ended(run, "extract", Outcome.SUCCEEDED, minutes=4)
        yield

    steps = step()
    _instead_of_sleep(monkeypatch, "nimbus.client.client", lambda _s: next(steps, None))
    monkeypatch.setattr("nimbus.client.client._LATE_S", 0.0)

    followed = nimbus("run", "logs", "r1", "extract", "-f")

    assert followed.exit_code == 0
    assert followed.stdout == "ab\nc\n"
    assert "attempt 2: succeeded" in followed.stderr


def test_events_stores_the_event_log_of_an_attempt_in_a_file(
    world: Any, nimbus: Invoke, tmp_path: Path
) -> None:
    world.succeeded("r1")
    extract = AttemptId(RunId("r1"), TaskName("extract"), 1)
    whole = zstandard.compress(b'{"Event":"SparkListenerLogStart"}\n')
    world.logs.append(extract, 0, whole, KeptLog.EVENTS)

    found = nimbus("run", "events", "r1", "extract", "--to", str(tmp_path))
    none = nimbus("run", "events", "r1", "load", "--to", str(tmp_path))

    assert (found.exit_code, found.stdout.strip()) == (0, str(tmp_path / "r1.extract.1.zstd"))
    assert (tmp_path / "r1.extract.1.zstd").read_bytes() == whole
    assert none.exit_code == 3
    assert "no event log" in none.stderr


def test_events_marks_an_event_log_that_spark_could_not_end(
    world: Any, nimbus: Invoke, tmp_path: Path
) -> None:
    world.succeeded("r1")
    cut = zstandard.compress(b"events\n" * 100)[:-3]
    world.logs.append(AttemptId(RunId("r1"), TaskName("extract"), 1), 0, cut, KeptLog.EVENTS)

    found = nimbus("run", "events", "r1", "extract", "--to", str(tmp_path))

    assert found.stdout.strip() == str(tmp_path / "r1.extract.1.zstd.inprogress")


def test_decision_about_an_approval_is_handed_on_with_who_and_why(world: Any, nimbus: Invoke) -> None:
    world.deciding = False
    world.health.leading = None  # so that no request waits for a decision

    nimbus("run", "approve", "r1", "asked", "--reject", "--reason", "late")

    assert _command(world) == DecideApproval(
        run_id=RunId("r1"), task=TaskName("asked"), approved=False, reason="late"
    )


def test_refused_decision_about_an_approval_is_told(world: Any, nimbus: Invoke) -> None:
    world.refuse = ("no_approval", "task asked of run r1 is rejected by eve already.")

    done = nimbus("run", "approve", "r1", "asked", "--reason", "checked")

    assert (done.exit_code, done.stderr) == (4, "error: task asked of run r1 is rejected by eve already.\n")


def test_commands_about_a_run_and_the_leader_are_handed_on(world: Any, nimbus: Invoke) -> None:
    world.deciding = False
    world.health.leading = None  # so that no request waits for a decision
    world.cluster.put(world.new_run("r1"))
    stopped = nimbus("run", "stop", "r1", "--reason", "late")
    assert _command(world) == StopRun(run_id=RunId("r1"), reason="late")
    nimbus("cluster", "abdicate", "--reason", "update", "--to", "s2")
    nimbus("run", "pause", "r1")
    nimbus("run", "resume", "r1")

    assert {queued.submitted_by for queued in world.reader.commands()} == {getpass.getuser()}
    assert [queued.command for queued in world.reader.commands()][1:] == [
        Abdicate(reason="update", to="s2"),
        PauseRun(run_id=RunId("r1")),
        ResumeRun(run_id=RunId("r1")),
    ]
    assert stopped.exit_code == 6
    assert "queued as cmd-0000000000" in stopped.stderr


def test_results_are_shown_in_the_letters_that_they_have(world: Any, nimbus: Invoke) -> None:
    run = world.opened(world.new_run("r1"), "extract")
    world.ended(run, "extract", Outcome.SUCCEEDED, result={"city": "Köln"})

    assert '{"city": "Köln"}' in nimbus("run", "show", "r1").stdout


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "1e999", "[" * 100_000], ids=lambda value: value[:9])
def test_parameter_that_is_no_json_is_text(world: Any, nimbus: Invoke, value: str) -> None:
    world.deciding, world.health.leading = False, None

    assert nimbus("run", "start", "sums", "--param", f"x={value}").exit_code == 6
    (queued,) = world.reader.commands()
    assert queued.command.parameters == {"x": value}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("run", "show", "absent"), 3, "run absent is neither live nor in history"),
        (("run", "watch", "absent"), 3, "run absent is neither live nor in history"),
        (("run", "logs", "r1", "absent"), 3, "has no task absent"),
        (("run", "logs", "r1", "load", "-f"), 3, "was not tried yet"),
        (("run", "stop", "r1", "--reason", "x"), 4, "has succeeded already"),
        (("run", "start", "absent"), 3, "not in the catalog"),
        (("run", "start", "Bad Name"), 2, "body.pipeline"),
        (("run", "start", "sums", "--run-id", "A/B"), 2, "body.run_id"),
        (("run", "start", "sums", "--param", "novalue"), 2, "key=value"),
        (("run", "start", "sums", "--params", "{"), 2, "no JSON"),
        (("run", "start", "sums", "--params", "[1]"), 2, "JSON object"),
        (("run", "start", "sums", "--params", '{"x": NaN}'), 2, "no JSON"),
        (("run", "start", "sums", "--params", '{"x": 1e999}'), 2, "no JSON"),
        (("run", "start", "sums", "--param", "x=\udcff"), 2, "not valid Unicode"),
        (("run", "start", "sums", "--logical-date", "yesterday"), 2, "body.logical_date"),
        (("run", "start", "sums", "--data-interval", "2026-01-31T00:00:00Z"), 2, "requires 2 arguments"),
        (
            ("run", "start", "sums", "--data-interval", "2026-01-31T00:00:00Z", "2026-01-30T00:00:00Z"),
            4,
            "ends after it starts",
        ),
        (("run", "start", "sums", "--priority", "urgent"), 2, "urgent"),
        (("run", "list", "--limit", "0"), 2, "limit"),
        (("run", "stop", "r1"), 2, "reason"),
        (("pipeline", "show", "absent"), 3, "not in the catalog"),
        (("pipeline", "pause", "absent"), 3, "not in the catalog"),
        (("pipeline", "activate", "sums", "--digest", "12"), 2, "body.digest"),
        (("cluster", "status", "--server", "nowhere"), 2, "is no URL"),
        (("cluster", "participant"), 2, "Did you mean 'participants'"),
        (("pipline", "list"), 2, "Did you mean 'pipeline'"),
    ],
)
def test_each_failure_has_its_exit_code_and_says_what_is_wrong(
    world: Any, nimbus: Invoke, words: Sequence[str], code: int, said: str
) -> None:
    run = world.succeeded("r1")
    if "-f" in words:
        world.cluster.put(world.failed("r1"))
    assert run.id == "r1"

    result = nimbus(*words)

    assert (result.exit_code, result.stdout) == (code, "")
    assert said in result.stderr
    assert "Traceback" not in result.stderr
    assert world.reader.commands() == ()


def test_a_refusal_of_the_leader_is_exit_4_with_its_reason(world: Any, nimbus: Invoke) -> None:
    world.refuse = ("pipeline_in_use", "pipeline sums has live runs (r1): stop them or wait for them.")

    removed = nimbus("pipeline", "remove", "sums", "--yes")

    assert (removed.exit_code, removed.stderr) == (
        4,
        "error: pipeline sums has live runs (r1): stop them or wait for them.\n",
    )


def test_remove_asks_first_and_a_no_removes_nothing(world: Any, nimbus: Invoke) -> None:
    world.deciding = False

    answered_no = nimbus("pipeline", "remove", "sums", stdin="n\n")

    assert answered_no.exit_code == 130
    assert world.reader.commands() == ()


def test_a_server_that_denies_access_is_exit_7(nimbus: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(self: httpx.Client, method: str, url: str, **_named: Any) -> httpx.Response:
        return httpx.Response(403, request=httpx.Request(method, url))

    monkeypatch.setattr(httpx.Client, "request", denied)

    assert nimbus("cluster", "status").exit_code == 7


def test_a_defect_is_exit_70_and_shows_its_place_only_with_debug(
    nimbus: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Api, path: str, **_query: Any) -> Any:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(Api, "get", broken)

    short, long = nimbus("cluster", "status"), nimbus("--debug", "cluster", "status")

    assert short.exit_code == long.exit_code == 70
    assert "internal error: ZeroDivisionError: by zero" in short.stderr
    assert "Traceback" not in short.stderr
    assert "Traceback" in long.stderr


def test_an_unreachable_cluster_is_exit_6_and_names_each_server(
    monkeypatch: pytest.MonkeyPatch, closed_ports: tuple[int, int]
) -> None:
    monkeypatch.setitem(Client.__init__.__kwdefaults__, "patience_s", 0.0)
    words = [word for port in closed_ports for word in ("--server", f"http://127.0.0.1:{port}")]

    result = CliRunner().invoke(cli, ["cluster", "status", *words])

    assert result.exit_code == 6
    assert all(f"http://127.0.0.1:{port}: " in result.stderr for port in closed_ports)


def test_no_server_known_is_exit_2_and_says_the_three_ways(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("NIMBUS_SERVER", raising=False)
    monkeypatch.chdir(tmp_path)

    result = CliRunner().invoke(cli, ["cluster", "status"])

    assert result.exit_code == 2
    assert all(way in result.stderr for way in ("--server", "NIMBUS_SERVER", "nimbus up"))


def test_the_local_stacks_file_tells_where_the_servers_are(
    api_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("NIMBUS_SERVER", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".nimbus").mkdir()
    (tmp_path / ".nimbus" / "client.json").write_text(json.dumps({"servers": [api_url], "config": None}))

    assert CliRunner().invoke(cli, ["cluster", "leader"]).exit_code == 0


def test_a_dead_seed_is_passed_over(api_url: str, closed_ports: tuple[int, int]) -> None:
    with Api([f"http://127.0.0.1:{closed_ports[0]}", api_url]) as api:
        assert api.leader() is not None


def test_a_scheduler_without_zookeeper_is_passed_over_for_one_that_has_it(world: Any, api_url: str) -> None:
    world.cluster.available = False

    with (
        Api([api_url], patience_s=0.0) as api,
        pytest.raises(UnreachableError, match="ZooKeeper does not answer"),
    ):
        api.get("/runs")


def test_a_write_whose_answer_is_lost_is_sent_again_and_queued_once(
    api_url: str, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = httpx.Client.request
    sent = list[str]()

    def breaks_once(self: httpx.Client, method: str, url: str, **named: Any) -> httpx.Response:
        answer = send(self, method, url, **named)
        sent.append(method)
        if sent == ["POST"]:
            raise httpx.ReadError("connection reset")  # accepted, but the answer is lost
        return answer

    world.deciding = False
    monkeypatch.setattr(httpx.Client, "request", breaks_once)
    with Api([api_url]) as api:
        answer = api.command("POST", "/cluster/abdicate", {"reason": "x"}, decided=False)

    assert sent == ["POST", "POST"]
    assert [queued.id for queued in world.reader.commands()] == [answer["command_id"]]


def _start(api_url: str, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "nimbus.cli.main", *words],
        env={**os.environ, "NIMBUS_SERVER": api_url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_as_a_process_it_exits_with_the_runs_result(world: Any, api_url: str) -> None:
    world.failed("r1")

    with _start(api_url, "run", "watch", "r1") as process:
        out, err = process.communicate(timeout=60)

    assert process.returncode == 1
    assert "run r1 failed" in err
    assert "run failed, 1/2 tasks ended" in out


def test_ctrl_c_while_watching_is_exit_130_and_no_trace(world: Any, api_url: str) -> None:
    world.opened(world.new_run("r1"), "extract")

    with _start(api_url, "run", "watch", "r1") as process:
        assert process.stdout is not None
        assert "extract  running" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)

    assert (process.returncode, err.strip()) == (130, "interrupted")


def test_a_reader_that_leaves_early_is_no_error(world: Any, api_url: str) -> None:
    attempt = AttemptId(RunId("r1"), TaskName("extract"), 1)
    world.ended(world.opened(world.new_run("r1"), "extract"), "extract", Outcome.SUCCEEDED)
    world.logs.append(attempt, 0, b"x" * 4_000_000)

    with _start(api_url, "run", "logs", "r1", "extract") as process:
        assert process.stdout is not None
        process.stdout.read(1)
        process.stdout.close()
        assert process.wait(timeout=60) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""
