"""Attempts in a cluster whose outputs are in a bucket: the real bootstrap, gateway, and S3 server."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nimbus.domain.attempts.slots import End
from nimbus.domain.pipelines.pipeline import SparkDeploy, SparkPlace, TaskKind
from nimbus.domain.runs.task_run import Outcome
from nimbus.localstack.s3 import S3Server
from nimbus.worker.application.startup import data_token_for, token_for
from tests.nimbus.cluster_bench import TARGET, ClusterBench, cluster_bench
from tests.nimbus.worker_bench import RELEASE, Bench, eventually

SCRIPTS = {
    "make": """
from nimbus.task import context
ctx = context()
(ctx.output / "deep" / "er").mkdir(parents=True)
(ctx.output / "deep" / "er" / "told").write_text("42")
(ctx.output / "empty").mkdir()
""",
    "read": """
import json, os
from nimbus.task import context
ctx = context()
folder = ctx.inputs["make"]
told = {
    "read": (folder / "deep" / "er" / "told").read_text(),
    "empty": (folder / "empty").is_dir(),
    "files": ctx.input_files("make"),
    "environment": dict(os.environ),
    "access": ctx.data["access"],
}
(ctx.output / "told.json").write_text(json.dumps(told))
""",
    "ignore": """
from nimbus.task import context
(context().output / "told").write_text(repr(sorted(context().inputs)))
(context().output / "copies").write_text(repr((context().output.parent / "inputs").exists()))
""",
    "link": """
from nimbus.task import context
(context().output / "link").symlink_to("/etc/hostname")
""",
    "name": """
from nimbus.task import context
(context().output / "a\\\\b").write_text("42")
""",
    "fail": """
from nimbus.task import context
(context().output / "told").write_text("42")
raise ValueError("no")
""",
    "wait": """
import os, sys, time
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
""",
    "late": """
