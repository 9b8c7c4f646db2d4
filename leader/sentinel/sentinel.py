"""The guarded process's side: starts the sentinel, hands sessions over, starts another if it dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import structlog

from leader.sentinel.ensemble import Tls
from leader.sentinel.program import CANNOT_WATCH
from leader.sentinel.wire import FORGET, Handoff, handoff_line
from leader.zookeeper.config import TlsConfig, read_hosts
from leader.zookeeper.session import SessionState, ZooKeeperSession

_log = structlog.get_logger(__name__)

_NOT_FOR_IT = frozenset(
    {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}
)
"""Supervisors tell all processes of a service to end; the sentinel ends with the process it watches."""

_RESTART_MIN_S, _RESTART_MAX_S = 0.5, 30.0

_MEANING = "if this process crashes, others take over only after its session timeout"
_LOCKED_KEY = (
    "key_password of the TLS configuration is set, and the sentinel is given no secrets; give a key without "
    "a password that only this user can read"
)


class CrashSentinel:
    """Ends `session` the moment this process is dead, by a small program that outlives it for that moment.

    A help, not a promise: where it cannot work (no pidfd, no memory for a process, a TLS key with a password)
    it says so in the log, and a crash costs the session timeout, as without it.

    Give it the session before anything that takes part in an election with it: listeners are called in order,
    so each new session is in the pipe, where it survives this process, before the session can be led with.

    Threads: `leader-sentinel`, which waits for the program to end. Other methods: any thread.

    Args:
        session: Started or not. Stays the caller's.
    """

    def __init__(self, session: ZooKeeperSession) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: int | None = None
        self._newest: Handoff | None = None
        self._state: SessionState | None = None
        self._before: SessionState | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._attend, name="leader-sentinel", daemon=True)

    @property
    def pid(self) -> int | None:
        """Process id of the program; None while there is none."""
        process = self._process
        return None if process is None or process.returncode is not None else process.pid

    def start(self) -> None:
        """Start the program and hand the present session over, if there is one. Once only."""
        tls = self._session.config.tls
        if tls is not None and tls.key_password is not None:
            _log.warning("sentinel_unavailable", error=_LOCKED_KEY, meaning=_MEANING)
            return
        self._session.add_listener(self._on_state)
        if self._launch():
            with self._lock:
                self._hand_over()
            self._thread.start()

    def close(self, timeout: timedelta) -> None:
        """End the program. Call it after the session was closed. Safe to repeat.

        If a server has confirmed that the session is closed, nothing is left when this returns. If not, the
        program stays, sees to the session once this process has ended, and then ends too.
        """
        self._closing.set()
        self._session.remove_listener(self._on_state)
        process = self._process
        if process is None:
            return
        with self._lock:
            if self._newest is None or self._was_closed():
                self._write(FORGET)
            if self._pipe is not None:
                os.close(self._pipe)
                self._pipe = None
        if self._thread.is_alive() and (self._newest is None or self._was_closed()):
            self._thread.join(timeout.total_seconds())

    def _was_closed(self) -> bool:
        """A session that ends without a suspension before was ended by a server's answer."""
        return (self._before, self._state) == (SessionState.CONNECTED, SessionState.LOST)

    def _on_state(self, state: SessionState) -> None:
        """Kazoo's connection thread: a write of 100 bytes to a pipe that never blocks."""
        with self._lock:
            self._before, self._state = self._state, state
            self._hand_over()

    def _hand_over(self) -> None:
        """Under the lock, so that the newest session is the last in the pipe."""
        client_id = self._session.client.client_id  # None while there is no connection
        if client_id is None or not client_id[0]:
            return
        self._state = SessionState.CONNECTED  # it may have become so before `start` added the listener
        handoff = Handoff(
            session_id=client_id[0],
            password=client_id[1],
            timeout_ms=round(self._session.negotiated_timeout / timedelta(milliseconds=1)),
        )
        if handoff != self._newest:
            self._newest = handoff
            self._write(handoff_line(handoff))

    def _write(self, line: bytes) -> None:
        if self._pipe is None:
            return
        try:
            os.write(self._pipe, line)
        except BrokenPipeError:
            return  # the program is dead: its successor is told the newest
        except BlockingIOError:
            _log.warning("sentinel_deaf", sentinel=self.pid)  # stopped for hundreds of sessions

    def _launch(self) -> bool:
        try:
            process, pipe = self._spawn()
        except (OSError, AttributeError) as exc:  # AttributeError: no pidfd on this system
            _log.warning(
                "sentinel_unavailable",
                error=f"{type(exc).__name__}: {exc}",
                meaning=_MEANING,
            )
            return False
        with self._lock:
            self._process = process
            if self._closing.is_set():
                os.close(pipe)
                return True
            self._pipe = pipe
            if self._newest is not None:
                self._write(handoff_line(self._newest))
        _log.info("sentinel_started", sentinel=process.pid)
        return True

    def _spawn(self) -> tuple[subprocess.Popen[bytes], int]:
        pid = os.getpid()
        pidfd = os.pidfd_open(pid)
        try:
            reader, writer = os.pipe()
            try:
                process = self._popen(reader, pid, pidfd)
            except BaseException:
                os.close(writer)
                raise
            finally:
                os.close(reader)
        finally:
            os.close(pidfd)
        os.set_blocking(writer, False)
        return process, writer

    def _popen(self, pipe: int, pid: int, pidfd: int) -> subprocess.Popen[bytes]:
        program = [sys.executable, "-I", "-S", str(Path(__file__).parent)]
        # The mask is inherited: not for a moment can the program be ended by these.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _NOT_FOR_IT)
        try:
            return subprocess.Popen(
                [*program, str(pid), str(pidfd), _hosts(self._session), *_tls(self._session)],
                stdin=pipe,
                stdout=subprocess.DEVNULL,
                pass_fds=(pidfd,),
                cwd="/",
                start_new_session=True,  # what a terminal sends to the group is not for it either
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _attend(self) -> None:
        """Thread `leader-sentinel`: start another program when one has ended by itself."""
        delay_s = _RESTART_MIN_S
        while self._process is not None:
            code = self._process.wait()
            with self._lock:
                if self._pipe is not None:
                    os.close(self._pipe)
                    self._pipe = None
            if self._closing.is_set() or code == CANNOT_WATCH:  # it has logged why
                return
            _log.warning("sentinel_died", sentinel=self._process.pid, exit_code=code, restart_in_s=delay_s)
            if self._closing.wait(delay_s) or not self._launch():
                return
            delay_s = min(_RESTART_MAX_S, 2 * delay_s)


def _hosts(session: ZooKeeperSession) -> str:
    """The servers as the program wants them, which has no parser of connection strings."""
    return ",".join(f"{host}:{port}" for host, port in read_hosts(session.config.hosts).addresses)


def _tls(session: ZooKeeperSession) -> tuple[str, ...]:
    """Files for the program's own connection. Others can read its command line: no secret is among them."""
    config = session.config.tls
    if config is None:
        return ()
    files = (config.ca_file, config.cert_file, config.key_file)
    # Absolute, because the program runs in another folder.
    ca, certificate, key = ("-" if file is None else str(Path(file).absolute()) for file in files)
    return Tls(ca, certificate, key, _verify(config))


def _verify(config: TlsConfig) -> str:
    if not config.verify_certificate:
        return "none"
    return "verify" if config.verify_hostname else "no-hostname"
