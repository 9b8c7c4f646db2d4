"""Targets: how a worker handles an order with a target, and its report of its own targets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nimbus.bootstrap.resources import SystemClock
from nimbus.bootstrap.targets import clusters, history_servers, spark_targets
from nimbus.config import load_settings
from nimbus.domain.attempts.slots import ConnectSession
from nimbus.domain.ids import WorkerId
from nimbus.domain.pipelines.pipeline import SparkDeploy, SparkMode, SparkPlace, TaskKind
from nimbus.domain.runs.task_run import Outcome
from nimbus.worker.application.executor import ApplicationExecutor
from nimbus.worker.application.yarn import hadoop_user
from nimbus.worker.connect.server import RemoteServer
from nimbus.worker.executor import WorkerContext
from nimbus.worker.jvm.plan import jvm_plan
from nimbus.worker.preparation import CannotRunHereError, PipelineUnfitError, prepare
from nimbus.worker.registration import Registration
from nimbus.worker.settings import RunnerPlan, WorkerSettings
from nimbus.worker.targets import SparkTarget, TargetError, TargetKind
from tests.nimbus.worker_bench import Bench, RecordingRegistrations

CONFIGS = Path(__file__).parents[3] / "configs"
BIG = SparkTarget(
    name="big",
    kind=TargetKind.STANDALONE,
    slots=3,
    master="spark://a:7077,b:7077",
    conf={"spark.cores.max": "4", "spark.executor.memory": "2g"},
)
SHARED = SparkTarget(name="shared", kind=TargetKind.CONNECT, url="sc://spark:1", token=lambda: "t0ken")
WIDE = SparkTarget(name="wide", kind=TargetKind.LOCAL, master="local[8]")
YARN = SparkTarget(name="yarn", kind=TargetKind.YARN, master="yarn", env={"HADOOP_CONF_DIR": "/etc/hadoop"})


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def settings_of(bench: Bench, *targets: SparkTarget) -> WorkerSettings:
    return WorkerSettings(
        id=WorkerId("w1"),
        work_dir=bench.root / "w1",
        data_dir=bench.data,
        spark_conf={"spark.executor.memory": "1g", "spark.ui.enabled": "true", "spark.master": "local[1]"},
        targets={target.name: target for target in targets},
    )


def prepared(
    bench: Bench,
    *targets: SparkTarget,
    target: str = "big",
    deploy: SparkDeploy = SparkDeploy.CLIENT,
    **task: Any,
) -> RunnerPlan:
    place = SparkPlace(target=target, deploy=deploy)
    order = bench.order(
        bench.script("a.sql", ""),
        attempt=f"run1.task.{len(bench.attempts) + 1}",
        **{"task_kind": TaskKind.SQL, **task, "spark_place": place},
    )
    return prepare(order, settings_of(bench, *targets), bench, bench.board.cluster())


def test_plan_takes_master_properties_and_environment_of_the_target_over_the_workers(bench: Bench) -> None:
    plan = prepared(bench, BIG, YARN)

    assert plan.master == "spark://a:7077,b:7077"
    assert plan.spark_conf == {
        "spark.cores.max": "4",
        "spark.executor.memory": "2g",
        "spark.ui.enabled": "true",
    }
    assert "HADOOP_CONF_DIR" not in plan.environment
    assert prepared(bench, YARN, target="yarn").environment["HADOOP_CONF_DIR"] == "/etc/hadoop"


def test_task_in_mode_connect_has_its_session_on_the_server_of_its_target(bench: Bench) -> None:
    plan = prepared(bench, SHARED, target="shared", spark_mode=SparkMode.CONNECT, task_kind=TaskKind.PYSPARK)

    assert plan.connect is not None
    assert (plan.connect.url, plan.connect.token) == ("sc://spark:1/;use_ssl=true", "t0ken")


@pytest.mark.parametrize(
    ("target", "task", "words"),
    [
        ("other", {}, "this worker has no target other; it has big, shared, wide"),
        ("shared", {}, "target shared is a Spark Connect server: say `mode: connect`"),
        ("big", {"spark_mode": SparkMode.CONNECT}, "target big is of kind standalone: say `mode: classic`"),
        ("wide", {"deploy": SparkDeploy.CLUSTER}, "target wide is of kind local, which runs no drivers"),
    ],
)
def test_task_that_does_not_fit_its_target_is_refused(
    bench: Bench, target: str, task: Mapping[str, Any], words: str
) -> None:
    with pytest.raises(CannotRunHereError, match=words):
        prepared(bench, BIG, SHARED, WIDE, target=target, **task)


@pytest.mark.parametrize(
    ("target", "kind", "key"),
    [
        (BIG, TaskKind.SPARK_SUBMIT, "spark.targets.big.executors_see"),
        (YARN, TaskKind.SPARK_SUBMIT, "spark.targets.yarn.executors_see"),
        (SHARED, TaskKind.PYSPARK, "spark.targets.shared.executors_see"),
        (replace(SHARED, executors_see="data"), TaskKind.SQL, ""),
        (replace(BIG, executors_see="host"), TaskKind.SPARK_SUBMIT, ""),
        (WIDE, TaskKind.SPARK_SUBMIT, ""),
        (BIG, TaskKind.SQL, ""),  # its driver asks the executors
    ],
)
def test_jars_and_connect_tasks_may_lose_writes_unless_their_target_says_what_executors_see(
    bench: Bench, target: SparkTarget, kind: TaskKind, key: str
) -> None:
    mode = SparkMode.CONNECT if target.kind is TargetKind.CONNECT else SparkMode.CLASSIC

    plan = prepared(bench, target, target=target.name, task_kind=kind, spark_mode=mode)

    assert key in plan.unseen_output
    assert bool(key) is bool(plan.unseen_output)


def test_sql_task_that_would_lose_its_result_is_refused_before_it_runs(bench: Bench) -> None:
    with pytest.raises(PipelineUnfitError, match=r"writes its result by path.*shared\.executors_see"):
        prepared(bench, SHARED, target="shared", spark_mode=SparkMode.CONNECT)


@pytest.mark.parametrize(
    ("master", "task", "keys", "may_lose"),
    [
        ("local[2]", {}, {}, False),
        ("local[2]", {"spark_conf": {"spark.master": "spark://a:7077"}}, {}, True),
        ("yarn", {}, {}, True),
        ("yarn", {}, {"executors_see": "data"}, False),
        (
            "local[2]",
            {"spark_mode": SparkMode.CONNECT},
            {"connect": RemoteServer("sc://spark:1", None)},
            True,
        ),
    ],
)
def test_jars_and_connect_tasks_without_a_target_may_lose_writes_unless_the_worker_says_it(
    bench: Bench, master: str, task: Mapping[str, Any], keys: Mapping[str, Any], may_lose: bool
) -> None:
    kind = TaskKind.PYSPARK if "connect" in keys else TaskKind.SPARK_SUBMIT
    order = bench.order(bench.script("a.sql", ""), task_kind=kind, **task)
    settings = replace(settings_of(bench), master=master, spark_conf={}, **keys)

    plan = prepare(order, settings, bench, bench.board.cluster())

    assert ("worker.executors_see" in plan.unseen_output) is may_lose


def test_only_local_targets_have_kept_jvms(bench: Bench) -> None:
    order = bench.order("a.sql", task_kind=TaskKind.SQL)

    wide, big = (
        jvm_plan(prepared(bench, WIDE, target="wide"), order),
        jvm_plan(prepared(bench, BIG), order),
    )

    assert wide is not None
    assert (wide.master, wide.why_not()) == ("local[8]", "")
    assert big is not None
    assert big.why_not() == "its master is not local"


def test_driver_for_a_target_without_rest_is_refused(bench: Bench) -> None:
    place = SparkPlace(target="big", deploy=SparkDeploy.CLUSTER)
    order = bench.order(bench.script("a.sql", ""), task_kind=TaskKind.SQL, spark_place=place)
    settings = settings_of(bench, BIG)
    context = WorkerContext(
        settings=settings,
        board=bench.board,
        connections=bench.startup().connections,
        clock=SystemClock(),
    )
    executor = ApplicationExecutor(context, {})  # the target has no `rest`
    try:
        executor.launch(order, prepare(order, settings, bench, bench.board.cluster()))
    finally:
        executor.close()

    end = bench.slots(order.attempt).end
    assert end is not None
    assert end.outcome is Outcome.REFUSED
    assert "submits no drivers to 'big'" in end.reason


def test_worker_says_which_targets_it_has(bench: Bench) -> None:
    told = RecordingRegistrations()

    Registration(settings_of(bench, BIG, WIDE), told, SystemClock()).publish()

    assert told.workers[-1].targets == {"big": 3, "wide": 8}


def test_session_on_the_server_of_a_target_can_be_reached(bench: Bench) -> None:
    settings = settings_of(bench, BIG, SHARED)

    found = settings.reach(ConnectSession(url="sc://spark:1/;use_ssl=true", session_id="s"))

    assert found is not None
    assert (found.session_id, found.token) == ("s", "t0ken")
    assert settings.reach(ConnectSession(url="sc://else:1", session_id="s")) is None


def test_session_whose_token_is_gone_cannot_be_reached(bench: Bench) -> None:
    def gone() -> str:
        raise TargetError("gone")

    settings = settings_of(bench, replace(SHARED, token=gone))

    assert settings.reach(ConnectSession(url="sc://spark:1/;use_ssl=true", session_id="s")) is None


def test_targets_of_the_example_become_what_spark_needs() -> None:
    targets = spark_targets(load_settings(CONFIGS / "targets.yaml", {}), {})

    assert (targets["wide"].master, targets["wide"].slots) == ("local[8]", 1)
    assert targets["shared"].url == "sc://connect.example.com:15002"
    assert targets["big"].rest == ("http://master1.example.com:6066", "http://master2.example.com:6066")
    assert targets["hadoop"].master == "yarn"
    assert targets["hadoop"].env == {
        "HADOOP_CONF_DIR": "/etc/hadoop/conf",
        "YARN_CONF_DIR": "/etc/hadoop/conf",
    }
    pods = targets["pods"].conf
    assert pods["spark.kubernetes.container.image"] == "registry.example.com/spark-py:4.3.0"
    assert pods["spark.kubernetes.namespace"] == "nimbus"
    assert pods["spark.kubernetes.authenticate.driver.serviceAccountName"] == "spark"
    for prefix in ("spark.kubernetes.authenticate", "spark.kubernetes.authenticate.submission"):
        assert pods[f"{prefix}.oauthTokenFile"] == "/etc/nimbus/kubernetes-token"
        assert pods[f"{prefix}.caCertFile"] == "/etc/nimbus/kubernetes-ca.pem"
    assert pods["spark.executor.instances"] == "4"


def test_drivers_are_submitted_to_clusters_that_have_rest_as_the_user_of_hadoop(tmp_path: Path) -> None:
    (tmp_path / "nimbus.yaml").write_text(
        """
