"""What others know of templates without Jinja: their names, what they read, and their faults."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from nimbus.domain.errors import NimbusError

INTERVAL = ("data_interval_start", "data_interval_end")
FUNCTIONS = ("days", "months", "month_start", "month_end", "week_start", "fmt")
DATES = ("ds", "ds_nodash", "logical_date", *INTERVAL, "tz", *FUNCTIONS)

ANY_FIELD = "*"
"""For an `item` whose fields are not known when its templates are checked."""
RELEASE_ROOT = "{{ release_root }}"
_RELEASE_ROOT = re.compile(r"\{\{\s*release_root\s*\}\}")
_SECRET = re.compile(r"\{\{\s*secrets\.(\w+)\s*\}\}")
_HIDDEN = re.compile(r"(?i)secret|password|token|access[.]?key")
"""Names that Spark hides by default, see `spark.redaction.regex`."""
_OF_SPARK = re.compile(r"\{\{[A-Z_]+\}\}")
"""Spark's own placeholders, such as `{{APP_ID}}`."""
_OPENING = re.compile(r"\{[{%]")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_NAME = re.compile(r"(?<![\w.])[a-z_]+\b(?!\s*=[^=])")

_LOOKUP = r"""(?<![\w.])%s\s*(?:\.\s*(?P<name>\w+)|\[\s*(?P<quote>["'])(?P<quoted>[^"']*)(?P=quote)\s*\])"""
_RESULT, _VARIABLE = re.compile(_LOOKUP % "tasks"), re.compile(_LOOKUP % "vars")

_ASKED = frozenset({"defined", "undefined", "default", "d"})
"""Tests and filters for values that may be missing."""


class TemplateFault(NamedTuple):
    """A fault in a template."""

    message: str
    suggestion: str | None = None
    line: int | None = None


class TemplateError(NimbusError):
    """A template cannot be rendered, or exceeds the limits, because of its text or its values."""

    code = "template"
    exit_code = 2

    def __init__(self, message: str, at: int | None = None) -> None:
        super().__init__(message)
        self.at = at
        """Index of the template, from 0; None: all of them together."""


def short(text: str) -> str:
    """A template, shortened for messages."""
    return repr(text if len(text) <= 80 else text[:77] + "...")


def needs_interval(text: str) -> bool:
    """True when a template uses the data interval without a test whether there is one."""
    names = names_in(text)
    return not names.isdisjoint(INTERVAL) and names.isdisjoint(_ASKED)


def variables_in(text: str) -> frozenset[str]:
    """Names of the cluster's variables that a template uses; found in the same way as in `tasks_read`."""
    return _named(_VARIABLE, text) if "vars" in text else frozenset()


def tasks_read(text: str) -> frozenset[str]:
    """Names of the tasks whose results a template reads.

    It may find too many, for example in quotes. It never finds too few, because `nimbus.templates.checking`
    accepts only the forms that this function finds.
    """
    return _named(_RESULT, text) if "tasks" in text else frozenset()


def names_in(text: str) -> frozenset[str]:
    """Words in a template's code that may be names, without attributes and quoted text."""
    codes = (_QUOTED.sub("''", code) for code in _codes(text))
    return frozenset(name for code in codes for name in _NAME.findall(code))


def is_plain(text: str) -> bool:
    """True when a text has no template."""
    return not any(opening in text for opening in ("{{", "{%", "{#"))


def kept(text: str, *, in_conf: bool = False) -> str:
    """A template that renders `{{ release_root }}` to itself.

    In `spark.conf` also `{{ secrets.NAME }}` and Spark's placeholders.
    """
    for filled_later in (_RELEASE_ROOT, _SECRET, _OF_SPARK) if in_conf else (_RELEASE_ROOT,):
        text = filled_later.sub(_quoted, text)
    return text


def _quoted(match: re.Match[str]) -> str:
    return f"{{{{ '{match[0]}' }}}}"


def needs_rendering(text: str) -> bool:
    """True when a property of Spark has a template besides what `kept` keeps."""
    return not is_plain(_OF_SPARK.sub("", _SECRET.sub("", at_release(text, ""))))


def at_release(text: str, root: str) -> str:
    """A rendered text with the path of the release on the host that runs the task."""
    return _RELEASE_ROOT.sub(lambda _: root, text) if "release_root" in text else text


def takes_secrets(name: str) -> bool:
    """True when a property of Spark may have a secret: sessions can set it, and Spark never shows it."""
    return name.startswith("spark.sql.") and _HIDDEN.search(name) is not None


def secrets_in(text: str) -> frozenset[str]:
    """The variables of secrets that a property of Spark names."""
    return frozenset(_SECRET.findall(text))


def with_secrets(text: str, environment: Mapping[str, str]) -> str:
    """A rendered property with the values of secrets. Never put the result into a file or a command line."""
    return _SECRET.sub(lambda match: environment[match[1]], text)


def names_release(text: str) -> bool:
    """True when `at_release` changes a text."""
    return _RELEASE_ROOT.search(text) is not None


def _named(lookup: re.Pattern[str], text: str) -> frozenset[str]:
    return frozenset(
        match["name"] or match["quoted"] for code in _codes(text) for match in lookup.finditer(code)
    )


def _codes(text: str) -> Iterator[str]:
    """Each `{{ ... }}` and `{% ... %}`. What is opened and never closed is searched once, not once each."""
    unclosed: set[str] = set()
    at = 0
    while len(unclosed) < 2 and (opening := _OPENING.search(text, at)) is not None:
        at, closing = opening.start() + 1, "}}" if opening[0] == "{{" else "%}"
        if closing in unclosed:
            continue
        end = text.find(closing, opening.end())
        if end < 0:
            unclosed.add(closing)
        else:
            at = end + 2
            yield text[opening.start() : at]
