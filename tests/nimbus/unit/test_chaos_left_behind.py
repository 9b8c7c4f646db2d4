"""The chaos tests find a remaining process of an attempt."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nimbus.localstack.folder import tag_of
from nimbus.localstack.stack import LocalStack
from nimbus.worker.host.remains import ATTEMPT_VARIABLE
from tests.nimbus.chaos.cluster import Cluster


@contextmanager
def _process(folder: Path, *arguments: str, **environment: str) -> Iterator[int]:
    """A process of the stack in `folder`."""
    told = {**os.environ, **tag_of(folder), **environment}
    with subprocess.Popen(["sh", "-c", "read line", *arguments], stdin=subprocess.PIPE, env=told) as started:
        yield started.pid
        started.kill()


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [(("r1.program-of-1.1",), {}), ((), {ATTEMPT_VARIABLE: "cluster/r1.task.1"})],
)
def test_process_whose_arguments_or_environment_name_an_attempt_of_the_run_is_left_behind(
    tmp_path: Path, arguments: tuple[str, ...], environment: dict[str, str]
) -> None:
    cluster = Cluster(LocalStack(tmp_path))
    with cluster.http, _process(tmp_path, *arguments, **environment) as pid:
        assert [told.split()[0] for told in cluster.left_behind("r1")] == [str(pid)]
        assert cluster.left_behind("r") == cluster.left_behind("r2") == []
        assert Cluster(LocalStack(tmp_path / "other"), cluster.http).left_behind("r1") == []
