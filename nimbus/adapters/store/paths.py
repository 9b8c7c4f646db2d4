"""Every ZooKeeper path of the scheduler, in one place. docs/zookeeper.md lists their owners.

The election's own paths (`leader-lock`, `epoch`, `leader`) belong to the package `leader`.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from nimbus.domain.ids import AttemptId, BackfillId, CommandId, DatasetName, PipelineName, RunId, WorkerId
from nimbus.domain.slots import ClusterDriver

COMMAND_PREFIX = "cmd-"
CLAIM = "claim"
END = "end"
BEAT = "beat"
STOP = "stop"
CHECKPOINT = "checkpoint"
SUBMITTED = "submitted:"


PROBE = "nimbus-probe"
"""Name of the node that a process creates and deletes to learn whether it may write."""


@dataclass(frozen=True, slots=True)
class Paths:
    """All paths below one cluster's root, for example `/nimbus`."""

    root: str

    @property
    def schedulers(self) -> str:
        """Parent of the schedulers' registrations."""
        return f"{self.root}/schedulers"

    @property
    def workers(self) -> str:
        """Parent of the workers' registrations."""
        return f"{self.root}/workers"

    @property
    def pipelines(self) -> str:
        """Parent of the catalog's records."""
        return f"{self.root}/pipelines"

    @property
    def schedules(self) -> str:
        """Parent of the positions of the pipelines' schedules."""
        return f"{self.root}/schedules"

    @property
    def intervals(self) -> str:
        """Parent of the pipelines' indexes of intervals."""
        return f"{self.root}/intervals"

    @property
    def backfills(self) -> str:
        """Parent of the backfills."""
        return f"{self.root}/backfills"

    @property
    def datasets(self) -> str:
        """Parent of the datasets."""
        return f"{self.root}/datasets"

    def dataset(self, name: DatasetName) -> str:
        """One dataset, compressed."""
        return f"{self.datasets}/{name}"

    @property
    def due(self) -> str:
        """Parent of the consumers of datasets."""
        return f"{self.root}/due"

    def due_of(self, name: PipelineName) -> str:
        """What is due for one consumer, compressed."""
        return f"{self.due}/{name}"

    @property
    def commands(self) -> str:
        """The command queue."""
        return f"{self.root}/commands"

    @property
    def outcomes(self) -> str:
        """Parent of the outcomes of recent commands."""
        return f"{self.root}/outcomes"

    @property
    def keys(self) -> str:
        """Parent of the idempotency keys of requests, with their commands."""
        return f"{self.root}/keys"

    def key(self, key_hash: str) -> str:
        """The record of one key."""
        return f"{self.keys}/{key_hash}"

    @property
    def abdication(self) -> str:
        """The last abdication that was accepted; empty before the first."""
        return f"{self.root}/abdication"

    @property
    def terms(self) -> str:
        """Parent of the records of terms."""
        return f"{self.root}/terms"

    def term(self, epoch: int) -> str:
        """The record of one term. Names are in the order of epochs."""
        return f"{self.terms}/{epoch:010d}"

    @property
    def data(self) -> str:
        """The mark of the folder of outputs."""
        return f"{self.root}/data"

    @property
    def settings(self) -> str:
        """Pools, and cordoned workers; empty before the first."""
        return f"{self.root}/settings"

    @property
    def alerts(self) -> str:
        """Parent of alerts: waiting ones, and recently sent ones."""
        return f"{self.root}/alerts"

    def alert(self, alert: str) -> str:
        """One alert."""
        return f"{self.alerts}/{alert}"

    @property
    def health(self) -> str:
        """Parent of the health records of pipelines."""
        return f"{self.root}/health"

    def health_of(self, name: PipelineName) -> str:
        """The health record of one pipeline."""
        return f"{self.health}/{name}"

    def submitted(self, attempt: AttemptId, driver: ClusterDriver) -> str:
        """Mark of a submitted driver. Its name contains all data, so that a listing is enough."""
        return f"{self.attempt(attempt)}/{SUBMITTED}{driver.target}:{quote(driver.id, safe='')}"

    @property
    def attempt_key(self) -> str:
        """The secret key for tokens of attempts in clusters."""
        return f"{self.root}/attempt-key"

    @property
    def session_key(self) -> str:
        """The secret key that signs browser sessions."""
        return f"{self.root}/session-key"

    @property
    def unfinished(self) -> str:
        """The running command that creates or removes the cluster. While it exists, no daemon starts."""
        return f"{self.root}/unfinished"

    @property
    def runs(self) -> str:
        """Parent of live and recently finished runs."""
        return f"{self.root}/runs"

    @property
    def assignments(self) -> str:
        """Parent of the workers' orders."""
        return f"{self.root}/assignments"

    @property
    def attempts(self) -> str:
        """Parent of the attempts' slots."""
        return f"{self.root}/attempts"

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

    def scheduler(self, scheduler: str) -> str:
        """One scheduler's registration; ephemeral."""
        return f"{self.schedulers}/{scheduler}"

    def worker(self, worker: WorkerId) -> str:
        """One worker's registration; ephemeral."""
        return f"{self.workers}/{worker}"

    def pipeline(self, name: PipelineName) -> str:
        """One pipeline's record."""
        return f"{self.pipelines}/{name}"

    def schedule(self, name: PipelineName) -> str:
        """The position of one pipeline's schedule. See `nimbus.pipeline_record`."""
        return f"{self.schedules}/{name}"

    def backfill(self, backfill: BackfillId) -> str:
        """One backfill."""
        return f"{self.backfills}/{backfill}"

    def interval_index(self, name: PipelineName) -> str:
        """One pipeline's index of intervals: the time since which it is complete. Its pages are below."""
        return f"{self.intervals}/{name}"

    def interval_page(self, name: PipelineName, page: str) -> str:
        """A page of one pipeline's index of intervals."""
        return f"{self.intervals}/{name}/{page}"

    def command(self, command: CommandId) -> str:
        """One waiting command; persistent, sequential."""
        return f"{self.commands}/{command}"

    @property
    def new_command(self) -> str:
        """Prefix of a new command's path; ZooKeeper appends the number."""
        return f"{self.commands}/{COMMAND_PREFIX}"

    def outcome(self, command: CommandId) -> str:
        """The outcome of one command."""
        return f"{self.outcomes}/{command}"

    def run(self, run: RunId) -> str:
        """One run."""
        return f"{self.runs}/{run}"

    def run_part(self, run: RunId, part: str) -> str:
        """A part of one run: its plan or states; "" is the run's own node. See `nimbus.run_record`."""
        return f"{self.runs}/{run}/{part}" if part else self.run(run)

    def orders(self, worker: WorkerId) -> str:
        """One worker's orders."""
        return f"{self.assignments}/{worker}"

    def order(self, worker: WorkerId, attempt: AttemptId) -> str:
        """One order for an attempt."""
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

    def beat(self, attempt: AttemptId) -> str:
        """The runner's beat and progress; ephemeral."""
        return f"{self.attempts}/{attempt}/{BEAT}"

    def checkpoint(self, attempt: AttemptId) -> str:
        """The attempt's last checkpoint; persistent."""
        return f"{self.attempts}/{attempt}/{CHECKPOINT}"

    def stop(self, attempt: AttemptId) -> str:
        """The leader's request to stop; persistent."""
        return f"{self.attempts}/{attempt}/{STOP}"
