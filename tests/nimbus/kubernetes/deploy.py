"""A worker whose target is a Kubernetes cluster for tests, and a scheduler's gateway."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from nimbus.domain.attempts.slots import ClusterDriver
from nimbus.domain.attempts.workers import Assignment
from nimbus.domain.pipelines.pipeline import SparkDeploy, SparkPlace
from nimbus.worker.application.executor import ClusterTarget
from nimbus.worker.application.kubernetes import NAME_VARIABLE, KubernetesManager
from nimbus.worker.targets import SparkTarget, TargetKind
from tests.nimbus.cluster_bench import TARGET, ClusterBench, gateway, looking_often
from tests.nimbus.kubernetes.bench import Place
from tests.nimbus.worker_bench import Bench


class KubernetesBench(ClusterBench):
    """Like `ClusterBench`, with pods instead of processes."""

    def __init__(
        self,
        root: Path,
        bench: Bench,
        endpoint: str,
        place: Place,
        pods: KubernetesManager,
        conf: Mapping[str, str],
    ) -> None:
        super().__init__(root, bench)
        self.endpoints.append(endpoint)
        self.at, self.pods, self.conf = place, pods, {**place.conf, **conf}

    @property
    def place(self) -> SparkTarget:
        return SparkTarget(
            name=TARGET, kind=TargetKind.KUBERNETES, master=f"k8s://{self.at.url}", conf=self.conf
        )

    @property
    def targets(self) -> dict[str, ClusterTarget]:
        target = ClusterTarget(
            name=TARGET,
            manager=self.pods,
            endpoints=lambda: self.endpoints,
            queue_timeout_s=self.queue_timeout_s,
            driver_id=NAME_VARIABLE,
            keeps_ended=True,
        )
        return {TARGET: target}

    def assign(self, order: Assignment, worker: str = "w1") -> None:
        """Assign an attempt whose Spark runs in pods."""
        place = SparkPlace(target=TARGET, deploy=SparkDeploy.CLUSTER)
        self.bench.board.assign(worker, replace(order, task=replace(order.task, spark_place=place)))

    def driver(self) -> ClusterDriver | None:
        """The submitted driver."""
        return self.bench.slots().submitted


@contextmanager
def kubernetes_bench(
    root: Path, place: Place, pods: KubernetesManager, conf: Mapping[str, str]
) -> Iterator[KubernetesBench]:
    """A bench with an open gateway."""
    bench = Bench(root)
    with looking_often(), gateway(bench) as endpoint:
        made = KubernetesBench(root, bench, endpoint, place, pods, conf)
        try:
            yield made
        finally:
            made.close()
            bench.close()
