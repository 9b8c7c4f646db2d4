"""Spark sessions of `Pipeline.test`: each task has its own, with its properties. Thread of the author's test.

Uses internals of PySpark, because `builder.getOrCreate()` in a task must return the task's session.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any


@contextmanager
def own_session(conf: Mapping[str, str] | None) -> Iterator[None]:
    """Run one task.

    If the author's test has a session, the task gets another one on its SparkContext, for which only
    properties that a session can set apply. Else the task gets a SparkContext, which is stopped afterwards.
    `conf`: of a `pyspark` task; None: a task that may start Spark itself.
    """
    given = _running()
    if given is not None:
        own = given.newSession()
        for name, value in (conf or {}).items():
            if own.conf.isModifiable(name):
                own.conf.set(name, value)
        _use(own)
    elif conf is not None:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        SparkContext._ensure_initialized()  # a JVM that starts with properties keeps them
        builder = SparkSession.builder.config("spark.ui.enabled", "false")
        for name, value in conf.items():
            builder = builder.config(name, value)
        builder.getOrCreate()
    try:
        yield
    finally:
        running = _running()
        if running is not None and given is None:
            running.stop()
        elif running is not None:
            _use(given)


def _running() -> Any:
    """The session that `getOrCreate` returns; None: it would create one."""
    if (module := sys.modules.get("pyspark.sql.session")) is None:
        return None
    session = module.SparkSession._instantiatedSession
    return session if session is not None and session._sc._jsc is not None else None


def _use(session: Any) -> None:
    type(session)._instantiatedSession = type(session)._activeSession = session
    java = session._get_j_spark_session_class(session._jvm)
    java.setDefaultSession(session._jsparkSession)
    java.setActiveSession(session._jsparkSession)