import os, sys, time
from nimbus.task import context
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
(context().output / "told").write_text((context().inputs["make"] / "deep" / "er" / "told").read_text())
""",
}
"""All are of one release, because it must not change while its attempts run."""


@pytest.fixture
def cluster(tmp_path: Path, s3_server: S3Server, s3_bucket: str) -> Iterator[ClusterBench]:
    def prepare(bench: Bench) -> None:
        bench.keep_outputs_in(
            f"s3://{s3_bucket}/data",
            endpoint_url=s3_server.endpoint_url,
            access_key_id=s3_server.access_key,
            secret_access_key=s3_server.secret_key,
        )
        for name, text in SCRIPTS.items():
            bench.script(f"{name}.py", text)

    with cluster_bench(tmp_path, prepare) as made:
        made.worker()
        yield made


def begin(cluster: ClusterBench, attempt: str, script: str, **more: object) -> None:
    made = cluster.bench.order(f"{script}.py", attempt=attempt, task_kind=TaskKind.PYSPARK, **more)
    place = SparkPlace(target=TARGET, deploy=SparkDeploy.CLUSTER)
    cluster.bench.board.assign("w1", replace(made, task=replace(made.task, spark_place=place)))


def run(cluster: ClusterBench, attempt: str, script: str, **more: object) -> End:
    begin(cluster, attempt, script, **more)
    return cluster.bench.await_end(attempt)


def succeeded(cluster: ClusterBench, attempt: str, script: str, **more: object) -> str:
    """The output of an attempt that succeeds."""
    end = run(cluster, attempt, script, **more)
    assert end.outcome is Outcome.SUCCEEDED, end.reason
    assert end.output is not None
    return end.output


def files(cluster: ClusterBench, reference: str) -> dict[str, bytes]:
    place = cluster.bench.place("reader")
    place.fetch(reference)
    top = place.input(reference)
    return {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()}


def test_output_of_a_driver_in_a_cluster_is_in_the_bucket_when_it_has_ended(cluster: ClusterBench) -> None:
    end = run(cluster, "run1.make.1", "make")

    assert (end.outcome, end.written_by) == (Outcome.SUCCEEDED, "driver"), end.reason
    assert end.output is not None
    assert end.output.startswith("bench/run1/make/1-")
    assert files(cluster, end.output) == {"deep/er/told": b"42"}
    own = cluster.bench.root / "cluster" / "driver-0001"
    # Not rglob, which fails when a folder is removed while it is read.
    eventually(lambda: not any("told" in names for _, _, names in os.walk(own)), "its own copy is gone")


def test_inputs_are_copied_where_the_driver_is_and_not_where_its_worker_is(
    cluster: ClusterBench, s3_server: S3Server
) -> None:
    made = succeeded(cluster, "run1.make.1", "make")

    used = succeeded(cluster, "run1.use.1", "read", inputs={"make": made})

    told: dict[str, Any] = json.loads(files(cluster, used)["told.json"])
    prefix = made.partition("/manifest-")[0]
    assert (told["read"], told["empty"]) == ("42", True)
    assert told["files"] == [f"{cluster.bench.data_uri}/{prefix}/deep/er/told"]
    assert s3_server.secret_key not in json.dumps(told), "no credential of the bucket comes to a driver"
    assert not cluster.bench.place("w1").is_here(made), "its worker only submits"


def test_input_that_the_task_does_not_ask_for_is_not_copied(cluster: ClusterBench) -> None:
    made = succeeded(cluster, "run1.make.1", "make")

    used = succeeded(cluster, "run1.use.1", "ignore", inputs={"make": made})

    assert files(cluster, used) == {"told": b"['make']", "copies": b"False"}


def test_success_whose_output_cannot_be_kept_is_a_failure_that_says_why(cluster: ClusterBench) -> None:
    end = run(cluster, "run1.make.1", "link")

    assert end.outcome is Outcome.FAILED
    assert "'link' is a link or no regular file" in end.reason
    assert end.output is None


def test_failure_leaves_nothing_in_the_bucket(cluster: ClusterBench, s3_server: S3Server) -> None:
    end = run(cluster, "run1.make.1", "fail")

    assert (end.outcome, end.output) == (Outcome.FAILED, None)
    bucket = str(cluster.bench.data_uri).removeprefix("s3://").partition("/")[0]
    assert not [path for path in (s3_server.objects / bucket).rglob("*") if path.is_file()]


def test_file_whose_name_a_bucket_cannot_keep_is_named_with_what_to_do(cluster: ClusterBench) -> None:
    end = run(cluster, "run1.make.1", "name")

    assert end.outcome is Outcome.FAILED
    assert "has a backslash" in end.reason
    assert "choose another" in end.reason


def test_data_are_reached_through_schedulers_that_came_after_the_submission(cluster: ClusterBench) -> None:
    made = succeeded(cluster, "run1.make.1", "make")
    (first,), attempt = cluster.endpoints, "run1.use.1"
    begin(cluster, attempt, "late", args=(str(cluster.bench.root / "gate"),), inputs={"make": made})
    eventually(lambda: "number" in cluster.bench.slots(attempt).progress, "it runs")
    second = cluster.open_gateway()
    cluster.endpoints[:] = cluster.schedulers[:] = [second]
    told = cluster.bench.slots(attempt).progress["number"]
    eventually(
        lambda: cluster.bench.slots(attempt).progress["number"] > told + 1, "a beat was answered since"
    )

    cluster.close_gateway(first)
    (cluster.bench.root / "gate").touch()

    end = cluster.bench.await_end(attempt)
    assert end.outcome is Outcome.SUCCEEDED, end.reason
    assert files(cluster, str(end.output)) == {"told": b"42"}


class Asker:
    """Requests addresses from the gateway: as the driver of an attempt, which waits, or as a stranger."""

    def __init__(self, cluster: ClusterBench) -> None:
        self.cluster, self.attempt, self.release = cluster, "run1.task.1", RELEASE
        begin(cluster, self.attempt, "wait", args=(str(cluster.bench.root / "gate"),))
        claim = eventually(lambda: cluster.bench.slots(self.attempt).claim, "it is claimed")
        assert claim is not None
        self.nonce, self.key = claim.nonce, cluster.bench.board.attempt_key()
        self.uri = str(cluster.bench.data_uri)

    def ask(self, method: str, key: str, nonce: str, *, token: str | None = None, uri: str = "") -> int:
        """The status of the answer."""
        said = {"uri": uri or self.uri, "output": "bench/run1/task/1-ab", "inputs": [INPUT]}
        right = data_token_for(self.key, self.attempt, **said)
        request = urllib.request.Request(
            f"{self.cluster.endpoints[0]}/attempt/v1/{self.attempt}/sign?pipeline=bench&release={self.release}",
            json.dumps({**said, "method": method, "key": key, "nonce": nonce}).encode(),
            {"Authorization": f"Bearer {token or right}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as exc:
            return exc.code


INPUT = f"bench/run1/make/1-cd/manifest-{'0' * 64}.json"
OWN = "bench/run1/task/1-ab"


def test_addresses_are_signed_for_the_own_output_and_the_inputs_of_an_open_attempt_alone(
    cluster: ClusterBench,
) -> None:
    asker = Asker(cluster)
    nonce = asker.nonce

    assert [asker.ask(method, f"{OWN}/x", nonce) for method in ("PUT", "GET", "HEAD")] == [200] * 3
    assert [asker.ask(method, INPUT, nonce) for method in ("GET", "HEAD", "PUT")] == [200, 200, 422]
    assert asker.ask("GET", "bench/run1/make/1-cd/part", nonce) == 200
    for key in ("bench/run1/task/1-abc/x", OWN, "bench/run1/other/1-ee/x", f"{OWN}/../1-zz/x", ""):
        assert asker.ask("GET", key, nonce) == 422, key
    assert asker.ask("DELETE", f"{OWN}/x", nonce) == 422
    assert asker.ask("PUT", f"{OWN}/x", "of another driver") == 422
    assert asker.ask("PUT", f"{OWN}/x", nonce, uri="s3://other/data") == 503
    its_other = token_for(asker.key, asker.attempt, "bench", asker.release)  # type: ignore[arg-type]
    assert asker.ask("PUT", f"{OWN}/x", nonce, token=its_other) == 401

    (cluster.bench.root / "gate").touch()
    assert cluster.bench.await_end(asker.attempt).outcome is Outcome.SUCCEEDED
    assert asker.ask("PUT", f"{OWN}/x", nonce) == 422, "a zombie gets no addresses"


@pytest.mark.parametrize(
    ("output", "why"),
    [
        (f"bench/run1/make/1-cd/manifest-{'0' * 64}.json", "no output of this attempt"),
        (None, "did not store its output in the bucket"),
    ],
)
def test_end_that_does_not_name_an_output_of_its_attempt_is_a_failure(
    cluster: ClusterBench, output: str | None, why: str
) -> None:
    asker = Asker(cluster)
    token = token_for(asker.key, asker.attempt, "bench", asker.release)  # type: ignore[arg-type]
    report = {"nonce": asker.nonce, "status": 0, "came_to_its_end": True, "output": output}
    request = urllib.request.Request(
        f"{cluster.endpoints[0]}/attempt/v1/{asker.attempt}/end?pipeline=bench&release={asker.release}",
        json.dumps(report).encode(),
        {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )

    with urllib.request.urlopen(request, timeout=60):
        end = cluster.bench.await_end(asker.attempt)

    assert end.outcome is Outcome.FAILED
    assert why in end.reason
