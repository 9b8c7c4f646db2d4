"""Managers whose token cannot be read or sent: no request is made, and the token is not shown."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import cast

import pytest

from nimbus.worker.application.kubernetes import KubernetesManager
from nimbus.worker.application.kubernetes_api import KubernetesApi
from nimbus.worker.application.manager import (
    ClusterManager,
    ClusterUnreachableError,
    DriverState,
    NotSentError,
    Submission,
    ask,
)
from nimbus.worker.application.spark_client import SparkClient
from nimbus.worker.application.standalone import StandaloneManager
from nimbus.worker.targets import TargetError

SUBMISSION = Submission(name="nimbus-c-r.t.1", bootstrap_url="", startup="{}", conf={}, environment={})


@pytest.fixture
def server() -> Iterator[str]:
    """A server that accepts connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def no_token() -> str | None:
    raise TargetError("target big: its token cannot be read")


@pytest.fixture(params=["kubernetes", "standalone"])
def manager(server: str, request: pytest.FixtureRequest) -> ClusterManager:
    if request.param == "standalone":
        return StandaloneManager("spark://m:7077", [server], "4.3.0", no_token)
    return KubernetesManager(
        cast("SparkClient", None), KubernetesApi(server, "spark", None, no_token), "spark"
    )


def test_cluster_whose_token_cannot_be_read_is_unreachable(manager: ClusterManager) -> None:
    with pytest.raises(ClusterUnreachableError):
        manager.submit(SUBMISSION)
    assert manager.probe("driver-1").state is DriverState.UNKNOWN
    with pytest.raises(ClusterUnreachableError):
        manager.kill("driver-1")


@pytest.mark.parametrize("token", ["secret\nsecret", "secret\u2026"])
def test_token_that_no_header_can_have_is_not_sent_and_not_told(server: str, token: str) -> None:
    with pytest.raises(NotSentError) as caught:
        ask("GET", f"{server}/", token=lambda: token)

    assert "secret" not in str(caught.value)
