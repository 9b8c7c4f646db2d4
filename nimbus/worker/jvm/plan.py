"""Which attempts can have a kept JVM, and which JVM fits. Pure functions; any thread."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import TypeAdapter

from nimbus.domain.attempts.workers import Assignment, jvm_release
from nimbus.domain.pipelines.pipeline import SPARK_KINDS, SparkMode, SparkReuse
from nimbus.templates.names import at_release
from nimbus.worker.driver.environment import DRIVER_MEMORY, memory_bytes
from nimbus.worker.driver.files import task_conf
from nimbus.worker.settings import RunnerPlan

OWN = "its own: "
"""How a text begins that says why an attempt started its own JVM."""
_PYTHON_PATH = "spark.executorEnv.PYTHONPATH"
_OF_A_CONTEXT = ("spark.ui.", "spark.eventLog.", "spark.sql.", "spark.openlineage.", "spark.executorEnv.")
_OF_A_CONTEXT_EXACTLY = frozenset(
    {"spark.app.name", "spark.master", "spark.default.parallelism", "spark.scheduler.mode"}
)
_OF_THE_JVM = (
    "spark.sql.codegen.",
    "maxThreadThreshold",
    "spark.sql.catalogImplementation",
    "spark.sql.hive.",
)
"""Parts of names below `spark.sql.` that are read once, for the whole JVM."""
_HIVE = "spark.sql.catalogImplementation"
_LEAST_OVERHEAD = 384 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class JvmPlan:
    """How a JVM is started. It fits attempts whose plans have the same key."""

    release: str
    """Pipeline and release: code of two releases never shares a JVM."""
    environment: Mapping[str, str] = field(repr=False)
    """Contains the secrets of its attempts."""
    secret_names: tuple[str, ...] = ()
    master: str
    worker_conf: Mapping[str, str] = field(default_factory=dict)
    task_conf: Mapping[str, str] = field(default_factory=dict)

    def key(self, salt: bytes) -> str:
        """Digest of all that a running JVM cannot change. `salt`: so that it tells nothing about secrets."""
        fixed = {name: value for name, value in self._conf.items() if not may_change(name)}
        told = (self.release, sorted(self.environment.items()), sorted(fixed.items()))
        return hashlib.blake2b(repr(told).encode(), key=salt, digest_size=16).hexdigest()

    @property
    def memory_bytes(self) -> int:
        """Its maximum, by Spark's own rule: the heap and a tenth, but at least 384 MiB."""
        heap = memory_bytes(self._conf.get("spark.driver.memory", DRIVER_MEMORY)) or 1 << 30
        return heap + max(_LEAST_OVERHEAD, heap // 10)

    @property
    def _conf(self) -> dict[str, str]:
        return {**self.worker_conf, **self.task_conf}

    def why_not(self) -> str:
        """Why a JVM of this plan cannot be kept; empty if it can."""
        if not self._conf.get("spark.master", self.master).startswith("local"):
            return "its master is not local"
        if self._conf.get(_HIVE) == "hive":
            return "it uses Hive"
        return f"it sets {_PYTHON_PATH}" if _PYTHON_PATH in self._conf else ""

    def encode(self) -> bytes:
        """As JSON."""
        return _PLAN.dump_json(self)

    @classmethod
    def decode(cls, data: bytes) -> JvmPlan:
        """The output of `encode`."""
        return _PLAN.validate_json(data)


_PLAN = TypeAdapter(JvmPlan)


def may_change(name: str) -> bool:
    """True if a Spark context or session reads this property, not the start of the JVM."""
    if not name.startswith("spark."):  # it is stored in the context and never read
        return True
    if name.startswith("spark.sql.") and any(word in name for word in _OF_THE_JVM):
        return False
    return name in _OF_A_CONTEXT_EXACTLY or name.startswith(_OF_A_CONTEXT)


def jvm_plan(plan: RunnerPlan, order: Assignment) -> JvmPlan | None:
    """The JVM for an attempt; None: its Spark does not run in a JVM of its driver."""
    if order.task.kind not in SPARK_KINDS or order.task.spark_mode is not SparkMode.CLASSIC:
        return None
    return JvmPlan(
        release=jvm_release(order.pipeline, order.release),
        environment={**plan.environment, **plan.secrets},
        secret_names=tuple(plan.secrets),
        master=plan.master,
        worker_conf=plan.spark_conf,
        task_conf={
            name: at_release(text, str(plan.release_root)) for name, text in task_conf(plan, order).items()
        },
    )


def why_not(made: JvmPlan, plan: RunnerPlan, order: Assignment) -> str:
    """Why an attempt gets a JVM of its own; empty if a kept one may serve it."""
    if order.task.spark_reuse is SparkReuse.OFF:
        return "spark.reuse is off"
    if plan.user is not None:
        return "it runs as another user"
    if plan.interpreter is not None:
        return "it has an environment of its own"
    if order.task.limits is not None and order.task.limits.open_files is not None:
        return "it has a limit of open files"
    return made.why_not()
