"""Values as users write them (`10s`, `1.5m`), and model types that parse them.

YAML reads some texts without quotes as another value: `010` is 8, `1.10` is 1.1, `yes` is true. One rule for
pipelines and configuration: where a text is expected, it is the text as written; where a boolean or a number
with a fraction is expected, the value that YAML reads; where any value is expected, it is refused, because
nobody can know which was meant.
"""

from __future__ import annotations

import re
from datetime import date, timedelta
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

from pydantic import BeforeValidator, SecretStr, WithJsonSchema

from nimbus.config.problems import KeyPath, SuggestingError
from nimbus.domain.wording import UNITS, closest, format_size

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_QUANTITY = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)\s*([a-zA-Z]+)")
_SPLIT_AT = re.compile(r"""[\s,:'"\\]""")
_BARE = re.compile(r"[+-]?[\d.]+")
_DurationText = Annotated[
    str, WithJsonSchema({"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*(ms|s|m|h|d)\s*$"})
]
_SizeText = Annotated[
    str, WithJsonSchema({"type": "string", "pattern": rf"^\s*\d+(\.\d+)?\s*({'|'.join(UNITS)})\s*$"})
]
LONGEST = timedelta(days=3650)
LARGEST = 1 << 50

AnyEnum = TypeVar("AnyEnum", bound=Enum)


def parse_duration(value: object) -> timedelta:
    """Read a duration such as `500ms`, `10s`, `1.5m`, `2h` or `1d`.

    Raises SuggestingError: it has no unit, an unknown one, is negative, or longer than ten years.
    """
    if isinstance(value, timedelta):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise SuggestingError(f"{value} has no unit; say the unit, for example 10s", f"{value}s")
    if not isinstance(value, str):
        raise SuggestingError(f"must be a duration such as 10s or 5m, not {described(value)}")
    text = value.strip()
    if text.startswith("-"):
        raise SuggestingError(f"{text!r} is negative; a duration begins at 0s")
    match = _QUANTITY.fullmatch(text)
    if match is None:
        if _BARE.fullmatch(text):
            raise SuggestingError(f"{text!r} has no unit; say the unit, for example 10s", f"{text}s")
        raise SuggestingError(f"{text!r} is not a duration; write for example 500ms, 10s, 5m, 2h or 1d")
    number, unit = match.groups()
    if unit not in _UNITS:
        raise SuggestingError(
            f"{unit!r} is not a unit of time; use ms, s, m, h or d", _likely_unit(number, unit)
        )
    seconds = float(number) * _UNITS[unit]
    if seconds > LONGEST.total_seconds():
        raise SuggestingError(f"{text!r} is longer than ten years")
    return timedelta(seconds=seconds)


def parse_size(value: object) -> int:
    """Read a number of bytes such as `64KiB`, `512MiB` or `1.5GiB`.

    Raises SuggestingError: it is not a size, has no unit or an unknown one, or is larger than 1024 TiB.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise SuggestingError(f"{value} has no unit; say the unit, for example 512MiB")
    if not isinstance(value, str):
        raise SuggestingError(f"must be a size such as 512MiB or 2GiB, not {described(value)}")
    match = _QUANTITY.fullmatch(value.strip())
    if match is None:
        raise SuggestingError(f"{value!r} is not a size; write for example 512MiB or 2GiB")
    number, unit = match.groups()
    if unit not in UNITS:
        likely = next((known for known in UNITS if known[0] == unit[0].upper()), None)
        raise SuggestingError(
            f"{unit!r} is not a unit of size; use {', '.join(UNITS[:-1])} or {UNITS[-1]}",
            None if likely is None else f"{number}{likely}",
        )
    size = int(float(number) * 1024 ** UNITS.index(unit))
    if size > LARGEST:
        raise SuggestingError(f"{value!r} is larger than {format_size(LARGEST)}")
    return size


def size_at_least(least: int) -> BeforeValidator:
    """Accept sizes of at least `least` bytes."""

    def check(value: object) -> int:
        size = parse_size(value)
        if size < least:
            said = f"must be at least {format_size(least)}, not {format_size(size)}"
            raise SuggestingError(said, format_size(least).replace(".0 ", ""))
        return size

    return BeforeValidator(check, json_schema_input_type=_SizeText)


def format_duration(value: timedelta) -> str:
    """Write a duration so that `parse_duration` reads it: the largest unit that leaves a whole number."""
    for unit, size_s in reversed(_UNITS.items()):
        count = value / timedelta(seconds=size_s)
        if value and count == int(count):
            return f"{int(count)}{unit}"
    return f"{value.total_seconds():g}s"


def described(value: object) -> str:
    """A value for a message: its type, and the value itself if it is short."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case dict():
            return "a mapping"
        case list() | tuple():
            return "a list"
        case str():
            return repr(value) if len(value) <= 60 else repr(value[:57] + "...")
        case _:
            text = str(value)
            return text if len(text) <= 60 else f"a {type(value).__name__}"


