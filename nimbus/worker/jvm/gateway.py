"""Lets PySpark use a kept JVM: in a driver, before the task's code.

PySpark gets a JVM from one function, `launch_gateway`. Its first call returns a gateway of the kept JVM, if a
running JVM can have the requested settings. If not, or if the JVM has died or hangs, it starts one, as ever.
"""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from nimbus.worker.host.files import write_new
from nimbus.worker.jvm.plan import OWN, may_change

_of_pyspark: Any = sys.modules["pyspark.core.context"]
_MAY_DIFFER = frozenset({"PYTHONPATH"})
_LARGEST = 4096
_ANSWER_S = 60.0
"""A new JVM first uses some seconds of processor time; a running one answers at once."""


def use_kept_jvm(answer: int, conf: Mapping[str, str], note: Path) -> None:
    """Prepare the first call.

    `answer`: descriptor on which the keeper tells port and secret; EOF: the JVM has died. `conf`: the
    properties that the JVM has for this attempt. `note`: a file for what the attempt's record says about its
    JVM.
    """
    _of_pyspark.launch_gateway = _KeptJvmLaunch(answer, conf, note, _of_pyspark.launch_gateway)


class _KeptJvmLaunch:
    def __init__(self, answer: int, conf: Mapping[str, str], note: Path, launch: Callable[..., Any]) -> None:
        self._answer, self._conf, self._note, self._launch = answer, conf, note, launch
        self._driver, self._environment, self._cwd = os.getpid(), dict(os.environ), os.getcwd()  # noqa: PTH109

    def __call__(self, conf: Any = None, popen_kwargs: Any = None) -> Any:
        """Replaces `pyspark.java_gateway.launch_gateway` for one call of the driver."""
        _of_pyspark.launch_gateway = self._launch
        if os.getpid() != self._driver:  # a child that the task has forked
            return self._launch(conf, popen_kwargs)
        asked = dict(conf.getAll()) if conf is not None else {}
        why = "its process is described" if popen_kwargs else self._why_not(asked)
        gateway = self._connected(conf)
        if gateway is None:
            why = "its kept JVM has died, or does not answer"
        if why:
            if gateway is not None:  # two JVMs need twice the memory
                with suppress(Exception):
                    gateway.jvm.java.lang.Runtime.getRuntime().halt(0)
            sys.stderr.write(f"Spark starts a JVM of its own: {why}\n")
            self._tell(f"{OWN}{why}")
            return self._launch(conf, popen_kwargs)
        system = gateway.jvm.java.lang.System
        asked.setdefault("spark.executorEnv.PYTHONPATH", os.environ.get("PYTHONPATH", ""))
        for name, value in asked.items():
            if name.startswith("spark."):  # other names do not start Spark either
                system.setProperty(name, value)
        return gateway

    def _connected(self, conf: Any) -> Any:
        data = b""
        try:
            with os.fdopen(self._answer, "rb") as file:
                if select.select([file], [], [], _ANSWER_S)[0]:
                    data = file.read(_LARGEST)
        except OSError:  # the task has closed it
            return None
        if not data:
            return None
        told = json.loads(data)
        if told["turn"] > 1:
            self._tell(f"kept, its attempt {told['turn']}")
        given = {"PYSPARK_GATEWAY_PORT": str(told["port"]), "PYSPARK_GATEWAY_SECRET": told["secret"]}
        os.environ.update(given)
        try:
            return self._launch(conf)
        except Exception:  # noqa: BLE001 - py4j has many
            return None
        finally:  # a program that the task starts has no gateway
            for name in given:
                os.environ.pop(name, None)

    def _tell(self, what: str) -> None:
        with suppress(OSError):
            self._note.unlink(missing_ok=True)
            write_new(self._note, what.encode())

    def _why_not(self, asked: Mapping[str, str]) -> str:
        for name, value in asked.items():
            if value != self._conf.get(name) and not may_change(name):
                return f"the task sets {name}"
        if not asked.get("spark.master", "local").startswith("local"):
            return "the task sets spark.master"
        for name in os.environ.keys() | self._environment.keys():
            if os.environ.get(name) != self._environment.get(name) and name not in _MAY_DIFFER:
                return f"the task has changed {name} in its environment"
        return "the task has changed its working directory" if os.getcwd() != self._cwd else ""  # noqa: PTH109
