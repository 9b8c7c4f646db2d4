"""Attempts in a cluster: the real bootstrap as a process, a gateway over HTTP, a manager that can fail."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path

import pytest

from nimbus.domain.attempts.slots import Holder
from nimbus.domain.attempts.workers import Assignment, AssignmentKind
from nimbus.domain.ids import AttemptId
from nimbus.domain.pipelines.pipeline import SparkDeploy, SparkPlace, TaskKind
from nimbus.domain.runs.task_run import Outcome
from nimbus.worker import settlement
from nimbus.worker.application import bootstrap, submitted
from nimbus.worker.application.gateway import Gateway
from nimbus.worker.application.manager import DriverState, DriverStatus, Submission
from nimbus.worker.executor import AttemptPhase, Sight
from nimbus.worker.host import procfs
from nimbus.worker.targets import TargetError
from tests.nimbus.cluster_bench import SECRETS, TARGET, ClusterBench, cluster_bench
from tests.nimbus.worker_bench import eventually

ATTEMPT = "run1.task.1"
WAITS = """
import sys, time
from pathlib import Path
with open(sys.argv[1], "a") as file:
    file.write("ran\\n")
print("the task runs", flush=True)
while not Path(sys.argv[2]).exists():
    time.sleep(0.02)
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterBench]:
    with cluster_bench(tmp_path) as made:
        yield made


def order(cluster: ClusterBench, text: str, *args: str, attempt: str = ATTEMPT, **more: object) -> Assignment:
    script = cluster.bench.script("jobs/main.py", text)
    made = cluster.bench.order(script, attempt=attempt, args=args, task_kind=TaskKind.PYSPARK, **more)
    place = SparkPlace(target=TARGET, deploy=SparkDeploy.CLUSTER)
    return replace(made, task=replace(made.task, spark_place=place))


def waiting(cluster: ClusterBench, *, until_it_runs: bool = True) -> Assignment:
    root = cluster.bench.root
    made = order(cluster, WAITS, str(root / "ran"), str(root / "gate"))
    cluster.bench.board.assign("w1", made)
    if until_it_runs:
        eventually((root / "ran").exists, "the task runs")
    return made


def open_gate(cluster: ClusterBench) -> None:
    (cluster.bench.root / "gate").touch()


def runs(cluster: ClusterBench) -> int:
    place = cluster.bench.root / "ran"
    return place.read_text().count("ran") if place.exists() else 0


def log(cluster: ClusterBench) -> str:
    return cluster.bench.logs.read(AttemptId.parse(ATTEMPT)).decode()


def records(cluster: ClusterBench, worker: str = "w1") -> list[Path]:
    return list((cluster.bench.root / worker / "applications").glob("*.json"))


def test_attempt_runs_in_the_cluster_with_its_context_log_output_and_release(cluster: ClusterBench) -> None:
    cluster.worker()
    cluster.bench.script("lib/helper.py", "NAME = 'of the release'\n")
    text = """
from nimbus.task import context
from helper import NAME
from packed import VERSION
assert VERSION == 2
(context().output / "told").write_text(NAME)
import sys
assert sys.argv[1] == f"{context().release_root}/lib", sys.argv
print("attempt", context().attempt, "of", context().task)
"""
    for number in (1, 2):
        cluster.bench.wheel(f"v{number}/packed-{number}-py3-none-any.whl", packed=f"VERSION = {number}")
    wheels = ("v2/*.whl", "v1/*.whl")
    made = order(cluster, text, "{{ release_root }}/lib", python_path=("lib",), dependencies=wheels)
    cluster.bench.board.assign("w1", made)

    end = cluster.bench.await_end()

    assert (end.outcome, end.written_by, end.output) == (Outcome.SUCCEEDED, "driver", "bench/run1/task/1")
    claim = cluster.bench.slots().claim
    assert claim is not None
    assert claim.driver is not None
    assert (claim.holder, claim.driver.id) == (Holder.APPLICATION, "driver-0001")
    assert (cluster.bench.data / "bench/run1/task/1/told").read_text() == "of the release"
    assert log(cluster) == "attempt 1 of task\n"
    eventually(lambda: not records(cluster), "the submission is forgotten")


