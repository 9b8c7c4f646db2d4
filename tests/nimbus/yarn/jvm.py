"""Hadoop's RPC servers, from PySpark's jars, in a JVM that calls Python objects through py4j."""

from __future__ import annotations

import logging
import socket
from collections.abc import Sequence
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from py4j.finalizer import ThreadSafeFinalizer
from py4j.java_gateway import CallbackServerParameters, GatewayParameters, JavaGateway

from nimbus.java import find_java
from nimbus.localstack.ports import LOOPBACK, free_port
from nimbus.localstack.process import ManagedProcess

_OPTIONS = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Djava.awt.headless=true")
_HANDLERS = 8


def spark_home() -> Path:
    """Folder of the installed PySpark."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


class HadoopJvm(ManagedProcess):
    """A JVM with Hadoop's client jars, which serves protocols of YARN with Python objects."""

    def __init__(self, folder: Path) -> None:
        super().__init__(name="Hadoop's JVM", log=folder / "hadoop.log")
        self.port = free_port()
        self._gateway: JavaGateway | None = None
        self._configuration: Any = None
        logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it logs each callback that raises

    @property
    def jvm(self) -> Any:
        """The JVM view of py4j, whose attributes are packages."""
        return self._opened().jvm

    def _opened(self) -> JavaGateway:
        if self._gateway is None:
            callbacks = CallbackServerParameters(
                address=LOOPBACK, port=0, daemonize=True, daemonize_connections=True
            )
            gateway = JavaGateway(
                gateway_parameters=GatewayParameters(address=LOOPBACK, port=self.port, auto_convert=True),
                callback_server_parameters=callbacks,
            )
            port = gateway.get_callback_server().get_listening_port()
            server = gateway.java_gateway_server
            server.resetCallbackClient(server.getCallbackClient().getAddress(), port)
            self._gateway = gateway
            self._configuration = gateway.jvm.org.apache.hadoop.yarn.conf.YarnConfiguration()
        return self._gateway

    def serve(self, protocol: str, answers: object, port: int) -> Any:
        """Serve a protocol of `org.apache.hadoop.yarn.api` on a port. Returns the started server."""
        jvm = self.jvm
        server = jvm.org.apache.hadoop.yarn.ipc.YarnRPC.create(self._configuration).getServer(
            jvm.java.lang.Class.forName(f"org.apache.hadoop.yarn.api.{protocol}"),
            answers,
            jvm.java.net.InetSocketAddress(LOOPBACK, port),
            self._configuration,
            None,
            _HANDLERS,
        )
        server.start()
        return server

    def stop(self, deadline: timedelta = timedelta(seconds=10)) -> None:
        if self._gateway is not None:
            # Otherwise py4j would send messages about garbage objects to a JVM that has ended.
            ThreadSafeFinalizer.clear_finalizers(clear_all=True)
            self._gateway.shutdown_callback_server()
            self._gateway.close()
            self._gateway = None
        super().stop(deadline)

    def _command(self) -> Sequence[str]:
        java = str(find_java().java)
        return [java, *_OPTIONS, "-cp", f"{spark_home()}/jars/*", "py4j.GatewayServer", str(self.port)]

    def _answers(self) -> bool:
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=1):
                return True
        except OSError:
            return False
