"""Schedulers and workers of a local stack: their configuration documents, command lines and processes."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any

import yaml

from nimbus.localstack.folder import write_private
from nimbus.localstack.ports import LOOPBACK, http_answer, require_free
from nimbus.localstack.process import ManagedProcess
from nimbus.localstack.s3 import DATA_ACCESS_KEY, S3Server
from nimbus.localstack.zookeeper import ZooKeeperServer

BUCKET = "nimbus"
DATA_BUCKET = "nimbus-data"
ROOT = "/nimbus"
_ASK_DEADLINE_S = 2.0
STARTED = b"worker_started"
"""The log line of a worker that has registered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackTuning:
    """Settings of a local stack for users and tests."""

    slots: int = 1
    """Attempts that one worker runs at a time."""
    session_timeout: timedelta = timedelta(seconds=4)
    """How long a scheduler without contact keeps its session in ZooKeeper."""
    attempt_patience: timedelta = timedelta(seconds=5)
    """How long `stop` waits for an attempt to end before it is killed."""
    keeps_jvms: bool = True
    data_in_s3: bool = False
    """Whether outputs of tasks are stored in the S3 server; else in a folder that all workers share."""
    telemetry: Mapping[str, Any] | None = None
    """The section of that name in all configurations; None: there is none."""


def scheduler_settings(
    *,
    scheduler_id: str,
    port: int,
    folder: Path,
    zookeeper: ZooKeeperServer | None,
    s3: S3Server,
    tuning: StackTuning,
    embedded_worker: bool = True,
    targets: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The configuration document of one daemon, in the form of `configs/nimbus.example.yaml`.

    Without a ZooKeeper it configures a single scheduler.
    """
    data_keys = {"access_key_id": DATA_ACCESS_KEY, "secret_access_key": s3.data_secret_key}
    return {
        "cluster": {"root": ROOT},
        **(
            {"leadership": {"elector": "single"}}
            if zookeeper is None
            else {
                "zookeeper": {
                    "hosts": zookeeper.hosts,
                    "session_timeout": f"{tuning.session_timeout.total_seconds():g}s",
                }
            }
        ),
        "storage": {
            "endpoint_url": s3.endpoint_url,
            "bucket": BUCKET,
            "access_key_id": s3.access_key,
            "secret_access_key": s3.secret_key,
        },
        "scheduler": {
            "id": scheduler_id,
            "host": LOOPBACK,
            "port": port,
            "state_dir": str(folder / scheduler_id),
        },
        "worker": {
            "embedded": embedded_worker,
            "slots": tuning.slots,
            **({"data": f"s3://{DATA_BUCKET}"} if tuning.data_in_s3 else {"data": str(folder / "data")}),
            **({} if tuning.keeps_jvms else {"idle_jvms": 0}),
        },
        **({"data": data_keys} if tuning.data_in_s3 else {}),
        **({"spark": {"targets": dict(targets)}} if targets else {}),
        **({} if tuning.telemetry is None else {"telemetry": dict(tuning.telemetry)}),
    }


def scheduler_command(config: Path) -> list[str]:
    """The command line of a scheduler."""
    return [sys.executable, "-m", "nimbus.cli.main", "scheduler", "--config", str(config)]


def worker_command(config: Path) -> list[str]:
    """The command line of a standalone worker."""
    return [sys.executable, "-m", "nimbus.cli.main", "worker", "--config", str(config)]


def write_settings(file: Path, settings: Mapping[str, Any]) -> None:
    """Write a configuration document as YAML, readable only by its owner: it contains the S3 secret."""
    text = yaml.safe_dump(dict(settings), sort_keys=False)
    write_private(file, f"{_heading(text)}\n{text}")


def was_edited(file: Path) -> bool:
    """True if the file is not as `write_settings` wrote it; False if it does not exist."""
    try:
        heading, _, text = file.read_text(encoding="utf-8").partition("\n")
    except FileNotFoundError:
        return False
    return heading != _heading(text)


def _heading(text: str) -> str:
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"# Written at each start of this stack, which replaces what you change here. {digest}"


def kept_secret(file: Path) -> str:
    """The S3 secret of this folder, generated at its first use.

    It stays the same between starts, because an attempt that outlived a killed stack must deliver its log.
    """
    with contextlib.suppress(FileNotFoundError):
        return file.read_text().strip()
    write_private(file, secrets.token_hex(20) + "\n")
    return file.read_text().strip()


class SchedulerProcess(ManagedProcess):
    """A scheduler daemon. It is ready when `GET /readyz` returns 200."""

    def __init__(
        self, *, name: str, command: Sequence[str], port: int, log: Path, environment: Mapping[str, str]
    ) -> None:
        """`name`: its id, such as `scheduler-1`. `port`: that of its API, as in its configuration."""
        super().__init__(name=name, log=log, environment=environment)
        self.port, self._words = port, list(command)

    @property
    def url(self) -> str:
        """`http://127.0.0.1:<port>`."""
        return f"http://{LOOPBACK}:{self.port}"

    def _command(self) -> Sequence[str]:
        require_free(self.port, self.name)
        return self._words

    def _answers(self) -> bool:
        answer = http_answer(self.port, "/readyz", _ASK_DEADLINE_S)
        return answer is not None and answer[0] == HTTPStatus.OK


class WorkerProcess(ManagedProcess):
    """A worker daemon. It has no port, so its log shows when it is ready."""

    def __init__(
        self, *, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str]
    ) -> None:
        super().__init__(name=name, log=log, environment=environment)
        self._words, self._begin = list(command), 0

    def _command(self) -> Sequence[str]:
        self._begin = self.log.stat().st_size if self.log.exists() else 0
        return self._words

    def _answers(self) -> bool:
        with self.log.open("rb") as log:
            log.seek(self._begin)
            return STARTED in log.read()
