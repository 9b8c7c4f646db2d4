"""Child runs: what a task of kind `pipeline` starts, its items, and its progress. Pure.

A child run is an ordinary run that names its parent. The parent's record holds one letter and one number for
each item, so its size is known from the start: MAX_ITEMS of them take a few KiB. Lists that are known when
the run is created are in its plan, in as many nodes as they need.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from math import prod
from typing import Any

from nimbus.domain.ids import PipelineName, ReleaseDigest, RunId, TaskName

LARGEST_LISTS = 4096
"""Limit of one task's lists from results, in bytes of JSON: they are kept in the run's record."""
MAX_ITEMS = 10_000
"""Limit of the items of one task, and so of `max_items`."""
MAX_PARALLEL = 1000
"""Limit of `max_parallel`, and of `max_items` without it: all open child runs are records in ZooKeeper."""
DEFAULT_MAX_ITEMS = 200
DEEPEST = 8
"""Limit of nesting: a run without a parent has depth 0."""
MAX_AT_A_DEPTH = 20_000
"""Limit of child runs at one depth below one run, without repeated attempts. See `Parent.width`."""
_PARAMETER = re.compile(r"\{\{\s*params\s*\.\s*(\w+)\s*\}\}")
SCALAR = ""
"""Key of `for_each` when it is a single list. An item is then a value, not a mapping."""


def parameter_in(text: str) -> str | None:
    """The parameter that a list of `for_each` reads; None: it reads none."""
    match = _PARAMETER.fullmatch(text.strip())
    return None if match is None else match[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """What a task of kind `pipeline` starts: one child run for each item."""

    pipeline: PipelineName
    release: ReleaseDigest | None = None
    """Release of the child runs. Set in a run only: the release that was active at its creation, if any."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Parameters as written. Texts are templates, rendered for each child when it is created."""
    for_each: Mapping[str, tuple[Any, ...] | str] = field(default_factory=dict)
    """Lists whose product is the items. Empty: there is one child, without an item.

    A text is a template that reads a list: a parameter, known when the run is created, or a value of a task's
    result, known when this task is ready.
    """
    max_parallel: int | None = None
    max_items: int = DEFAULT_MAX_ITEMS

    def with_lists(self, lists: Mapping[str, tuple[Any, ...]]) -> ChildSpec:
        """This spec with `lists` in place of the templates of the same names."""
        return replace(self, for_each={**self.for_each, **lists}) if lists else self

    def with_parameters(self, parameters: Mapping[str, Any]) -> ChildSpec:
        """This spec with the values of parameters in place of the templates that read them."""
        names = {name: parameter_in(text) for name, text in self.templates.items()}
        return self.with_lists({name: tuple(parameters[read]) for name, read in names.items() if read})

    @property
    def templates(self) -> Mapping[str, str]:
        """Templates of the lists that are not known yet."""
        return {name: values for name, values in self.for_each.items() if isinstance(values, str)}

    @property
    def count(self) -> int:
        """Number of items; 0 while a list is not known."""
        return 0 if self.templates else prod(len(values) for values in self.for_each.values())

    def item(self, index: int) -> Any:
        """One item: a mapping, or a value if `for_each` is one list. The last list changes fastest."""
        item = {}
        for name in reversed([*self.for_each]):
            values = self.for_each[name]
            index, place = divmod(index, len(values))
            item[name] = values[place]
        return item[SCALAR] if SCALAR in item else {name: item[name] for name in self.for_each}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """The parent of a child run, and the run's place below it."""

    run: RunId
    task: TaskName
    attempt: int
    index: int
    """Index of the run's item, from 0."""
    top: RunId
    """The run at the top of the tree: the only one without a parent."""
    depth: int
    """Depth of the child run: 1 if the parent has no parent."""
    width: int = 1
    """How many child runs of this depth there can be: the parent's width times all that its tasks can start.
    If no width is above n, there are at most n runs of this depth, whatever the shape of the tree: the sum of
    1 / width over them is at most 1 (Kraft's inequality). So nothing has to be counted or stored.
    """


