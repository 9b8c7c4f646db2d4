"""Builds the targets of workers, the clusters that take drivers, and history servers: section `spark`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from nimbus.api.services import HistoryServers
from nimbus.config import Settings
from nimbus.config.sections import WorkerSection
from nimbus.config.targets import TargetSection
from nimbus.domain.cluster.schedulers import SchedulerInfo
from nimbus.java import find_java
from nimbus.worker.targets import SparkTarget, TargetError, TargetKind

if TYPE_CHECKING:
    from nimbus.worker.application.executor import ClusterTarget
    from nimbus.worker.application.manager import ClusterManager
    from nimbus.worker.application.spark_client import SparkClient

_KUBERNETES = "spark.kubernetes"


def spark_targets(settings: Settings, environ: Mapping[str, str]) -> dict[str, SparkTarget]:
    """All targets, by name. Tokens are read from `environ` when they are needed."""
    return {
        name: SparkTarget(
            name=name,
            kind=TargetKind(target.kind),
            slots=target.slots,
            master=target.master or ("yarn" if target.kind == "yarn" else ""),
            url=target.url or "",
            rest=tuple(target.rest),
            conf={**_kubernetes_conf(target), **target.conf},
            executors_see=target.executors_see,
            environment=target.environment or "",
            env=_environment(target, settings.worker.env),
            ca_file=target.ca_file,
            token=_token(name, target, environ),
        )
        for name, target in settings.spark.targets.items()
    }


def history_servers(settings: Settings) -> HistoryServers:
    """The history servers, for links to ended applications."""
    targets = settings.spark.targets.items()
    return HistoryServers(
        general=settings.spark.history,
        of_targets={name: target.history for name, target in targets if target.history is not None},
    )


def _kubernetes_conf(target: TargetSection) -> dict[str, str]:
    if target.kind != "kubernetes":
        return {}
    conf = {
        f"{_KUBERNETES}.namespace": target.namespace,
        f"{_KUBERNETES}.container.image": target.image,
        f"{_KUBERNETES}.authenticate.driver.serviceAccountName": target.service_account,
    }
    for prefix in (f"{_KUBERNETES}.authenticate", f"{_KUBERNETES}.authenticate.submission"):
        # A driver in client mode reads the first one, a submission the second.
        conf[f"{prefix}.oauthTokenFile"] = None if target.token_file is None else str(target.token_file)
        conf[f"{prefix}.caCertFile"] = None if target.ca_file is None else str(target.ca_file)
    return {name: value for name, value in conf.items() if value is not None}


def _environment(target: TargetSection, worker_env: Mapping[str, str]) -> dict[str, str]:
    if target.hadoop_conf_dir is None:
        return {}
    places = dict.fromkeys(("HADOOP_CONF_DIR", "YARN_CONF_DIR"), str(target.hadoop_conf_dir))
    user = worker_env.get("HADOOP_USER_NAME")
    return places if user is None else {**places, "HADOOP_USER_NAME": user}


def _token(name: str, target: TargetSection, environ: Mapping[str, str]) -> Callable[[], str | None]:
    def read() -> str | None:
        if target.token_variable is not None:
            if not (token := environ.get(target.token_variable)):
                raise TargetError(
                    f"target {name}: the variable {target.token_variable}, which has its token, is not set"
                )
            return token
        if target.token_file is None:
            return None
        try:
            return target.token_file.read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as exc:
            raise TargetError(
                f"target {name}: its token cannot be read from {target.token_file}: {exc}"
            ) from exc

    return read


def clusters(
    targets: Mapping[str, SparkTarget],
    configured: Mapping[str, TargetSection],
    schedulers: Callable[[], Iterable[SchedulerInfo]],
    worker: WorkerSection,
) -> dict[str, ClusterTarget]:
    """The targets of a worker that accept drivers, by name.

    Drivers report to the registered `schedulers`, unless a target names others.
    """
    if not targets:
        return {}
    # Late, because these are the clients of all kinds of clusters.
    from nimbus.worker.application import kubernetes as of_kubernetes
    from nimbus.worker.application import yarn as of_yarn
    from nimbus.worker.application.executor import ClusterTarget
    from nimbus.worker.application.kubernetes import NAME_VARIABLE, KubernetesManager
    from nimbus.worker.application.kubernetes_api import KubernetesApi
    from nimbus.worker.application.standalone import StandaloneManager
    from nimbus.worker.application.yarn import CONTAINER_VARIABLE, YarnManager, hadoop_user

    def endpoints_of(target: TargetSection) -> Callable[[], Sequence[str]]:
        return lambda: list(target.schedulers) or [scheduler.address for scheduler in schedulers()]

    by_name: dict[str, ClusterTarget] = {}
    for name, target in targets.items():
        settings = configured[name]
        build = partial(
            ClusterTarget,
            name=name,
            endpoints=endpoints_of(settings),
            queue_timeout_s=settings.queue_timeout.total_seconds(),
        )
        manager: ClusterManager
        match target.kind:
            case TargetKind.STANDALONE if target.rest:
                manager = StandaloneManager(
                    target.master, target.rest, version("pyspark"), target.token, settings.pages
                )
                by_name[name] = build(manager=manager, environment=target.env)
            case TargetKind.YARN if target.rest:
                client = _client(target, worker, of_yarn.VARIABLES)
                manager = YarnManager(target.rest, client, hadoop_user(target.env))
                by_name[name] = build(manager=manager, driver_id=CONTAINER_VARIABLE)
            case TargetKind.KUBERNETES:
                client = _client(target, worker, of_kubernetes.VARIABLES)
                api = KubernetesApi(target.master, settings.namespace, target.ca_file, target.token)
                manager = KubernetesManager(client, api, settings.namespace)
                by_name[name] = build(manager=manager, driver_id=NAME_VARIABLE, keeps_ended=True)
            case TargetKind.LOCAL | TargetKind.CONNECT | TargetKind.STANDALONE | TargetKind.YARN:
                pass  # it takes no drivers
    return by_name


def _client(target: SparkTarget, worker: WorkerSection, variables: str) -> SparkClient:
    from nimbus.worker.application.spark_client import SparkClient

    return SparkClient(
        master=target.master,
        folder=Path(worker.work_dir) / "clients" / target.name,
        java_home=lambda: find_java().java_home,
        variables=variables,
        environment={**worker.env, **target.env},
    )