def test_task_in_a_cluster_gets_its_secrets_and_its_log_does_not_show_them(cluster: ClusterBench) -> None:
    text = "import os\nfrom nimbus.task import context\nfound = os.environ['DB_PASSWORD']\n"
    text += "print('it is', found, flush=True)\n(context().output / 'found').write_text(found)\n"
    made = order(cluster, text)
    made = replace(made, task=replace(made.task, secrets={"DB_PASSWORD": "warehouse"}))
    cluster.worker()

    cluster.bench.board.assign("w1", made)
    ended = cluster.bench.await_end(ATTEMPT)

    assert (ended.outcome, ended.reason) == (Outcome.SUCCEEDED, "")
    assert (cluster.bench.data / str(ended.output) / "found").read_text() == SECRETS["warehouse"]
    assert log(cluster) == "it is ***\n"
    submitted = cluster.manager.last
    assert submitted is not None
    assert "swordfish" not in f"{submitted} {bootstrap.unpacked(submitted.startup)}"


def asks(*endpoints: str) -> dict[str, str]:
    startup = {"attempt": "a", "pipeline": "p", "release": "r", "token": "", "endpoints": endpoints}
    return bootstrap.secret_values({**startup, "secrets": {"X": "warehouse"}, "secrets_token": "t"}, "ours")


def test_secrets_are_not_asked_for_without_tls() -> None:
    with pytest.raises(ValueError, match="its secrets need a scheduler with TLS"):
        asks("http://scheduler:8642", "http://127.0.0.1.example:80")


def test_answer_of_a_stranger_has_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for answer in ({}, {"values": []}, {"values": {"Y": "x"}}):
        monkeypatch.setattr(Gateway, "post", lambda *_, answer=answer: answer)
        with pytest.raises(ValueError, match="does not give its secrets"):
            asks("https://scheduler")


def test_secrets_are_asked_for_only_at_schedulers_of_the_submission_with_tls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def post(gateway: Gateway, *_: object) -> dict[str, object]:
        asked.extend(gateway.endpoints)
        return {"values": {"X": "swordfish"}}

    monkeypatch.setattr(Gateway, "post", post)

    assert asks("http://first:1", "https://second:2", "http://127.0.0.1:3") == {"X": "swordfish"}
    assert asked == ["https://second:2", "http://127.0.0.1:3"]


def test_folder_for_temporary_files_is_short_in_the_cluster(cluster: ClusterBench) -> None:
    cluster.worker()
    text = """
import multiprocessing, tempfile
from pathlib import Path
if __name__ == "__main__":
    multiprocessing.Manager().shutdown()  # it listens at a Unix socket in a temporary folder
    print("link", Path(tempfile.gettempdir()).parent)
"""
    cluster.bench.board.assign("w1", order(cluster, text))

    assert cluster.bench.await_end().outcome is Outcome.SUCCEEDED, log(cluster)
    link = log(cluster).rpartition("link ")[2].strip()
    assert link.startswith("/tmp/nimbus-")
    assert not os.path.lexists(link)


def test_failure_of_the_task_is_told_with_its_reason_and_class(cluster: ClusterBench) -> None:
    cluster.worker()
    cluster.bench.board.assign("w1", order(cluster, "raise ValueError('no such day')"))

    end = cluster.bench.await_end()

    assert (end.outcome, end.exit_code) == (Outcome.FAILED, 1)
    assert end.reason.startswith("ValueError: no such day")


def test_submitted_attempt_beats_while_it_waits_in_a_full_cluster(cluster: ClusterBench) -> None:
    cluster.manager.full = True
    cluster.worker()
    waiting(cluster, until_it_runs=False)

    eventually(lambda: cluster.bench.slots().has_heartbeat, "the worker says that it is submitted")
    assert cluster.bench.slots().claim is None
    eventually(lambda: cluster.bench.slots().progress.get("cluster") == "SUBMITTED", "in the cluster's words")
    cluster.manager.make_room()
    open_gate(cluster)

    assert cluster.bench.await_end().outcome is Outcome.SUCCEEDED