zookeeper: {hosts: "zk:2181"}
storage: {bucket: nimbus}
scheduler: {state_dir: /var/lib/nimbus}
worker: {data: /srv/data, env: {HADOOP_USER_NAME: etl}}
spark:
  targets:
    hadoop: {kind: yarn, hadoop_conf_dir: /etc/hadoop, rest: ["http://rm:8088"], queue_timeout: 2h,
             schedulers: ["http://s1:8080"]}
    silent: {kind: yarn, hadoop_conf_dir: /etc/hadoop}
    big: {kind: standalone, master: "spark://a:7077", rest: ["http://a:6066"]}
"""
    )
    settings = load_settings(tmp_path / "nimbus.yaml", {})
    targets = spark_targets(settings, {})

    made = clusters(targets, settings.spark.targets, list, settings.worker)

    assert sorted(made) == ["big", "hadoop"]
    assert targets["hadoop"].env["HADOOP_USER_NAME"] == hadoop_user(targets["hadoop"].env) == "etl"
    assert (made["hadoop"].driver_id, made["hadoop"].queue_timeout_s) == ("CONTAINER_ID", 7200)
    assert list(made["hadoop"].endpoints()) == ["http://s1:8080"]
    assert made["hadoop"].environment == {}, "places of the worker's host mean nothing there"


def test_history_servers_are_the_general_one_and_those_of_targets(tmp_path: Path) -> None:
    (tmp_path / "nimbus.yaml").write_text(
        """
