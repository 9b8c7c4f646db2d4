"""A client of a cluster for Python programs: `Client`. It needs httpx and tenacity, and nothing of a server.

docs/client.md has examples.
"""

from nimbus.client.client import Client, LogPiece, RunInfo, Wanted
from nimbus.client.errors import (
    BusyError,
    ClientError,
    ConflictError,
    DeniedError,
    NotFoundError,
    ProblemError,
    SetupError,
    UnreachableError,
    WaitTimeoutError,
)

__all__ = [
    "BusyError",
    "Client",
    "ClientError",
    "ConflictError",
    "DeniedError",
    "LogPiece",
    "NotFoundError",
    "ProblemError",
    "RunInfo",
    "SetupError",
    "UnreachableError",
    "WaitTimeoutError",
    "Wanted",
]
