"""Schedulers report verified releases, and publishing waits for them: real processes, a real stack."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from blobsync import ReplicaBoard, S3Config, S3ObjectStore, Secret
from nimbus.cli.main import cli
from nimbus.localstack.daemons import BUCKET
from nimbus.localstack.stack import LocalStack

Eventually = Callable[..., None]
HELLO = Path(__file__).parents[3] / "examples" / "hello"


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[LocalStack]:
    with LocalStack(tmp_path, 2) as stack:
        stack.wait_ready()
        yield stack


@pytest.fixture
def board(stack: LocalStack) -> Iterator[ReplicaBoard]:
    store = S3ObjectStore(
        S3Config(
            endpoint_url=stack.s3.endpoint_url,
            bucket=BUCKET,
            access_key_id=stack.s3.access_key,
            secret_access_key=Secret(stack.s3.secret_key),
        )
    )
    yield ReplicaBoard(store)
    store.close()


def test_publish_waits_until_two_schedulers_have_it_and_one_that_stops_takes_its_word_back(
    stack: LocalStack, board: ReplicaBoard, eventually: Eventually
) -> None:
    server = f"http://127.0.0.1:{stack.scheduler(1).port}"
    command = ["pipeline", "publish", str(HELLO), "--activate", "--server", server]
    waiting = ["--min-replicas", "2", "--replica-timeout", "2m", "-o", "json"]

    done = CliRunner().invoke(cli, [*command, *waiting, "--config", str(stack.config_file(1))])

    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["replicas"]["holders"] == ["scheduler-1", "scheduler-2"]
    assert told["command"]["outcome"]["message"].startswith("published and activated")

    stack.scheduler(2).stop()

    assert board.read(told["digest"], timedelta(minutes=10)).holders == ("scheduler-1",)
    assert board.read(told["digest"]).silent == ()
