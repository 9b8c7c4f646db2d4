"""What a program does with a cluster: start runs and wait for them, read them, publish data, scale workers.

Every method but `log` and `watch` is one request, or one command. Errors: `nimbus.client.errors`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from nimbus.client.api import PATIENCE_S, Api
from nimbus.client.errors import ConflictError, ProblemError, WaitTimeoutError
from nimbus.client.servers import servers

_OUTAGE_PATIENCE_S = 300.0
"""A run survives outages of minutes, so waiting for it must, too."""
_LATE_S = 2.0
"""The last bytes of a log may reach storage a moment after the attempt's END."""
_FINAL = ("succeeded", "failed", "stopped")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """A run as a scheduler has described it."""

    id: str
    pipeline: str
    state: str
    """`pending` (no leader has decided yet), `queued`, `running`, `stopping`, `succeeded`, `failed`,
    `stopped`, `refused`."""
    reason: str = ""
    """Why it failed, was stopped or refused; empty: nothing to say."""
    document: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The whole answer of the API: of the run, or of the command that started it."""

    @property
    def is_final(self) -> bool:
        """True when it does not change any more."""
        return self.state in _FINAL


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPiece:
    """A part of the log of an attempt, in order."""

    attempt: int
    data: bytes
    """Empty in the last piece of an attempt, and in the first of one that is followed."""
    end: int
    """Where it ends in the log, in bytes."""
    state: str
    """`open`, or how the attempt has ended."""
    unstored: str = ""
    """In the last piece: why the end of the log may be missing; empty: it is complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Slots that ready tasks lack, on workers that have these labels and this target."""

    labels: tuple[str, ...]
    target: str
    """Empty: they need none."""
    slots: int
    """Tasks whose drivers run in a cluster take none, so for all of them it is 1."""
    waited_s: float
    """For how long the oldest of these tasks has been ready."""


class Client(Api):
    """A synchronous client of a cluster. Threads may share it.

    Writes are done once, however often they are sent: each call makes its own `Idempotency-Key`. Requests
    without an answer are tried again at other schedulers for `patience_s`, with pauses as `Retry-After` says.

    Args:
        urls: Base URLs of schedulers; the others of the cluster are learnt from them. None: NIMBUS_SERVER,
            or the cluster of `nimbus up` in this folder.
        token: None: NIMBUS_TOKEN, NIMBUS_TOKEN_FILE, or what `nimbus login` has stored.
        patience_s: How long a request is tried again.
        learn_after_s: Age at which it begins to ask for other schedulers; `math.inf`: never.

    Raises:
        SetupError: no URL is known, or one is not valid.
    """

    def __init__(
        self,
        *urls: str,
        token: str | None = None,
        patience_s: float = PATIENCE_S,
        learn_after_s: float = 0.0,
    ) -> None:
        super().__init__(servers(urls), token=token, patience_s=patience_s, learn_after_s=learn_after_s)

    def start(
        self,
        pipeline: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        run_id: str | None = None,
        logical_date: datetime | str | None = None,
        data_interval: tuple[datetime | str, datetime | str] | None = None,
        priority: str | None = None,
        selection: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> RunInfo:
        """Start a run of a pipeline's active release.

        Args:
            pipeline: Its name.
            parameters: By name; values of JSON.
            run_id: Your own id; None: a new one. One id is one run, also for another process.
            logical_date: With offset; None: the end of the interval, else now.
            data_interval: From (included) to (excluded), both with offset.
            priority: `highest`, `high`, `medium`, `low` or `lowest`; None: the pipeline's.
            selection: `{scope, tasks, reuse?}`; `scope` is `only`, `from` or `upto`.
            key: See `command`.

        Returns:
            The run; `pending` while there is no leader: it starts as soon as one leads. Else `queued`,
            also if this `run_id` was started before: `wait` returns what became of it.

        Raises:
            NotFoundError: there is no such pipeline.
            ConflictError: the leader refused it.
            ProblemError, UnreachableError: see `command`.
        """
        body = {
            "pipeline": pipeline,
            "run_id": run_id,
            "parameters": dict(parameters or {}),
            "logical_date": _text(logical_date),
            "data_interval": _interval(data_interval),
            "priority": priority,
            "selection": selection,
        }
        given = {name: value for name, value in body.items() if value is not None}
        answer = self.command("POST", "/runs", given, key=key)
        state = "pending" if answer["status"] == "pending" else "queued"
        return RunInfo(id=answer["run_id"], pipeline=pipeline, state=state, document=answer)

    def run(self, run_id: str) -> RunInfo:
        """Read a run, also one that is pending or long over. NotFoundError: there is none."""
        return _run(self.get(("runs", run_id)))

    def runs(self, *, limit: int = 100, **filters: str | None) -> list[RunInfo]:
        """List runs, newest first. `filters`: those of `GET /runs`, such as `pipeline` and `state`."""
        return [_run(row) for row in self.listed("/runs", "runs", limit, **filters)["runs"]]

    def watch(
        self, run_id: str, *, timeout_s: float | None = None, every_s: float = 0.5
    ) -> Iterator[RunInfo]:
        """Yield the state of a run until it is final, through outages of five minutes.

        Raises:
            ConflictError: the leader refused its start.
            WaitTimeoutError: it is not final after `timeout_s`; it goes on.
        """
        until = None if timeout_s is None else time.monotonic() + timeout_s
        patience_s = _OUTAGE_PATIENCE_S if timeout_s is None else max(min(_OUTAGE_PATIENCE_S, timeout_s), 1.0)
        while True:
            run = _run(self._ask("GET", ("runs", run_id), patience_s=patience_s).json())
            if run.state == "refused":
                raise ConflictError(409, run.document["command"]["outcome"]["code"], run.reason)
            yield run
            if run.is_final:
                return
            if until is not None and time.monotonic() >= until:
                raise WaitTimeoutError(f"run {run_id} is not finished after {timeout_s:g} s; it continues.")
            time.sleep(every_s)

    def wait(self, run_id: str, *, timeout_s: float | None = None) -> RunInfo:
        """Return a run when it is final, whatever became of it. Errors as `watch`."""
        for run in self.watch(run_id, timeout_s=timeout_s):
            last = run
        return last

    def results(self, run_id: str) -> dict[str, Any]:
        """The results of a run's tasks (`ctx.result`), by task. NotFoundError: there is no such run."""
        return dict(self.get(("runs", run_id, "results"))["results"])

    def stop(self, run_id: str, *, reason: str) -> dict[str, Any]:
        """End a run: no new task starts, running tasks are stopped. Returns and raises as `command`."""
        return self.command("POST", ("runs", run_id, "stop"), {"reason": reason})

    def log(
        self,
        run_id: str,
        task: str,
        *,
        attempt: int | None = None,
        follow: bool = False,
        kind: str = "log",
    ) -> Iterator[LogPiece]:
        """Yield the log of a task's attempt.

        Args:
            run_id: The run.
            task: The task.
            attempt: Its number; None: the last one, or with `follow` that and all that come after it.
            follow: Go on while it grows, through retries, to the task's end.
            kind: `log`, or `events` for Spark's event log.

        Raises:
            NotFoundError: there is no such task, or no attempt of it.
        """
        path = ("runs", run_id, "tasks", task, kind)
        if not follow:
            yield from self._log_to_end(path, attempt, 0)
            return
        number = attempt
        while (log := self._await_attempt(path, run_id, task, number)) is not None:
            yield LogPiece(attempt=log, data=b"", end=0, state="open")
            yield from self._log_of(path, log)
            if attempt is not None:
                return
            number = log + 1

    def _log_to_end(self, path: tuple[str, ...], attempt: int | None, offset: int) -> Iterator[LogPiece]:
        while True:
            answer = self.fetch(path, attempt=attempt, offset=offset)
            headers = answer.headers
            attempt = int(headers["X-Attempt"])  # a retry between two pieces must not mix two logs
            offset = int(headers.get("X-Log-End", offset))
            yield LogPiece(
                attempt=attempt,
                data=answer.content,
                end=offset,
                state=headers["X-Attempt-State"],
                unstored=headers.get("X-Log-Unstored", ""),
            )
            if not answer.content:
                return

    def _log_of(self, path: tuple[str, ...], number: int) -> Iterator[LogPiece]:
        """The log of an attempt while it grows, and for a moment after the attempt's end."""
        offset, late_since = 0, None
        while True:
            for piece in self._log_to_end(path, number, offset):
                if piece.data:
                    offset, late_since = piece.end, None
                    yield piece
            if piece.state != "open":
                late_since = time.monotonic() if late_since is None else late_since
                if time.monotonic() - late_since >= _LATE_S:
                    yield piece
                    return
            time.sleep(0.5)

    def _await_attempt(self, path: tuple[str, ...], run_id: str, task: str, number: int | None) -> int | None:
        """Wait until the attempt exists; None if it never will, because the task has ended."""
        while True:
            try:
                return int(self.fetch(path, attempt=number, limit=1).headers["X-Attempt"])
            except ProblemError as exc:
                if exc.code not in ("no_attempt", "unknown_attempt", "run_pending"):
                    raise
                states = {row["name"]: row["state"] for row in self.run(run_id).document["tasks"]}
                if exc.code != "run_pending" and states[task] not in ("waiting", "running"):
                    if number is None or number == 1:
                        raise
                    return None
            time.sleep(0.5)

    def publish(
        self,
        dataset: str,
        uri: str,
        *,
        interval: tuple[datetime | str, datetime | str] | None = None,
        partition: str | None = None,
        digest: str | None = None,
        value: Any = None,
        key: str | None = None,
    ) -> dict[str, Any]:
        """Publish data that no task made. Returns and raises as `command`.

        Args:
            dataset: Its pipeline must say that it comes from outside.
            uri: Where readers find the data.
            interval: Of a dataset by interval, both with offset.
            partition: Of a dataset by key.
            digest: `sha256:HEX` of the one file at `uri`; None: unverified.
            value: JSON that readers get beside the URI, 512 bytes at most.
            key: See `command`. Your own key, such as the name of the file, is one version for a day, also
                for another process.
        """
        body = {"uri": uri, "interval": _interval(interval), "key": partition, "digest": digest}
        given = {name: said for name, said in {**body, "value": value}.items() if said is not None}
        return self.command("POST", ("datasets", dataset, "versions"), given, key=key)

    def wanted(self) -> list[Wanted] | None:
        """What workers must be added for, as of some seconds ago; None: there is no leader who knows."""
        answer = self.get("/workers/wanted")
        if answer["reported_at"] is None:
            return None
        return [
            Wanted(
                labels=tuple(row["labels"]),
                target=row["target"] or "",
                slots=row["slots"],
                waited_s=row["waited_s"],
            )
            for row in answer["wanted"]
        ]

    def cordon(self, worker: str, *, reason: str, drain: bool = False) -> dict[str, Any]:
        """Give no new tasks to a worker. With `drain`, tasks that are kept running leave it, too.

        Returns and raises as `command`.
        """
        return self.command("POST", ("workers", worker, "cordon"), {"reason": reason, "drain": drain})

    def drain(self, worker: str, *, reason: str, timeout_s: float = 3600.0) -> None:
        """Cordon a worker, and wait until it has no open attempt. It stays cordoned until `uncordon`.

        Raises:
            WaitTimeoutError: it has some after `timeout_s`, or there is no leader: the cordon is queued.
            ProblemError, UnreachableError: see `command`.
        """
        if self.cordon(worker, reason=reason, drain=True)["status"] == "pending":
            raise WaitTimeoutError(f"no leader has cordoned worker {worker} yet; one will.")
        self.await_drained(worker, timeout_s=timeout_s)

    def await_drained(self, worker: str, *, timeout_s: float = 3600.0) -> None:
        """Wait for a worker that was cordoned; one that is gone has no attempt. WaitTimeoutError."""
        until = time.monotonic() + timeout_s
        while True:
            busy = sum(int(row["busy"]) for row in self.workers() if row["id"] == worker)
            if not busy:
                return
            if time.monotonic() >= until:
                raise WaitTimeoutError(f"worker {worker} still has {busy} open attempts and stays cordoned.")
            time.sleep(1.0)

    def uncordon(self, worker: str) -> dict[str, Any]:
        """Allow new tasks on a worker again. Returns and raises as `command`."""
        return self.command("POST", ("workers", worker, "uncordon"))

    def workers(self) -> Sequence[dict[str, Any]]:
        """Registered workers, as of `GET /workers`: `id`, `slots`, `busy`, `draining`, `labels`, ..."""
        return list(self.get("/workers")["workers"])


def _run(row: Mapping[str, Any]) -> RunInfo:
    return RunInfo(
        id=row["id"],
        pipeline=row["pipeline"] or "",
        state=row["state"],
        reason=row["reason"] or "",
        document=row,
    )


def _text(moment: datetime | str | None) -> str | None:
    return moment.isoformat() if isinstance(moment, datetime) else moment


def _interval(span: tuple[datetime | str, datetime | str] | None) -> dict[str, str | None] | None:
    return None if span is None else {"start": _text(span[0]), "end": _text(span[1])}
