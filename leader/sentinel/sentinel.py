"""Runs in the guarded process: starts the program, sends it sessions, and starts another if it dies."""

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

_BLOCKED_SIGNALS = frozenset(
    {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}
)
"""Signals that the program blocks. Supervisors send them to all processes of a service, but the program must
not end before the process that it watches."""

_RESTART_MIN_S, _RESTART_MAX_S = 0.5, 30.0

_MEANING = "if this process crashes, a successor takes over only after the session timeout"
_LOCKED_KEY = (
    "key_password of the TLS configuration is set, but the sentinel receives no secrets; use a key without "
    "a password that only this user can read"
)


class CrashSentinel:
    """Closes `session` as soon as this process is dead. A small program beside the process does it.

    Not guaranteed: where the program cannot run (no pidfd, no memory for a process, a TLS key with a
    password), the log says so, and a crash costs the session timeout, as without a sentinel.

    Start it before any participant that uses the session. Listeners are called in order, so a new session is
    in the pipe, which survives this process, before a participant can lead with that session.

    Threads: `leader-sentinel`, which waits for the program to end. Any thread may call the methods.

    Args:
        session: Started or not. The caller closes it.
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
        """Process id of the program; None while it does not run."""
        process = self._process
        return None if process is None or process.returncode is not None else process.pid

    def start(self) -> None:
        """Start the program and send it the present session, if there is one. Call it only once."""
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

        If a server has confirmed that the session is closed, the program has ended when this returns, unless
        `timeout` passed. Otherwise the program closes the session when this process has ended, and then ends.
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
        """True when a server confirmed the close. A session that ends otherwise is suspended first."""
        return (self._before, self._state) == (SessionState.CONNECTED, SessionState.LOST)

    def _on_state(self, state: SessionState) -> None:
        """Kazoo's connection thread: writes about 100 bytes to a pipe, and never blocks."""
        with self._lock:
            self._before, self._state = self._state, state
            self._hand_over()

    def _hand_over(self) -> None:
        """Write the session to the pipe, if it is new. Under the lock: the last in the pipe is the newest."""
        client_id = self._session.client.client_id  # None while there is no connection
        if client_id is None or not client_id[0]:
            return
        self._state = SessionState.CONNECTED  # also if it connected before `start` added the listener
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
            return  # the program is dead: `_launch` sends the newest session to the next one
        except BlockingIOError:  # the pipe is full: the program was stopped for hundreds of sessions
            _log.warning("sentinel_deaf", sentinel=self.pid)

    def _launch(self) -> bool:
        try:
            process, pipe = self._spawn()
        except (OSError, AttributeError) as exc:  # AttributeError: no pidfd on this system
            _log.warning("sentinel_unavailable", error=f"{type(exc).__name__}: {exc}", meaning=_MEANING)
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
        # The program inherits the mask, so these signals cannot end it at any moment.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED_SIGNALS)
        try:
            return subprocess.Popen(
                [*program, str(pid), str(pidfd), _hosts(self._session), *_tls(self._session)],
                stdin=pipe,
                stdout=subprocess.DEVNULL,
                pass_fds=(pidfd,),
                cwd="/",
                start_new_session=True,  # so a terminal's signals to the group do not reach it
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
            if self._closing.is_set() or code == CANNOT_WATCH:  # the program has logged why
                return
            _log.warning("sentinel_died", sentinel=self._process.pid, exit_code=code, restart_in_s=delay_s)
            started = False
            while not started:
                if self._closing.wait(delay_s):
                    return
                delay_s = min(_RESTART_MAX_S, 2 * delay_s)
                started = self._launch()  # may fail, for example while the system has no room for a process


def _hosts(session: ZooKeeperSession) -> str:
    """Return the servers in the form of `Ensemble`: the program has no parser of connection strings."""
    return ",".join(f"{host}:{port}" for host, port in read_hosts(session.config.hosts).addresses)


def _tls(session: ZooKeeperSession) -> tuple[str, ...]:
    """Return the program's arguments for TLS. They contain no secret: other users can read a command line."""
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
