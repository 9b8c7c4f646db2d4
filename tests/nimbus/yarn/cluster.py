"""A whole cluster: Hadoop's RPC, REST at two addresses, a host; with faults on demand."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Any

from nimbus.java import find_java
from nimbus.localstack.ports import free_port
from tests.nimbus.yarn.jvm import HadoopJvm, spark_home
from tests.nimbus.yarn.manager import ResourceManager
from tests.nimbus.yarn.node import Node
from tests.nimbus.yarn.protocols import ClientProtocol, ContainerProtocol, MasterProtocol
from tests.nimbus.yarn.rest import Rest

_SITE = """\
<?xml version="1.0"?>
<configuration>
{properties}
</configuration>
"""


class YarnCluster:
    """See the module. Start and stop it on the main thread.

    Attributes:
        manager: The ResourceManager's state and limits.
        rest: Its REST addresses; the second is a standby.
        conf_dir: HADOOP_CONF_DIR for clients.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.conf_dir = root, root / "conf"
        self._jvm = HadoopJvm(root)
        self.java_home = find_java().java_home
        self.manager = ResourceManager(lambda ended: Node(root / "containers", self.java_home, ended))
        self.rest = [Rest(self.manager), Rest(self.manager)]
        self._port, self._node_port = free_port(), free_port()
        self._services: dict[str, tuple[int, Any]] = {}
        self._servers: list[Any] = []

    @property
    def conf(self) -> dict[str, str]:
        """Properties with which Spark uploads few files."""
        return {"spark.yarn.jars": f"local:{spark_home()}/jars/*"}

    def start(self) -> None:
        self.conf_dir.mkdir(parents=True)
        properties = {
            "yarn.resourcemanager.address": f"127.0.0.1:{self._port}",
            "fs.defaultFS": "file:///",
        }
        lines = (f"<property><name>{k}</name><value>{v}</value></property>" for k, v in properties.items())
        (self.conf_dir / "yarn-site.xml").write_text(_SITE.format(properties="\n".join(lines)))
        (self.conf_dir / "core-site.xml").write_text((self.conf_dir / "yarn-site.xml").read_text())
        self._jvm.start()
        self.manager.open_service, self.manager.close_service = self._open_service, self._close_service
        self._servers = [
            self._jvm.serve(
                "ContainerManagementProtocol", ContainerProtocol(self._jvm.jvm, self.manager), self._node_port
            )
        ]
        self.come_back()
        self.manager.start()

    def stop(self) -> None:
        self.manager.close()
        for rest in self.rest:
            rest.stop()
        self._jvm.stop()

    def go_away(self) -> None:
        """Refuse connections to the ResourceManager. Containers continue."""
        for rest in self.rest:
            rest.stop()
        self._servers.pop().stop()
        for _, server in self._services.values():
            server.stop()

    def come_back(self) -> None:
        """Accept connections again, with the same state, like a ResourceManager that keeps containers."""
        client = ClientProtocol(self._jvm.jvm, self.manager, getpass.getuser())
        self._servers.append(self._jvm.serve("ApplicationClientProtocol", client, self._port))
        for application, (port, _) in list(self._services.items()):
            self._services[application] = port, self._serve_master(application, port)
        for rest in self.rest:
            rest.start()
        self.rest[1].standby, self.rest[1].leader = True, self.rest[0].url

    def _open_service(self, application: str) -> int:
        if application not in self._services:
            port = free_port()
            self._services[application] = port, self._serve_master(application, port)
        return self._services[application][0]

    def _close_service(self, application: str) -> None:
        if (found := self._services.pop(application, None)) is not None:
            found[1].stop()

    def _serve_master(self, application: str, port: int) -> Any:
        answers = MasterProtocol(self._jvm.jvm, self.manager, application, self._node_port)
        return self._jvm.serve("ApplicationMasterProtocol", answers, port)
