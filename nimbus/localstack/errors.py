"""Errors of the local stack. Each message has a remedy."""

from __future__ import annotations

from pathlib import Path

from nimbus.domain.errors import NimbusError


class LocalStackError(NimbusError):
    """Root of the local stack's errors."""

    code = "local_stack"


class ToolMissingError(LocalStackError):
    """A program or file of a part of the stack is not installed."""

    code = "tool_missing"
    exit_code = 4


class PortBusyError(LocalStackError):
    """Another process listens on a requested port."""

    code = "port_busy"
    exit_code = 4

    def __init__(self, *, port: int, what: str) -> None:
        super().__init__(
            f"{what} cannot listen on 127.0.0.1:{port}: another process uses that port. "
            f"Stop it (`ss -ltnp 'sport = :{port}'` names it) or choose another port."
        )


class ProcessStartError(LocalStackError):
    """A child process ended, or was not ready in time, during its start."""

    code = "process_start_failed"

    def __init__(self, *, name: str, happened: str, log: Path, tail: str) -> None:
        super().__init__(f"{name} {happened}. The end of its log, {log}:\n{tail}")
        self.log = log


class ProcessStateError(LocalStackError):
    """An operation is not possible in the state of a child process, such as starting it twice."""

    code = "process_state"


class StackLockedError(LocalStackError):
    """Another process runs a stack in the same folder."""

    code = "stack_locked"
    exit_code = 4

    def __init__(self, *, folder: Path, pid: str) -> None:
        super().__init__(
            f"a local stack already runs in {folder} (process {pid}). Use that one, stop it with "
            f"`kill {pid}` (it shuts down in order), or start this one in another folder."
        )
