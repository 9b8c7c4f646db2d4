"""Outputs of real attempts in a bucket, on a real server over HTTP."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from threading import Event

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from blobsync import S3Config, S3ObjectStore, Secret
from nimbus.bootstrap.resources import SystemClock
from nimbus.domain.data.publications import Table
from nimbus.domain.ids import AttemptId, PipelineName, RunId, TaskName, WorkerId
from nimbus.domain.pipelines.pipeline import FailureStrategy, Isolation, Priority, TaskKind, TaskSpec
from nimbus.domain.runs.run import Run, RunCause
from nimbus.domain.runs.task_run import Attempt, Outcome, TaskRun
from nimbus.domain.runs.tasks import Tasks
from nimbus.localstack.s3 import S3Server
from nimbus.scheduler.output_deletion import LostOutputs
from nimbus.worker.attempt.connections import open_logs, storage_environment
from nimbus.worker.data.manifest import digest_beside
from tests.nimbus.worker_bench import RELEASE, Bench, eventually
from tests.thorough import sampled

SHORT = timedelta(seconds=60)
WRITES = """
from nimbus.task import context
ctx = context()
(ctx.output / "data").mkdir()
(ctx.output / "data" / "part").write_text(f"rows of {ctx.run_id}")
"""
_TABLE = BytesIO()
pq.write_table(pa.table({"x": pa.array([1], pa.int32())}), _TABLE)
WRITES_TABLE = f"""{WRITES}
(ctx.output / "data" / "x.parquet").write_bytes(bytes.fromhex("{_TABLE.getvalue().hex()}"))
"""
READS = """
from nimbus.task import context
ctx = context()
(ctx.output / "copy").write_text((ctx.inputs["make"] / "data" / "part").read_text())
"""
WRITES_WITH_ANOTHER = """
import sys, time
from pathlib import Path
from nimbus.task import context
ctx = context()
Path(f"{sys.argv[1]}-{ctx.run_id}-{ctx.attempt}").touch()
while not Path(sys.argv[1]).exists():
    time.sleep(0.01)
for number in range(3 + ctx.attempt):
    (ctx.output / f"part-{number}").write_text(str(ctx.attempt))
"""
LISTS_SECRETS = """
import os, pathlib
from nimbus.task import context
seen = "".join(f"{name}={value}" for name, value in os.environ.items())
top = pathlib.Path(os.environ["NIMBUS_CONTEXT"]).parent
seen += "".join(path.read_text(errors="replace") for path in top.rglob("*") if path.is_file())
(context().output / "seen").write_text(seen)
"""

LOOKS_AT_PROCESSES = """
import os, pathlib
from nimbus.task import context
seen = "".join(f"{name}={value}" for name, value in os.environ.items())
for place in pathlib.Path("/proc").glob("[0-9]*/environ"):
    try:
        told = pathlib.Path(place.parent, "cmdline").read_bytes()
        if b"nimbus" in told and b"pytest" not in told:
            seen += place.read_bytes().decode(errors="replace")
    except OSError:
        pass