zookeeper: {hosts: "zk:2181"}
storage: {bucket: nimbus}
scheduler: {state_dir: /var/lib/nimbus}
worker: {data: /srv/data}
spark:
  history: http://history:18080/
  targets:
    here: {kind: local, master: "local[8]"}
    big: {kind: standalone, master: "spark://a:7077", history: "https://big:18480"}
"""
    )

    servers = history_servers(load_settings(tmp_path / "nimbus.yaml", {}))

    assert servers.page("big", "app-1") == "https://big:18480/history/app-1/"
    for target in (None, "here", "of a former configuration"):
        assert servers.page(target, "local-1") == "http://history:18080/history/local-1/"


def test_token_is_read_when_it_is_needed(tmp_path: Path) -> None:
    (tmp_path / "nimbus.yaml").write_text(
        f"""
zookeeper: {{hosts: "zk:2181"}}
storage: {{bucket: nimbus}}
scheduler: {{state_dir: /var/lib/nimbus}}
worker: {{data: /srv/data}}
spark:
  targets:
    a: {{kind: connect, url: "sc://a:1", token_file: {tmp_path}/token}}
    b: {{kind: connect, url: "sc://b:1", token_variable: B_KEY}}
    c: {{kind: connect, url: "sc://c:1"}}
"""
    )
    targets = spark_targets(load_settings(tmp_path / "nimbus.yaml", {}), {"B_KEY": "bbb"})
    with pytest.raises(TargetError, match=f"target a: its token cannot be read from {tmp_path}/token"):
        targets["a"].token()

    (tmp_path / "token").write_text("aaa\n")

    assert [target.token() for target in targets.values()] == ["aaa", "bbb", None]
    without = spark_targets(load_settings(tmp_path / "nimbus.yaml", {}), {})
    with pytest.raises(TargetError, match="target b: the variable B_KEY, which has its token, is not set"):
        without["b"].token()
    assert "bbb" not in repr(targets)
