"""Runs a declarative pipeline of Spark: the program `spark-pipelines`, within the driver. Main thread.

The program starts a Spark Connect server in the driver's own JVM, so it has the driver's master, properties
and folders, and ends with it. It prints a line for each change of a flow, which is all that it says of them.
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
"""Of flows: progress is written to ZooKeeper, again and again."""
_WAREHOUSE = "spark.sql.warehouse.dir"
_SERVICE = "org.apache.spark.sql.connect.service.SparkConnectService$"


class FlowBook(io.TextIOBase):
    """Standard output of the program: passes it on, and remembers the last state of each flow."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._states: dict[str, str] = {}

    def write(self, text: str) -> int:
        """Pass on; the program writes whole lines."""
        for flow, state in _FLOW.findall(text):
            self._states[flow] = state
        return self._out.write(text)

    def flush(self) -> None:
        """Pass on."""
        self._out.flush()

    def figures(self) -> dict[str, Any]:
        """How far the flows are, for people; empty: there are none yet. Any thread."""
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
    """Spark's settings for such a pipeline: its tables lie in the output, unless a warehouse is named."""
    return {
        _WAREHOUSE: output,
        **conf,
        # Of this host alone, and a port of its own: several may run here.
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
    }


def run_pipeline(spec: Path, arguments: Sequence[str], *, master: str, book: FlowBook) -> None:
    """Run the program to its end. It raises what is wrong.

    Args:
        spec: The file that describes the pipeline.
        arguments: `run` or `dry-run`, and what follows.
        master: As Spark spells it.
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
    """Ask the server in the driver's JVM, since it has chosen one. PySpark asks so in its own tests alone."""
    from pyspark.sql import SparkSession

    session: Any = SparkSession._instantiatedSession
    jvm = session._jvm
    return int(getattr(getattr(jvm, _SERVICE), "MODULE$").localPort())
