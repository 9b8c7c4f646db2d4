"""Laws of configuration: any input gives settings or our own error; written durations are read back."""

from __future__ import annotations

import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from nimbus.config import InvalidConfigurationError, load_settings
from nimbus.config.settings import settings_keys
from nimbus.config.values import format_duration, parse_duration
from tests.thorough import examples

GOOD = yaml.safe_load((Path(__file__).parents[3] / "configs" / "nimbus.example.yaml").read_text())
UNHURRIED = settings(deadline=None)
"""No deadline, because the machine may be busy."""
KEYS = sorted(settings_keys())
VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.lists(st.text(max_size=3), max_size=2)
    | st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2)
    | st.sampled_from(["1s", "0s", "3d", "/x", "http://x:1", "zk:1,zk:2/a", "local[2]", "info"])
)


def load(text: bytes, environ: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "nimbus.yaml"
        file.write_bytes(text)
        try:
            loaded = load_settings(file, environ)
        except InvalidConfigurationError as refused:
            assert refused.problems
            return
    assert set(loaded.origins) == {f"{section}.{key}" for section, key in KEYS}


@UNHURRIED
@given(st.binary(max_size=200))
def test_random_bytes_are_settings_or_refused(text: bytes) -> None:
    load(text, {})


@settings(UNHURRIED, max_examples=examples(40))
@given(
    st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=3),
    st.dictionaries(st.sampled_from(KEYS), st.text(), max_size=2),
)
def test_example_with_anything_put_anywhere_is_settings_or_refused(
    changes: dict[tuple[str, str], Any], variables: dict[tuple[str, str], str]
) -> None:
    document = {section: dict(part) for section, part in GOOD.items()}
    for (section, key), value in changes.items():
        document[section][key] = value
    environ = {f"NIMBUS__{section}__{key}".upper(): text for (section, key), text in variables.items()}

    load(yaml.safe_dump(document).encode(), environ)


@UNHURRIED
@given(st.sampled_from(sorted(GOOD)), VALUES)
def test_section_replaced_by_anything_is_settings_or_refused(section: str, value: Any) -> None:
    load(yaml.safe_dump(GOOD | {section: value}).encode(), {})


@UNHURRIED
@given(st.integers(0, 10**9).map(lambda number: timedelta(milliseconds=number)))
def test_duration_that_is_written_is_read_as_the_same(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration


@UNHURRIED
@given(st.text(max_size=20))
def test_text_is_a_duration_or_refused_as_a_value(text: str) -> None:
    try:
        assert parse_duration(text) >= timedelta(0)
    except ValueError as refused:
        assert str(refused)
