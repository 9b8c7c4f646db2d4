"""Every ZooKeeper path of the scheduler, in one place. docs/zookeeper.md lists their owners.

The election's own paths (`leader-lock`, `epoch`, `leader`) belong to the package `leader`.
"""

from __future__ import annotations

from urllib.parse import quote

from nimbus.domain.attempts.slots import ClusterDriver
from nimbus.domain.ids import AttemptId, BackfillId, CommandId, DatasetName, PipelineName, RunId, WorkerId

COMMAND_PREFIX = "cmd-"
CLAIM = "claim"
END = "end"
HEARTBEAT = "beat"
STOP = "stop"
CHECKPOINT = "checkpoint"
SUBMITTED = "submitted:"


PROBE = "nimbus-probe"
"""Name of the node that a process creates and deletes to learn whether it may write."""


class Paths:
    """All paths below one cluster's root, for example `/nimbus`."""

    def __init__(self, root: str) -> None:
        self.root = root
        # A name in the plural is the parent of such records.
        self.schedulers = f"{root}/schedulers"
        self.workers = f"{root}/workers"
        self.pipelines = f"{root}/pipelines"
        self.schedules = f"{root}/schedules"
        """Parent of the positions of the pipelines' schedules."""
        self.intervals = f"{root}/intervals"
        self.backfills = f"{root}/backfills"
        self.datasets = f"{root}/datasets"
        self.due = f"{root}/due"
        """Parent of the consumers of datasets."""
        self.commands = f"{root}/commands"
        self.outcomes = f"{root}/outcomes"
        self.keys = f"{root}/keys"
        """Parent of the idempotency keys of requests, with their commands."""
        self.abdication = f"{root}/abdication"
        """The last abdication that was accepted; empty before the first."""
        self.terms = f"{root}/terms"
        self.data = f"{root}/data"
        """The mark of the folder of outputs."""
        self.settings = f"{root}/settings"
        """Pools, and cordoned workers; empty before the first."""
        self.alerts = f"{root}/alerts"
        """Parent of alerts: waiting ones, and recently sent ones."""
        self.health = f"{root}/health"
        self.attempt_key = f"{root}/attempt-key"
        """The secret key for tokens of attempts in clusters."""
        self.session_key = f"{root}/session-key"
        """The secret key that signs browser sessions."""
        self.unfinished = f"{root}/unfinished"
        """The running command that creates or removes the cluster. While it exists, no daemon starts."""
        self.runs = f"{root}/runs"
        self.assignments = f"{root}/assignments"
        """Parent of the workers' orders."""
        self.attempts = f"{root}/attempts"
        self.new_command = f"{self.commands}/{COMMAND_PREFIX}"
        """Prefix of a new command's path; ZooKeeper appends the number."""

    def always(self) -> tuple[str, ...]:
        """Persistent nodes that must exist before anything else is written."""
        return (
            self.schedulers,
            self.workers,
            self.pipelines,
            self.schedules,
            self.intervals,
            self.datasets,
            self.due,
            self.backfills,
            self.commands,
            self.outcomes,
            self.keys,
            self.abdication,
            self.terms,
            self.settings,
            self.alerts,
            self.health,
            self.runs,
            self.assignments,
            self.attempts,
        )

    def dataset(self, name: DatasetName) -> str:
        return f"{self.datasets}/{name}"

    def due_of(self, name: PipelineName) -> str:
        return f"{self.due}/{name}"

    def key(self, key_hash: str) -> str:
        return f"{self.keys}/{key_hash}"

    def term(self, epoch: int) -> str:
        """The record of one term. Names are in the order of epochs."""
        return f"{self.terms}/{epoch:010d}"

    def alert(self, alert: str) -> str:
        return f"{self.alerts}/{alert}"

    def health_of(self, name: PipelineName) -> str:
        return f"{self.health}/{name}"

    def submitted(self, attempt: AttemptId, driver: ClusterDriver) -> str:
        """Mark of a submitted driver. Its name contains all data, so that a listing is enough."""
        return f"{self.attempt(attempt)}/{SUBMITTED}{driver.target}:{quote(driver.id, safe='')}"

    def scheduler(self, scheduler: str) -> str:
        """One scheduler's registration; ephemeral."""
        return f"{self.schedulers}/{scheduler}"

    def worker(self, worker: WorkerId) -> str:
        """One worker's registration; ephemeral."""
        return f"{self.workers}/{worker}"

    def pipeline(self, name: PipelineName) -> str:
        return f"{self.pipelines}/{name}"

    def schedule(self, name: PipelineName) -> str:
        """The position of one pipeline's schedule. See `nimbus.pipeline_record`."""
        return f"{self.schedules}/{name}"

    def backfill(self, backfill: BackfillId) -> str:
        return f"{self.backfills}/{backfill}"

    def interval_index(self, name: PipelineName) -> str:
        """One pipeline's index of intervals: the time since which it is complete. Its pages are below."""
        return f"{self.intervals}/{name}"

    def interval_page(self, name: PipelineName, page: str) -> str:
        return f"{self.intervals}/{name}/{page}"

    def command(self, command: CommandId) -> str:
        """One waiting command; persistent, sequential."""
        return f"{self.commands}/{command}"

    def outcome(self, command: CommandId) -> str:
        return f"{self.outcomes}/{command}"

    def run(self, run: RunId) -> str:
        return f"{self.runs}/{run}"

    def run_part(self, run: RunId, part: str) -> str:
        """A part of one run: its plan or states; "" is the run's own node. See `nimbus.run_record`."""
        return f"{self.runs}/{run}/{part}" if part else self.run(run)

    def orders(self, worker: WorkerId) -> str:
        return f"{self.assignments}/{worker}"

    def order(self, worker: WorkerId, attempt: AttemptId) -> str:
        return f"{self.assignments}/{worker}/{attempt}"

    def attempt(self, attempt: AttemptId) -> str:
        """Parent of one attempt's slots."""
        return f"{self.attempts}/{attempt}"

    def claim(self, attempt: AttemptId) -> str:
        """CLAIM slot; persistent, created once."""
        return f"{self.attempts}/{attempt}/{CLAIM}"

    def nonce(self, attempt: AttemptId, nonce: str) -> str:
        """Created and removed with CLAIM, so that a transaction can check which claim exists."""
        return f"{self.attempts}/{attempt}/{CLAIM}-{nonce}"

    def end(self, attempt: AttemptId) -> str:
        """END slot; persistent, created once."""
        return f"{self.attempts}/{attempt}/{END}"

    def heartbeat(self, attempt: AttemptId) -> str:
        """The runner's heartbeat and progress; ephemeral."""
        return f"{self.attempts}/{attempt}/{HEARTBEAT}"

    def checkpoint(self, attempt: AttemptId) -> str:
        """The attempt's last checkpoint; persistent."""
        return f"{self.attempts}/{attempt}/{CHECKPOINT}"

    def stop(self, attempt: AttemptId) -> str:
        """The leader's request to stop; persistent."""
        return f"{self.attempts}/{attempt}/{STOP}"
