"""Two teams on one cluster of real processes: neither gets at what the other has.

Each try is made by a member of the other team first, who must be denied, and then by a member of the rightful
team, who must succeed: so a try that always fails, or tries nothing, fails the test.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from click.testing import CliRunner

from nimbus.cli.main import cli
from nimbus.localstack.ports import free_port
from nimbus.localstack.s3 import S3Server

Eventually = Callable[..., None]
DENIED = (403, 404)
TEAMS = {"finance": "ada", "sales": "eve"}
WORK = (
    'echo "log of $1 $KEY"; echo rows of $1 > $NIMBUS_OUTPUT/rows.csv; echo "{\\"sum\\": 7}" > $NIMBUS_RESULT'
)


def pipelines(team: str) -> dict[str, dict[str, Any]]:
    """What a team has: all kinds of things that another one could be after."""
    make = {
        "type": "shell",
        "command": ["sh", "-ec", WORK, "make", team, f"{{{{ vars.{team}_key }}}}"],
        "secrets": {"KEY": f"{team}_db"},
        "publishes": [f"{team}_rates"],
    }
    landing = {f"{team}_rates": {}, f"{team}_landing": {"outside": True}}
    gate = {"type": "approval", "prompt": "Go?"}
    return {
        f"{team}_sums": {
            "webhook": {"secret": f"{team}_hook"},
            "datasets": landing,
            "tasks": {"make": make},
        },
        f"{team}_gate": {"tasks": dict.fromkeys(("one", "two"), gate)},
        f"{team}_fails": {
            "notify": [{"to": "ops", "on": ["failed"]}],
            "tasks": {"fail": {"type": "shell", "command": ["sh", "-c", f"echo {team}; exit 1"]}},
        },
    }


def of_another(team: str, own: str) -> dict[str, dict[str, Any]]:
    """Definitions of `own` that use what `team` has, by what they use."""
    run = {"type": "shell", "command": ["true"]}
    name = f"{own}_uses"
    return {
        "a variable": {
            "name": f"{name}_var",
            "tasks": {"x": {"type": "shell", "command": ["echo", f"{{{{ vars.{team}_key }}}}"]}},
        },
        "a dataset": {
            "name": f"{name}_data",
            "reads": {"them": {"dataset": f"{team}_rates"}},
            "tasks": {"x": {**run, "reads": ["them"]}},
        },
        "child runs": {
            "name": f"{name}_child",
            "tasks": {"x": {"type": "pipeline", "pipeline": f"{team}_sums"}},
        },
        "runs to wait for": {
            "name": f"{name}_wait",
            "tasks": {"x": {"type": "wait", "waits_for": [{"pipeline": f"{team}_sums"}], "timeout": "1h"}},
        },
        "a secret": {"name": f"{name}_secret", "tasks": {"x": {**run, "secrets": {"KEY": f"{team}_db"}}}},
        "a secret of a webhook": {
            "name": f"{name}_hook",
            "webhook": {"secret": f"{team}_hook"},
            "tasks": {"x": run},
        },
        "a name of a pipeline": {"name": f"{team}_new_of_{own}", "tasks": {"x": run}},
        "a name of a dataset": {
            "name": f"{name}_name",
            "datasets": {f"{team}_new_{own}": {}},
            "tasks": {"x": {**run, "publishes": [f"{team}_new_{own}"]}},
        },
        "a dataset to publish": {
            "name": f"{name}_publish",
            "datasets": {f"{team}_extra": {}},
            "tasks": {"x": {**run, "publishes": [f"{team}_extra"]}},
        },
    }


@dataclass
class Member:
    """A member of a team, or an admin, with a token."""

    url: str
    token: str
    config: Path
    folder: Path
    own: str = ""
    output: str = ""
    said: list[str] = field(default_factory=list)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token}", **headers}
        answer = httpx.request(method, f"{self.url}{path}", json=body, headers=headers, timeout=60)
        self.said.append(f"{method} {path}: {answer.status_code} {answer.text[:300]}")
        return answer

    def api(self, method: str, path: str, body: Any = None, **headers: str) -> bool:
        """True if the API has done it."""
        wait = "" if method == "GET" else f"{'&' if '?' in path else '?'}wait=30"
        answer = self.ask(method, f"/api/v1{path}{wait}", body, **headers)
        assert answer.is_success or answer.status_code in DENIED, self.said[-1]
        return answer.is_success

    def lists(self, path: str, name: str) -> bool:
        """True if an answer, which must be one, has a name."""
        answer = self.ask("GET", path, Accept="text/html" if path.startswith("/ui") else "*/*")
        assert answer.status_code == 200, answer.text
        return name in answer.text

    def page(self, path: str) -> bool:
        answer = self.ask("GET", f"/ui{path}")
        assert answer.status_code in (200, *DENIED), self.said[-1]
        return answer.status_code == 200

    def form(self, path: str, **fields: str) -> bool:
        headers = {"Authorization": f"Bearer {self.token}"}
        answer = httpx.post(f"{self.url}/ui{path}", data=fields, headers=headers, timeout=60)
        self.said.append(f"form {path}: {answer.status_code}")
        return answer.status_code == 303

    def cli(self, *words: str) -> bool:
        env = {"NIMBUS_TOKEN": self.token, "NIMBUS_SERVER": self.url}
        result = CliRunner(env=env).invoke(cli, list(words))
        self.said.append(f"{words}: {result.exit_code} {result.output[:300]}")
        assert result.exit_code in (0, 3, 7) or "may not use" in result.output, result.output
        self.output = result.output
        return result.exit_code == 0

    def publish(self, document: dict[str, Any]) -> bool:
        """Publish and activate a definition with the command line."""
        folder = self.folder / f"{self.own}-{document['name']}"
        folder.mkdir(exist_ok=True)
        (folder / "pipeline.yaml").write_text(yaml.safe_dump({"schema": 1, **document}))
        return self.cli("pipeline", "publish", str(folder), "--activate", "--config", str(self.config))

    def hook(self, target: str, secret: str, body: bytes = b"{}") -> bool:
        """Send a request to a webhook, signed with a secret."""
        stamp, delivery = str(int(time.time())), f"d-{len(self.said)}-{self.own}"
        text = f"{stamp}.{target}.{delivery}.".encode() + body
        signed = hmac.new(secret.encode(), text, hashlib.sha256).hexdigest()
        headers = {
            "X-Nimbus-Timestamp": stamp,
            "X-Nimbus-Delivery": delivery,
            "X-Nimbus-Signature": f"sha256={signed}",
        }
        answer = httpx.post(f"{self.url}/hooks/{target}?wait=30", content=body, headers=headers, timeout=60)
        self.said.append(f"hook {target}: {answer.status_code} {answer.text[:200]}")
        return answer.is_success

    def hears(self, topic: str, root: Member) -> bool:
        """True if a stream of events names a topic when it changes."""
        headers = {"Authorization": f"Bearer {self.token}"}
        path = f"/api/v1/events?topic={topic}&topic=pipelines"
        with httpx.stream("GET", f"{self.url}{path}", headers=headers, timeout=60) as stream:
            lines = stream.iter_lines()
            next(lines)
            name = topic.partition("/")[2]
            assert root.api("POST", f"/pipelines/{name}/pause")
            heard = [json.loads(line[6:]) for line in _until(lines, '"pipelines"') if line[:6] == "data: "]
        assert root.api("POST", f"/pipelines/{name}/activate", {})
        return any(event.get("topic") == topic for event in heard)


def _until(lines: Iterator[str], text: str) -> Iterator[str]:
    for line in lines:
        yield line
        if text in line:
            return


@contextmanager
def cluster(tmp_path: Path, s3: S3Server, bucket: str) -> Iterator[Member]:
    """A scheduler with its worker, as a process that requires tokens, and an admin."""
    port, file, tokens = free_port(), tmp_path / "nimbus.yaml", tmp_path / "tokens.json"
    secrets = tmp_path / "secrets"
    secrets.mkdir(mode=0o700)
    for team in TEAMS:
        for kind in ("db", "hook"):
            (secrets / f"{team}_{kind}").write_text(f"secret-{kind}-of-{team}")
            (secrets / f"{team}_{kind}").chmod(0o600)
    allow = {f"{team}_{kind}": [f"{team}_*"] for team in TEAMS for kind in ("db", "hook")}
    document = {
        "leadership": {"elector": "single"},
        "storage": {
            "endpoint_url": s3.endpoint_url,
            "bucket": bucket,
            "access_key_id": s3.access_key,
            "secret_access_key": s3.secret_key,
        },
        "scheduler": {"id": "s1", "port": port, "state_dir": str(tmp_path / "state")},
        "worker": {
            "data": str(tmp_path / "data"),
            "idle_jvms": 0,
            "secrets": {"provider": "file", "folder": str(secrets), "allow": allow},
        },
        "api": {"auth": "required", "tokens_file": str(tokens), "pipelines_may": "none"},
        "alerts": {"targets": {"ops": {"kind": "webhook", "url": f"http://127.0.0.1:{free_port()}/"}}},
    }
    file.write_text(yaml.safe_dump(document))
    made = CliRunner().invoke(cli, ["token", "create", "root", "--role", "admin", "--file", str(tokens)])
    root = Member(f"http://127.0.0.1:{port}", made.output.strip(), file, tmp_path)
    command = [sys.executable, "-m", "nimbus.cli.main", "scheduler", "--config", str(file)]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, env={**os.environ}, stdout=log, stderr=log)
    try:
        yield root
    finally:
        process.terminate()
        process.wait(60)


def joined(root: Member, team: str) -> Member:
    """A member of a team that has what the documentation recommends."""
    name = TEAMS[team]
    made = CliRunner(env={"NIMBUS_TOKEN": root.token, "NIMBUS_SERVER": root.url}).invoke(
        cli, ["token", "create", name, "--role", "none", "--team", team]
    )
    assert made.exit_code == 0, made.output
    for on in (f"team:{team}", f"{team}_*"):
        assert root.cli("access", "grant", team, "author", on, "--reason", "a new team"), root.output
    return Member(root.url, made.output.strip(), root.config, root.folder, team)


@dataclass
class Has:
    """What a team has, as far as only the cluster knows it."""

    run: str
    """An ended run of `TEAM_sums`."""
    gate: str
    """A live run of `TEAM_gate`."""
    other: str
    """Another one."""
    digest: str
    command: str
    at: str
    """When the run had ended."""


Try = Callable[[Member], bool]


def reads(team: str, has: Has) -> dict[str, Try]:
    """Tries to see something that a team has."""
    sums, rates, run = f"{team}_sums", f"{team}_rates", has.run
    api = {
        f"GET {path}": (lambda who, path=path: who.api("GET", path))
        for path in (
            f"/pipelines/{sums}",
            f"/pipelines/{sums}/explanation",
            f"/pipelines/{sums}/intervals",
            f"/pipelines/{sums}/releases",
            f"/pipelines/{sums}/releases/{has.digest}",
            f"/runs/{run}",
            f"/runs/{run}/explanation",
            f"/runs/{run}/timeline",
            f"/runs/{run}/reads",
            f"/runs/{run}/results",
            f"/runs/{run}/outputs",
            f"/runs/{run}/replay?at={has.at}",
            f"/runs/{run}/tasks/make/log",
            f"/runs/{run}/tasks/make/output?path=rows.csv",
            f"/datasets/{rates}",
            f"/datasets/{rates}/versions",
            f"/variables/{team}_key",
            f"/backfills/{team}-fill",
            f"/commands/{has.command}",
        )
    }
    lists = {
        f"list {path}": (lambda who, path=path, name=name: who.lists(path, name))
        for path, name in (
            ("/api/v1/pipelines", sums),
            ("/api/v1/runs", run),
            ("/api/v1/runs?state=failed", f"{team}_fails"),
            ("/api/v1/datasets", rates),
            ("/api/v1/variables", f"{team}_key"),
            ("/api/v1/backfills", f"{team}-fill"),
            ("/api/v1/commands", sums),
            ("/api/v1/alerts", f"{team}_fails"),
            ("/api/v1/whoami", f"team:{team}"),
            ("/ui/", f"{team}_fails"),
            ("/ui/pipelines", sums),
            ("/ui/runs", sums),
            ("/ui/datasets", rates),
            ("/ui/backfills", f"{team}-fill"),
            ("/ui/commands", sums),
            ("/ui/lineage", rates),
            (f"/ui/search?q={team}_g", f"{team}_gate"),
        )
    }
    pages = {
        f"page {path}": (lambda who, path=path: who.page(path))
        for path in (
            f"/pipelines/{sums}",
            f"/pipelines/{sums}/releases",
            f"/pipelines/{sums}/releases/{has.digest}",
            f"/runs/{run}",
            f"/runs/{run}/tasks/make",
            f"/runs/{run}/tasks/make/log",
            f"/datasets/{rates}",
            f"/backfills/{team}-fill",
        )
    }
    commands: dict[str, Try] = {
        f"nimbus {' '.join(words)}": (lambda who, words=words: who.cli(*words))
        for words in (
            ("pipeline", "show", sums),
            ("pipeline", "explain", sums),
            ("run", "show", run),
            ("run", "logs", run, "make"),
            ("run", "outputs", run),
            ("dataset", "show", rates),
            ("backfill", "show", f"{team}-fill"),
            ("access", "can", team, "operator", f"pipeline:{sums}"),
        )
    }
    return {**api, **lists, **pages, **commands}


def writes(team: str, has: Has) -> dict[str, Try]:
    """Tries to change something that a team has, in an order in which its own members can do all of them."""
    sums, gate, run, of_gate = f"{team}_sums", f"{team}_gate", has.run, f"/runs/{has.gate}"
    why, start = {"reason": "try"}, {"pipeline": sums}
    again = {"scope": "only", "tasks": ["make"], "reuse": run}
    fill = {"pipeline": sums, "from": "2026-02-01", "to": "2026-02-01", "every": "1d"}
    landing = f"/datasets/{team}_landing"
    calls: dict[str, tuple[str, str, Any]] = {
        "start": ("POST", "/runs", start),
        "rerun": ("POST", f"/runs/{run}/rerun", {"scope": "all"}),
        "plan a backfill": ("POST", "/backfill-plan", fill),
        "create a backfill": ("POST", "/backfills", {**fill, "id": f"{team}-more"}),
        "pause a backfill": ("POST", f"/backfills/{team}-fill/pause", why),
        "resume a backfill": ("POST", f"/backfills/{team}-fill/resume", why),
        "pause a run": ("POST", f"{of_gate}/pause", None),
        "resume a run": ("POST", f"{of_gate}/resume", None),
        "approve": ("POST", f"{of_gate}/tasks/one/approval", {**why, "approved": True}),
        "mark": ("POST", f"{of_gate}/tasks/two/mark", {**why, "state": "skipped"}),
        "pause": ("POST", f"/pipelines/{gate}/pause", None),
        "activate": ("POST", f"/pipelines/{gate}/activate", {}),
        "publish a dataset": ("POST", f"{landing}/versions", {"uri": "s3://in/1"}),
        "publish it again": ("POST", f"{landing}/versions", {"uri": "s3://in/2"}),
        "withdraw a dataset": ("POST", f"{landing}/withdraw", why),
        "set a variable": ("PUT", f"/variables/{team}_key", {"value": "8"}),
        "publish a release": ("POST", f"/pipelines/{sums}/releases", {"digest": has.digest}),
    }
    tries: dict[str, Try] = {name: (lambda who, call=call: who.api(*call)) for name, call in calls.items()}
    tries |= {
        "reuse a guessed run": lambda who: who.api(
            "POST", "/runs", {"pipeline": f"{who.own}_sums", "selection": again}
        ),
        "take up an idempotency key": lambda who: who.api(
            "POST", "/runs", start, **{"Idempotency-Key": f"key-of-{team}"}
        ),
        "form: start": lambda who: who.form(f"/pipelines/{sums}/start"),
        "form: pause": lambda who: who.form(f"/pipelines/{gate}/pause"),
        "nimbus run start": lambda who: who.cli("run", "start", sums),
        "nimbus pipeline pause": lambda who: who.cli("pipeline", "pause", gate),
        "nimbus var set": lambda who: who.cli("var", "set", f"{team}_key", "9"),
        "webhook": lambda who: who.hook(sums, f"secret-hook-of-{who.own}"),
        "webhook of a dataset": lambda who: who.hook(
            f"{sums}/datasets/{team}_landing", f"secret-hook-of-{who.own}", b'{"uri": "s3://in/3"}'
        ),
        "nimbus pipeline publish": lambda who: who.publish({"name": sums, **pipelines(team)[sums]}),
    }
    for what in of_another(team, team):
        tries[f"definition with {what}"] = lambda who, what=what: who.publish(of_another(team, who.own)[what])
    ends: dict[str, tuple[str, str, Any]] = {
        "stop a run": ("POST", f"/runs/{has.other}/stop", why),
        "remove a variable": ("DELETE", f"/variables/{team}_key", None),
        "remove a pipeline": ("DELETE", f"/pipelines/{team}_fails", None),
    }
    return {**tries, **{name: (lambda who, call=call: who.api(*call)) for name, call in ends.items()}}


def set_up(who: Member, eventually: Eventually) -> Has:
    """Give a team what it has."""
    team = who.own
    assert who.cli("var", "set", f"{team}_key", "7"), who.output
    for name, document in pipelines(team).items():
        assert who.publish({"name": name, **document}), who.output
    started = who.ask("POST", "/api/v1/runs?wait=30", {"pipeline": f"{team}_sums"}).json()
    runs = [
        who.ask("POST", "/api/v1/runs?wait=30", {"pipeline": f"{team}_{kind}"}).json()["run_id"]
        for kind in ("fails", "gate", "gate")
    ]
    fill = {"id": f"{team}-fill", "pipeline": f"{team}_gate", "from": "2026-01-01", "to": "2026-01-05"}
    assert who.api("POST", "/backfills", {**fill, "every": "1d", "max_parallel": 1}), who.said
    key = {"Idempotency-Key": f"key-of-{team}"}
    assert who.api("POST", "/runs", {"pipeline": f"{team}_sums"}, **key)

    def ended(run: str) -> bool:
        state = who.ask("GET", f"/api/v1/runs/{run}").json()["state"]
        return state in ("succeeded", "failed")

    eventually(lambda: ended(started["run_id"]) and ended(runs[0]), what="the runs have ended")
    assert who.lists(f"/api/v1/runs/{started['run_id']}", '"state":"succeeded"'), who.said[-1]
    digest = who.ask("GET", f"/api/v1/pipelines/{team}_sums").json()["release"]
    at = who.ask("GET", f"/api/v1/runs/{started['run_id']}").json()["finished_at"]
    return Has(started["run_id"], runs[1], runs[2], digest, started["command_id"], at)


def answers(root: Member) -> bool:
    try:
        return root.ask("GET", "/api/v1/leader").json()["leader"] is not None
    except (httpx.TransportError, KeyError):
        return False


@pytest.mark.thorough
def test_team_does_not_get_at_what_another_one_has(
    tmp_path: Path, s3_server: S3Server, s3_bucket: str, eventually: Eventually
) -> None:
    with cluster(tmp_path, s3_server, s3_bucket) as root:
        eventually(lambda: answers(root), what="a scheduler leads")
        members = {team: joined(root, team) for team in TEAMS}
        has = {team: set_up(who, eventually) for team, who in members.items()}
        denied, done = dict[str, bool](), dict[str, bool]()
        stranger, own = members["sales"], members["finance"]
        of = ("finance", has["finance"])
        topic = "pipeline/finance_gate"
        tries = reads(*of) | {"events": lambda who: who.hears(topic, root)} | writes(*of)
        for name, attempt in tries.items():
            denied[name] = not attempt(stranger)
            done[name] = attempt(own)
        metrics = {who.ask("GET", "/metrics").status_code for who in members.values()}

    said = [f"{who.own}: {line}" for who in members.values() for line in who.said]
    let_in = [name for name, is_denied in denied.items() if not is_denied]
    assert let_in == [], "\n".join(said)
    undone = [name for name, is_done in done.items() if not is_done]
    assert undone == [], "\n".join(said)
    assert metrics == {403}
    assert len(denied) >= 40
