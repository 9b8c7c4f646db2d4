"""Clusters whose submissions are interrupted at points: their processes, and the code of their tasks."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import pyspark

from nimbus.java import find_java
from nimbus.localstack.stack import LocalStack
from nimbus.worker.connect.server import LocalServer, LocalServerSettings
from tests.nimbus.chaos.standalone_gateway import StandaloneGateway
from tests.nimbus.chaos.submission_holds import HoldingGrpc, HoldingZooKeeper
from tests.nimbus.chaos.submission_points import MANAGER, STORE, HoldingProxy, Point, Stops, points_of
from tests.nimbus.kubernetes.bench import kubernetes
from tests.nimbus.kubernetes.kubelet import spark_image
from tests.nimbus.yarn.cluster import YarnCluster
from tests.nimbus.yarn.manager import ENDED

_QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_CLIENT = {"worker": {"env": {"SPARK_SUBMIT_OPTS": _QUICK_JVM}}}
_SERVICE = "org.apache.spark.deploy.k8s.features.DriverServiceFeatureStep"
"""Kubernetes 1.20 cannot apply a Service of the form that Spark 4.3 writes, and no executor needs one."""
_REST_POINTS = points_of(create=r"POST .*/create\b", status=r"GET .*/status/")
_COUNTS = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
assert spark.range(1000).count() == 1000
"""


class PointCluster(Protocol):
    """A cluster whose submissions are interrupted at points."""

    @property
    def name(self) -> str: ...

    @property
    def standalone(self) -> bool:
        """Whether the stack's own Spark cluster is started."""
        ...

    @property
    def spark(self) -> Mapping[str, str]:
        """Settings in `spark` of each task, in addition to its target."""
        ...

    @property
    def work(self) -> str:
        """Python code of each task."""
        ...

    @property
    def points(self) -> Sequence[Point]: ...

    def start(self, scene: Scene) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Start the servers that are needed in addition to the stack, behind proxies.

        Returns:
            The target, and sections of the worker's configuration, in the form of the configuration.
        """
        ...

    def left(self) -> Sequence[str]:
        """The drivers that the cluster reports."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The environment in which a cluster is started."""

    folder: Path
    """It does not exist yet."""
    stack: LocalStack
    """It is running."""
    gateways: Sequence[str]
    """URLs under which drivers in the cluster reach the schedulers."""
    stops: Stops
    last_first: ExitStack
    """Ends everything that was started."""

    def proxied(self, *urls: str, ca_file: Path | None = None) -> list[str]:
        """Start proxies for the servers that take submissions. Returns their addresses."""
        proxies = [HoldingProxy(MANAGER, url, self.stops, ca_file) for url in urls]
        for proxy in proxies:
            self.last_first.callback(proxy.close)
        return [proxy.url for proxy in proxies]


class _Cluster:
    standalone: ClassVar[bool] = False
    spark: ClassVar[Mapping[str, str]] = {"deploy": "cluster"}
    work: ClassVar[str] = ""
    points: ClassVar[Sequence[Point]] = _REST_POINTS

    def left(self) -> Sequence[str]:
        """See `PointCluster.left`. This cluster cannot report drivers."""
        return ()


class FakeStandalone(_Cluster):
    """Drivers as processes, without Spark."""

    name = "fake"

    def start(self, scene: Scene) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """See `PointCluster.start`."""
        gateway = StandaloneGateway(scene.folder)
        scene.last_first.callback(gateway.close)
        rest = scene.proxied(gateway.url)
        master = {"kind": "standalone", "master": "spark://127.0.0.1:7077"}
        return {**master, "rest": rest, "schedulers": list(scene.gateways)}, {}


class RealStandalone(_Cluster):
    """Two masters and two workers of Spark; each task makes a Spark context and computes."""

    name = "standalone"
    standalone = True
    work = _COUNTS

    def start(self, scene: Scene) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """See `PointCluster.start`."""
        spark = self._spark = scene.stack.spark
        rest = scene.proxied(*(master.rest for master in spark.masters))
        return {**spark.target(), "rest": rest, "schedulers": list(scene.gateways)}, {}

    def left(self) -> Sequence[str]:
        """See `PointCluster.left`."""
        leader = self._spark.leader()
        said = {} if leader is None else leader.state()
        return [one["id"] for one in said.get("activedrivers", [{"id": "not known"}])]


