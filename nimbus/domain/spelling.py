"""Finds the known word closest to a misspelled one."""

from __future__ import annotations

import difflib
from bisect import bisect
from collections.abc import Callable, Iterable

Suggestion = str | Callable[[], str | None] | None
"""A suggestion, or a function that finds it when it is shown: to compare words takes long."""

_MOST_COMPARED = 500
"""Of more words, only those are compared that are nearest in the alphabet."""
_LONGEST = 200


def suggested(suggestion: Suggestion) -> str | None:
    """The suggestion itself."""
    return suggestion() if callable(suggestion) else suggestion


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word closest to `word`; None: none is close enough."""
    if len(word) > _LONGEST:
        return None
    candidates = list(known)
    if len(candidates) > _MOST_COMPARED:
        candidates.sort()
        start = max(0, bisect(candidates, word) - _MOST_COMPARED // 2)
        candidates = candidates[start : start + _MOST_COMPARED]
    found = difflib.get_close_matches(word, candidates, n=1, cutoff=0.6)
    if not found:  # NEW_YORK for new_york, maxDelay for max_delay
        plain = {_plain(candidate): candidate for candidate in candidates}
        found = [plain[match] for match in difflib.get_close_matches(_plain(word), plain, n=1, cutoff=0.6)]
    return found[0] if found else None


def _plain(word: str) -> str:
    return word.casefold().replace("_", "").replace("-", "")
