"""Spark's properties that name the release: only the driver's host in a cluster knows its path.

A submission leaves them out. The task's process sets them in the JVM of its driver, which has no Spark
context yet. Jars also go onto the class path of this JVM, as `spark-submit` does. Standard library only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nimbus.templates.names import at_release, names_release

JARS = "spark.jars"
_ARCHIVES = "spark.archives"


def without_late(conf: Mapping[str, str]) -> dict[str, str]:
    """The properties for a submission."""
    early = {
        name: [part for part in _parts(name, text) if not names_release(part)] for name, text in conf.items()
    }
    return {name: ",".join(parts) for name, parts in early.items() if parts}


def set_late(folder: Path, archives: str) -> None:
    """Set the rest in the JVM that runs this process. Main thread of a task's process, before its code.

    `archives` are added to `spark.archives`: Spark sends them to executors.
    """
    from pyspark import java_gateway

    gateways: Any = java_gateway
    jvm = gateways.launch_gateway().jvm
    plan = json.loads((folder / "driver.json").read_bytes())
    root, system = plan["release_root"], jvm.java.lang.System
    added = {_ARCHIVES: archives}
    for name, text in plan["task_conf"].items():
        parts = [at_release(part, root) for part in _parts(name, text) if names_release(part)]
        if name == JARS:
            loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
            for jar in parts:
                loader.addURL(jvm.java.io.File(jar).toURI().toURL())
        if name in (JARS, _ARCHIVES):
            added[name] = ",".join(filter(None, [*parts, added.get(name)]))
        elif parts:
            system.setProperty(name, ",".join(parts))
    for name, text in added.items():
        system.setProperty(name, ",".join(filter(None, [text, system.getProperty(name)])))


def _parts(name: str, text: str) -> list[str]:
    """The items of a list of files, of which some may name the release."""
    return text.split(",") if name in (JARS, _ARCHIVES) else [text]
