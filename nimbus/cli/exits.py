"""Exit codes, and the errors that cause them. docs/cli.md has the table for users."""

from __future__ import annotations

from enum import IntEnum

from nimbus.domain.errors import NimbusError


class Exit(IntEnum):
    """An exit code of the command line."""

    OK = 0
    RUN_FAILED = 1
    USAGE = 2
    """Also: an invalid definition, configuration or environment."""
    NOT_FOUND = 3
    REFUSED = 4
    WATCH_TIMEOUT = 5
    UNREACHABLE = 6
    """Also: there is no leader."""
    DENIED = 7
    INTERNAL = 70
    INTERRUPTED = 130


# The packages below have no exit codes, so their errors are mapped by their stable `code`.
_BY_CODE = {
    "acl": Exit.DENIED,
    "not_permitted": Exit.DENIED,
    "java_missing": Exit.USAGE,
    "blobsync_config": Exit.USAGE,
    "gc_refused": Exit.REFUSED,
    "bucket_access_denied": Exit.DENIED,
    "bucket_missing": Exit.USAGE,
    "bucket_refused": Exit.REFUSED,
    "bucket_unavailable": Exit.UNREACHABLE,
    "invalid_key": Exit.USAGE,
    "invalid_name": Exit.USAGE,
    "source_changed": Exit.REFUSED,
    "unmatched_pattern": Exit.USAGE,
    "unsafe_source": Exit.USAGE,
    "election_config": Exit.USAGE,
    "election_state": Exit.REFUSED,
    "fenced_out": Exit.REFUSED,
    "forked": Exit.USAGE,
    "participant_id_in_use": Exit.REFUSED,
    "zookeeper_auth": Exit.DENIED,
    "zookeeper_tls": Exit.DENIED,
    "zookeeper_unavailable": Exit.UNREACHABLE,
    "zookeeper_unreachable": Exit.UNREACHABLE,
}


class CliError(NimbusError):
    """A command failed. The user sees only its message."""

    def __init__(self, message: str, *, code: str, exit_code: Exit) -> None:
        super().__init__(message)
        self.code, self.exit_code = code, int(exit_code)


def of_error(exc: BaseException) -> Exit | None:
    """The exit code of an error of our packages; None for any other exception, which is a defect."""
    code = getattr(exc, "code", None)
    if not isinstance(code, str):
        return None
    said = getattr(exc, "exit_code", None)
    return Exit(said) if said in set(Exit) else _BY_CODE.get(code, Exit.INTERNAL)
