"""YARN's three protocols over Hadoop's RPC, which convert Hadoop's records for the ResourceManager.

Requests of an ApplicationMaster do not contain its id: Hadoop identifies it by its token. Here each has its
own port. Authentication is simple: the name of a client is not checked.
"""

# ruff: noqa: N802 - names are those of Hadoop's interfaces

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tests.nimbus.yarn.manager import (
    STARTED_MS,
    Application,
    Ask,
    Completed,
    Granted,
    RefusedError,
    ResourceManager,
    Size,
)
from tests.nimbus.yarn.node import Launch, Resource

_LARGEST = Size(8192, 8)
_REQUESTS = "org.apache.hadoop.yarn.api.protocolrecords."
_RECORDS = "org.apache.hadoop.yarn.api.records."


class _Records:
    """Makes Hadoop's records."""

    def __init__(self, jvm: Any) -> None:
        self.jvm = jvm
        self.kinds = jvm.org.apache.hadoop.yarn.api.records

    def new(self, name: str, values: Mapping[str, object] | None = None) -> Any:
        """A record with the given values."""
        kind = self.jvm.java.lang.Class.forName(name)
        made = self.jvm.org.apache.hadoop.yarn.util.Records.newRecord(kind)
        for key, value in (values or {}).items():
            getattr(made, f"set{key}")(value)
        return made

    def response(self, name: str, **values: object) -> Any:
        """An answer."""
        return self.new(f"{_REQUESTS}{name}Response", values)

    def size(self, size: Size) -> Any:
        return self.kinds.Resource.newInstance(size.memory_mb, size.cores)

    def list(self, items: list[Any]) -> Any:
        made = self.jvm.java.util.ArrayList()
        for item in items:
            made.add(item)
        return made


def _size_of(resource: Any) -> Size:
    return Size(int(resource.getMemorySize()), int(resource.getVirtualCores()))


def _launch_of(context: Any) -> Launch:
    resources = {}
    for name, found in dict(context.getLocalResources()).items():
        resources[str(name)] = Resource(
            Path(unquote(str(found.getResource().getFile()))),
            found.getType().toString() == "ARCHIVE",
            int(found.getTimestamp()),
        )
    environment = {str(name): str(value) for name, value in dict(context.getEnvironment()).items()}
    return Launch([str(word) for word in context.getCommands()], environment, resources)


class ClientProtocol:
    """`ApplicationClientProtocol`"""

    def __init__(self, jvm: Any, manager: ResourceManager, user: str) -> None:
        self._records, self._manager, self._user = _Records(jvm), manager, user

    def getNewApplication(self, _request: Any) -> Any:
        records = self._records
        made = records.kinds.ApplicationId.newInstance(STARTED_MS, self._manager.new_id())
        return records.response(
            "GetNewApplication", ApplicationId=made, MaximumResourceCapability=records.size(_LARGEST)
        )

    def submitApplication(self, request: Any) -> Any:
        context = request.getApplicationSubmissionContext()
        application = Application(
            id=context.getApplicationId().toString(),
            name=str(context.getApplicationName()),
            user=self._user,
            queue=str(context.getQueue()),
            tags=frozenset(str(tag) for tag in context.getApplicationTags()),
            most_attempts=int(context.getMaxAppAttempts()),
            master_size=_size_of(context.getResource()),
            launch=_launch_of(context.getAMContainerSpec()),
        )
        try:
            self._manager.submit(application)
        except RefusedError as exc:  # py4j cannot throw YarnException
            self._manager.reject(application, str(exc))
        return self._records.response("SubmitApplication")

    def getApplicationReport(self, request: Any) -> Any:
        records, kinds = self._records, self._records.kinds
        found = self._manager.applications.get(request.getApplicationId().toString())
        if found is None:
            raise RefusedError(f"Application with id '{request.getApplicationId()}' doesn't exist in RM.")
        report = {
            "ApplicationId": request.getApplicationId(),
            "CurrentApplicationAttemptId": kinds.ApplicationAttemptId.newInstance(
                request.getApplicationId(), max(found.attempt, 1)
            ),
            "User": found.user,
            "Queue": found.queue,
            "Name": found.name,
            "Host": "N/A",
            "RpcPort": -1,
            "YarnApplicationState": kinds.YarnApplicationState.valueOf(found.state),
            "FinalApplicationStatus": kinds.FinalApplicationStatus.valueOf(found.final_status),
            "Diagnostics": found.words,
            "TrackingUrl": found.tracking_url,
            "StartTime": STARTED_MS,
        }
        record = records.new(f"{_RECORDS}ApplicationReport", report)
        return records.response("GetApplicationReport", ApplicationReport=record)

    def forceKillApplication(self, request: Any) -> Any:
        self._manager.kill(request.getApplicationId().toString(), f"Application killed by user {self._user}")
        return self._records.response("KillApplication", IsKillCompleted=True)

    def getClusterMetrics(self, _request: Any) -> Any:
        metrics = self._records.new(f"{_RECORDS}YarnClusterMetrics", {"NumNodeManagers": 1})
        return self._records.response("GetClusterMetrics", ClusterMetrics=metrics)

    class Java:
        implements = ["org.apache.hadoop.yarn.api.ApplicationClientProtocol"]  # noqa: RUF012 - of py4j


