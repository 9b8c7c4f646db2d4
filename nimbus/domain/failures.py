"""Classes of failure. A task's `retries` name the classes after which it is tried again."""

from __future__ import annotations

from enum import StrEnum


class FailureClass(StrEnum):
    """Why an attempt failed or timed out.

    An attempt that was lost, fenced or refused has no class: its task is tried again in any case.
    """

    OUT_OF_MEMORY = "out_of_memory"
    """The driver (Python or JVM), an executor, or a container had too little memory."""
    EXECUTOR_LOST = "executor_lost"
    """Spark lost an executor, or a Python worker of one, for another or an unknown reason."""
    ANALYSIS = "analysis"
    """Spark refused a query before it ran: syntax, or a table, column, function or type that does not fit."""
    MISSING_INPUT = "missing_input"
    """A file, path or object that the task's code reads does not exist."""
    KILLED = "killed"
    """A signal that Nimbus did not send ended the driver or its JVM."""
    TIMED_OUT = "timed_out"
    """It ran longer than the task's `timeout`."""
    ERROR = "error"
    """Anything else: an exception of the task's code, an exit code, a crash of native code."""

    @classmethod
    def _missing_(cls, _value: object) -> FailureClass:
        """A class that a later release has and this one does not know."""
        return cls.ERROR