class Kubernetes(_Cluster):
    """Spark's client and drivers, against the API server for tests. A task makes no Spark context."""

    name = "kubernetes"
    points = points_of(create=r"POST .*/pods\b", status=r"GET .*/pods\?")
    server: ClassVar[str] = "test"
    """See `kubernetes`."""
    conf: ClassVar[Mapping[str, str]] = {}

    def start(self, scene: Scene) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """See `PointCluster.start`."""
        scene.folder.mkdir()
        image = spark_image(Path(pyspark.__file__).parent, find_java().java_home)
        place = self._place = scene.last_first.enter_context(kubernetes(scene.folder, self.server, image))
        (url,) = scene.proxied(place.url, ca_file=place.ca_file)
        conf = {
            "spark.kubernetes.driver.master": place.url,
            "spark.kubernetes.authenticate.driver.mounted.oauthTokenFile": str(place.token_file),
            "spark.kubernetes.driverEnv.SPARK_SUBMIT_OPTS": _QUICK_JVM,
            **self.conf,
        }
        target = {"kind": "kubernetes", "master": f"k8s://{url}", "image": "spark:test", "conf": conf}
        target |= {"namespace": place.namespace, "token_file": str(place.token_file)}
        return {**target, "schedulers": list(scene.gateways)}, _CLIENT

    def left(self) -> Sequence[str]:
        """See `PointCluster.left`."""
        return [pod["metadata"]["name"] for pod in self._place.pods()]


class RealKubernetes(Kubernetes):
    """The same with a real kube-apiserver; see `tests.nimbus.kubernetes.bench`."""

    name = "kube-apiserver"
    server = "real"
    conf: ClassVar[Mapping[str, str]] = {"spark.kubernetes.driver.pod.excludedFeatureSteps": _SERVICE}


class Yarn(_Cluster):
    """Spark's client and ApplicationMaster, against the ResourceManager for tests. No Spark context.

    Submissions are calls of Hadoop's RPC, so the ResourceManager itself holds them.
    """

    name = "yarn"
    points = points_of(create="submitApplication", status=r"GET .*/apps/")

    def start(self, scene: Scene) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """See `PointCluster.start`."""
        yarn = self._yarn = YarnCluster(scene.folder)
        scene.last_first.callback(yarn.stop)
        yarn.start()
        yarn.manager.before_taking = lambda: scene.stops.pass_by(MANAGER, "submitApplication", answered=False)
        yarn.manager.before_reply = lambda: scene.stops.pass_by(MANAGER, "submitApplication", answered=True)
        conf = {
            **yarn.conf,
            "spark.pyspark.python": f"{sys.base_prefix}/bin/python3",
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": _QUICK_JVM,
            "spark.yarn.stagingDir": f"file://{scene.folder}/staging",
        }
        target = {"kind": "yarn", "hadoop_conf_dir": str(yarn.conf_dir), "conf": conf}
        rest = scene.proxied(yarn.rest[0].url)
        return {**target, "rest": rest, "schedulers": list(scene.gateways)}, _CLIENT

    def left(self) -> Sequence[str]:
        """See `PointCluster.left`."""
        return [one.id for one in self._yarn.manager.applications.values() if one.state not in ENDED]


class Connect(_Cluster):
    """A Spark Connect server. Drivers are processes on the worker's host, which use ZooKeeper themselves."""

    name = "connect"
    spark: ClassVar[Mapping[str, str]] = {"mode": "connect"}
    work = _COUNTS
    points = (
        Point(name="during submit", asked=MANAGER, request="Config"),
        Point(name="after submit", asked=MANAGER, request="Config", with_answer=True),
        Point(name="before CLAIM", asked=STORE, request=r"MULTI (?!.*/end\b).*/claim\b"),
        Point(name="after CLAIM", asked=STORE, request=r"MULTI (?!.*/end\b).*/claim\b", with_answer=True),
        Point(name="before the id is known", asked=MANAGER, request="ExecutePlan", with_answer=True),
        Point(name="polling", asked=STORE, request=r"(READ|GET|EXISTS)\S* .*/attempts/", after="ExecutePlan"),
        Point(name="after exit", asked=MANAGER, request="Interrupt", task_ends=True),
        Point(name="before END", asked=STORE, request=r"MULTI .*/end\b", task_ends=True),
    )

    def start(self, scene: Scene) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """See `PointCluster.start`."""
        server = LocalServer(
            LocalServerSettings(
                folder=scene.folder,
                master="local[1]",
                spark_conf={},
                env={},
                java_home=lambda: find_java().java_home,
            )
        )
        scene.last_first.callback(server.close)
        there = server.plan()
        token = scene.folder / "token"
        token.write_text(there.token or "")
        calls = HoldingGrpc(there.url.removeprefix("sc://"), scene.stops)
        scene.last_first.callback(calls.close)
        store = HoldingZooKeeper(scene.stack.zookeeper.hosts, scene.stops)
        scene.last_first.callback(store.close)
        url = f"sc://localhost:{calls.port}"
        target = {"kind": "connect", "url": url, "token_file": str(token), "executors_see": "host"}
        return target, {"zookeeper": {"hosts": store.hosts}}


CLUSTERS = {
    one.name: one for one in (FakeStandalone, RealStandalone, Kubernetes, RealKubernetes, Yarn, Connect)
}
