"""Fixtures of all tests, and a check that no test leaks threads or processes.

Real servers are in `tests/servers.py`. They start at first use and live until the end of the run; each test
has its own root or bucket. A test that stops, kills or pauses a server uses `own_zookeeper` or `own_s3`.
"""

from __future__ import annotations

import gc
import signal
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import psutil
import pytest
import structlog

from blobsync.log import log_all
from nimbus.java import JavaMissingError, JavaRuntime, find_java
from nimbus.localstack.process import ManagedProcess
from tests.nimbus import spark_start

pytest_plugins = ("tests.nimbus.browser", "tests.nimbus.web_flows", "tests.servers", "tests.slow_files")

LARGE_VALUE = 4096
"""Characters of a value's `repr` above which its diff is not drawn in full."""

LEAK_TAG = "NIMBUS_TEST"
"""Environment variable with a new value for each test, by which its detached processes are found."""

LEAK_GRACE_S = 60.0
"""How long threads and processes of a test may take to end after it."""

MAX_LOGS = 12
LOG_END = 3000
"""Bytes of a log that are shown."""
_BEGAN_S = pytest.StashKey[float]()
"""When a test began."""

_HELPERS = frozenset(
    {
        "nimbus.worker.fork_server",
        "nimbus.worker.pool",
        "nimbus.worker.pool.zygote",
        "nimbus.worker.jvm",
    }
)


@pytest.hookimpl(wrapper=True)
def pytest_assertrepr_compare(left: object, right: object) -> Generator[None, list[object], list[object]]:
    """Where `CI` is set, pytest draws each diff in full. That takes time with the square of its length:
    minutes for 30 kB of a file's bytes, in which a test that fails runs into its time limit.
    """
    with pytest.MonkeyPatch.context() as patch:
        if max(len(repr(left)), len(repr(right))) > LARGE_VALUE:
            for name in ("CI", "BUILD_NUMBER"):
                patch.delenv(name, raising=False)
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage while the files of tests are read, which takes two fifths of that time, and none in
    what was read.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Enable Spark's fast start for the test and for fixtures of wider scope, which may start a worker."""
    item.stash[_BEGAN_S] = time.time()
    with pytest.MonkeyPatch.context() as patch:
        if item.get_closest_marker("spark") is not None:
            for name, value in spark_start.environment().items():
                patch.setenv(name, value)
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show, with a test that fails, the ends of the logs that processes wrote meanwhile."""
    report = yield
    if report.failed:
        report.sections += log_ends(item.config._tmp_path_factory.getbasetemp(), item.stash[_BEGAN_S])
    return report


def log_ends(folder: Path, since_s: float) -> list[tuple[str, str]]:
    """Name and end of the logs below a folder that were written since a time: the newest MAX_LOGS."""
    found: list[tuple[float, Path]] = []
    for file in (*folder.rglob("*.log"), *folder.rglob("log")):
        with suppress(OSError):  # it was removed meanwhile
            if file.is_file() and file.stat().st_size and file.stat().st_mtime >= since_s:
                found.append((file.stat().st_mtime, file))
    ends: list[tuple[str, str]] = []
    for _, file in sorted(found)[-MAX_LOGS:]:
        with suppress(OSError):
            ends.append(
                (f"end of {file.relative_to(folder)}", file.read_bytes()[-LOG_END:].decode(errors="replace"))
            )
    return ends


class LongLived:
    """Threads and processes that may outlive a test, because a fixture of wider scope owns and ends them."""

    def __init__(self) -> None:
        self.processes: list[ManagedProcess] = []
        self.pids: set[int] = set()
        self.threads: set[threading.Thread] = set()

    def all_pids(self) -> set[int]:
        return self.pids | {process.pid for process in self.processes if process.running}


@pytest.fixture(scope="session")
def long_lived() -> LongLived:
    """A fixture of wider scope that starts a process or thread registers it here."""
    return LongLived()


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> None:
    """Reset SIGINT, which background jobs ignore: tests interrupt processes that would inherit this."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _java_environment() -> Iterator[JavaRuntime | JavaMissingError]:
    """JAVA_HOME of the whole session. Tests that need no Java run without one."""
    with pytest.MonkeyPatch.context() as patch:
        try:
            runtime = find_java()
        except JavaMissingError as missing:
            yield missing
        else:
            patch.setenv("JAVA_HOME", str(runtime.java_home))
            yield runtime


