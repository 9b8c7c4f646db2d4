"""Follows tokens and certificates: the tokens of the cluster, the tokens file, and the TLS certificate.

Thread `nimbus-access`: it runs after a watch, and every 10 s to check files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import structlog

from nimbus import records
from nimbus.access.gate import AccessGate
from nimbus.domain.access import Token
from nimbus.domain.errors import NimbusError
from nimbus.ports import AccessStore
from nimbus.scheduler.follower import Follower

_log = structlog.get_logger(__name__)

LOOK_AGAIN_S = 10.0


class TokensFileError(NimbusError):
    """The tokens file is there and cannot be read."""

    code = "tokens_file"
    exit_code = 2


class TokensFile:
    """The tokens in a file. No file means no tokens. While the file is unreadable, the last tokens stay."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None

    def check(self) -> int | None:
        """The number of tokens in the file; None: there is no file.

        Raises:
            TokensFileError: the file cannot be read.
        """
        try:
            return len(records.TOKENS.decode(self._path.read_bytes(), str(self._path)).tokens)
        except FileNotFoundError:
            return None
        except (OSError, records.UnreadableRecordError) as exc:
            raise TokensFileError(
                f"api.tokens_file: {self._path} cannot be read ({exc}). Let this process's user read it, or "
                "write it again with `nimbus token create --file`."
            ) from exc

    def changed(self) -> Mapping[str, Token] | None:
        """The tokens by id, if the file has changed since the last call; None: unchanged or unreadable."""
        try:
            status = self._path.stat()
            seen = (status.st_mtime_ns, status.st_size)
            if seen == self._seen:
                return None
            written = self._path.read_bytes()
            self._seen = seen
            found = records.TOKENS.decode(written, str(self._path)).tokens
        except FileNotFoundError:
            self._seen = None
            _log.warning("tokens_file_missing", file=str(self._path))
            return {}
        except (OSError, records.UnreadableRecordError) as exc:
            _log.warning("tokens_file_unreadable", file=str(self._path), error=str(exc))
            return None
        _log.info("tokens_file_read", file=str(self._path), tokens=len(found))
        return {token.id: token for token in found}


class AccessFollower(Follower):
    """Keeps the tokens of `gate` up to date.

    Args:
        store: The tokens of the cluster. Read only on this object's thread.
        gate: Receives the tokens.
        file: The tokens file of this scheduler.
        files: Called every 10 s to check other files. Must not raise.
    """

    def __init__(
        self,
        store: AccessStore,
        gate: AccessGate,
        file: TokensFile | None = None,
        files: Sequence[Callable[[], None]] = (),
    ) -> None:
        super().__init__("nimbus-access", LOOK_AGAIN_S)
        self._store, self._gate, self._file, self._files = store, gate, file, files
        self._session_key: bytes | None = None

    def _look_now(self) -> None:
        if self._file is not None and (found := self._file.changed()) is not None:
            self._gate.know_file(found)
        for look in self._files:
            look()
        if self._session_key is None:
            self._session_key = self._store.session_key()
        settings = self._store.settings(self.look)
        self._gate.know_store(settings.tokens, self._session_key, settings.grants)
