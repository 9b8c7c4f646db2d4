"""The ResourceManager: applications, their attempts and containers, and one queue of limited size.

It has no Java and no network: `protocols` and `rest` serve it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.nimbus.yarn.node import Launch, Node

EPOCH = 17
STARTED_MS = 1_700_000_000_000
QUEUE = "default"
_TICK_S = 0.1
_MAX_ATTEMPTS = 2
ENDED = frozenset({"FINISHED", "FAILED", "KILLED"})


class RefusedError(Exception):
    """The ResourceManager refuses a request."""


@dataclass(frozen=True, slots=True)
class Size:
    """Size of a container."""

    memory_mb: int
    cores: int


@dataclass(frozen=True, slots=True)
class Ask:
    """A kind of container that an ApplicationMaster requests."""

    priority: int
    size: Size
    request: int


@dataclass(frozen=True, slots=True)
class Granted:
    """A container that an ApplicationMaster may start."""

    id: str
    ask: Ask


@dataclass(frozen=True, slots=True)
class Completed:
    """A container that has ended."""

    id: str
    status: int
    words: str


@dataclass(slots=True, eq=False)
class Application:
    """One application."""

    id: str
    name: str
    user: str
    queue: str
    tags: frozenset[str]
    most_attempts: int
    master_size: Size
    launch: Launch
    state: str = "ACCEPTED"
    final_status: str = "UNDEFINED"
    words: str = ""
    tracking_url: str = ""
    attempt: int = 0
    master: str | None = None
    registered: bool = False
    heard_at_s: float = 0.0
    wanted: dict[Ask, int] = field(default_factory=dict)
    containers: dict[str, Size] = field(default_factory=dict)
    """Containers that hold resources, with that of the ApplicationMaster."""
    granted: list[Granted] = field(default_factory=list)
    completed: list[Completed] = field(default_factory=list)
    ending: tuple[str, str] | None = None
    """State and final status after the end of the ApplicationMaster."""

    @property
    def used(self) -> Size:
        """The resources of its containers."""
        held = self.containers.values()
        return Size(sum(one.memory_mb for one in held), sum(one.cores for one in held))


class ResourceManager:
    """See the module. Any thread.

    Attributes:
        capacity: Capacity of the queue. Containers wait until they fit.
        submitters: Users who may submit; None: all.
        expiry_s: Longest time without contact to an ApplicationMaster.
        before_taking: Called when a submission arrives. It may delay the answer.
        before_reply: Called when a submission is accepted. It may raise, or delay the answer.
    """

    def __init__(self, make_node: Callable[[Callable[[str, int, str], None]], Node]) -> None:
        self.capacity = Size(8192, 16)
        self.submitters: set[str] | None = None
        self.expiry_s = 600.0
        self.before_taking: Callable[[], object] = lambda: None
        self.before_reply: Callable[[], object] = lambda: None
        self.submissions = 0
        self.applications: dict[str, Application] = {}
        self.node = make_node(self._container_ended)
        self.open_service: Callable[[str], int] = lambda _: 0
        """Opens the port for an application's master."""
        self.close_service: Callable[[str], None] = lambda _: None
        self._lock = threading.RLock()
        self._numbers = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="resource-manager")

    def start(self) -> None:
        """Start scheduling."""
        self._thread.start()

    def close(self) -> None:
        """End all containers and threads."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(60)
        self.node.close()

    # Requests of clients.

    def new_id(self) -> int:
        """Number of a new application, which may be submitted."""
        with self._lock:
            self._numbers += 1
            return self._numbers

    def submit(self, application: Application) -> None:
        """Accept an application. A repeated submission is the same application. Raises RefusedError."""
        self.before_taking()
        with self._lock:
            if application.id in self.applications:
                return
            if application.queue != QUEUE:
                raise RefusedError(
                    f"Application {application.id} submitted by user : {application.user} "
                    f"to unknown queue : {application.queue}"
                )
            if self.submitters is not None and application.user not in self.submitters:
                raise RefusedError(
                    f"AccessControlException: User {application.user} does not have permission to submit "
                    f"{application.id} to queue {application.queue}"
                )
            self.submissions += 1
            self.applications[application.id] = application
        self.before_reply()

    def reject(self, application: Application, words: str) -> None:
        """Keep a refused application as a failed one, like YARN after placing it."""
        application.state = application.final_status = "FAILED"
        application.words = words
        with self._lock:
            self.applications[application.id] = application

    def kill(self, application: str, words: str) -> None:
        """End an application, for a user with permission."""
        with self._lock:
            found = self.applications[application]
            if found.state in ENDED:
                return
            found.ending, found.words = ("KILLED", "KILLED"), words
            master = found.master
            if master is None:
                self._end(found)
        if master is not None:
            self.node.kill(master)

    @property
    def used(self) -> Size:
        """The resources of all containers."""
        with self._lock:
            held = [one.used for one in self.applications.values()]
        return Size(sum(one.memory_mb for one in held), sum(one.cores for one in held))

    # Requests of ApplicationMasters.

    def register(self, application: str, tracking_url: str) -> None:
        """Register an ApplicationMaster."""
        with self._lock:
            found = self.applications[application]
            found.registered, found.state, found.tracking_url = True, "RUNNING", tracking_url
            found.heard_at_s = time.monotonic()

    def allocate(
        self, application: str, wanted: dict[Ask, int], released: list[str]
    ) -> tuple[list[Granted], list[Completed]]:
        """Receive the requests of an ApplicationMaster. Returns its new and its ended containers."""
        with self._lock:
            found = self.applications[application]
            found.heard_at_s = time.monotonic()
            found.wanted.update(wanted)
            self._grant(found)
            granted, completed = found.granted, found.completed
            found.granted, found.completed = [], []
        for container in released:
            self.stop_container(container)
        return granted, completed

    def unregister(self, application: str, final_status: str, words: str) -> None:
        """Record the final status that an ApplicationMaster reports."""
        with self._lock:
            found = self.applications[application]
            found.final_status, found.words = final_status, words
            found.ending = ("FINISHED", final_status)

    def launch(self, container: str, launch: Launch) -> None:
        """Start a granted container."""
        found = self._owner(container)
        self.node.start(container, found.id, launch)

    def stop_container(self, container: str) -> None:
        """End a container, or release one that was never started."""
        if self.node.runs(container):
            self.node.kill(container)
        else:
            self._container_ended(container, -100, "Container released by application")

    # Internal.

    def _run(self) -> None:
        while not self._stopping.wait(_TICK_S):
            with self._lock:
                waiting = [one for one in self.applications.values() if one.state not in ENDED]
            for one in waiting:
                self._start_master(one)
                if one.master and one.heard_at_s and time.monotonic() - one.heard_at_s > self.expiry_s:
                    one.words = f"ApplicationMaster for attempt {one.attempt} timed out"
                    self.node.kill(one.master)

    def _start_master(self, one: Application) -> None:
        with self._lock:
            if one.master is not None or one.ending is not None or not self._has_room(one.master_size):
                return
            one.attempt += 1
            one.master = container = self._new_container(one)
            one.containers[container] = one.master_size
            one.heard_at_s, one.registered = time.monotonic(), False
        port = self.open_service(one.id)
        settings = {"yarn.resourcemanager.scheduler.address": f"127.0.0.1:{port}"}
        launch = Launch(one.launch.commands, one.launch.environment, one.launch.resources, settings)
        try:
            self.node.start(container, one.id, launch)
        except (OSError, ValueError) as exc:
            self._container_ended(container, -1000, str(exc))
        else:
            if one.ending is not None:  # it was killed
                self.node.kill(container)

    def _has_room(self, size: Size) -> bool:
        used = self.used
        return (
            used.memory_mb + size.memory_mb <= self.capacity.memory_mb
            and used.cores + size.cores <= self.capacity.cores
        )

    def _grant(self, one: Application) -> None:
        for ask in one.wanted:
            while one.wanted[ask] > 0 and self._has_room(ask.size):
                container = self._new_container(one)
                one.containers[container] = ask.size
                one.granted.append(Granted(container, ask))
                one.wanted[ask] -= 1

    def _new_container(self, one: Application) -> str:
        self._numbers += 1
        stem = one.id.removeprefix("application_")
        return f"container_e{EPOCH}_{stem}_{max(one.attempt, 1):02}_{self._numbers:06}"

    def _owner(self, container: str) -> Application:
        with self._lock:
            return next(one for one in self.applications.values() if container in one.containers)

    def _container_ended(self, container: str, status: int, words: str) -> None:
        with self._lock:
            owner = next((one for one in self.applications.values() if container in one.containers), None)
            if owner is None:
                return
            del owner.containers[container]
            if container != owner.master:
                owner.completed.append(Completed(container, status, words))
                return
            owner.master = None
            if owner.ending is None and owner.attempt < min(owner.most_attempts, _MAX_ATTEMPTS):
                return
            if owner.ending is None:
                owner.ending = ("FAILED", "FAILED")
                owner.words = (
                    f"Application {owner.id} failed {owner.attempt} times due to AM Container for "
                    f"{container} exited with exitCode: {status}\n{owner.words or words}"
                )
            self._end(owner)
            left = list(owner.containers)
        for other in left:
            self.stop_container(other)

    def _end(self, one: Application) -> None:
        assert one.ending is not None
        one.state, one.final_status = one.ending
        self.close_service(one.id)
