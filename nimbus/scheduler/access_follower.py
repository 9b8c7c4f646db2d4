"""Follows what says who may come in: tokens of the cluster, the file with the first ones, the certificate.

Thread `nimbus-access`: woken by a watch, and every 10 s to look at files.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import structlog

from nimbus import records
from nimbus.access.gate import Gate
from nimbus.domain.access import Token
from nimbus.ports import AccessStore, StoreUnavailableError
from nimbus.scheduler.signals import Signals

_log = structlog.get_logger(__name__)

LOOK_AGAIN_S = 10.0


class TokensFile:
    """The tokens in a file. Without the file there are none; what was good stays while it cannot be read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None

    def changed(self) -> Mapping[str, Token] | None:
        """Its tokens, by id, if it has changed since the last time; None: it has not, or cannot be read."""
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


class AccessFollower:
    """Keeps what `gate` knows up to date.

    Args:
        store: The tokens of the cluster. Read on this object's thread alone.
        gate: Told what was found.
        file: The tokens of this scheduler.
        files: Called every 10 s: look at other files. Must not raise.
    """

    def __init__(
        self,
        store: AccessStore,
        gate: Gate,
        file: TokensFile | None = None,
        files: Sequence[Callable[[], None]] = (),
    ) -> None:
        self._store, self._gate, self._file, self._files = store, gate, file, files
        self._signals = Signals()
        self._session_key: bytes | None = None
        self._thread = threading.Thread(target=self._run, name="nimbus-access", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout: timedelta) -> None:
        """End the thread."""
        self._signals.end()
        if self._thread.ident is not None:  # else it was not started
            self._thread.join(timeout.total_seconds())

    def look(self) -> None:
        """Read the tokens again soon. Called by watches: only enqueues."""
        self._signals.look()

    def _run(self) -> None:
        while True:
            try:
                self._follow()
            except StoreUnavailableError as exc:  # what is known stays
                _log.warning("tokens_unavailable", error=str(exc))
            except Exception:  # noqa: BLE001 - the top of the thread: the next look may be luckier
                _log.exception("access_follower_failed")
            if self._signals.asked_to_end(LOOK_AGAIN_S):
                return

    def _follow(self) -> None:
        if self._file is not None and (found := self._file.changed()) is not None:
            self._gate.know_file(found)
        for look in self._files:
            look()
        if self._session_key is None:
            self._session_key = self._store.session_key()
        self._gate.know_store(self._store.tokens(self.look), self._session_key)
