"""How full a standalone cluster is, from the pages of its masters: shown while a driver waits there.

The REST gateway does not report it. Source: `/json/` of a master's web UI, measured with Spark 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from nimbus.worker.application.kept import Kept


class StandaloneQueue:
    """The figures of one cluster. Any thread."""

    def __init__(self, pages: Sequence[str], ask: Callable[[str], Mapping[str, Any] | None]) -> None:
        """Create the reader.

        Args:
            pages: Base URLs of the web UIs of all masters.
            ask: Fetches a URL; returns None without an answer.
        """
        self._pages, self._ask = tuple(pages), ask
        self._kept = Kept(lambda: next(self._read(), ""))

    def words(self) -> str:
        """The cached figures as text; empty if the leading master does not report them."""
        return self._kept.value()

    def _read(self) -> Iterator[str]:
        for page in self._pages:
            said = self._ask(f"{page}/json/")
            if said is not None and said.get("status") == "ALIVE":
                with suppress(KeyError, TypeError, ValueError, AttributeError):
                    yield _told(said)


def _told(said: Mapping[str, Any]) -> str:
    used, memory = int(said["memoryused"]) / 1024, int(said["memory"]) / 1024
    drivers = sum(driver["state"] == "SUBMITTED" for driver in said["activedrivers"])
    applications = sum(application["state"] == "WAITING" for application in said["activeapps"])
    return (
        f"{int(said['coresused'])} of {int(said['cores'])} cores and {used:.1f} of {memory:.1f} GiB "
        f"are in use, {_counted(drivers, 'driver')} and {_counted(applications, 'application')} wait"
    )


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