@pytest.fixture(scope="session", autouse=True)
def _plain_traces() -> Iterator[None]:
    """Log exceptions plainly, as a daemon does.

    structlog's default prints all local variables while it holds the GIL. On a busy machine that takes
    seconds, in which no session is kept alive, so that a leader in the test is deposed.
    """
    renderer = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    processors = structlog.get_config()["processors"]
    structlog.configure(processors=[*processors[:-1], renderer])
    yield
    structlog.reset_defaults()


@pytest.fixture(autouse=True)
def _all_log_lines() -> Iterator[None]:
    """Log every line again: a test may have called `log_errors_alone`, which is meant for a whole process."""
    yield
    log_all()


@pytest.fixture(scope="session")
def java_home(_java_environment: JavaRuntime | JavaMissingError) -> Path:
    """A JAVA_HOME that Spark can use; the environment variable is set to it."""
    if isinstance(_java_environment, JavaMissingError):
        raise _java_environment
    return _java_environment.java_home


@pytest.fixture
def eventually() -> Callable[..., None]:
    """Waits: `eventually(condition, within_s=120, what="the port is open")`; fails with these words.

    The limit is long, for busy machines; only a failing test takes that long.
    """
    return _eventually


def _eventually(condition: Callable[[], object], within_s: float = 120.0, what: str = "") -> None:
    until = time.monotonic() + within_s
    pause = threading.Event()
    while not condition():
        if time.monotonic() > until:
            pytest.fail(f"not within {within_s:g} s: {what or condition}")
        pause.wait(0.02)


@pytest.fixture(autouse=True)
def _leaves_nothing(long_lived: LongLived) -> Iterator[None]:
    """Fail a test that leaves a new process or thread running.

    Daemon threads count, too, because a client that was not closed has only those. Fixtures of wider scope
    are set up before this one, so their processes are not new; fixtures requested later register in
    `long_lived`.
    """
    tag = uuid.uuid4().hex
    threads_before = set(threading.enumerate())
    pids_before = set(psutil.pids())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(LEAK_TAG, tag)
        yield

    def processes() -> set[psutil.Process]:
        kept = long_lived.all_pids()
        new = set(psutil.pids()) - pids_before - kept
        if not new:  # the usual case; searching children and tagged processes takes milliseconds
            return set()
        children = {child for child in psutil.Process().children(recursive=True) if child.pid in new}
        return {child for child in children | set(_tagged(tag, new)) if not _is_helper(child, kept)}

    def threads() -> set[threading.Thread]:
        return set(threading.enumerate()) - threads_before - long_lived.threads

    until = time.monotonic() + LEAK_GRACE_S
    while (left := threads() | processes()) and time.monotonic() < until:
        threading.Event().wait(0.02)
    if left:
        _report_leak(left)


def _is_helper(child: psutil.Process, kept: set[int]) -> bool:
    """True for a helper that a scheduler or worker of wider scope starts on demand."""
    try:
        of_wider_scope = any(parent.pid in kept for parent in child.parents())
        return of_wider_scope and not _HELPERS.isdisjoint(child.cmdline())
    except psutil.NoSuchProcess:
        return True  # it has ended


def _tagged(tag: str, pids: set[int]) -> Iterator[psutil.Process]:
    """The processes of `pids` that this test started, including detached ones."""
    wanted = f"{LEAK_TAG}={tag}".encode()
    for pid in pids:
        try:
            if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                yield psutil.Process(pid)
        except (OSError, psutil.Error):  # ended meanwhile, or not ours to read
            continue


def _report_leak(left: set[threading.Thread | psutil.Process]) -> NoReturn:
    """Fail with the leaked threads and processes; end the processes, so that the next test starts clean."""
    words = []
    for item in left:
        if isinstance(item, threading.Thread):
            words.append(f"thread {item.name!r}")
            continue
        try:
            words.append(f"process {item.pid} {' '.join(item.cmdline())[:200]} ({item.status()})")
            item.kill()
        except psutil.Error:
            words.append(f"process {item.pid} (gone by now)")
    pytest.fail(f"the test left behind after {LEAK_GRACE_S:g} s: " + "; ".join(sorted(words)))
