"""Input from outside is a valid release, or is refused with a typed error: fast, and with little memory.

`tests/blobsync/unit/test_hostile_store.py` shows that nothing is written to the disk before.
"""

from __future__ import annotations

import json
import time
import tracemalloc
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blobsync.errors import BlobSyncError
from blobsync.names import path_fault
from blobsync.release.layout import Layout
from blobsync.release.manifest import Manifest
from blobsync.release.pack import (
    MIN_PACK_BYTES,
    FrameReader,
    check_members,
    parse_table,
    tail_bytes,
)
from tests.blobsync.hostile_samples import VALID, Case, bombs, crafted, fuzzed
from tests.thorough import examples

MAX_CPU_S = 5.0
"""Time limit of one case; most take less than a millisecond."""
MAX_BYTES = 48 << 20
"""Limit of memory for one case, in addition to its bytes."""
FUZZED = 700
"""Number of changes of each valid sample."""


def follow(case: Case) -> None:
    """Read it like the library, and check that accepted input is valid.

    Raises:
        BlobSyncError: it is refused.
    """
    match case.kind:
        case "manifest":
            manifest = Manifest.parse(case.data)
            assert Manifest(manifest.name, manifest.artifacts).canonical == case.data, str(case)
            assert manifest.digest == Manifest(manifest.name, manifest.artifacts).digest
            assert all(path_fault(item.path) is None for item in manifest.artifacts), str(case)
        case "layout":
            layout = Layout.parse(case.data)
            assert Layout.parse(layout.encode()) == layout, str(case)
        case "pack":
            _follow_pack(case.data)
        case other:
            raise AssertionError(other)


def _follow_pack(pack: bytes) -> None:
    table = parse_table(len(pack), pack[-tail_bytes(len(pack), pack[-MIN_PACK_BYTES:]) :])
    reader = FrameReader()
    for frame in table.frames:
        stored = memoryview(pack)[frame.start : frame.start + frame.stored_bytes]
        check_members(table, frame, reader.raw(frame, stored))


def is_refused(case: Case) -> bool:
    """Whether it is refused. Fails the test if that takes too long, or if the error is not ours."""
    began = time.thread_time()
    try:
        follow(case)
    except BlobSyncError as exc:
        assert len(str(exc)) < 3000, "an error must not repeat its input"
        return True
    except Exception as exc:
        raise AssertionError(f"{type(exc).__name__} ({exc}) for {case}") from exc
    finally:
        took_s = time.thread_time() - began
        assert took_s < MAX_CPU_S, f"{took_s} s for {case}"
    return False


@pytest.mark.parametrize("case", VALID, ids=lambda case: f"{case.kind} {case.what}")
def test_valid_one_is_followed(case: Case) -> None:
    assert not is_refused(case)


def test_at_least_a_thousand_malformed_ones_are_refused() -> None:
    refused: Counter[str] = Counter()
    for case in crafted():
        assert is_refused(case), str(case)
        refused["crafted"] += 1
    for valid in VALID:
        for seed in range(FUZZED):
            refused[valid.kind] += is_refused(fuzzed(valid, seed))

    assert refused["crafted"] >= 500, refused
    assert refused.total() >= 3000, refused
    assert min(refused.values()) >= 500, refused


def test_bombs_are_refused_and_take_little_memory() -> None:
    for case in bombs():
        tracemalloc.start()
        try:
            assert is_refused(case), str(case)
            assert tracemalloc.get_traced_memory()[1] < MAX_BYTES, str(case)
        finally:
            tracemalloc.stop()


def test_fuzzer_also_makes_ones_that_stay_valid() -> None:
    """Otherwise the test would only show that everything is refused."""
    for valid in VALID[:1] + VALID[2:3]:
        assert not all(is_refused(fuzzed(valid, seed)) for seed in range(FUZZED))


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def tampered(draw: st.DrawFn) -> Case:
    """A valid document with one changed value, at any depth."""
    valid = draw(st.sampled_from([case for case in VALID if case.kind != "pack"]))
    document = json.loads(valid.data)
    place = document
    key: Any = draw(st.sampled_from(sorted(place)))
    while place[key] and isinstance(place[key], dict | list) and draw(st.booleans()):
        place = place[key]
        key = draw(
            st.sampled_from(sorted(place)) if isinstance(place, dict) else st.integers(0, len(place) - 1)
        )
    place[key] = draw(json_values)
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return Case(valid.kind, "tampered", text.encode(errors="surrogatepass"))


@settings(max_examples=examples(100), deadline=None)
@given(case=tampered())
def test_document_with_another_value_anywhere_is_refused_or_sound(case: Case) -> None:
    is_refused(case)


@settings(max_examples=examples(60), deadline=None)
@given(kind=st.sampled_from(["manifest", "layout", "pack"]), data=st.binary(max_size=400))
def test_any_bytes_are_refused(kind: str, data: bytes) -> None:
    assert is_refused(Case(kind, "any bytes", data))


@settings(max_examples=examples(60), deadline=None)
@given(valid=st.sampled_from(VALID), seed=st.integers(FUZZED, 1 << 40))
def test_fuzzed_one_is_refused_or_sound(valid: Case, seed: int) -> None:
    is_refused(fuzzed(valid, seed))
