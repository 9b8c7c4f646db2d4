"""Texts without quotes that YAML reads as another value: `010` is 8, `1.10` is 1.1, `yes` is true.

One rule for pipelines and configuration. Where a text is expected, it is the text as written. Where a boolean
or a number with a fraction is expected, it is the value that YAML reads. Where any value is expected, it is
refused, because nobody can know which was meant.
"""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any

from pydantic import BeforeValidator

from nimbus.config.problems import KeyPath, SuggestingError


class Unclear(str):
    """The text as written; `value` is what YAML reads."""

    __slots__ = ("value",)

    value: bool | int | float | date

    @staticmethod
    def if_changed(text: str, value: Any) -> Any:
        """The value that YAML reads, or `Unclear` if the value is not written as the text is."""
        unclear = Unclear(text)
        unclear.value = value
        return value if text == unclear.plain else unclear

    @property
    def plain(self) -> str:
        """What YAML reads, as everybody reads it."""
        if isinstance(self.value, date):
            return "a date"
        text = str(self.value).lower()
        if isinstance(self.value, float) and "." not in text:
            return text.replace("e", ".0e")  # YAML reads 1e+16 as a text
        return text


def clear(value: Any, place: KeyPath = ()) -> Any:
    """Return a value of any type, if its parts have one meaning.

    Raises:
        SuggestingError: a part is unclear; with its place.
    """
    if isinstance(value, Unclear):
        other = "" if isinstance(value.value, date) else f", or write {value.plain}"
        raise SuggestingError(f"YAML reads {value} as {value.plain}; put it in quotes{other}", place=place)
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            clear(part, (*place, key))
    return value


def as_flag(value: object) -> object:
    """`True` and `yes` are true where a boolean is expected."""
    return value.value if isinstance(value, Unclear) and isinstance(value.value, bool) else value


def _as_number(value: object) -> object:
    return value.value if isinstance(value, Unclear) and isinstance(value.value, float) else value


Flag = Annotated[bool, BeforeValidator(as_flag)]
Number = Annotated[float, BeforeValidator(_as_number)]
"""A number that may have a fraction, such as 1.10."""
AnyValue = Annotated[Any, BeforeValidator(clear)]
