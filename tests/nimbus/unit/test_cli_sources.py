"""What is refused when a pipeline's folder is validated or published."""

from __future__ import annotations

from pathlib import Path

import pytest

from nimbus.cli.exits import CliError
from nimbus.cli.sources import missing_interpreters, read_sources

PIPELINE = """\
schema: 1
name: p
dependencies: ["wheels/*.whl"]
tasks:
  t: {type: python, script: t.py}
"""


def test_two_wheels_of_one_package_are_refused(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    (tmp_path / "t.py").touch()
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "tool-1.0-py3-none-any.whl").touch()
    assert len(read_sources(tmp_path)[1]) == 3

    (tmp_path / "wheels" / "tool-2.0-py3-none-any.whl").touch()

    with pytest.raises(CliError, match=r"wheels/tool-1\.0\S* and wheels/tool-2\.0\S* are wheels of one pack"):
        read_sources(tmp_path)


def test_script_whose_interpreter_this_host_lacks_is_a_warning(tmp_path: Path) -> None:
    tasks = "tasks:\n  t: {type: shell, command: [./t.sh]}\n"
    (tmp_path / "pipeline.yaml").write_text(PIPELINE.partition("dependencies")[0] + tasks)
    script = tmp_path / "t.sh"
    script.write_text("#!/usr/bin/gone\n")
    script.chmod(0o755)
    spec, _ = read_sources(tmp_path)

    assert list(missing_interpreters(tmp_path, spec)) == [
        "warning: task t: t.sh needs /usr/bin/gone, which is not on this host"
    ]
    script.write_text("#!/bin/sh\n")
    assert list(missing_interpreters(tmp_path, spec)) == []
