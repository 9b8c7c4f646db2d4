"""The part of the worker's environment that drivers see: an allow-list, so that no secret is passed on.

Runners and executors start with the same part; `storage_environment` is what they get later.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nimbus.worker.driver.main import DriverPlan
    from nimbus.worker.host.task_user import TaskUser
    from nimbus.worker.jvm.plan import JvmPlan

STACK_VARIABLE = "NIMBUS_STACK"
"""The local stack sets it in all its processes, to find remaining ones later."""
_TEST_VARIABLE = "NIMBUS_TEST"
"""Each test sets it for the same purpose."""

_ALLOWED = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "JAVA_HOME"),
        *("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", STACK_VARIABLE, _TEST_VARIABLE),
    }
)
_ALLOWED_PREFIXES = ("LC_", "SPARK_")
_SECRET_WORDS = ("SECRET", "TOKEN", "PASSWORD", "PASSWD", "CREDENTIAL")
_MEMORY = ("spark.driver.memory", "spark.executor.memory")
DRIVER_MEMORY = "1g"
"""Spark's default."""
_SIZE = re.compile(r"(\d{1,9})(?:([kmgt])b?)?")
_POWERS = {"k": 10, "m": 20, "g": 30, "t": 40}
_APPENDED_CONF = "spark.driver.extraJavaOptions"


def passed_on(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that child processes may see."""
    return {
        name: value
        for name, value in environment.items()
        if (name in _ALLOWED or name.startswith(_ALLOWED_PREFIXES))
        and not any(word in name for word in _SECRET_WORDS)
    }


def driver_environment(
    environment: Mapping[str, str],
    *,
    java_home: Path | None,
    extra: Mapping[str, str],
    user: TaskUser | None = None,
) -> dict[str, str]:
    """Build the environment of all drivers of a worker from its own. Those of an attempt get more later.

    `extra` (`worker.env` and others) overrides the rest. `user`: the drivers' user, if not the worker's.
    """
    result = passed_on(environment)
    if user is not None:
        result |= user.environment
    if java_home is not None:
        result["JAVA_HOME"] = str(java_home)
    result["PYSPARK_PYTHON"] = result["PYSPARK_DRIVER_PYTHON"] = sys.executable
    return {**result, **extra}


def spark_settings(
    *,
    application: str,
    master: str,
    worker_conf: Mapping[str, str],
    task_conf: Mapping[str, str],
    temporary: Path,
) -> dict[str, str]:
    """Merge Spark's settings: defaults, then the worker's, then the task's, then the attempt's required ones.

    All files that Spark leaves are in the attempt's folder. The user's Java options override ours.
    """
    conf = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    if master.startswith("local"):
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    conf |= {**worker_conf, **task_conf}
    conf.pop("spark.local.dir", None)  # it has no effect beside SPARK_LOCAL_DIRS, and Spark warns
    return conf | {
        "spark.app.name": application,
        _APPENDED_CONF: f"-Djava.io.tmpdir={temporary} {conf.get(_APPENDED_CONF, '')}".strip(),
    }


def event_log_settings(conf: Mapping[str, str], folder: str) -> dict[str, str]:
    """Settings with which Spark writes its event log, if enabled and not placed, as one file to a folder."""
    if conf.get("spark.eventLog.enabled", "").lower() != "true" or "spark.eventLog.dir" in conf:
        return dict(conf)
    return {
        **conf,
        "spark.eventLog.dir": folder,
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "true",
        "spark.eventLog.compression.codec": "zstd",
    }


def scaled_conf(task_conf: Mapping[str, str], worker_conf: Mapping[str, str], scale: float) -> dict[str, str]:
    """A task's Spark properties, with its or the worker's memory times `Assignment.memory_scale`."""
    if scale == 1.0:
        return dict(task_conf)
    memory = {"spark.driver.memory": DRIVER_MEMORY, **worker_conf, **task_conf}
    scaled = {name: _times(memory[name], scale) for name in _MEMORY if name in memory}
    return {**task_conf, **scaled}


def _times(memory: str, scale: float) -> str:
    size = memory_bytes(memory)
    return memory if size is None else f"{round(size / (1 << 20) * scale)}m"


def memory_bytes(memory: str) -> int | None:
    """A size in Spark's form (`512m`, `2g`; a bare number is MiB); None: it has another form."""
    match = _SIZE.fullmatch(memory.strip().lower())
    return None if match is None else int(match[1]) << _POWERS[match[2] or "m"]


def properties_text(properties: Mapping[str, str]) -> str:
    """The text for `java.util.Properties.load`."""
    return "".join(f"{_escaped(name)}={_escaped(value)}\n" for name, value in sorted(properties.items()))


def _escaped(text: str) -> str:
    units = text.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def submit_arguments(master: str, conf: Mapping[str, str]) -> str:
    """The value of PYSPARK_SUBMIT_ARGS, with which `SparkSession.builder.getOrCreate()` starts Spark."""
    return shlex.join([*submit_options(master, conf), "pyspark-shell"])


def submit_options(master: str, conf: Mapping[str, str]) -> list[str]:
    """Master and properties as options of spark-submit."""
    words = ["--master", conf.get("spark.master", master)]
    for name in sorted(conf):
        if name != "spark.master":
            words += ["--conf", f"{name}={conf[name]}"]
    return words


def settings_of(folder: Path, plan: DriverPlan | JvmPlan) -> dict[str, str]:
    """Spark's settings for a driver with this folder, for an attempt, or for the start of a kept JVM."""
    conf = spark_settings(
        application=folder.name,
        master=plan.master,
        worker_conf=plan.worker_conf,
        task_conf=plan.task_conf,
        temporary=folder / "work" / "tmp",
    )
    return event_log_settings(conf, str(folder / "work"))


def set_submit_arguments(master: str, conf: Mapping[str, str]) -> None:
    """Set the arguments with which PySpark starts its JVM."""
    os.environ["PYSPARK_SUBMIT_ARGS"] = submit_arguments(master, conf)
    set_local_address(master)


def set_local_address(master: str) -> None:
    """Let a local Spark use loopback."""
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
