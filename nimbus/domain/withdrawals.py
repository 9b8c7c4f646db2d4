"""Withdrawals: which earlier version takes the place of a version that was wrong. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from nimbus.domain.publications import Version


def content_of(version: Version) -> int:
    """The number under which its content was first published: a withdrawal publishes content again."""
    restored = 0 if version.change is None else version.change.restored
    return restored or version.number


def earlier(current: Version, known: Iterable[Version]) -> list[Version]:
    """Versions of a partition that can take the place of the current one, the newest first.

    Content that was itself withdrawn does not come back.
    """
    known = tuple(known)
    gone = {one.change.withdrew for one in known if one.change is not None}
    fitting = {
        one.number: one
        for one in known
        if content_of(one) == one.number < content_of(current) and one.number not in gone
    }
    return [fitting[number] for number in sorted(fitting, reverse=True)]