def test_news_of_a_driver_that_waits_are_written_into_the_beat_that_stands(
    cluster: ClusterBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers may follow one driver: none replaces the other's heartbeat."""
    looks, beats, beat = count(1), count(), cluster.bench.board.heartbeat

    def counted(attempt: AttemptId, progress: Mapping[str, object]) -> None:
        next(beats)
        beat(attempt, progress)

    monkeypatch.setattr(cluster.bench.board, "heartbeat", counted)
    words = (DriverStatus(DriverState.WAITING, f"{number} wait") for number in looks)
    monkeypatch.setattr(cluster.manager, "probe", lambda _: next(words))
    cluster.manager.full = True
    cluster.worker()
    waiting(cluster, until_it_runs=False)

    eventually(lambda: cluster.bench.slots().progress.get("cluster") == "2 wait", "there are news")

    assert next(beats) == 1
    assert cluster.bench.slots().progress["driver"] == "driver-0001"


def test_manager_that_raises_is_one_that_cannot_tell(
    cluster: ClusterBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raises(_: str) -> DriverStatus:
        raise TargetError("its token cannot be read")

    monkeypatch.setattr(cluster.manager, "probe", raises)
    cluster.manager.full = True
    cluster.worker()
    waiting(cluster, until_it_runs=False)

    eventually(
        lambda: cluster.bench.slots().progress.get("cluster") == "its token cannot be read", "the words"
    )


def test_attempt_that_is_followed_is_alive_without_asking_zookeeper(cluster: ClusterBench) -> None:
    cluster.worker()
    waiting(cluster)
    executor = cluster.bench.worker("w3", clusters=cluster.targets).executors[Holder.APPLICATION]
    assert executor.probe(ATTEMPT, cluster.bench.slots().claim) is Sight.ALIVE
    cluster.bench.board.cut_off(down=True)

    try:
        assert executor.probe(ATTEMPT, None) is Sight.ALIVE
    finally:
        cluster.bench.board.cut_off(down=False)


def test_attempt_that_waits_in_a_full_cluster_is_followed_by_another_worker(cluster: ClusterBench) -> None:
    cluster.manager.full = True
    cluster.worker()
    made = waiting(cluster, until_it_runs=False)
    eventually(lambda: cluster.bench.slots().submitted, "the worker says that it is submitted")
    cluster.stop_workers()

    cluster.worker("w2")
    cluster.bench.board.assign("w2", replace(made, kind=AssignmentKind.REAP))
    eventually(lambda: bool(records(cluster, "w2")), "the other worker follows it")
    cluster.manager.make_room()
    open_gate(cluster)

    assert cluster.bench.await_end().outcome is Outcome.SUCCEEDED
    assert cluster.manager.submissions == 1


def test_worker_forgets_an_attempt_whose_run_was_archived(cluster: ClusterBench) -> None:
    cluster.worker()
    waiting(cluster)
    cluster.bench.board.remove_attempt(ATTEMPT)
    cluster.stop_workers()

    cluster.worker()

    eventually(lambda: not records(cluster), "the submission is forgotten")
    assert cluster.manager.exit_code("driver-0001") != 0


def test_log_of_bytes_that_are_no_text_does_not_lose_the_end(cluster: ClusterBench) -> None:
    cluster.worker()
    text = "import sys; sys.stdout.buffer.write(b'\\0\\xff' * 200_000)"
    cluster.bench.board.assign("w1", order(cluster, text))

    assert cluster.bench.await_end().outcome is Outcome.SUCCEEDED


def test_result_of_a_task_in_a_cluster_is_in_its_end(cluster: ClusterBench) -> None:
    cluster.worker()
    text = "from nimbus.task import context\ncontext().result(rows=3)\n"
    cluster.bench.board.assign("w1", order(cluster, text))

    end = cluster.bench.await_end()
    assert (end.outcome, end.result) == (Outcome.SUCCEEDED, {"rows": 3})


def test_stranger_at_the_address_of_a_scheduler_ends_nothing(cluster: ClusterBench) -> None:
    class Stranger(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Stranger)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        cluster.endpoints.insert(0, f"http://127.0.0.1:{server.server_port}")
        cluster.worker()
        waiting(cluster)
        open_gate(cluster)
        assert cluster.bench.await_end().outcome is Outcome.SUCCEEDED
    finally:
        server.shutdown()
        thread.join(60)
        server.server_close()


def test_driver_reports_to_schedulers_that_came_after_its_submission(cluster: ClusterBench) -> None:
    (first,) = cluster.endpoints
    cluster.worker()
    waiting(cluster)
    second = cluster.open_gateway()
    cluster.endpoints[:] = cluster.schedulers[:] = [second]
    told = cluster.bench.slots().progress["number"]
    eventually(lambda: cluster.bench.slots().progress["number"] > told + 1, "a beat was answered since")

    cluster.close_gateway(first)
    open_gate(cluster)

    assert cluster.bench.await_end().outcome is Outcome.SUCCEEDED


def test_driver_gets_its_program_from_a_scheduler_that_lives(cluster: ClusterBench) -> None:
    cluster.endpoints.insert(0, "http://127.0.0.1:9")  # one that is dead
    cluster.worker()
    waiting(cluster)
    open_gate(cluster)

    assert cluster.bench.await_end().outcome is Outcome.SUCCEEDED


def test_driver_that_cannot_download_its_program_runs_nothing_and_the_next_attempt_does(
    cluster: ClusterBench,
) -> None:
    cluster.manager.full = True
    cluster.worker()
    waiting(cluster, until_it_runs=False)
    eventually(lambda: cluster.bench.slots().submitted, "it is submitted")
    cluster.close_gateway(cluster.endpoints[0])
    cluster.manager.make_room()

    end = cluster.bench.await_end()
    assert end.outcome is Outcome.REFUSED  # the leader opens the next attempt, and counts no failure
    assert "ended before it could claim" in end.reason

    cluster.endpoints[:] = [cluster.open_gateway()]
    places = [str(cluster.bench.root / name) for name in ("ran", "gate")]
    again = order(cluster, WAITS, *places, known=False)
    cluster.bench.board.add_attempt("run1.task.2")
    cluster.bench.board.assign("w1", replace(again, attempt="run1.task.2"))
    open_gate(cluster)

    assert cluster.bench.await_end("run1.task.2").outcome is Outcome.SUCCEEDED
    assert runs(cluster) == 1


def test_what_a_task_has_started_is_killed_at_its_end(cluster: ClusterBench) -> None:
    cluster.worker()
    text = """
import subprocess, sys
from nimbus.task import context
left = subprocess.Popen(["sleep", "600"], start_new_session=True)
(context().output / "left").write_text(str(left.pid))
"""
    cluster.bench.board.assign("w1", order(cluster, text))

    assert cluster.bench.await_end().outcome is Outcome.SUCCEEDED

    pid = int((cluster.bench.data / "bench/run1/task/1/left").read_text())
    eventually(lambda: procfs.start_ticks(pid) is None, "it is killed")


def test_attempt_that_waits_longer_than_the_queue_timeout_is_closed_and_killed(cluster: ClusterBench) -> None:
    cluster.manager.full, cluster.queue_timeout_s = True, 1.0
    cluster.worker()
    waiting(cluster, until_it_runs=False)

    end = cluster.bench.await_end()

    assert end.outcome is Outcome.REFUSED
    assert "did not start within 1 s" in end.reason
    cluster.manager.make_room()
    eventually(lambda: not records(cluster), "its driver is gone")
    assert runs(cluster) == 0


def test_queue_timeout_counts_from_the_submission_whoever_follows_it(cluster: ClusterBench) -> None:
    cluster.manager.full = True
    cluster.worker()
    waiting(cluster, until_it_runs=False)
    eventually(lambda: cluster.bench.slots().submitted, "the worker says that it is submitted")
    cluster.stop_workers()
    cluster.bench.board.let_be_submitted_earlier(ATTEMPT, timedelta(seconds=1000))

    cluster.queue_timeout_s = 900.0
    cluster.worker()

    assert "did not start within 900 s" in cluster.bench.await_end().reason


def test_attempt_goes_on_in_the_same_driver_when_its_worker_is_replaced(cluster: ClusterBench) -> None:
    cluster.worker()
    waiting(cluster)
    cluster.stop_workers()

    cluster.worker()
    open_gate(cluster)

    assert cluster.bench.await_end().outcome is Outcome.SUCCEEDED
    assert (runs(cluster), cluster.manager.submissions) == (1, 1)


def test_another_worker_follows_a_driver_that_nobody_follows(cluster: ClusterBench) -> None:
    cluster.worker()
    made = waiting(cluster)
    cluster.stop_workers()
    claim = cluster.bench.slots().claim

    cluster.worker("w2")
    cluster.bench.board.assign("w2", replace(made, kind=AssignmentKind.REAP, claim=claim))
    eventually(lambda: bool(records(cluster, "w2")), "the other worker follows it")
    cluster.manager.kill("driver-0001")

    end = cluster.bench.await_end()
    assert end.outcome is Outcome.LOST
    assert "the cluster" in end.reason


def test_submission_without_an_answer_is_never_repeated_and_its_driver_runs_nothing(
    cluster: ClusterBench,
) -> None:
    cluster.manager.loses_answer = cluster.manager.full = True
    cluster.worker()
    waiting(cluster, until_it_runs=False)

    end = cluster.bench.await_end()
    cluster.manager.make_room()

    assert end.outcome is Outcome.REFUSED
    assert cluster.manager.exit_code("driver-0001") == 75
    assert (runs(cluster), cluster.manager.submissions) == (0, 1)


def test_driver_of_a_submission_without_an_answer_is_killed_when_the_cluster_can_search(
    cluster: ClusterBench,
) -> None:
    cluster.manager.loses_answer = cluster.manager.full = cluster.manager.can_search = True
    cluster.worker()
    waiting(cluster, until_it_runs=False)

    assert cluster.bench.await_end().outcome is Outcome.REFUSED
    eventually(lambda: not records(cluster), "its driver is gone")

    assert cluster.manager.probe("driver-0001").state is DriverState.GONE
    assert (runs(cluster), cluster.manager.submissions) == (0, 1)


def test_driver_of_a_submission_without_an_answer_is_killed_when_the_cluster_answers_again(
    cluster: ClusterBench,
) -> None:
    cluster.manager.loses_answer = cluster.manager.full = cluster.manager.can_search = True
    cluster.manager.unreachable_after_submission = True
    cluster.worker()
    waiting(cluster, until_it_runs=False)
    assert cluster.bench.await_end().outcome is Outcome.REFUSED
    assert records(cluster), "it is not forgotten"

    cluster.manager.unreachable = False

    eventually(lambda: not records(cluster), "its driver is gone")
    assert cluster.manager.probe("driver-0001").state is DriverState.GONE


def test_submission_ends_what_the_attempt_before_has_left_in_the_cluster(cluster: ClusterBench) -> None:
    cluster.manager.full = cluster.manager.can_search = True
    board = cluster.bench.board
    left = Submission(
        name=f"nimbus-{board.cluster()}-{ATTEMPT}", bootstrap_url="", startup="{}", conf={}, environment={}
    )
    cluster.manager.submit(left)
    cluster.worker()

    made = order(cluster, "pass")
    board.assign("w1", replace(made, attempt="run1.task.2"))

    eventually(lambda: cluster.manager.probe("driver-0001").state is DriverState.GONE, "it is killed")
    eventually(lambda: cluster.manager.submissions == 2, "the second attempt is submitted")


def test_driver_that_claimed_before_its_submission_was_given_up_is_followed(cluster: ClusterBench) -> None:
    """The answer is lost, but the driver was quicker than the fence."""
    submit = cluster.manager.submit

    def loses_answer_late(submission: Submission) -> str:
        submit(submission)
        eventually((cluster.bench.root / "ran").exists, "the task runs")
        raise RuntimeError("the answer was lost")

    cluster.manager.submit = loses_answer_late  # type: ignore[method-assign]
    cluster.worker()
    waiting(cluster)
    eventually(lambda: cluster.bench.slots().has_heartbeat, "the worker follows it")
    open_gate(cluster)

    assert cluster.bench.await_end().outcome is Outcome.SUCCEEDED
    assert runs(cluster) == 1


def test_worker_that_died_in_the_middle_of_a_submission_does_not_repeat_it(cluster: ClusterBench) -> None:
    folder = cluster.bench.root / "w1" / "applications"
    folder.mkdir(parents=True)
    (folder / f"{ATTEMPT}.json").write_text(json.dumps({"attempt": ATTEMPT, "target": TARGET}))
    waiting(cluster, until_it_runs=False)

    cluster.worker()

    assert cluster.bench.await_end().outcome is Outcome.REFUSED
    assert cluster.manager.submissions == 0


class Held:
    """Lets submissions of a manager begin, and not end before `release`."""

    def __init__(self, cluster: ClusterBench) -> None:
        self.begun, self.release = threading.Event(), threading.Event()
        self._submit = cluster.manager.submit
        cluster.manager.submit = self  # type: ignore[method-assign,assignment]

    def __call__(self, submission: Submission) -> str:
        driver = self._submit(submission)
        self.begun.set()
        assert self.release.wait(60)
        return driver


def test_attempts_that_wait_for_their_submission_are_submitted_by_the_next_worker(
    cluster: ClusterBench,
) -> None:
    held, second = Held(cluster), "run1.task.2"
    worker = cluster.worker()
    made = waiting(cluster, until_it_runs=False)
    assert held.begun.wait(60)
    cluster.bench.board.add_attempt(second)
    cluster.bench.board.assign("w1", replace(made, attempt=second))
    eventually(lambda: worker._phases.get(second) is AttemptPhase.RUNNING, "the second one is in the queue")
    assert [record.stem for record in records(cluster)] == [ATTEMPT]

    cluster.stop_workers()
    held.release.set()
    eventually(lambda: "driver-0001" in records(cluster)[0].read_text(), "its id is noted after the stop")
    cluster.worker()
    open_gate(cluster)

    assert cluster.bench.await_end().outcome is Outcome.SUCCEEDED
    assert cluster.bench.await_end(second).outcome is Outcome.SUCCEEDED
    assert cluster.manager.submissions == 2


def test_driver_is_followed_while_the_submission_of_another_one_takes_its_time(cluster: ClusterBench) -> None:
    cluster.worker()
    made = waiting(cluster)
    held, second = Held(cluster), "run1.task.2"
    cluster.bench.board.add_attempt(second)
    cluster.bench.board.assign("w1", replace(made, attempt=second))
    assert held.begun.wait(60)

    cluster.manager.kill("driver-0001")

    try:
        assert cluster.bench.await_end(deadline_s=25.0).outcome is Outcome.LOST
    finally:
        held.release.set()


def test_nothing_is_submitted_while_the_cluster_is_away_and_once_when_it_is_back(
    cluster: ClusterBench,
) -> None:
    cluster.manager.unreachable = True
    cluster.worker()
    waiting(cluster, until_it_runs=False)
    time.sleep(2.0)  # for some tries
    assert cluster.manager.submissions == 0
    assert cluster.bench.slots().end is None

    cluster.manager.unreachable = False
    open_gate(cluster)

    assert cluster.bench.await_end().outcome is Outcome.SUCCEEDED
    assert cluster.manager.submissions == 1


def test_second_driver_of_an_attempt_runs_nothing(cluster: ClusterBench) -> None:
    kept: list[Submission] = []
    submit = cluster.manager.submit

    def keeps(submission: Submission) -> str:
        kept.append(submission)
        return submit(submission)

    cluster.manager.submit = keeps  # type: ignore[method-assign]
    cluster.worker()
    waiting(cluster)

    cluster.manager.start_again("driver-0001", kept[0])

    assert cluster.manager.exit_code("driver-0001-again") == 75
    open_gate(cluster)
    assert cluster.bench.await_end().outcome is Outcome.SUCCEEDED
    assert runs(cluster) == 1


@pytest.mark.parametrize("lie", [DriverState.GONE, DriverState.UNKNOWN])
def test_driver_that_is_heard_lives_whatever_the_cluster_says(
    cluster: ClusterBench, lie: DriverState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submitted, "HEARD_S", 12.0)  # as shipped: on a busy machine a heartbeat may be late
    cluster.worker()
    waiting(cluster)
    cluster.manager.lies = lie
    time.sleep(2 * submitted.GONE_S)  # longer than the cluster must say so
    assert cluster.bench.slots().end is None

    open_gate(cluster)

    assert cluster.bench.await_end().outcome is Outcome.SUCCEEDED


def test_driver_that_was_killed_is_lost_with_its_application_and_the_words_of_the_cluster(
    cluster: ClusterBench,
) -> None:
    cluster.worker()
    waiting(cluster)
    place = cluster.bench.root / "cluster" / "driver-0001" / "nimbus" / "work" / "progress.json"
    place.write_text('{"application": "app-1"}')
    eventually(lambda: cluster.bench.slots().progress.get("application"), "the driver says it")

    cluster.manager.kill("driver-0001")

    end = cluster.bench.await_end()
    assert (end.outcome, end.application) == (Outcome.LOST, "app-1")
    assert "FAILED" in end.reason
    eventually(lambda: not cluster.bench.processes(), "the task has died with its bootstrap")


COUNTS = """
import sys, time
from pathlib import Path
from nimbus.task import context
Path(sys.argv[1]).write_text(repr(context().last_checkpoint))
context().checkpoint({"row": 3})
while len(sys.argv) > 2 and not Path(sys.argv[2]).exists():
    time.sleep(0.02)
raise ValueError("no such day")
"""


def test_task_goes_on_at_its_last_checkpoint_when_its_driver_was_killed(cluster: ClusterBench) -> None:
    cluster.worker()
    said = cluster.bench.root / "said"
    cluster.bench.board.assign("w1", order(cluster, COUNTS, str(said), str(cluster.bench.root / "gate")))
    eventually(lambda: cluster.bench.slots().checkpoint, "a scheduler is told of the checkpoint")

    cluster.manager.kill("driver-0001")

    assert cluster.bench.await_end().outcome is Outcome.LOST
    again = order(cluster, COUNTS, str(said), attempt="run1.task.2")
    cluster.bench.board.assign("w1", again)
    end = cluster.bench.await_end("run1.task.2")
    assert (said.read_text(), end.outcome, end.checkpoint) == ("{'row': 3}", Outcome.FAILED, '{"row":3}')


def test_stop_request_ends_the_task_in_the_cluster(cluster: ClusterBench) -> None:
    cluster.worker()
    waiting(cluster)

    cluster.bench.board.request_stop(ATTEMPT)

    end = cluster.bench.await_end()
    assert (end.outcome, end.written_by) == (Outcome.STOPPED, "driver")


def test_task_that_answers_a_stop_with_exit_code_0_is_stopped_in_the_cluster(cluster: ClusterBench) -> None:
    cluster.worker()
    answers = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
    root = cluster.bench.root
    made = order(cluster, answers + WAITS, str(root / "ran"), str(root / "gate"))
    cluster.bench.board.assign("w1", made)
    eventually((root / "ran").exists, "the task runs")

    cluster.bench.board.request_stop(ATTEMPT)

    end = cluster.bench.await_end()
    assert (end.outcome, end.exit_code, end.output) == (Outcome.STOPPED, 0, None)


def test_stop_request_reaches_the_task_through_another_scheduler(cluster: ClusterBench) -> None:
    cluster.endpoints.insert(0, "http://127.0.0.1:9")  # one that is dead
    cluster.worker()
    waiting(cluster)

    cluster.bench.board.request_stop(ATTEMPT)

    end = cluster.bench.await_end()
    assert (end.outcome, end.written_by) == (Outcome.STOPPED, "driver")


def test_task_is_ended_at_its_timeout(cluster: ClusterBench) -> None:
    cluster.worker()
    made = order(cluster, "import time; time.sleep(600)", timeout=timedelta(seconds=1))
    cluster.bench.board.assign("w1", made)

    end = cluster.bench.await_end()

    assert end.outcome is Outcome.TIMED_OUT
    assert end.reason == "it did not end within 0:00:01"


def test_task_ends_when_its_attempt_was_closed_by_somebody_else(cluster: ClusterBench) -> None:
    cluster.worker()
    waiting(cluster)
    claim = cluster.bench.slots().claim
    assert claim is not None
    settlement.put_end(
        cluster.bench.board, settlement.lost(ATTEMPT, claim, "fenced by a test", claim.claimed_at)
    )

    assert cluster.manager.exit_code("driver-0001") != 0
    assert cluster.bench.await_end().reason == "fenced by a test"


def test_driver_waits_with_its_end_until_a_scheduler_answers(cluster: ClusterBench) -> None:
    cluster.worker()
    waiting(cluster)
    cluster.bench.board.cut_off(down=True)
    open_gate(cluster)
    time.sleep(3.0)  # the task has ended, and its END cannot be stored

    cluster.bench.board.cut_off(down=False)

    assert cluster.bench.await_end().outcome is Outcome.SUCCEEDED
    assert runs(cluster) == 1


def test_order_for_a_target_that_the_worker_does_not_have_is_refused(cluster: ClusterBench) -> None:
    cluster.worker()
    made = order(cluster, "pass")
    place = SparkPlace(target="other", deploy=SparkDeploy.CLUSTER)
    cluster.bench.board.assign("w1", replace(made, task=replace(made.task, spark_place=place)))

    end = cluster.bench.await_end()

    assert end.outcome is Outcome.REFUSED
    assert "has no target other" in end.reason


def test_startup_document_is_measured_as_it_is_sent(cluster: ClusterBench) -> None:
    """A dollar sign takes six characters there."""
    cluster.worker()
    cluster.bench.board.assign("w1", order(cluster, "pass", "$" * 20_000))

    end = cluster.bench.await_end()

    assert end.outcome is Outcome.REFUSED
    assert "put what is large into a file" in end.reason
