"""One API application for all tests of a process, because FastAPI needs 0.5 s of processor time to build one.

It keeps metrics and secrets of webhooks from one test to the next. Tests of these, and tests with other
options of `create_app`, build their own application.
"""

from __future__ import annotations

from typing import Any, ClassVar, cast

from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from nimbus.api.app import create_app
from nimbus.api.routes.events import EventHub
from nimbus.api.services import ApiServices
from nimbus.ports import ChangeFeed
from nimbus.web.app import add_pages
from nimbus.web.home.day import Day


class _Present:
    """A proxy for an object that each test has: `behind` is that of the current test."""

    behind: Any

    def __init__(self, **fixed: Any) -> None:
        vars(self).update(fixed)

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["behind"], name)


class _Services(_Present):
    """The services of the current test; `dataclasses.replace` makes another such proxy of it."""

    __dataclass_fields__: ClassVar[dict[str, Any]] = {}

    def __init__(self, **fixed: Any) -> None:
        super().__init__(**_FIXED | fixed)

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(_services)["behind"], name)


class _Port:
    """A port of the services of the current test."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(getattr(vars(_services)["behind"], self._name), name)


def _version() -> Any:
    return _changes.behind.version()


def _secret(name: str) -> Any:
    return _services.behind.hook_secret(name)


_gate = _Present()
_changes = _Present(version=_version)
_PORTS = {name: _Port(name) for name in ("reader", "history", "commands", "logs", "definitions")}
_FIXED: dict[str, Any] = {
    **_PORTS,
    "gate": _gate,
    "changes": _changes,
    "metrics": CollectorRegistry(),
    "hook_secret": _secret,
}
_services = _Services()
_built: list[FastAPI] = []


def application(services: ApiServices, *, own: bool = False) -> FastAPI:
    """An application with its pages, for `services`.

    Args:
        services: The services of the current test.
        own: Build an application for this test; otherwise the shared one uses `services` from now on.
    """
    if own:
        return _with_pages(services)
    _services.behind, _gate.behind, _changes.behind = services, services.gate, services.changes
    if not _built:
        _built.append(_with_pages(cast(ApiServices, _services)))
    state = _built[0].state
    state.day = Day(services.reader, services.history)
    vars(state.events).update(vars(EventHub(cast(ChangeFeed, _changes))))  # no stream of an earlier test
    return _built[0]


def _with_pages(services: ApiServices) -> FastAPI:
    built = create_app(services)
    add_pages(built, services)
    return built