class MasterProtocol:
    """`ApplicationMasterProtocol`, of one application."""

    def __init__(self, jvm: Any, manager: ResourceManager, application: str, node_port: int) -> None:
        self._records, self._manager = _Records(jvm), manager
        self._application, self._node_port = application, node_port

    def registerApplicationMaster(self, request: Any) -> Any:
        self._manager.register(self._application, str(request.getTrackingUrl()))
        return self._records.response(
            "RegisterApplicationMaster",
            MaximumResourceCapability=self._records.size(_LARGEST),
            Queue=self._manager.applications[self._application].queue,
        )

    def allocate(self, request: Any) -> Any:
        wanted = {
            Ask(
                int(one.getPriority().getPriority()),
                _size_of(one.getCapability()),
                int(one.getAllocationRequestId()),
            ): int(one.getNumContainers())
            for one in request.getAskList()
            if one.getResourceName() == "*"
        }
        released = [one.toString() for one in request.getReleaseList()]
        granted, completed = self._manager.allocate(self._application, wanted, released)
        records = self._records
        tokens = [records.kinds.NMToken.newInstance(self._node(), self._token("nodes"))] if granted else []
        return records.response(
            "Allocate",
            ResponseId=request.getResponseId() + 1,
            AllocatedContainers=records.list([self._container(one) for one in granted]),
            CompletedContainersStatuses=records.list([self._status(one) for one in completed]),
            AvailableResources=records.size(_LARGEST),
            NumClusterNodes=1,
            NMTokens=records.list(tokens),
        )

    def finishApplicationMaster(self, request: Any) -> Any:
        status = request.getFinalApplicationStatus().toString()
        self._manager.unregister(self._application, status, str(request.getDiagnostics() or ""))
        return self._records.response("FinishApplicationMaster", IsUnregistered=True)

    def _node(self) -> Any:
        return self._records.kinds.NodeId.newInstance("127.0.0.1", self._node_port)

    def _token(self, text: str) -> Any:
        return self._records.kinds.Token.newInstance(text.encode(), "test", b"", "test")

    def _container(self, one: Granted) -> Any:
        kinds = self._records.kinds
        made = kinds.Container.newInstance(
            kinds.ContainerId.fromString(one.id),
            self._node(),
            "127.0.0.1:8042",
            self._records.size(one.ask.size),
            kinds.Priority.newInstance(one.ask.priority),
            self._token(one.id),
        )
        made.setAllocationRequestId(one.ask.request)
        return made

    def _status(self, one: Completed) -> Any:
        kinds = self._records.kinds
        return kinds.ContainerStatus.newInstance(
            kinds.ContainerId.fromString(one.id), kinds.ContainerState.COMPLETE, one.words, one.status
        )

    class Java:
        implements = ["org.apache.hadoop.yarn.api.ApplicationMasterProtocol"]  # noqa: RUF012 - of py4j


class ContainerProtocol:
    """`ContainerManagementProtocol`. A container is identified by its token."""

    def __init__(self, jvm: Any, manager: ResourceManager) -> None:
        self._records, self._manager = _Records(jvm), manager

    def startContainers(self, request: Any) -> Any:
        started = []
        for one in request.getStartContainerRequests():
            container = bytes(one.getContainerToken().getIdentifier().array()).decode()
            self._manager.launch(container, _launch_of(one.getContainerLaunchContext()))
            started.append(self._records.kinds.ContainerId.fromString(container))
        return self._records.response(
            "StartContainers", SuccessfullyStartedContainers=self._records.list(started)
        )

    def stopContainers(self, request: Any) -> Any:
        ids = list(request.getContainerIds())
        for one in ids:
            self._manager.stop_container(one.toString())
        return self._records.response("StopContainers", SuccessfullyStoppedContainers=self._records.list(ids))

    class Java:
        implements = ["org.apache.hadoop.yarn.api.ContainerManagementProtocol"]  # noqa: RUF012 - of py4j