(context().output / "seen").write_text(seen)
"""


def access_to(server: S3Server) -> dict[str, str]:
    return {
        "endpoint_url": server.endpoint_url,
        "access_key_id": server.access_key,
        "secret_access_key": server.secret_key,
    }


@pytest.fixture
def store(s3_server: S3Server, s3_bucket: str) -> Iterator[S3ObjectStore]:
    config = S3Config(
        endpoint_url=s3_server.endpoint_url,
        bucket=s3_bucket,
        prefix="some/data",
        access_key_id=s3_server.access_key,
        secret_access_key=Secret(s3_server.secret_key),
    )
    made = S3ObjectStore(config)
    yield made
    made.close()


@pytest.fixture
def bench(tmp_path: Path, s3_server: S3Server, s3_bucket: str, shared_forks: None) -> Iterator[Bench]:
    made = Bench(tmp_path)
    made.keep_outputs_in(f"s3://{s3_bucket}/some/data", **access_to(s3_server))
    yield made
    made.close()


@pytest.fixture(params=list(Isolation))
def isolation(request: pytest.FixtureRequest) -> Isolation:
    return Isolation(request.param)


def give(bench: Bench, worker: str, text: str, attempt: str, isolation: Isolation, **order: object) -> None:
    script = bench.script(f"{attempt}.py", text)
    bench.board.assign(worker, bench.order(script, attempt=attempt, isolation=isolation, **order))


def content(store: S3ObjectStore, reference: str, path: str) -> bytes:
    return b"".join(store.read(f"{reference.rpartition('/')[0]}/{path}"))


def test_output_goes_from_one_host_to_another(
    bench: Bench, store: S3ObjectStore, isolation: Isolation
) -> None:
    workers = [bench.worker("w1"), bench.worker("w2")]
    for worker in workers:
        worker.start()
    try:
        give(bench, "w1", WRITES_TABLE, "run1.make.1", isolation, publishes=True)
        made = bench.await_end("run1.make.1")
        assert made.outcome is Outcome.SUCCEEDED, made.reason
        assert made.table == Table(columns={"x": "int"})
        assert made.output is not None

        give(bench, "w2", READS, "run1.use.1", isolation, inputs={"make": made.output})
        used = bench.await_end("run1.use.1")
        assert used.outcome is Outcome.SUCCEEDED, used.reason
        assert used.output is not None
        assert content(store, used.output, "copy") == b"rows of run1"
        assert used.output.startswith("bench/run1/use/1-")
        left = [path for name in ("w1", "w2") for path in (bench.root / name).rglob("output")]
        eventually(lambda: not any(path.exists() for path in left), "local outputs are removed")
    finally:
        for worker in workers:
            worker.close(SHORT)


@pytest.mark.usefixtures("shared_forks")
def test_published_output_in_a_folder_is_verified_by_its_readers(
    tmp_path: Path, isolation: Isolation
) -> None:
    bench = Bench(tmp_path)
    worker = bench.worker()
    worker.start()
    try:
        give(bench, "w1", WRITES_TABLE, "run1.make.1", isolation, publishes=True)
        made = bench.await_end("run1.make.1")
        assert made.outcome is Outcome.SUCCEEDED, made.reason
        assert made.output is not None
        assert digest_beside(made.output) is not None
        assert made.table == Table(columns={"x": "int"})

        give(bench, "w1", READS, "run1.use.1", isolation, inputs={"make": made.output})
        used = bench.await_end("run1.use.1")
        assert (used.outcome, used.output) == (Outcome.SUCCEEDED, "bench/run1/use/1"), used.reason
        assert (bench.data / "bench/run1/use/1/copy").read_text() == "rows of run1"

        give(bench, "w1", WRITES, "run2.make.1", isolation, publishes=True)
        made = bench.await_end("run2.make.1")
        (bench.data / "bench/run2/make/1/data/part").write_text("ROWS of run2")
        give(bench, "w1", READS, "run2.use.1", isolation, inputs={"make": str(made.output)})
        refused = bench.await_end("run2.use.1")
        assert refused.outcome is Outcome.REFUSED
        assert "bench/run2/make/1/data/part is not what was committed" in refused.reason
    finally:
        worker.close(SHORT)
        bench.close()


def test_input_that_is_gone_refuses_the_attempt_with_the_reason(
    bench: Bench, store: S3ObjectStore, isolation: Isolation
) -> None:
    worker = bench.worker()
    worker.start()
    try:
        gone = f"bench/run1/make/1-{'0' * 16}/manifest-{'0' * 64}.json"
        give(bench, "w1", READS, "run1.use.1", isolation, inputs={"make": gone})

        end = bench.await_end("run1.use.1")

        assert end.outcome is Outcome.REFUSED
        assert "does not exist" in end.reason
    finally:
        worker.close(SHORT)


def test_success_whose_bucket_is_missing_is_a_failure_that_says_why(
    bench: Bench, s3_server: S3Server, isolation: Isolation
) -> None:
    bench.keep_outputs_in("s3://not-there", **access_to(s3_server))
    worker = bench.worker()
    worker.start()
    try:
        give(bench, "w1", WRITES, "run1.make.1", isolation)

        end = bench.await_end("run1.make.1")

        assert (end.outcome, end.output) == (Outcome.FAILED, None)
        assert end.reason.startswith("its output could not be stored: ")
    finally:
        worker.close(SHORT)


def test_failed_attempt_leaves_nothing_in_the_bucket(
    bench: Bench, store: S3ObjectStore, isolation: Isolation
) -> None:
    worker = bench.worker()
    worker.start()
    try:
        give(bench, "w1", WRITES + "\nraise SystemExit(3)\n", "run1.make.1", isolation)

        assert bench.await_end("run1.make.1").outcome is Outcome.FAILED
        assert list(store.list("")) == []
    finally:
        worker.close(SHORT)


def test_driver_never_sees_the_credentials(
    bench: Bench, store: S3ObjectStore, s3_server: S3Server, isolation: Isolation
) -> None:
    worker = bench.worker()
    worker.start()
    try:
        give(bench, "w1", LISTS_SECRETS, "run1.look.1", isolation)

        end = bench.await_end("run1.look.1")

        assert end.output is not None, end.reason
        seen = content(store, end.output, "seen")
        assert b"NIMBUS_CONTEXT" in seen
        assert s3_server.secret_key.encode() not in seen
        assert s3_server.access_key.encode() not in seen
    finally:
        worker.close(SHORT)


@pytest.mark.parametrize("chain", ["variables", "profile"])
def test_credentials_of_the_workers_environment_store_outputs_and_logs_and_stay_hidden(
    s3_server: S3Server,
    s3_bucket: str,
    store: S3ObjectStore,
    isolation: Isolation,
    chain: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = {"AWS_ACCESS_KEY_ID": s3_server.access_key, "AWS_SECRET_ACCESS_KEY": s3_server.secret_key}
    if chain == "profile":
        file = tmp_path / "credentials"
        file.write_text("[jobs]\n" + "".join(f"{name.lower()} = {value}\n" for name, value in keys.items()))
        keys = {"AWS_PROFILE": "jobs", "AWS_SHARED_CREDENTIALS_FILE": str(file)}
    for name, value in keys.items():
        monkeypatch.setenv(name, value)
    bench = Bench(tmp_path)
    bench.keep_outputs_in(f"s3://{s3_bucket}/some/data", endpoint_url=s3_server.endpoint_url)
    logs = {"kind": "s3", "endpoint_url": s3_server.endpoint_url, "bucket": s3_bucket}
    bench.connections = replace(
        bench.connections, logs=logs, environment=storage_environment(dict(os.environ))
    )
    worker = bench.worker()
    worker.start()
    try:
        give(bench, "w1", "print('said')\n" + LOOKS_AT_PROCESSES, "run1.look.1", isolation)

        end = bench.await_end("run1.look.1")

        assert end.output is not None, end.reason
        seen = content(store, end.output, "seen")
        assert b"NIMBUS_CONTEXT" in seen
        assert not any(f"{name}={value}".encode() in seen for name, value in keys.items())
        archive = open_logs(bench.connections)
        assert archive is not None
        attempt = AttemptId.parse("run1.look.1")
        eventually(lambda: archive.read(attempt) == b"said\n", "its log is stored")
    finally:
        worker.close(SHORT)
        bench.close()


def test_shell_task_reads_and_writes_folders_as_ever(bench: Bench, store: S3ObjectStore) -> None:
    worker = bench.worker()
    worker.start()
    try:
        give(bench, "w1", WRITES, "run1.make.1", Isolation.POOLED)
        made = bench.await_end("run1.make.1")
        script = '#!/bin/sh\ncp "$NIMBUS_INPUT_make/data/part" "$NIMBUS_OUTPUT/copy"\n'
        path = bench.release / bench.script("bin/copy", script)
        path.chmod(0o755)
        order = bench.order(
            "bin/copy", attempt="run1.use.1", task_kind=TaskKind.SHELL, inputs={"make": made.output}
        )
        bench.board.assign("w1", order)

        end = bench.await_end("run1.use.1")

        assert end.output is not None, end.reason
        assert content(store, end.output, "copy") == b"rows of run1"
    finally:
        worker.close(SHORT)


AT_ONCE = 10


@pytest.mark.parametrize("rounds", sampled([1, 10], 1))
def test_of_two_attempts_at_once_one_is_visible_and_the_other_is_collected(
    bench: Bench, store: S3ObjectStore, tmp_path: Path, rounds: int, s3_server: S3Server, s3_bucket: str
) -> None:
    """The first attempt was lost on an isolated host, which hears of nothing: it writes and uploads."""
    isolated = Bench(tmp_path / "isolated")
    isolated.keep_outputs_in(f"s3://{s3_bucket}/some/data", **access_to(s3_server))
    workers = [isolated.worker("w1"), bench.worker("w2")]
    for worker in workers:
        worker.start()
    try:
        winners: dict[str, str] = {}
        for number in range(rounds):
            runs = [f"run{number}x{other}" for other in range(AT_ONCE)]
            winners |= _race(runs, isolated, bench, tmp_path)
        eventually(lambda: not any(worker.unended() for worker in workers), "the losers have ended")
    finally:
        for worker in workers:
            worker.close(SHORT)
        isolated.close()

    prefixes = {info.key.rpartition("/")[0] for info in store.list("")}
    losers = {prefix for prefix in prefixes if "/make/1-" in prefix}
    assert len(losers) == rounds * AT_ONCE
    clock, grace = SystemClock(), timedelta(0)
    known = {run: _a_run(run, reference) for run, reference in winners.items()}
    LostOutputs(store=store, runs=known.get, leads=lambda: True, clock=clock, grace=grace).collect(Event())

    assert {info.key.rpartition("/")[0] for info in store.list("")} == prefixes - losers
    assert len(prefixes - losers) == rounds * AT_ONCE
    for reference in winners.values():
        assert _read(bench, reference, "w4") == ["2"] * 5


def _race(runs: list[str], isolated: Bench, bench: Bench, tmp_path: Path) -> dict[str, str]:
    """Run two attempts of a task at once, for some runs. Returns the reference of each run's output."""
    go = tmp_path / f"go-{runs[0]}"
    for run in runs:
        give(isolated, "w1", WRITES_WITH_ANOTHER, f"{run}.make.1", Isolation.POOLED, args=(str(go),))
    for run in runs:
        eventually(Path(f"{go}-{run}-1").exists, "the first attempt runs")
        give(bench, "w2", WRITES_WITH_ANOTHER, f"{run}.make.2", Isolation.POOLED, args=(str(go),))
    for run in runs:
        eventually(Path(f"{go}-{run}-2").exists, "the second attempt runs")
    go.touch()
    found = {}
    for run in runs:
        end = bench.await_end(f"{run}.make.2")
        assert end.output is not None, end.reason
        assert _read(bench, end.output, "w3") == ["2"] * 5  # while the other one may still upload
        assert isolated.await_end(f"{run}.make.1").outcome is Outcome.SUCCEEDED, "so its host believes"
        found[run] = end.output
    return found


def _read(bench: Bench, reference: str, host: str) -> list[str]:
    """The content that a task on another host reads."""
    place = bench.place(host)
    place.fetch(reference)
    return [path.read_text() for path in sorted(place.input(reference).iterdir())]


def _a_run(run: str, reference: str) -> Run:
    attempts = (
        Attempt(
            number=number,
            worker=WorkerId("w1"),
            opened_at=datetime.now(UTC),
            opened_by_epoch=1,
            outcome=outcome,
            output=output,
        )
        for number, outcome, output in ((1, Outcome.LOST, None), (2, Outcome.SUCCEEDED, reference))
    )
    spec = TaskSpec(name=TaskName("make"), kind=TaskKind.PYTHON, script="make.py")
    return Run(
        id=RunId(run),
        pipeline=PipelineName("bench"),
        release=RELEASE,
        cause=RunCause.MANUAL,
        created_at=datetime.now(UTC),
        logical_date=datetime.now(UTC),
        parameters={},
        priority=Priority.MEDIUM,
        failure_strategy=FailureStrategy.END,
        tasks=Tasks([TaskRun(spec=spec, attempts=tuple(attempts))]),
    )