class ItemState(StrEnum):
    """The state of one item. One letter, because a record holds many."""

    WAITING = "w"
    """No child run yet in this attempt."""
    OPEN = "o"
    SUCCEEDED = "s"
    FAILED = "f"
    STOPPED = "x"
    REFUSED = "r"
    """Its child run could not be created."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Children:
    """A task's progress with its items."""

    attempt: int
    began_at: datetime
    epoch: int
    """Epoch of the leader that began the attempt."""
    states: str
    """An `ItemState` for each item."""
    tried: tuple[int, ...]
    """For each item, the attempt that created its last child run; 0: none did.

    An item with 0 that has succeeded did so in the run that this one repeats.
    """
    lists: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Lists of `for_each` that came from results. They never change."""
    width: int = 1
    """Width of its child runs, see `Parent`."""
    reason: str = ""
    """Why the first item that did not succeed failed."""

    def count(self, *states: ItemState) -> int:
        """Number of items in one of `states`."""
        return sum(self.states.count(state) for state in states)

    def first(self, state: ItemState) -> int | None:
        """The first item in a state."""
        index = self.states.find(state)
        return None if index < 0 else index

    def having(self, state: ItemState) -> list[int]:
        """All items in a state."""
        return [index for index, present in enumerate(self.states) if present == state]

    def moved(self, index: int, state: ItemState, reason: str = "") -> Children:
        """The progress with one item moved to `state`. OPEN: its child run is created."""
        attempt = self.attempt if state is ItemState.OPEN else self.tried[index]
        return replace(
            self,
            states=f"{self.states[:index]}{state}{self.states[index + 1 :]}",
            tried=(*self.tried[:index], attempt, *self.tried[index + 1 :]),
            reason=self.reason or reason,
        )


def begun(
    before: Children | None,
    spec: ChildSpec,
    *,
    lists: Mapping[str, tuple[Any, ...]],
    width: int,
    attempt: int,
    epoch: int,
    now: datetime,
) -> Children:
    """Progress of the next attempt: items that succeeded earlier stay so. `spec` includes `lists`."""
    states = ItemState.WAITING * spec.count if before is None else before.states
    for state in (ItemState.FAILED, ItemState.STOPPED, ItemState.REFUSED):
        states = states.replace(state, ItemState.WAITING)
    tried = (0,) * spec.count if before is None else before.tried
    return Children(
        attempt=attempt, began_at=now, epoch=epoch, states=states, tried=tried, lists=lists, width=width
    )


def repeats(spec: ChildSpec, other: ChildSpec) -> bool:
    """True when two tasks start the same child runs, item by item. Releases and limits may differ."""
    return (spec.pipeline, spec.parameters, [*spec.for_each.items()]) == (
        other.pipeline,
        other.parameters,
        [*other.for_each.items()],
    )


def succeeded_alone(before: Children) -> Children:
    """Progress for a rerun: only succeeded items keep their state, and no attempt has begun."""
    others = {ord(state): str(ItemState.WAITING) for state in ItemState if state is not ItemState.SUCCEEDED}
    states = before.states.translate(others)
    return replace(before, attempt=0, states=states, tried=(0,) * len(states), reason="")


def child_id(run: RunId, task: TaskName, spec: ChildSpec, attempt: int, index: int) -> RunId:
    """The id of a child run. Every leader derives the same id, so that two cannot create it twice."""
    digest = sha256(f"{run}.{task}".encode()).hexdigest()[:16]
    return RunId(f"{spec.pipeline}-{digest}-{attempt}-{index}")


LONGEST_LINE = 500
"""Limit of an item, in bytes of JSON: see `nimbus.run_record.ITEMS_IN_NODE`."""
LARGEST_ITEMS = 512 * 1024
"""Limit of all items of a task, in bytes of JSON: one transaction writes them."""
MAX_NAMED = 5
"""How many bad lines a text names. It only counts the others."""


class ItemsError(Exception):
    """A file has no usable items."""


def items_in(pieces: Iterable[bytes], most: int) -> tuple[Any, ...]:
    """The items in the content of a file, which is read up to its limits. Empty lines are left out.

    `most`: limit of the items. Raises ItemsError: names each bad line with its number, or says that there are
    too many items or bytes.
    """
    items: list[Any] = []
    bad: list[str] = []
    for number, line in enumerate(_lines(pieces), 1):
        if not line.strip():
            continue
        try:
            items.append(_item(line))
        except ValueError as exc:
            bad.append(f"line {number}: {exc}")
        if len(items) + len(bad) > most:
            raise ItemsError(f"has more than {most} items, which is max_items: nothing was started")
    if bad:
        more = [f"and {len(bad) - MAX_NAMED} more lines"] if len(bad) > MAX_NAMED else []
        raise ItemsError("; ".join([*bad[:MAX_NAMED], *more]))
    return tuple(items)


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    size, rest = 0, b""
    for piece in pieces:
        size += len(piece)
        if size > LARGEST_ITEMS:
            raise ItemsError(f"has more than {LARGEST_ITEMS} bytes")
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines
    yield rest


def _item(line: bytes) -> Any:
    if len(line) > LONGEST_LINE:
        raise ValueError(f"has {len(line)} bytes, {LONGEST_LINE} is the most")
    try:
        item = json.loads(line, parse_constant=_refused)
        # Refuses what only Python reads: numbers that become infinite, and halves of surrogate pairs.
        json.dumps(item, allow_nan=False, ensure_ascii=False).encode()
    except ValueError:
        raise ValueError("is not JSON") from None
    values = item.values() if isinstance(item, dict) else [item]
    if not values or not all(isinstance(value, str | int | float | bool) for value in values):
        raise ValueError("is no text, number, boolean, or object of these")
    return item


def _refused(constant: str) -> None:
    raise ValueError(constant)
