"""Pipelines and the datasets between them, as a graph. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nimbus.domain.catalog import PipelineRecord
from nimbus.domain.ids import DatasetName, PipelineName

MOST_NODES = 150
"""Limit of the nodes of one graph."""


def of_pipeline(name: PipelineName) -> str:
    """The node of a pipeline."""
    return f"p-{name}"


def of_dataset(name: DatasetName) -> str:
    """The node of a dataset."""
    return f"d-{name}"


@dataclass(frozen=True, slots=True)
class Flow:
    """A graph of pipelines and datasets, or the part of it that is nearest to one node."""

    needs: Mapping[str, list[str]]
    """For each node, those before it: a dataset's publishers, the datasets that a pipeline reads."""
    left_out: int
    """How many nodes are not in it."""


def flow(records: Iterable[PipelineRecord], around: str | None = None, most: int = MOST_NODES) -> Flow:
    """The graph of active pipelines.

    Where datasets go round in a circle, the edge that closes it is left out.

    Args:
        records: The active pipelines.
        around: A node; the nearest ones are taken. None: the first ones by name.
        most: Limit of nodes.
    """
    needs: dict[str, set[str]] = {}
    for record in records:
        node = of_pipeline(record.name)
        needs[node] = {of_dataset(name) for name in record.profile.reads}
        for name in record.profile.datasets:
            needs.setdefault(of_dataset(name), set()).add(node)
        if not record.profile.reads and not record.profile.datasets:
            del needs[node]
    for read in [name for of in needs.values() for name in of]:
        needs.setdefault(read, set())  # nobody publishes it
    shown = _nearest(needs, around, most)
    return Flow(_without_circles({name: needs[name] & shown for name in shown}), len(needs) - len(shown))


def _nearest(needs: Mapping[str, set[str]], around: str | None, most: int) -> set[str]:
    beside: dict[str, set[str]] = {name: set(of) for name, of in needs.items()}
    for name, of in needs.items():
        for need in of:
            beside[need].add(name)
    shown: set[str] = set()
    for start in sorted(needs) if around is None else [around] if around in needs else []:
        queue = deque([start])
        while queue and len(shown) < most:
            if (name := queue.popleft()) not in shown:
                shown.add(name)
                queue.extend(sorted(beside[name] - shown))
        if len(shown) >= most:
            break
    return shown


def _without_circles(needs: Mapping[str, set[str]]) -> dict[str, list[str]]:
    kept: dict[str, list[str]] = {}
    left = dict(sorted(needs.items()))
    while left:
        open_needs = {name: sum(need in left for need in of) for name, of in left.items()}
        fewest = min(open_needs.values())
        ready = [name for name, count in open_needs.items() if count == fewest]
        for name in ready if fewest == 0 else ready[:1]:
            kept[name] = sorted(need for need in left.pop(name) if need in kept)
    return kept
