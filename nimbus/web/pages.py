"""Renders a template to an answer: escaped, compressed, with an ETag and a strict security policy.

Every page has a frame: the leader, the answering scheduler, and the other schedulers.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from importlib import resources
from threading import Lock
from typing import Annotated, Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

from fastapi import Query
from jinja2 import Environment, PackageLoader, StrictUndefined
from pydantic import BeforeValidator
from starlette.requests import Request
from starlette.responses import Response

from nimbus.api.access import NEEDS, role_on_path
from nimbus.api.caller import principal
from nimbus.api.requests import PipelineNameText
from nimbus.api.services import ApiServices, ConfirmedLeader
from nimbus.domain.attempts.cost import cost_in_words
from nimbus.domain.attempts.slots import page_address
from nimbus.domain.cluster.access import AccessRole, Principal
from nimbus.domain.errors import NimbusError
from nimbus.domain.ids import CommandId, PipelineName
from nimbus.domain.pipelines.calendars import days_in_words
from nimbus.domain.pipelines.catalog import PipelineRecord
from nimbus.domain.wording import counted, escape_controls, format_size, format_span
from nimbus.ports import StoreUnavailableError
from nimbus.web import times, words
from nimbus.web.pipeline.history import PastRuns
from nimbus.web.words import cron_in_words

Row = TypeVar("Row")
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_KEPT_FOR_GOOD = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class _Asset:
    data: bytes
    packed: bytes
    media_type: str


class Assets:
    """All static files of this package."""

    def __init__(self) -> None:
        self._files: dict[str, _Asset] = {}
        digest = hashlib.sha256()
        folder = resources.files("nimbus.web") / "static"
        for file in sorted(folder.iterdir(), key=lambda file: file.name):
            data, kind = file.read_bytes(), file.name[file.name.rindex(".") :]
            digest.update(data)
            self._files[file.name] = _Asset(data, gzip.compress(data, 9, mtime=0), _TYPES[kind])
        self.version = digest.hexdigest()[:12]
        """Version of the content, which is part of each URL."""

    def answer(self, request: Request, version: str, name: str) -> Response | None:
        """A file; None: there is no such file.

        For another release's version, ours is sent without caching: schedulers are upgraded one by one.
        """
        asset = self._files.get(name)
        if asset is None:
            return None
        kept = _KEPT_FOR_GOOD if version == self.version else "no-store"
        headers = {"Cache-Control": kept, "X-Content-Type-Options": "nosniff", "Vary": "Accept-Encoding"}
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(asset.data, media_type=asset.media_type, headers=headers)
        return Response(
            asset.packed, media_type=asset.media_type, headers={**headers, "Content-Encoding": "gzip"}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The frame of one page."""

    answered_by: str
    version: str
    leader: ConfirmedLeader | None
    unavailable_since: datetime | None
    """Since when ZooKeeper does not answer; None: it answers."""
    others: Sequence[tuple[str, str]]
    """Ids and base URLs of the other schedulers."""
    holds: Sequence[str] = ()
    """Holds of starts, as text."""


class Frames:
    """Builds frames. Any thread."""

    def __init__(self, services: ApiServices) -> None:
        self._services = services
        self._lock = Lock()
        self._others: tuple[tuple[str, str], ...] = ()
        self._unavailable_since: datetime | None = None

    def now(self) -> Frame:
        """The frame of a page at this moment. Raises StoreUnavailableError."""
        me, leader = self._services.health.info(), self._services.health.leader()
        others = tuple(
            (scheduler.id, scheduler.address.rstrip("/"))
            for scheduler in sorted(self._services.reader.schedulers(), key=lambda scheduler: scheduler.id)
            if scheduler.id != me.id and scheduler.address.startswith(("http://", "https://"))
        )
        with self._lock:
            self._others, self._unavailable_since = others, None
        return Frame(
            answered_by=me.id,
            version=me.version,
            leader=leader,
            unavailable_since=None,
            others=others,
            holds=[hold.words(name) for name, hold in self._services.reader.settings().holds.items()],
        )

    def date_zones(self, about: str | None, read: PipelineRecord | None) -> Callable[[str], times.DateZone]:
        """The zones of pipelines' dates, by name; UTC if one cannot be read. Arguments as of `page_times`.

        Others stand in lists, so they are looked up in the catalog, which the reader has in memory.
        """
        reader = self._services.reader
        listed = cache(lambda: {record.name: record for record in reader.pipelines()})

        def zone(pipeline: str) -> times.DateZone:
            try:
                name = PipelineName(pipeline)
                of_page = pipeline == about
                record = (read or reader.pipeline(name)) if of_page else listed().get(name)
            except NimbusError:
                return times.DateZone()
            return times.date_zone(None if record is None else record.profile)

        return cache(zone)

    def unavailable(self) -> Frame:
        """The frame of the page about a ZooKeeper outage, from data that was read before."""
        me, now = self._services.health.info(), self._services.clock.now()
        with self._lock:
            self._unavailable_since = since = self._unavailable_since or now
            others = self._others
        return Frame(
            answered_by=me.id, version=me.version, leader=None, unavailable_since=since, others=others
        )


_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cache-Control": "no-cache",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Vary": "Accept-Encoding, Cookie",
}
_MARKED = {"not_run": "not run"}


def seconds(at: datetime | None, without: int = -1) -> int:
    """A time as a key of an order. `without`: the key of none."""
    return without if at is None else int(at.timestamp())


def segment(text: object) -> str:
    """A name as one segment of a path."""
    return quote(str(text), safe="")


