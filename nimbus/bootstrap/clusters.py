"""Builds the clusters to which a worker submits drivers, from its targets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from nimbus.config.sections import Worker
from nimbus.config.targets import Target
from nimbus.domain.schedulers import SchedulerInfo
from nimbus.java import find_java
from nimbus.worker.application import kubernetes as of_kubernetes
from nimbus.worker.application import yarn as of_yarn
from nimbus.worker.application.executor import ClusterTarget
from nimbus.worker.application.kubernetes import NAME_VARIABLE, KubernetesManager
from nimbus.worker.application.kubernetes_api import KubernetesApi
from nimbus.worker.application.spark_client import SparkClient
from nimbus.worker.application.standalone import StandaloneManager
from nimbus.worker.application.yarn import CONTAINER_VARIABLE, YarnManager, hadoop_user
from nimbus.worker.targets import SparkTarget, TargetKind


def clusters(
    targets: Mapping[str, SparkTarget],
    configured: Mapping[str, Target],
    schedulers: Callable[[], Iterable[SchedulerInfo]],
    worker: Worker,
) -> dict[str, ClusterTarget]:
    """The targets of a worker that accept drivers, by name.

    Args:
        targets: All targets.
        configured: The same targets in the configuration.
        schedulers: Returns the registered schedulers; drivers report to them, unless a target names others.
        worker: The worker's section of the configuration.
    """

    def endpoints_of(target: Target) -> Callable[[], Sequence[str]]:
        return lambda: list(target.schedulers) or [scheduler.address for scheduler in schedulers()]

    def standalone(target: SparkTarget) -> ClusterTarget:
        pages = configured[target.name].pages
        return ClusterTarget(
            name=target.name,
            manager=StandaloneManager(target.master, target.rest, version("pyspark"), target.token, pages),
            endpoints=endpoints_of(configured[target.name]),
            environment=target.env,
            queue_timeout_s=configured[target.name].queue_timeout.total_seconds(),
        )

    def yarn(target: SparkTarget) -> ClusterTarget:
        return ClusterTarget(
            name=target.name,
            manager=YarnManager(
                target.rest, _client(target, worker, of_yarn.VARIABLES), hadoop_user(target.env)
            ),
            endpoints=endpoints_of(configured[target.name]),
            queue_timeout_s=configured[target.name].queue_timeout.total_seconds(),
            driver_id=CONTAINER_VARIABLE,
        )

    def kubernetes(target: SparkTarget) -> ClusterTarget:
        namespace = configured[target.name].namespace
        return ClusterTarget(
            name=target.name,
            manager=KubernetesManager(
                _client(target, worker, of_kubernetes.VARIABLES),
                KubernetesApi(target.master, namespace, target.ca_file, target.token),
                namespace,
            ),
            endpoints=endpoints_of(configured[target.name]),
            queue_timeout_s=configured[target.name].queue_timeout.total_seconds(),
            driver_id=NAME_VARIABLE,
            keeps_ended=True,
        )

    made = {
        TargetKind.STANDALONE: standalone,
        TargetKind.YARN: yarn,
        TargetKind.KUBERNETES: kubernetes,
    }
    return {
        name: made[target.kind](target)
        for name, target in targets.items()
        if target.kind in made and (target.rest or target.kind is TargetKind.KUBERNETES)
    }


def _client(target: SparkTarget, worker: Worker, variables: str) -> SparkClient:
    return SparkClient(
        master=target.master,
        folder=Path(worker.work_dir) / "clients" / target.name,
        java_home=lambda: find_java().java_home,
        variables=variables,
        environment={**worker.env, **target.env},
    )
