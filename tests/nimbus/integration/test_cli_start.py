"""The command line without a server: fast start, help, validation, and its configuration."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from nimbus.cli.exits import CliError, Exit, of_error
from nimbus.cli.main import cli
from nimbus.client.errors import KINDS, ProblemError, UnreachableError
from nimbus.domain.errors import NimbusError
from nimbus.localstack.ports import free_port

HEAVY = ("pydantic", "boto3", "kazoo", "fastapi", "pyspark", "httpx", "rich", "yaml", "tenacity", "uvicorn")


@pytest.mark.parametrize(
    "words", [["version"], ["--help"], ["run", "start", "--help"], ["scheduler", "--help"]]
)
def test_nothing_heavy_is_imported_for_version_and_help(words: list[str]) -> None:
    script = (
        "import sys\n"
        "from nimbus.cli.main import cli\n"
        "try:\n"
        f"    cli.main({words!r}, prog_name='nimbus')\n"
        "except SystemExit as end:\n"
        f"    print([name for name in {HEAVY!r} if name in sys.modules], end.code, file=sys.stderr)\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stderr.strip() == "[] 0"
    assert done.stdout


def test_version_is_that_of_the_package() -> None:
    from importlib.metadata import version

    assert CliRunner().invoke(cli, ["version"]).stdout == f"nimbus {version('nimbus-scheduler')}\n"
    assert json.loads(CliRunner().invoke(cli, ["version", "-o", "json"]).stdout)["version"]


@pytest.mark.parametrize(
    "words",
    [
        *(
            [name]
            for name in ("up", "scheduler", "worker", "doctor", "version", "run", "pipeline", "cluster")
        ),
        *(["run", name] for name in ("start", "list", "show", "watch", "logs", "stop", "approve")),
        *(["pipeline", n] for n in ("validate", "publish", "activate", "pause", "list", "show", "remove")),
        *(["cluster", name] for name in ("participants", "leader", "status", "workers", "abdicate")),
    ],
)
def test_every_command_helps(words: list[str]) -> None:
    result = CliRunner().invoke(cli, [*words, "--help"])

    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("Usage: ")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["verison"], "version"),
        (["clutser", "status"], "cluster"),
        (["run", "strat"], "start"),
        (["run", "canel"], "stop"),
        (["pipeline", "publsh"], "publish"),
    ],
)
def test_a_mistyped_command_is_exit_2_and_says_what_was_meant(typed: list[str], meant: str) -> None:
    result = CliRunner().invoke(cli, typed)

    assert result.exit_code == 2
    assert f"Did you mean '{meant}'?" in result.stderr


def test_an_unknown_command_lists_those_there_are() -> None:
    result = CliRunner().invoke(cli, ["run", "zzz"])

    assert result.exit_code == 2
    assert "There are: start, list, show, explain, watch, logs, events, outputs, get, stop, " in result.stderr


@pytest.mark.parametrize("command", ["scheduler", "worker"])
def test_a_daemon_refuses_a_bad_configuration_with_its_place(command: str, tmp_path: Path) -> None:
    config = tmp_path / "bad.yaml"
    config.write_text("zookeeper:\n  hots: x\n")

    result = CliRunner().invoke(cli, [command, "--config", str(config)])

    assert result.exit_code == 2
    assert "bad.yaml:2" in result.stderr
    assert 'did you mean "hosts"' in result.stderr


@pytest.mark.parametrize("command", ["scheduler", "worker"])
def test_last_error_of_a_daemon_is_json_if_its_log_is(command: str, tmp_path: Path) -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    document = {
        "zookeeper": {"hosts": nowhere, "connect_timeout": "200ms"},
        "storage": {
            "bucket": "bucket",
            "endpoint_url": f"http://{nowhere}",
            "access_key_id": "key",
            "secret_access_key": "secret",
        },
        "scheduler": {"state_dir": str(tmp_path)},
        "worker": {"data": str(tmp_path)},
        "log": {"format": "json"},
    }
    config = tmp_path / "nimbus.yaml"
    config.write_text(json.dumps(document))
    words = [sys.executable, "-m", "nimbus.cli.main", command, "--config", str(config)]

    ended = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)

    lines = [json.loads(line) for line in ended.stderr.splitlines()]
    assert (ended.returncode, lines[-1]["event"]) == (6, "daemon_failed")
    assert f"no ZooKeeper server at {nowhere} answered" in lines[-1]["error"]


def test_a_daemon_without_configuration_is_a_usage_error(tmp_path: Path) -> None:
    missing = CliRunner().invoke(cli, ["scheduler"])
    absent = CliRunner().invoke(cli, ["scheduler", "--config", str(tmp_path / "absent.yaml")])

    assert (missing.exit_code, absent.exit_code) == (2, 2)
    assert "absent.yaml" in absent.stderr


def test_a_folder_without_definition_is_exit_2(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["pipeline", "validate", str(tmp_path)])

    assert result.exit_code == 2
    assert "has no pipeline.yaml" in result.stderr


class _CodedError(Exception):
    def __init__(self, code: str) -> None:
        self.code = code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CliError("x", code="x", exit_code=Exit.NOT_FOUND), 3),
        (NimbusError("x"), 70),
        (_CodedError("zookeeper_unreachable"), 6),
        (_CodedError("bucket_access_denied"), 7),
        (_CodedError("bucket_refused"), 4),
        (_CodedError("unmatched_pattern"), 2),
        (_CodedError("java_missing"), 2),
        (_CodedError("something_new"), 70),
        (ValueError("x"), None),
    ],
)
def test_each_error_of_the_house_has_an_exit_code(error: Exception, code: int | None) -> None:
    assert of_error(error) == code


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, 2), (401, 7), (403, 7), (404, 3), (409, 4), (412, 4), (413, 2), (422, 2), (429, 6), (500, 70)],
)
def test_each_http_refusal_has_an_exit_code(status: int, code: int) -> None:
    assert of_error(KINDS.get(status, ProblemError)(status, "x", "y")) == code


def test_no_answer_has_an_exit_code() -> None:
    assert of_error(UnreachableError({"http://s1": "503"})) == Exit.UNREACHABLE


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_full_disk_of_standard_output_is_told_and_is_no_defect(unbuffered: str) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "nimbus.cli.main", "version"],
            check=False, stdout=full, stderr=subprocess.PIPE, text=True,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        )  # fmt: skip

    assert done.returncode == Exit.INTERNAL
    assert done.stderr == "error: standard output, or a file: No space left on device\n"