class ListOrder(NamedTuple, Generic[Row]):
    """How a reader wants a list: by a column, and which way."""

    sort: str
    key: Callable[[Row], tuple[Any, ...]]
    newest_first: bool

    @classmethod
    def of(cls, asked: str | None, default: str, **keys: Callable[[Row], tuple[Any, ...]]) -> ListOrder[Row]:
        """By the name of a column, with `-` before it from the greatest on. Others are ignored."""
        sort = asked if asked is not None and asked.removeprefix("-") in keys else default
        return cls(sort, keys[sort.removeprefix("-")], sort.startswith("-"))


class Pages:
    """Renders pages. Any thread: a page of a thousand tasks takes a tenth of a second."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self.assets = Assets()
        self.past = PastRuns()
        self._templates = Environment(
            loader=PackageLoader("nimbus.web"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        filters = (
            times.moment,
            times.data_date,
            times.data_span,
            times.partition,
            times.since,
            words.as_json,
            words.with_code,
            counted,
            cron_in_words,
            escape_controls,
            page_address,
            segment,
        )
        self._templates.filters |= {function.__name__: function for function in filters}
        self._templates.filters |= {"span": format_span, "size": format_size, "cost": cost_in_words}
        self._templates.filters["said"] = lambda state: _MARKED.get(state, state)
        self._templates.globals |= {"query": _query, "days_in_words": days_in_words}

    def compile_first(self) -> None:
        """Compile the templates of the home page, for which the first reader would wait."""
        for name in ("cluster.html", "base.html", "parts.html"):
            self._templates.get_template(name)

    def answer(
        self,
        request: Request,
        template: str,
        shown: Mapping[str, Any],
        *,
        status: int = 200,
        about: str | None = None,
    ) -> Response:
        """Render a page, or answer 304 if the browser has the same page already.

        `about`: the pipeline that the page is about, in whose zone times are, if the reader wants that.

        Raises StoreUnavailableError: ZooKeeper does not answer who leads.
        """
        frame = self._frame(status, shown.get("problem", {}).get("code"))
        who, shown_in = principal(), self.page_times(request, about)
        times.enter(shown_in)
        text = self._templates.get_template(template).render(
            {"is_later_page": "cursor" in request.query_params, **shown},
            frame=frame,
            path=request.url.path,
            times=shown_in,
            asked=[pair for pair in request.query_params.multi_items() if pair[0] != times.CHOICE],
            asset=f"/ui/static/{self.assets.version}",
            who=who,
            lacks=partial(_lacks, _role(request, who)),
            # The answer to a form is not at a page's URL: fetching it again would give another answer.
            refetched=request.method != "POST",
        )
        data = text.encode("utf-8", "replace")
        tag = f'W/"{hashlib.blake2b(data, digest_size=12).hexdigest()}"'
        headers = {**_HEADERS, "ETag": tag}
        if shown_in.asked and request.headers.get("sec-fetch-mode", "navigate") == "navigate":
            # Not if a page fetches itself again: two tabs would change it in turns.
            headers["Set-Cookie"] = (
                f"{times.COOKIE}={shown_in.chosen}; Path=/ui; Max-Age=31536000; HttpOnly; SameSite=Lax"
            )
        if status == 200 and tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            data = gzip.compress(data, 6, mtime=0)
            headers["Content-Encoding"] = "gzip"
        return Response(data, status, headers, media_type="text/html")

    def page_times(
        self, request: Request, about: str | None = None, read: PipelineRecord | None = None
    ) -> times.Times:
        """The times of a page. `about`: as of `answer`; `read`: its record, if the page has read it."""
        known = request.scope.setdefault("nimbus.times", {})
        if about not in known:
            chosen, is_asked = times.choice(request)
            known[about] = times.Times(chosen, self._frames.date_zones(about, read), about, is_asked)
        of_page: times.Times = known[about]
        return of_page

    def _frame(self, status: int, code: str | None) -> Frame:
        if code == StoreUnavailableError.code:
            return self._frames.unavailable()
        try:
            return self._frames.now()
        except NimbusError:
            if status < 400:
                raise
            return self._frames.unavailable()


def _role(request: Request, who: Principal) -> AccessRole:
    """The principal's role on what a page is about."""
    if who.role.includes(AccessRole.OPERATOR) or "route" not in request.scope:
        return who.role
    return max(who.role, role_on_path(request), key=lambda role: role.rank)


def _lacks(role: AccessRole, action: str) -> AccessRole | None:
    """The role that an API action, such as `POST /runs`, needs; None: `role` includes it."""
    method, _, path = action.partition(" ")
    needed = NEEDS[f"{method} /api/v1{path}"]
    return None if role.includes(needed) else needed


def _query(given: Mapping[str, Any], **changes: Any) -> str:
    """The query string of a link: `given` with `changes`; empty values are left out."""
    kept = {key: value for key, value in {**given, **changes}.items() if value not in (None, "", [])}
    return f"?{urlencode(kept, doseq=True)}" if kept else ""


def decision(services: ApiServices, command: CommandId | None) -> dict[str, Any]:
    """For the macro `decision` of `parts.html`: a command that a form has sent, and its outcome."""
    decided = None if command is None else services.commands.outcome(command)
    return {"command": command, "decided": decided}


def none_if_empty(value: Any) -> Any:
    """The value of a filter of a list; None if it is empty: a form sends empty fields as empty text."""
    return None if value == "" else value


SortText = Annotated[str | None, BeforeValidator(none_if_empty), Query(max_length=20)]
PipelineFilter = Annotated[PipelineNameText | None, BeforeValidator(none_if_empty)]
