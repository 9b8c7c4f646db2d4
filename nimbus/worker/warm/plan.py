"""The start settings of a warm driver, and which attempts they fit. Pure functions; any thread."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import TypeAdapter

from nimbus.domain.pipeline import SPARK_KINDS, SparkMode
from nimbus.domain.workers import Assignment
from nimbus.templates.names import at_release
from nimbus.worker.driver_plan import task_conf
from nimbus.worker.settings import RunnerPlan

PYTHON_PATH_CONF = "spark.executorEnv.PYTHONPATH"

_OF_A_CONTEXT = ("spark.ui.", "spark.eventLog.", "spark.sql.")
_OF_A_CONTEXT_EXACTLY = frozenset(
    {
        "spark.app.name",
        "spark.master",
        "spark.default.parallelism",
        "spark.scheduler.mode",
    }
)
_OF_THE_JVM = ("spark.sql.codegen.", "maxThreadThreshold")
"""Parts of names below `spark.sql.` that are read once, for caches and thread pools of the whole JVM."""
_MEMORY = re.compile(r"(\d+)([kmgt]?)b?", re.IGNORECASE)
_UNITS = {"": 20, "k": 10, "m": 20, "g": 30, "t": 40}
"""Units of `spark.driver.memory`, as powers of two; a bare number is MiB."""
_DEFAULT_MEMORY = "1g"
_LEAST_OVERHEAD = 384 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmPlan:
    """The start settings of a JVM. A warm driver fits a plan with an equal key."""

    environment: Mapping[str, str]
    master: str
    worker_conf: Mapping[str, str] = field(default_factory=dict)
    task_conf: Mapping[str, str] = field(default_factory=dict)
    class_archive: str = ""

    @property
    def key(self) -> str:
        """Digest of all settings that a running JVM cannot change."""
        fixed = {name: value for name, value in self._conf.items() if not may_change(name)}
        told = (sorted(self.environment.items()), sorted(fixed.items()))
        return hashlib.sha256(repr(told).encode()).hexdigest()[:16]

    @property
    def is_local(self) -> bool:
        """True if executors are threads of the driver. In a cluster a waiting driver would hold resources."""
        return self._conf.get("spark.master", self.master).startswith("local")

    @property
    def memory_bytes(self) -> int:
        """A driver's maximum, by Spark's own rule: its heap and a tenth, but at least 384 MiB."""
        found = _MEMORY.fullmatch(self._conf.get("spark.driver.memory", _DEFAULT_MEMORY).strip())
        heap = int(found[1]) << _UNITS[found[2].lower()] if found else 1 << 30
        return heap + max(_LEAST_OVERHEAD, heap // 10)

    @property
    def _conf(self) -> dict[str, str]:
        return {**self.worker_conf, **self.task_conf}

    def encode(self) -> bytes:
        """Encode as JSON."""
        return _PLAN.dump_json(self)

    @classmethod
    def decode(cls, data: bytes) -> WarmPlan:
        """Decode the output of `encode`."""
        return _PLAN.validate_json(data)


_PLAN = TypeAdapter(WarmPlan)


def may_change(name: str) -> bool:
    """True if a Spark context or session reads this property, not the start of the JVM."""
    if not name.startswith("spark."):  # it is stored in the context and never read
        return True
    if name.startswith("spark.sql.") and any(word in name for word in _OF_THE_JVM):
        return False
    return name in _OF_A_CONTEXT_EXACTLY or name.startswith(_OF_A_CONTEXT)


def warm_plan(plan: RunnerPlan, order: Assignment) -> WarmPlan | None:
    """The plan of a warm driver for attempts like this one; None if they cannot use one."""
    made = WarmPlan(
        environment=plan.environment,
        master=plan.master,
        worker_conf=plan.spark_conf,
        task_conf={
            name: at_release(text, str(plan.release_root)) for name, text in task_conf(plan, order).items()
        },
        class_archive=str(plan.class_archive or ""),
    )
    own_spark = order.task.kind in SPARK_KINDS and order.task.spark_mode is SparkMode.CLASSIC
    bounded = (
        order.task.limits is not None and order.task.limits.open_files is not None
    )  # can only be set at a start
    fits = (
        own_spark
        and not bounded
        and plan.user is None
        and plan.interpreter is None
        and not plan.secrets
        and made.is_local
        and PYTHON_PATH_CONF not in made._conf
    )
    return made if fits else None
