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

    What was withdrawn does not come back, under whatever number it was published before its withdrawal: a
    sender may have published it twice, or a rerun have reused the attempt that made it.
    """
    known = tuple(known)
    first = {one.number: one for one in known if content_of(one) == one.number}
    changes = [(one.number, one.change) for one in known if one.change is not None]
    gone = [(current.number, current)]
    gone += [(at, first[change.withdrew]) for at, change in changes if change.withdrew in first]
    fitting = [
        number
        for number, one in first.items()
        if number < content_of(current)
        and not any(
            number < at and (one.source, one.outside) == (wrong.source, wrong.outside) for at, wrong in gone
        )
    ]
    return [first[number] for number in sorted(fitting, reverse=True)]
