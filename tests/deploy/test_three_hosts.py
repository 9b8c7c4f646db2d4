"""docs/systemd.md and production.md, followed on three machines: their commands are run, their files written.

Commands of `apt-get` are run when the root is made, since the machines reach no mirror.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.deploy.debian import PROJECT, UNITS, Machine, exposure, missing_tools, until, wheel_into
from tests.deploy.hosts import HOSTS, base, host, in_root, layer, lose, network
from tests.deploy.page import Block, sections

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(bool(missing_tools()), reason=missing_tools()),
    pytest.mark.timeout(3600),
]
_PAGE = sections(PROJECT / "docs/systemd.md")
_DAY_2 = sections(PROJECT / "docs/production.md")
_READERS = {
    "NEW-SECRET-KEY": "a-secret-key",  # the server of this test knows one pair
    "https://s3.example.com": "http://s3.example.com:9000",
    "https://alerts.example.com/hook": "http://alerts.example.com:9001/hook",
    "ACCESS-KEY": "an-access-key",
    "SECRET-KEY": "a-secret-key",
}
"""What a reader replaces, as the page says."""
_PIPELINE = """\
schema: 1
name: who
description: Says which user runs it, and takes longer than the loss of a host.
files: ["*.py"]
tasks:
  one: {type: python, script: who.py, retries: {limit: 2}}
  two: {type: python, script: who.py, retries: {limit: 2}}
"""
_TASK = """\
import getpass, time
for second in range(30):
    time.sleep(1)