def is_secret(annotation: Any) -> bool:
    """True if values of this type must not be shown."""
    return annotation is SecretStr or SecretStr in get_args(annotation)


def _likely_unit(number: str, unit: str) -> str | None:
    lower = unit.lower()
    likely = lower if lower in _UNITS else lower[0]
    if lower.startswith(("ms", "mil")):
        likely = "ms"
    return f"{number}{likely}" if likely in _UNITS else None


def _positive(value: object) -> timedelta:
    duration = parse_duration(value)
    if duration <= timedelta(0):
        raise SuggestingError("must be longer than 0s")
    return duration


def at_least(least: timedelta) -> BeforeValidator:
    """Accept durations that are not shorter than `least`."""

    def check(value: object) -> timedelta:
        duration = parse_duration(value)
        if duration < least:
            said = f"must be at least {format_duration(least)}, not {format_duration(duration)}"
            raise SuggestingError(said, format_duration(least))
        return duration

    return BeforeValidator(check, json_schema_input_type=_DurationText)


def folder_path(value: object) -> Path:
    """An absolute path of a folder."""
    return _path_of(value, "folder")


def spark_folder(value: object) -> Path:
    """An absolute path of a folder for Spark's and Java's own files."""
    path = folder_path(value)
    if match := _SPLIT_AT.search(str(path)):
        raise SuggestingError(
            f"{str(path)!r} must not contain {match[0]!r}: Spark or Java would use other folders; choose "
            "a path without spaces, commas, colons, quotes and backslashes"
        )
    return path


def _path_of(value: object, kind: str) -> Path:
    if isinstance(value, Path):
        return value
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise SuggestingError(f"must be the path of a {kind}, not {described(value)}")
    path = Path(value)
    if not path.is_absolute():
        raise SuggestingError(
            f"{value!r} must be an absolute path: daemons and drivers start in different folders"
        )
    return path


def one_of(kind: type[AnyEnum]) -> BeforeValidator:
    """Parse an enum member by its value."""
    by_value = {str(member.value): member for member in kind}
    return _choice(by_value)


def named(kind: type[AnyEnum]) -> BeforeValidator:
    """Parse an enum member by its name in lower case."""
    by_name = {member.name.lower(): member for member in kind}
    return _choice(by_name)


def _choice(known: dict[str, AnyEnum]) -> BeforeValidator:
    members = tuple(known.values())

    def choose(value: Any) -> AnyEnum:
        if any(value is member for member in members):
            return value  # type: ignore[no-any-return]  # a member, as just checked
        if isinstance(value, str) and value in known:
            return known[value]
        raise SuggestingError(
            f"must be one of {', '.join(known)}, not {described(value)}", partial(closest, str(value), known)
        )

    words = WithJsonSchema({"type": "string", "enum": list(known)})
    return BeforeValidator(choose, json_schema_input_type=Annotated[str, words])


Duration = Annotated[timedelta, BeforeValidator(parse_duration, json_schema_input_type=_DurationText)]
"""0s or longer."""
PositiveDuration = Annotated[timedelta, BeforeValidator(_positive, json_schema_input_type=_DurationText)]
AbsolutePath = Annotated[Path, BeforeValidator(folder_path)]
"""The absolute path of a folder."""
SparkFolder = Annotated[Path, BeforeValidator(spark_folder)]
AbsoluteFile = Annotated[Path, BeforeValidator(partial(_path_of, kind="file"))]


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

    Raises SuggestingError: a part is unclear; with its place.
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
