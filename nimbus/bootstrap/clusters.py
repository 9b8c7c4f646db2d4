"""Makes the clusters that a worker submits drivers to, of its targets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version

from nimbus.config.targets import Target
from nimbus.domain.schedulers import SchedulerInfo
from nimbus.worker.application.executor import ClusterTarget
from nimbus.worker.application.standalone import StandaloneManager
from nimbus.worker.targets import SparkTarget, TargetKind


def clusters(
    targets: Mapping[str, SparkTarget],
    configured: Mapping[str, Target],
    schedulers: Callable[[], Iterable[SchedulerInfo]],
) -> dict[str, ClusterTarget]:
    """Those of a worker's targets that drivers can be submitted to, by name.

    Args:
        targets: All of them.
        configured: The same, as the configuration has them.
        schedulers: Those that are registered: drivers report to them, unless a target names others.
    """

    def endpoints_of(target: Target) -> Callable[[], Sequence[str]]:
        return lambda: list(target.schedulers) or [scheduler.address for scheduler in schedulers()]

    return {
        name: ClusterTarget(
            name=name,
            manager=StandaloneManager(
                target.master, target.rest, version("pyspark"), target.token, configured[name].pages
            ),
            endpoints=endpoints_of(configured[name]),
            environment=target.env,
            queue_timeout_s=configured[name].queue_timeout.total_seconds(),
        )
        for name, target in targets.items()
        if target.kind is TargetKind.STANDALONE and target.rest
    }