print("user:", getpass.getuser())
"""
_UP = """\
python3 - <<'END'
import urllib.request
print(urllib.request.urlopen("http://127.0.0.1:9090/api/v1/query?query=up").read().decode())
END
"""


@pytest.fixture(autouse=True)
def _leaves_nothing() -> None:
    """Processes of the machines start and end in every test; all end with the machines."""


@pytest.fixture(scope="module")
def hosts() -> Iterator[dict[str, Machine]]:
    """Three hosts as the page makes them. Tests use them one after the other; the last one loses one."""
    folder = PROJECT / "build/hosts"  # not below /tmp: another pytest may tidy up there
    shutil.rmtree(folder, ignore_errors=True)
    for bucket in ("nimbus-production", "nimbus-outputs"):
        (folder / "objects" / bucket).mkdir(parents=True)
    (install,) = _PAGE["Install"]
    last = next(number for number, line in enumerate(install.lines, 1) if "--require-hashes" in line)
    of_debian = [line for line in _PAGE["Watch"][0].lines if line.startswith("apt-get")]
    made = base("\n".join([*install.lines[:last], *of_debian]), PROJECT / "requirements-worker.lock")
    with ExitStack() as stack:
        stack.enter_context(network(folder / "alerts", folder / "objects"))
        with layer(str(made), folder / "installed") as root:
            wheel = wheel_into(root)
            (root / "srv" / wheel).rename(root / "root" / wheel)
            in_root(root, "\n".join(install.lines[last:]))
        machines = {}
        for name in HOSTS:
            root = stack.enter_context(layer(f"{folder / 'installed/upper'}:{made}", folder / name))
            machines[name] = stack.enter_context(host(root, name))
        _set_up(machines)
        until("an alert arrives", (folder / "alerts").exists)
        yield machines


def test_page_sets_up_hosts_that_prometheus_and_people_see(hosts: dict[str, Machine]) -> None:
    first = hosts["nimbus1"]

    until("Prometheus reads all daemons", lambda: _up(first) == 6, 300)
    assert first.state("nimbus-backup.timer", "ActiveState") == "active"
    assert len(json.loads(_nimbus(first, "cluster workers -o json"))["workers"]) == 3


@pytest.mark.parametrize("name", HOSTS)
def test_zookeeper_server_is_replaced(hosts: dict[str, Machine], name: str) -> None:
    replace, look = _DAY_2["Replace a ZooKeeper server"]
    _follow([replace], [hosts[name]], "/")

    def modes() -> str:
        return hosts[name].shell(_prepared(look.text), "/")

    until("it follows", lambda: modes().count("follower") == 2 and modes().count("leader") == 1)
    assert "leader" in _nimbus(hosts["nimbus1"], "cluster participants")


def test_secrets_are_changed(hosts: dict[str, Machine]) -> None:
    first, all_of_them = hosts["nimbus1"], hosts.values()
    certificate, restart, keys, token, password = _DAY_2["Change secrets and certificates"]
    served = (
        "echo | openssl s_client -connect nimbus1.example.com:8470 2>/dev/null | openssl x509 -noout -serial"
    )
    before = first.shell(served, "/")

    _follow([certificate], [first], "~/cluster")
    until("the API has the new certificate", lambda: first.shell(served, "/") != before)
    _follow([restart], all_of_them, "~/cluster")
    _follow([keys], all_of_them, "~/cluster")
    until("one leads with the keys", lambda: " leader " in _nimbus(first, "cluster participants"))
    assert "is revoked" in first.shell(_prepared(token.text), "~/cluster")

    for machine in all_of_them:
        machine.run("systemctl", "stop", "nimbus-scheduler", "nimbus-worker")
    first.shell(_prepared(password.text), "~/cluster")
    copy = "scp -q /etc/nimbus/zookeeper-password {}.example.com:/etc/nimbus/"
    first.shell("\n".join(copy.format(name) for name in HOSTS[1:]), "/")
    for machine in all_of_them:
        machine.run("systemctl", "start", "nimbus-scheduler", "nimbus-worker")
    until("one leads", lambda: " leader " in _nimbus(first, "cluster participants"))


def test_run_of_another_user_survives_the_loss_of_the_leaders_host(hosts: dict[str, Machine]) -> None:
    for machine in hosts.values():
        machine.shell(f"mkdir who; cat > who/pipeline.yaml <<'END'\n{_PIPELINE}END", "~")
        machine.shell(f"cat > who/who.py <<'END'\n{_TASK}END", "~")
    first = hosts["nimbus1"]
    token = first.shell("cat ada.token", "~/cluster")
    for machine in hosts.values():
        machine.shell(f"cat > ada.token <<'END'\n{token}END", "~/cluster")
    _nimbus(first, "pipeline publish who --activate --config /etc/nimbus/nimbus.yaml")
    run = _nimbus(first, "run start who").strip()
    until("both tasks run", lambda: _states(first, run) == ["running", "running"])
    leader = _nimbus(first, "cluster leader").split()[0]

    lose(leader, hosts.pop(leader))

    left = next(iter(hosts.values()))
    until("another leads", lambda: _nimbus(left, "cluster leader || true").split()[:1] not in ([], [leader]))
    _nimbus(left, f"run watch {run}")
    assert _states(left, run) == ["succeeded", "succeeded"]
    for task in ("one", "two"):
        assert "user: etl" in _nimbus(left, f"run logs {run} {task}")


def test_zookeepers_unit_is_closed(tmp_path: Path) -> None:
    units = tmp_path / "etc/systemd/system"
    units.mkdir(parents=True)
    (units / "zookeeper.service").write_text((UNITS / "zookeeper.service").read_text())

    assert exposure(tmp_path, "zookeeper.service") <= 2.5


def _set_up(machines: dict[str, Machine]) -> None:
    first, all_of_them = [machines["nimbus1"]], machines.values()
    _follow(_PAGE["Make certificates, passwords and tokens"], first, "~")
    _follow(_PAGE["Write the configuration"], first, "~/cluster")
    start, check, backup = _PAGE["Start"]
    for block, on in ((start, all_of_them), (check, all_of_them), (backup, first)):
        _follow([block], on, "~/cluster")
    _follow(_PAGE["Watch"], first, "~/cluster")
    _follow(_PAGE["Try it"], first, "~")


def _follow(blocks: Iterable[Block], machines: Iterable[Machine], folder: str) -> None:
    """Run commands and write files, on one machine after the other."""
    for machine in machines:
        for block in blocks:
            text = block.text
            for theirs, readers in _READERS.items():
                text = text.replace(theirs, readers)
            if block.file:
                text = f"cat > {block.file} <<'END'\n{text}END\n"
            lines = [line for line in text.splitlines() if not line.startswith("apt-get")]
            machine.shell("\n".join(lines), folder)


def _prepared(commands: str) -> str:
    """Commands after those with which the page prepares a shell."""
    return "\n".join([*(line for line in _PAGE["Try it"][0].lines if line.startswith("export")), commands])


def _nimbus(machine: Machine, words: str) -> str:
    return machine.shell(_prepared(f"nimbus {words}"), "~")


def _states(machine: Machine, run: str) -> list[str]:
    return [task["state"] for task in json.loads(_nimbus(machine, f"run show {run} -o json"))["tasks"]]


def _up(machine: Machine) -> int:
    return sum(found["value"][1] == "1" for found in json.loads(machine.shell(_UP, "/"))["data"]["result"])
