"""A driver's first call for a JVM."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("pyspark.core.context")
from nimbus.worker.jvm import gateway


def test_driver_starts_its_own_jvm_when_the_kept_one_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway._of_pyspark, "launch_gateway", lambda _conf, _options: "its own")
    monkeypatch.setattr(gateway, "_ANSWER_S", 0.01)
    answer, keeper = os.pipe()
    try:
        gateway.use_kept_jvm(answer, {}, tmp_path / "jvm")

        assert gateway._of_pyspark.launch_gateway() == "its own"
    finally:
        os.close(keeper)
    assert (tmp_path / "jvm").read_text() == "its own: its kept JVM has died, or does not answer"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(answer)
