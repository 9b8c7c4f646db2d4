"""Child runs: what a task of kind `pipeline` starts, and how far it has come. Pure.

A child run is an ordinary run that names its parent. The parent's record holds one letter and one number for
each item, so its size is known from the start: MOST_ITEMS of them take a few KiB.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from math import prod
from typing import Any

from nimbus.domain.ids import PipelineName, ReleaseDigest, RunId, TaskName

LARGEST_LISTS = 4096
"""Bytes, as JSON, of the lists of one task that come from results: they stand in the run's record."""
MOST_ITEMS = 1000
"""Of one task: `max_items` cannot be above it."""
DEFAULT_MOST_ITEMS = 200
DEEPEST = 8
"""Child runs of child runs: a run without a parent has depth 0."""
MOST_AT_A_DEPTH = 20_000
"""Child runs of one depth below one run; repeated attempts are not counted. See `Parent.width`."""
SCALAR = ""
"""Key of `for_each` when it is one list: then an item is a value, not a mapping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """What a task of kind `pipeline` starts: one child run for each item."""

    pipeline: PipelineName
    release: ReleaseDigest | None = None
    """Of the child runs. In a run only: the release that was active when the run was created, if any was."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """As written: texts are templates, rendered for each child when it is created."""
    for_each: Mapping[str, tuple[Any, ...] | str] = field(default_factory=dict)
    """The items are the product of the lists. Empty: there is one child, without an item.

    A text is a template that takes a list from the result of a task: it is known when the task is ready.
    """
    max_parallel: int | None = None
    """Child runs at once; None: all."""
    max_items: int = DEFAULT_MOST_ITEMS

    def with_lists(self, lists: Mapping[str, tuple[Any, ...]]) -> ChildSpec:
        """The same with lists in place of the templates of these names."""
        return replace(self, for_each={**self.for_each, **lists}) if lists else self

    @property
    def templates(self) -> Mapping[str, str]:
        """Lists that are not known yet."""
        return {name: values for name, values in self.for_each.items() if isinstance(values, str)}

    @property
    def count(self) -> int:
        """How many items there are; 0 while a list is not known."""
        return 0 if self.templates else prod(len(values) for values in self.for_each.values())

    def item(self, index: int) -> Any:
        """One item: a mapping, or a value if `for_each` is one list. The last list changes fastest."""
        found = {}
        for name in reversed([*self.for_each]):
            values = self.for_each[name]
            index, place = divmod(index, len(values))
            found[name] = values[place]
        return found[SCALAR] if SCALAR in found else {name: found[name] for name in self.for_each}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """Whose child a run is."""

    run: RunId
    task: TaskName
    attempt: int
    index: int
    """Of its item, from 0."""
    depth: int
    """Of the child: 1 if the parent has no parent."""
    width: int = 1
    """How many child runs of this depth there can be: the parent's width, times all that its tasks can start.
    Where no width is above n there are at most n of them, whatever the shape of the tree, since each
    one's share, 1 / width, adds up to 1 (Kraft's inequality). So nothing has to be counted or stored.
    """


class ItemState(StrEnum):
    """Where one item stands. One letter, since a record holds many."""

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
    """How far a task has come with its items."""

    attempt: int
    began_at: datetime
    epoch: int
    """That began the attempt."""
    states: str
    """An `ItemState` for each item."""
    tried: tuple[int, ...]
    """For each item the attempt in which its last child run was created; 0: none was.

    One that has succeeded without any is that of the run which this one repeats.
    """
    lists: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Those of `for_each` that came from results. They never change."""
    width: int = 1
    """Of its child runs, see `Parent`."""
    reason: str = ""
    """Why the first item that did not succeed did not."""

    def count(self, *states: ItemState) -> int:
        """How many items are in one of `states`."""
        return sum(self.states.count(state) for state in states)

    def first(self, state: ItemState) -> int | None:
        """The first item in a state."""
        found = self.states.find(state)
        return None if found < 0 else found

    def having(self, state: ItemState) -> list[int]:
        """All items in a state."""
        return [index for index, found in enumerate(self.states) if found == state]

    def moved(self, index: int, state: ItemState, reason: str = "") -> Children:
        """One item in another state. OPEN: its child run is created."""
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
    """The next attempt: items that succeeded in an earlier one keep that. `spec`: with `lists` in it."""
    states = ItemState.WAITING * spec.count if before is None else before.states
    for state in (ItemState.FAILED, ItemState.STOPPED, ItemState.REFUSED):
        states = states.replace(state, ItemState.WAITING)
    tried = (0,) * spec.count if before is None else before.tried
    return Children(
        attempt=attempt, began_at=now, epoch=epoch, states=states, tried=tried, lists=lists, width=width
    )


def repeats(one: ChildSpec, other: ChildSpec) -> bool:
    """Whether two tasks start the same child runs, item by item. Releases and limits may differ."""
    return (one.pipeline, one.parameters, [*one.for_each.items()]) == (
        other.pipeline,
        other.parameters,
        [*other.for_each.items()],
    )


def succeeded_alone(before: Children) -> Children:
    """For a rerun: the items that succeeded need no child run of their own; no attempt has begun."""
    others = {ord(state): str(ItemState.WAITING) for state in ItemState if state is not ItemState.SUCCEEDED}
    states = before.states.translate(others)
    return replace(before, attempt=0, states=states, tried=(0,) * len(states), reason="")


def child_id(run: RunId, task: TaskName, spec: ChildSpec, attempt: int, index: int) -> RunId:
    """The id of a child run: the same for every leader, so that no two create it twice."""
    digest = sha256(f"{run}.{task}".encode()).hexdigest()[:16]
    return RunId(f"{spec.pipeline}-{digest}-{attempt}-{index}")
