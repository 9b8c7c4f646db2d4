"""What the senders of traces and of lineage share: data that a run's record lacks, and the HTTP session.

Used on the threads that send.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from nimbus.domain.attempts.slots import Slots
from nimbus.domain.data.lineage import Family, LineageRun
from nimbus.domain.ids import AttemptId, ClusterId, PipelineName, RunId
from nimbus.domain.pipelines.catalog import ReleaseOf
from nimbus.domain.runs.children import DEEPEST, Parent
from nimbus.domain.runs.run import Run
from nimbus.domain.runs.traces import Dropped, attempt_uuid, dropped, from_slots, run_uuid
from nimbus.ports import TelemetryNotSentError

if TYPE_CHECKING:
    from requests import Response, Session

MAX_PLACES = 10_000
"""Most runs whose parents are cached."""


@dataclass(kw_only=True)
class RunFacts:
    """Reads on demand. One thread."""

    read_cluster: Callable[[], ClusterId]
    read_run: Callable[[RunId], Run | None]
    """Live or finished."""
    read_slots: Callable[[Iterable[AttemptId]], Mapping[AttemptId, Slots]]
    owner: Callable[[PipelineName], str | None]
    sql: Callable[[ReleaseOf, str], str | None]
    """Text of a file of a release; None if it is not on this host."""
    _places: OrderedDict[RunId, tuple[PipelineName, Parent | None]] = field(default_factory=OrderedDict)

    @cached_property
    def cluster(self) -> ClusterId:
        return self.read_cluster()

    def dropped(self, before: Run | None, run: Run) -> Dropped:
        """Attempts that the record does not contain any more, from their slots."""
        wanted = tuple(dropped(before, run))
        return from_slots(self.read_slots(wanted)) if wanted else {}

    def family(self, run: Run) -> Family:
        """The ancestors of a run. An ancestor that is missing is left out, with all above it."""
        root, parent = LineageRun(run_uuid(self.cluster, run.id), run.pipeline), None
        link = run.parent
        for _ in range(DEEPEST):
            place = None if link is None else self._place(link.run)
            if link is None or place is None:
                break
            pipeline, above = place
            if parent is None:
                attempt = AttemptId(link.run, link.task, link.attempt)
                parent = LineageRun(attempt_uuid(self.cluster, attempt), f"{pipeline}.{link.task}")
            root = LineageRun(run_uuid(self.cluster, link.run), pipeline)
            link = above
        return Family(parent, root)

    def _place(self, run_id: RunId) -> tuple[PipelineName, Parent | None] | None:
        """The pipeline and the parent of a run, which never change."""
        if run_id in self._places:
            self._places.move_to_end(run_id)
        elif (run := self.read_run(run_id)) is not None:
            self._places[run_id] = run.pipeline, run.parent
            if len(self._places) > MAX_PLACES:
                self._places.popitem(last=False)
        return self._places.get(run_id)


def new_session() -> Session:
    """A session that treats redirects as errors, and ignores proxies and passwords of the environment."""
    import requests

    session = requests.Session()
    session.trust_env = False
    session.hooks["response"].append(_refuse_redirection)
    return session


def _refuse_redirection(response: Response, **_named: object) -> None:
    """Raise for a redirect, which the trace exporter would accept and the lineage client would follow."""
    if 300 <= response.status_code < 400:
        response.close()
        raise TelemetryNotSentError(f"answered {response.status_code}: redirections are not followed")


def read_headers(file: Path | None) -> dict[str, str]:
    """The headers of a file: `Name: value`, one on each line.

    Raises:
        TelemetryNotSentError: it cannot be read, or a line is not a header. No value is shown.
    """
    if file is None:
        return {}
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8 text"
        raise TelemetryNotSentError(f"{file} cannot be read: {why}") from exc
    headers = {}
    for number, line in enumerate(lines, 1):
        name, colon, value = line.partition(":")
        if colon and name.strip():
            headers[name.strip()] = value.strip()
        elif line.strip():
            raise TelemetryNotSentError(f"{file}, line {number}: is not `Name: value`")
    return headers
