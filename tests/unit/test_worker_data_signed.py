"""The bucket of outputs by signed addresses: what is refused before a scheduler is asked, what may heal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from blobsync import StoreRefusedError, StoreUnavailableError
from blobsync.log import log_all
from nimbus.worker.data import signed

ACCESS: dict[str, Any] = {
    "endpoints": ["http://127.0.0.1:9"],  # nobody listens
    "attempt": "run1.load.1",
    "pipeline": "sums",
    "release": "0" * 64,
    "token": "0",
    "nonce": "ab",
    "uri": "s3://bucket/data",
    "output": "sums/run1/load/1-ab",
    "inputs": {"load": "sums/run1/load/1-cd/manifest-ef.json"},
}


@pytest.fixture(autouse=True)
def _log() -> Any:
    yield
    log_all()  # the store drops lines below an error, in drivers


def test_file_that_one_request_cannot_carry_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signed, "LARGEST_BYTES", 3)
    file = tmp_path / "large"
    file.write_bytes(b"1234")

    with pytest.raises(StoreRefusedError, match=r"has 4 bytes.*let the task write several"):
        signed.SignedStore(ACCESS).write("k", file)


def test_scheduler_that_does_not_answer_is_worth_another_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signed, "_DOOR_PATIENCE_S", 0.0)

    with pytest.raises(StoreUnavailableError, match="no scheduler answered"):
        signed.SignedStore(ACCESS).size("k")


def test_inputs_can_be_named_and_looked_for_before_they_are_copied(tmp_path: Path) -> None:
    place = tmp_path / "copy"

    inputs = signed.CopiedInputs(ACCESS, {"load": place})

    assert (list(inputs), len(inputs)) == (["load"], 1)
    assert "load" in inputs
    assert "other" not in inputs
    place.mkdir()  # as if it were copied
    assert inputs["load"] == place
