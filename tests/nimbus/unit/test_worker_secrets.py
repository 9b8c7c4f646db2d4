"""Secrets of tasks: their providers, and how they are removed from logs."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nimbus.bootstrap.resources import secret_provider
from nimbus.config.sections import SecretsSection
from nimbus.worker.attempt.secret_mask import Mask
from nimbus.worker.preparation import is_of_pipeline
from nimbus.worker.secrets import (
    LARGEST_BYTES,
    MAX_AT_ONCE,
    CommandProvider,
    EnvironmentProvider,
    FolderProvider,
    PlugIn,
    SecretError,
    UnknownSecretError,
    plugged_in,
    resolve,
)

VALUE = "s3cr3t-värde"
SOON = timedelta(seconds=10)


def masked(text: bytes, *values: str, size: int = 1 << 16) -> bytes:
    mask = Mask(values)
    pieces = [mask.feed(text[start : start + size]) for start in range(0, len(text), size)]
    return b"".join(pieces) + mask.rest()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_value_is_masked_however_it_is_split_over_writes(size: int) -> None:
    text = f"a {VALUE} b{VALUE}{VALUE[:5]} {VALUE}".encode()

    assert masked(text, VALUE, size=size) == f"a *** b***{VALUE[:5]} ***".encode()


def test_each_line_of_a_value_of_several_lines_is_masked() -> None:
    key = "-----BEGIN-----\nabcdefgh\nxy\n-----END-----\n"

    assert masked(f"{key}|abcdefgh|xy|".encode(), key) == b"***|***|xy|"


def test_value_that_is_short_is_left_alone() -> None:
    assert masked(b"abc abcd", "abc") == b"abc abcd"


def test_longer_of_two_values_that_begin_alike_is_masked_whole() -> None:
    for size in (1, 4, 100):
        assert masked(b"abcdef abcd abcde", "abcd", "abcdef", size=size) == b"*** *** ***e"


def test_beginning_of_a_value_is_told_when_nothing_follows() -> None:
    assert masked(b"it was s3cr3t-v", VALUE, size=3) == b"it was s3cr3t-v"


def test_end_of_a_piece_is_searched_once_however_often_values_are_in_it() -> None:
    lines = [f"{number:05d}" * 12 for number in range(400)]
    text = "".join(f"info {line}\n" for line in lines).encode()
    searched = 0

    class Counted(Mask):
        def _cut(self, data: bytes, place: int) -> int:
            nonlocal searched
            searched += 1
            return super()._cut(data, place)

    assert Counted(["\n".join(lines)]).feed(text) == b"info ***\n" * len(lines)
    assert searched == 1


@settings(deadline=None)
@given(
    text=st.text("abc", max_size=60),
    values=st.lists(st.text("abc", min_size=4, max_size=7), max_size=4),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5),
)
def test_no_value_is_told_whatever_the_pieces(text: str, values: list[str], sizes: list[int]) -> None:
    mask, rest, told = Mask(values), text.encode(), b""
    while rest:
        for size in sizes:
            told += mask.feed(rest[:size])
            rest = rest[size:]
    told += mask.rest()

    assert not any(value.encode() in told for value in values)
    assert told == masked(text.encode(), *values)


def test_folder_gives_the_content_of_a_file_that_only_its_owner_can_read(tmp_path: Path) -> None:
    place = tmp_path / "warehouse"
    place.write_text(f"{VALUE}\n")
    place.chmod(0o644)
    provider = FolderProvider(tmp_path)
    with pytest.raises(SecretError, match="chmod 600"):
        provider("warehouse")

    place.chmod(0o600)
    assert provider("warehouse") == VALUE
    with pytest.raises(UnknownSecretError, match="there is no secret other"):
        provider("other")


def test_file_that_is_no_secret_is_refused_with_its_name(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "large").write_text("x" + "ü" * LARGEST_BYTES)
    (tmp_path / "large").chmod(0o600)
    provider = FolderProvider(tmp_path)

    with pytest.raises(SecretError, match="pipe must be a file"):
        provider("pipe")
    with pytest.raises(SecretError, match="secret large has more than 65536 bytes"):
        provider("large")


def test_value_that_is_not_utf8_is_refused_since_it_could_not_be_masked() -> None:
    with pytest.raises(SecretError, match="secret a is no text"):
        resolve({"DB": "a"}, EnvironmentProvider({"NIMBUS_SECRET_a": "abcd\udcff"}))


def test_environment_gives_variables_with_a_prefix_alone() -> None:
    provider = EnvironmentProvider({"NIMBUS_SECRET_db_x": VALUE, "db": "no"})

    assert provider("db-x") == VALUE
    with pytest.raises(UnknownSecretError, match="NIMBUS_SECRET_db is not set"):
        provider("db")


def test_command_prints_the_secret_and_what_it_says_else_is_not_told() -> None:
    script = f"import sys; print({VALUE!r} + sys.argv[1])"
    assert CommandProvider((sys.executable, "-c", script), SOON)("x") == f"{VALUE}x"

    fails = f"import sys; sys.exit({VALUE!r})"
    with pytest.raises(SecretError) as told:
        CommandProvider((sys.executable, "-c", fails), SOON)("x")
    assert str(told.value).endswith("ended with 1")


def test_command_that_hangs_is_ended() -> None:
    with pytest.raises(SecretError, match=r"secret x cannot be had: .* takes longer than 0.1 s"):
        CommandProvider((sys.executable, "-c", "__import__('time').sleep(60)"), SOON / 100)("x")


def vault() -> object:
    return {"a": VALUE, "bad": 3}.__getitem__


def test_plug_in_is_a_factory_of_a_function() -> None:
    provider = plugged_in(f"{__name__}:vault")

    assert resolve({"DB": "a"}, provider) == {"DB": VALUE}
    for name, words in (("b", "there is no secret b"), ("bad", "secret bad is no text")):
        with pytest.raises(SecretError, match=words):
            resolve({"DB": name}, provider)
    with pytest.raises(SecretError, match="cannot be made"):
        plugged_in("nowhere.at.all:x")


def test_error_of_a_plug_in_tells_the_name_and_nothing_else() -> None:
    def leaks(name: str) -> str:
        raise ValueError(VALUE)

    with pytest.raises(SecretError) as told:
        resolve({"DB": "a"}, leaks)
    assert str(told.value) == "secret a cannot be had: ValueError in its provider"
    assert told.value.__suppress_context__


GATE = threading.Event()


def hanging_vault() -> Callable[[str], str]:
    def give(name: str) -> str:
        if name == "a":
            GATE.wait(60)
        return VALUE

    return give


def test_plug_in_that_hangs_is_left_behind_and_other_secrets_are_had() -> None:
    place = f"{__name__}:hanging_vault"
    hurried = secret_provider(SecretsSection(provider=place, timeout=SOON / 100), {})
    patient = secret_provider(SecretsSection(provider=place, timeout=SOON), {})
    GATE.clear()
    try:
        with pytest.raises(
            SecretError, match=r"^secret a cannot be had: its provider takes longer than 0.1 s"
        ):
            resolve({"DB": "a"}, hurried)
        assert resolve({"DB": "b"}, patient) == {"DB": VALUE}
    finally:
        _let_end(GATE)


def test_plug_in_is_asked_no_more_when_too_many_of_its_calls_hang() -> None:
    gate = threading.Event()
    provider = PlugIn(lambda _: str(gate.wait(60)), SOON / 1000)
    try:
        for _ in range(MAX_AT_ONCE):
            with pytest.raises(SecretError, match="takes longer"):
                provider("a")
        with pytest.raises(SecretError, match=f"{MAX_AT_ONCE} calls of its provider hang"):
            provider("a")
    finally:
        _let_end(gate)


def _let_end(gate: threading.Event) -> None:
    gate.set()
    for thread in threading.enumerate():
        if thread.name == "worker-secret":
            thread.join(60)


@pytest.mark.parametrize("error", [SecretError("its provider fails"), UnknownSecretError("there is none")])
def test_secret_that_cannot_be_had_says_nothing_of_the_worker_for_other_pipelines(error: SecretError) -> None:
    assert is_of_pipeline(error)


def test_task_with_secrets_is_refused_by_a_worker_that_has_none() -> None:
    assert resolve({}, None) == {}
    with pytest.raises(SecretError, match=r"see `worker\.secrets`"):
        resolve({"DB": "a"}, None)
