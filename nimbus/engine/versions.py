"""Finds the versions of datasets that runs read: the newest of each partition, from ZooKeeper or history."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from heapq import merge
from itertools import islice

from nimbus.domain.datasets import Dataset
from nimbus.domain.publications import Read, Version
from nimbus.domain.reads import MAX_PINNED, Lacking, Partitions, chosen, portion
from nimbus.engine.withdrawals import is_purged
from nimbus.ports import History


def found_versions(
    asked: Iterable[tuple[Read, Partitions, Dataset | None]],
    history: History,
    parts: Callable[[Read], tuple[Version, ...]],
) -> Mapping[str, tuple[Version, ...]] | Lacking:
    """The versions that reads pin. Raises as `versions_for`.

    `parts`: finds those of a read with `of`.
    """
    asked = tuple(asked)
    of_others = [one for one in asked if one[0].of is None]
    found = {read.name: versions_for(read, wanted, dataset, history) for read, wanted, dataset in of_others}
    if not all(found[read.name] or read.optional or read.new for read, _, _ in of_others):
        return Lacking({one.name: one.published for _, _, one in of_others if one is not None})
    return found | {read.name: parts(read) for read, _, _ in asked if read.of is not None}


def versions_for(
    read: Read, asked: Partitions, dataset: Dataset | None, history: History
) -> tuple[Version, ...]:
    """The versions that a read pins.

    Args:
        read: The read.
        asked: The partitions that it needs.
        dataset: What the leader keeps of it, which is newer than history; None: nothing is published.
        history: Has the partitions that the leader no longer keeps.

    Raises:
        ReadError: see `chosen`.
        NimbusError: history cannot be read now.
    """
    if dataset is None:
        return ()
    kept = dataset.versions
    if asked.since is not None:
        return portion(_newer(dataset, asked.since, history))
    if asked.latest:  # a record never drops the last interval
        return chosen(read, asked, kept)
    stored: Iterable[Version] = ()
    if dataset.dropped and asked.key:
        stored = filter(None, [history.version(dataset.name, asked.key)])
    elif dataset.dropped:
        stored = history.newest_versions(dataset.name, asked.interval, dataset.longest)
    newest = {one.partition: one for one in islice(stored, MAX_PINNED + 1)}
    newest |= {one.partition: one for one in kept}
    return chosen(read, asked, newest.values(), dataset.spans_from)


def _newer(dataset: Dataset, since: int, history: History) -> Iterable[Version]:
    """The partitions that have changed after a sequence, in the order of these changes.

    What was published after the leader's record was read waits for the next run. History has a part of it:
    not yet what a run under way has published. What retention has deleted is not new, as in history.
    """
    kept = (
        one
        for one in dataset.versions
        if one.sequence > since and not (one.keep and one.output and is_purged(one.source.run, history))
    )
    found = sorted(kept, key=lambda one: one.sequence)
    if dataset.dropped <= since:
        return found
    here = {one.partition: one.sequence for one in dataset.versions}
    last = max(dataset.dropped, *here.values(), 0)
    stored = (
        one
        for one in history.newer_versions(dataset.name, since)
        if one.partition not in here and one.sequence <= last
    )
    return merge(found, stored, key=lambda one: one.sequence)
