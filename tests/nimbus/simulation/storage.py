"""A simulated S3 with the leader's data: finished runs and releases. It can be unavailable."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import timedelta

from nimbus.domain.commands import CommandOutcome
from nimbus.domain.data.datasets import versions_of
from nimbus.domain.data.publications import Version, interval_in
from nimbus.domain.ids import CommandId, DatasetName, RunId
from nimbus.domain.pipelines.catalog import ReleaseOf
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import PipelineSpec
from nimbus.domain.runs.run import Run
from tests.nimbus.simulation.laws import Law, hold


class Storage:
    """See the module."""

    def __init__(self, releases: dict[ReleaseOf, PipelineSpec]) -> None:
        self.releases = releases
        self.available = True
        self.history: dict[RunId, Run] = {}
        self.refusals: dict[CommandId, CommandOutcome] = {}
        self.versions_of: defaultdict[DatasetName, dict[tuple[str, int], Version]] = defaultdict(dict)
        """By partition and number."""
        self.forgotten: set[DatasetName] = set()

    def version(self, dataset: DatasetName, partition: str) -> Version | None:
        """As `nimbus.ports.History.version`."""
        return next(
            (one for one in self.newest_versions(dataset, None, timedelta(0)) if one.partition == partition),
            None,
        )

    def newest_versions(
        self, dataset: DatasetName, interval: DataInterval | None, longest: timedelta
    ) -> Iterator[Version]:
        """As `nimbus.ports.History.newest_versions`."""
        found = {one.partition: one for one in reversed(self.versions(dataset, 0))}
        for partition in sorted(found):
            span = interval_in(partition)
            if interval is None or (span and span.start < interval.end and interval.start < span.end):
                yield found[partition]

    def newer_versions(self, dataset: DatasetName, sequence: int) -> Iterator[Version]:
        """As `nimbus.ports.History.newer_versions`."""
        found = self.newest_versions(dataset, None, timedelta(0))
        yield from sorted((one for one in found if one.sequence > sequence), key=lambda one: one.sequence)

    def versions(self, dataset: DatasetName, _limit: int, partition: str | None = None) -> list[Version]:
        """As `nimbus.ports.History.versions`; all of them."""
        found = sorted(self.versions_of[dataset].values(), key=lambda one: (one.partition, -one.number))
        return [one for one in found if partition in (None, one.partition)]

    def store_versions(self, dataset: DatasetName, versions: Iterable[Version]) -> None:
        """As `nimbus.ports.History.store_versions`."""
        self.versions_of[dataset] |= {(one.partition, one.number): one for one in versions}

    def forget_dataset(self, dataset: DatasetName, before: int) -> None:
        """As `nimbus.ports.History.forget_dataset`."""
        stored = self.versions_of[dataset]
        self.versions_of[dataset] = {key: one for key, one in stored.items() if one.number >= before}
        self.forgotten.add(dataset)

    def purged(self, _run: RunId) -> None:
        """As `nimbus.ports.History.purged`: nothing is."""

    def read(self, run: RunId) -> Run | None:
        """As `nimbus.ports.History.read`."""
        return self.history.get(run)

    def keep(self, run: Run) -> None:
        """Store a finished run. Safe to repeat."""
        hold(Law.ARCHIVED, run.state.is_final, run.id, "went to history while", run.state)
        before = self.history.setdefault(run.id, run)
        hold(Law.ARCHIVED, before == run, run.id, "went to history twice, with different contents")
        for publication, version in versions_of(run):
            self.store_versions(publication.dataset, [version])
