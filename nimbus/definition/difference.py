"""Differences of two definitions, key by key, in the form of the API. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class KeyChange:
    """A key with different values. None: the key is missing."""

    path: tuple[str, ...]
    """For example `("tasks", "load", "timeout_s")`."""
    now: Any
    then: Any

    @property
    def key(self) -> str:
        """The path as text, such as `schedule.cron` or `tasks.load.timeout_s`."""
        return ".".join(self.path)

    @property
    def about(self) -> str:
        """Name for people, such as `task load: timeout_s`, `schedule: cron` or `priority`."""
        kind, *rest = self.path
        if kind in ("tasks", "parameters") and rest:
            kind, rest = f"{kind.removesuffix('s')} {rest[0]}", rest[1:]
        return f"{kind}: {'.'.join(rest)}" if rest else kind

    @property
    def verb(self) -> Literal["added", "removed", "changed"]:
        """What happened to the key."""
        return "added" if self.now is None else "removed" if self.then is None else "changed"


def changes(now: Mapping[str, Any] | None, then: Mapping[str, Any]) -> Iterator[KeyChange]:
    """Keys with different values. A new or removed task or section is one change.

    `now`: a definition as `PipelineSpecModel` writes it in JSON; None: it is not known.
    """
    yield from _changes(_keyed(now or {}), _keyed(then), ())


def _keyed(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A definition with tasks and schedules by name, so that their order does not matter."""
    schedules = [schedule for schedule in (spec.get("schedule"), *spec.get("more_schedules", ())) if schedule]
    named = {
        f"schedules.{schedule['name']}" if schedule.get("name") else "schedule": schedule
        for schedule in schedules
    }
    rest = {key: value for key, value in spec.items() if key not in ("schedule", "more_schedules")}
    return {**rest, **named, "tasks": {task["name"]: task for task in spec.get("tasks", ())}}


def _changes(now: Any, then: Any, path: tuple[str, ...]) -> Iterator[KeyChange]:
    if now == then:
        return
    if not isinstance(now, Mapping) or not isinstance(then, Mapping):
        yield KeyChange(path, now, then)
        return
    for key in [*now, *(key for key in then if key not in now)]:
        yield from _changes(now.get(key), then.get(key), (*path, key))


def in_words(value: Any) -> str:
    """A value as text for a table cell: a task by its type, a section by its content."""
    if isinstance(value, Mapping) and "kind" in value:
        return f"{value['kind']} {value['script']}".strip()
    if isinstance(value, Mapping):
        return ", ".join(
            f"{key}: {in_words(said)}"
            for key, said in value.items()
            if key != "of_release" and said not in (None, {}, [])
        )
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False)
