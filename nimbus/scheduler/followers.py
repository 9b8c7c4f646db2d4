"""Threads of a scheduler that poll something: after a signal, and after a pause.

`nimbus-catalog` keeps active releases on this disk before they are needed. `nimbus-access` follows the tokens
of the cluster, the tokens file, and the TLS certificate. The registrar and the announcer are followers, too.
"""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import structlog

from blobsync import ReleaseRef
from nimbus import records
from nimbus.access.gate import AccessGate
from nimbus.domain.cluster.access import Token
from nimbus.domain.errors import NimbusError
from nimbus.domain.pipelines.catalog import PipelineRecord, ReleaseOf, required_releases, wanted_releases
from nimbus.ports import AccessStore, CatalogFeed, StoreUnavailableError

_log = structlog.get_logger(__name__)

POLL_EVERY_S = 10.0
"""Pause between polls without a watch, in case a watch was lost with its session. Files have no watch."""


class Follower(ABC):
    """Polls at its start, after each signal, and after each pause, until it must end.

    A poll that fails is logged, and the next one follows: scheduling goes on without it.

    `pause_s` is the longest pause between two polls. After the first signal it waits for `gather_s`, or the
    next signal, to collect more.
    """

    def __init__(self, thread: str, pause_s: float, gather_s: float = 0.0) -> None:
        self._pause_s, self._gather_s = pause_s, gather_s
        self._inbox: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """Signals; True is the request to end."""
        self._thread = threading.Thread(target=self._run, name=thread, daemon=True)

    @abstractmethod
    def _poll(self) -> None:
        """Read, and do what follows. Called on the thread."""

    def _clean_up(self) -> None:  # noqa: B027 - most have nothing to do
        """Do what remains at the end. The last call on the thread."""

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Poll again soon. Any thread, and watches: only enqueues."""
        self._inbox.put(False)

    def stop_soon(self) -> None:
        """Make the thread end. Returns at once."""
        self._inbox.put(True)

    def stop(self, timeout: timedelta) -> None:
        """End the thread. After `timeout`, the daemon thread ends with the process."""
        self.stop_soon()
        if self._thread.ident is not None:  # else it was not started
            self._thread.join(timeout.total_seconds())

    def _run(self) -> None:
        ends = False
        while not ends:
            try:
                self._poll()
            except StoreUnavailableError as exc:
                _log.warning("follower_delayed", thread=self._thread.name, error=str(exc))
            except Exception:  # noqa: BLE001 - the top of the thread: the next poll may be luckier
                _log.exception("follower_failed", thread=self._thread.name)
            ends = self._asked_to_end()
        self._clean_up()

    def _asked_to_end(self) -> bool:
        """Wait for a signal, or the end of the pause. Signals that came together count as one."""
        signals: list[bool] = []
        try:
            signals.append(self._inbox.get(timeout=self._pause_s))
            if self._gather_s and not signals[0]:
                signals.append(self._inbox.get(timeout=self._gather_s))
            while True:
                signals.append(self._inbox.get_nowait())
        except queue.Empty:
            return any(signals)


class CatalogFollower(Follower):
    """Keeps `required` up to date, and passes the releases to fetch to the syncer."""

    def __init__(
        self, catalog: CatalogFeed, want: Callable[[Sequence[ReleaseRef]], None], changed: Callable[[], None]
    ) -> None:
        super().__init__("nimbus-catalog", POLL_EVERY_S)
        self._catalog = catalog
        self._want = want
        self._changed = changed
        self._records: tuple[PipelineRecord, ...] | None = None

    @property
    def required(self) -> frozenset[ReleaseOf] | None:
        """Releases that leadership needs, as last seen; None before the first poll."""
        records = self._records
        return None if records is None else required_releases(records)

    def _poll(self) -> None:
        records = self._catalog.read(self.wake)
        if records == self._records:
            return
        required = required_releases(records)  # first, because leadership waits for them
        rest = wanted_releases(records) - required
        self._want([ReleaseRef(r.pipeline, r.digest) for r in (*sorted(required), *sorted(rest))])
        self._records = records  # only after success, so that a failed poll is repeated
        self._changed()


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

        Raises TokensFileError: the file cannot be read.
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
            tokens = records.TOKENS.decode(written, str(self._path)).tokens
        except FileNotFoundError:
            self._seen = None
            _log.warning("tokens_file_missing", file=str(self._path))
            return {}
        except (OSError, records.UnreadableRecordError) as exc:
            _log.warning("tokens_file_unreadable", file=str(self._path), error=str(exc))
            return None
        _log.info("tokens_file_read", file=str(self._path), tokens=len(tokens))
        return {token.id: token for token in tokens}


class AccessFollower(Follower):
    """Keeps the tokens of `gate` up to date. `files` are called every 10 s; they must not raise."""

    def __init__(
        self,
        store: AccessStore,
        gate: AccessGate,
        file: TokensFile | None = None,
        files: Sequence[Callable[[], None]] = (),
    ) -> None:
        super().__init__("nimbus-access", POLL_EVERY_S)
        self._store, self._gate, self._file, self._files = store, gate, file, files
        self._session_key: bytes | None = None

    def _poll(self) -> None:
        if self._file is not None and (tokens := self._file.changed()) is not None:
            self._gate.know_file(tokens)
        for check in self._files:
            check()
        if self._session_key is None:
            self._session_key = self._store.session_key()
        settings = self._store.settings(self.wake)
        self._gate.know_store(settings.tokens, self._session_key, settings.grants)
