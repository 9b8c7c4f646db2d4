"""The environment of a driver, and the settings of Spark."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from nimbus.worker.attempt.connections import Connections, UnknownConnectionError, open_board, open_logs
from nimbus.worker.driver.environment import (
    driver_environment,
    passed_on,
    scaled_conf,
    spark_settings,
    submit_arguments,
)


def test_only_what_is_on_the_list_is_passed_on() -> None:
    given = {
        "PATH": "/bin",
        "LC_TIME": "C",
        "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": "/ca.pem",
        "SPARK_CONF_DIR": "/conf",
        "SPARK_CONNECT_AUTHENTICATE_TOKEN": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "PYTHONPATH": "/evil",
        "NIMBUS_STACK": "s1",
        "NIMBUS_S3_KEY": "x",
    }

    roots = "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"
    assert set(passed_on(given)) == {"PATH", "LC_TIME", "SPARK_CONF_DIR", "NIMBUS_STACK", roots}


def test_configuration_wins_over_the_workers_environment() -> None:
    made = driver_environment(
        {"TZ": "UTC", "JAVA_HOME": "/old"}, java_home=Path("/jre"), extra={"TZ": "Asia/Tokyo"}
    )

    assert (made["TZ"], made["JAVA_HOME"]) == ("Asia/Tokyo", "/jre")


def _conf(master: str = "local[2]", **task: str) -> dict[str, str]:
    return spark_settings(
        application="r.t.1",
        master=master,
        worker_conf={"spark.a": "worker", "spark.b": "worker", "spark.ui.enabled": "true"},
        task_conf={"spark.b": "task", **task},
        temporary=Path("/at/tmp"),
    )


def test_task_conf_wins_over_worker_conf_and_that_over_the_defaults() -> None:
    conf = _conf()

    assert (conf["spark.a"], conf["spark.b"], conf["spark.ui.enabled"]) == ("worker", "task", "true")


def test_task_cannot_move_sparks_files_out_of_its_folder_and_keeps_its_java_options() -> None:
    conf = _conf(**{"spark.local.dir": "/elsewhere", "spark.driver.extraJavaOptions": "-Xss4m"})

    assert "spark.local.dir" not in conf
    assert conf["spark.driver.extraJavaOptions"] == "-Djava.io.tmpdir=/at/tmp -Xss4m"
    assert conf["spark.app.name"] == "r.t.1"


def test_driver_binds_to_loopback_only_when_spark_is_local() -> None:
    assert _conf("local[4]")["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.driver.bindAddress" not in _conf("spark://host:7077")


def test_submit_arguments_survive_quoting_and_a_master_in_the_conf_wins() -> None:
    words = shlex.split(submit_arguments("local[2]", {"spark.x": "a b 'c'", "spark.master": "local[1]"}))

    assert words == ["--master", "local[1]", "--conf", "spark.x=a b 'c'", "pyspark-shell"]


def test_connections_do_not_show_their_secrets() -> None:
    made = Connections(board={"kind": "zookeeper", "auth": ["digest", "me:hush"]}, logs={"secret": "hush"})

    assert "hush" not in repr(made)


@pytest.mark.parametrize("where", [{}, {"kind": "etcd"}])
def test_connection_of_an_unknown_kind_is_refused(where: dict[str, str]) -> None:
    with pytest.raises(UnknownConnectionError):
        open_board(Connections(board=where))
    with pytest.raises(UnknownConnectionError):
        open_logs(Connections(board={}, logs=where))


@pytest.mark.parametrize(
    ("task", "worker", "raised"),
    [
        ({}, {}, {"spark.driver.memory": "1536m"}),
        ({"spark.driver.memory": "4g"}, {}, {"spark.driver.memory": "6144m"}),
        ({"spark.driver.memory": "700"}, {}, {"spark.driver.memory": "1050m"}),
        ({}, {"spark.driver.memory": "2G"}, {"spark.driver.memory": "3072m"}),
        ({"spark.driver.memory": "1g"}, {"spark.driver.memory": "8g"}, {"spark.driver.memory": "1536m"}),
        (
            {"spark.executor.memory": "512MB"},
            {},
            {"spark.driver.memory": "1536m", "spark.executor.memory": "768m"},
        ),
        ({"spark.driver.memory": "lots"}, {}, {"spark.driver.memory": "lots"}),
    ],
)
def test_memory_that_a_task_gets_is_scaled_from_what_it_or_its_worker_says(
    task: dict[str, str], worker: dict[str, str], raised: dict[str, str]
) -> None:
    assert scaled_conf({"spark.a": "1", **task}, worker, 1.5) == {"spark.a": "1", **raised}


def test_memory_of_a_task_that_never_ran_out_of_it_is_left_as_it_is() -> None:
    assert scaled_conf({"spark.a": "1"}, {"spark.driver.memory": "2g"}, 1.0) == {"spark.a": "1"}
