"""Runs one of Spark's declarative pipelines: the program `spark-pipelines`, in the driver. Main thread.

The program starts a Spark Connect server in the driver's own JVM, so it has the driver's master, properties
and folders, and ends with it. Its only progress report is a printed line for each change of a flow.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, TextIO

from nimbus.task import context
from nimbus.worker.program import variables

_FLOW = re.compile(r": Flow '?(.{1,200}?)'? (?:is|has|has been) ([A-Z]+)\b")
_DONE = ("COMPLETED", "EXCLUDED", "IDLE", "SKIPPED", "STOPPED")
_NAMED = 50
"""Most flows that are named: progress is written to ZooKeeper repeatedly."""
_WAREHOUSE = "spark.sql.warehouse.dir"
_SERVICE = "org.apache.spark.sql.connect.service.SparkConnectService$"


class FlowBook(io.TextIOBase):
    """Replaces the program's standard output: passes it on, and records the last state of each flow."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._states: dict[str, str] = {}

    def write(self, text: str) -> int:
        """Pass text on; the program writes whole lines."""
        for flow, state in _FLOW.findall(text):
            self._states[flow] = state
        return self._out.write(text)

    def flush(self) -> None:
        """Flush the underlying file."""
        self._out.flush()

    def figures(self) -> dict[str, Any]:
        """The progress of the flows, for display; empty if there are none yet. Any thread."""
        states = self._states.copy()
        if not states:
            return {}
        ended = list(states.values())
        return {
            "flows": dict(list(states.items())[:_NAMED]),
            "flows_total": len(states),
            "flows_done": sum(state in _DONE for state in ended),
            "flows_failed": ended.count("FAILED"),
        }


def settings_for(conf: Mapping[str, str], output: str) -> dict[str, str]:
    """Spark's settings for such a pipeline: tables are stored in the output, unless a warehouse is set."""
    return {
        _WAREHOUSE: output,
        **conf,
        # On loopback, with a free port, because several may run on this host.
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
    }


def run_pipeline(spec: Path, arguments: Sequence[str], *, master: str, book: FlowBook) -> None:
    """Run the program to its end. Raises its errors.

    Args:
        spec: The file that describes the pipeline.
        arguments: `run` or `dry-run`, and what follows.
        master: Spark master.
        book: Gets what the program prints.
    """
    from pyspark.pipelines import cli
    from pyspark.sql.connect.client import core

    os.environ |= {"SPARK_API_MODE": "connect", "MASTER": master, **variables(context())}
    channels: Any = core.DefaultChannelBuilder
    channels.default_port = staticmethod(_port_of_server)
    sys.argv = ["spark-pipelines", arguments[0], "--spec", str(spec), *arguments[1:]]
    with redirect_stdout(book):
        cli.main()


def _port_of_server() -> int:
    """Read the port that the server in the driver's JVM has chosen. Only PySpark's own tests do the same."""
    from pyspark.sql import SparkSession

    session: Any = SparkSession._instantiatedSession
    jvm = session._jvm
    return int(getattr(getattr(jvm, _SERVICE), "MODULE$").localPort())
