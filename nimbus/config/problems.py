"""Problems of a document with their places, collected so that the user sees all of them at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nimbus.domain.errors import NimbusError
from nimbus.domain.wording import Suggestion, suggested

KeyPath = tuple[str | int, ...]
"""Keys and list positions from the top of a document to a value."""

MAX_SHOWN = 50
"""Most problems in one message, so that a broken file does not flood a terminal."""
_LONGEST_SHOWN = 2000
"""Limit of one problem in a message, in characters: a definition may contain a key of megabytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem in a document."""

    file: str
    """The document's path as the user gave it; `environment` for a variable."""
    line: int | None = None
    """Counted from 1."""
    key: str = ""
    """`tasks.greet.needs[0]`; empty: the document as a whole."""
    message: str
    suggestion: str | None = None
    """The probable correct value."""

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        key = f" {self.key}:" if self.key else ""
        hint = "" if self.suggestion is None else f' (did you mean "{self.suggestion}"?)'
        text = f"{place}:{key} {self.message}{hint}"
        return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


class InvalidDocumentError(NimbusError):
    """A document is invalid. `problems` lists all problems in the order of the lines."""

    code = "invalid_document"
    exit_code = 2

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: problem.line or 0))
        lines = [str(problem) for problem in self.problems[:MAX_SHOWN]]
        if len(self.problems) > MAX_SHOWN:
            lines.append(f"... and {len(self.problems) - MAX_SHOWN} more problems")
        super().__init__("\n".join(lines))


class InvalidConfigurationError(InvalidDocumentError):
    """A daemon's configuration, from its file and its environment, is invalid."""

    code = "invalid_configuration"


class SuggestingError(ValueError):
    """A value is wrong, and the error may suggest the correct one."""

    def __init__(self, message: str, suggestion: Suggestion = None, place: KeyPath = ()) -> None:
        super().__init__(message)
        self._suggestion = suggestion
        self.place = place
        """Where the wrong part of the value is."""

    @property
    def suggestion(self) -> str | None:
        """The probable correct value."""
        return suggested(self._suggestion)


def spelled(path: KeyPath) -> str:
    """A key path as text: `tasks.greet.needs[0]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text
