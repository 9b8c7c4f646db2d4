"""The doctor's checks of Spark targets: connection, version, permissions. None raises."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode

from nimbus.cli.findings import Finding, Level

if TYPE_CHECKING:
    from nimbus.worker.targets import SparkTarget

_DEADLINE_S = 3.0
_RIGHTS = {
    "pods": ("create", "get", "list", "watch", "delete"),
    "services": ("create", "patch"),
    "configmaps": ("create", "get", "patch"),
    "networkpolicies": ("create", "patch"),
}
"""The rights that a submission, a worker that follows it, and a driver on the worker's host need."""
_GROUPS = {"networkpolicies": "networking.k8s.io"}
"""API groups of resources; all others are in the core group."""


class _Found(NamedTuple):
    """The result for one target."""

    verdict: Level
    detail: str
    advice: str = ""


class _Answer(NamedTuple):
    """A response of an HTTP server."""

    status: int
    said: Mapping[str, Any]


def targets(found: Mapping[str, SparkTarget]) -> Iterator[Finding]:
    """Check each configured target."""
    for name, target in found.items():
        yield Finding(f"target {name}", *_look(target))


def _look(target: SparkTarget) -> _Found:
    from nimbus.worker.targets import TargetError, TargetKind

    look: dict[TargetKind, Callable[[SparkTarget], _Found]] = {
        TargetKind.LOCAL: lambda one: _Found(Level.OK, f"{one.master} on the worker's host"),
        TargetKind.CONNECT: _connect,
        TargetKind.STANDALONE: _standalone,
        TargetKind.YARN: _yarn,
        TargetKind.KUBERNETES: _kubernetes,
    }
    try:
        return look[target.kind](target)
    except TargetError as exc:
        return _Found(Level.FAIL, str(exc), "correct token_file or token_variable")


def _connect(target: SparkTarget) -> _Found:
    from nimbus.worker.connect.session import ConnectSessionError, MissingPackagesError, version_of

    try:
        version = version_of(target.plan())
    except (MissingPackagesError, ConnectSessionError) as exc:
        return _Found(Level.FAIL, str(exc), "start that server, or correct url and token of the target")
    return _judged_version(f"{target.url} answers", version)


def _standalone(target: SparkTarget) -> _Found:
    """Check every master and every REST server; one of several may be down."""
    masters = target.master.removeprefix("spark://").split(",")
    away = [master for master in masters if not _listens(master)]
    if len(away) == len(masters):
        return _Found(Level.FAIL, f"no master answers: {', '.join(away)}", "start one, or correct master")
    if not target.rest:
        return _some_away(away, f"{len(masters) - len(away)} of {len(masters)} masters answer; no rest")
    token = target.token()
    answers = {url: _get(f"{url}/v1/submissions/readyz", token) for url in target.rest}
    away += [url for url, answer in answers.items() if answer is None]
    refused = [url for url, answer in answers.items() if answer is not None and answer.status in (401, 403)]
    if refused:
        return _Found(Level.FAIL, f"{', '.join(refused)} refuse us", "correct token_file or token_variable")
    leading = [url for url, answer in answers.items() if answer is not None and answer.status == 200]
    if not leading:
        said = "; ".join(f"{url}: {_reason(answer)}" for url, answer in answers.items())
        advice = "wait for a master to lead, or set spark.master.rest.enabled on the masters"
        return _Found(Level.FAIL, f"no REST server takes drivers: {said}", advice)
    answer = answers[leading[0]]
    version = "" if answer is None else str(answer.said.get("serverSparkVersion", ""))
    found = _judged_version(f"{leading[0]} leads", version)
    return found if found.verdict is not Level.OK else _some_away(away, found.detail)


def _yarn(target: SparkTarget) -> _Found:
    folder = Path(target.env["HADOOP_CONF_DIR"])
    missing = [name for name in ("core-site.xml", "yarn-site.xml") if not (folder / name).is_file()]
    if missing:
        return _Found(Level.FAIL, f"{folder} has no {', '.join(missing)}", "correct hadoop_conf_dir")
    if not target.rest:
        return _Found(Level.OK, f"{folder}; no rest, so the ResourceManager is not asked")
    answers = {url: _get(f"{url}/ws/v1/cluster/info") for url in target.rest}
    infos = {
        url: answer.said.get("clusterInfo", {})
        for url, answer in answers.items()
        if answer is not None and answer.status == 200
    }
    active = [url for url, info in infos.items() if info.get("haState", "ACTIVE") == "ACTIVE"]
    if not active:
        said = "; ".join(f"{url}: {_reason(answer)}" for url, answer in answers.items())
        advice = "start it, or correct rest; with Kerberos it must let this user read /ws/v1/cluster"
        return _Found(Level.FAIL, f"no ResourceManager is active: {said}", advice)
    away = [url for url, answer in answers.items() if answer is None]
    known = f"{active[0]} is active, Hadoop {infos[active[0]].get('hadoopVersion', '?')}"
    found = _queue(active[0], target)
    if found.verdict is Level.FAIL:
        return _Found(found.verdict, f"{known}; {found.detail}", found.advice)
    return _some_away(away, f"{known}; {found.detail}")


def _queue(url: str, target: SparkTarget) -> _Found:
    """Check that the queue exists and that we may submit to it, if YARN reports that."""
    from nimbus.worker.application.yarn import hadoop_user, queues

    queue, user = target.conf.get("spark.yarn.queue", "default"), hadoop_user(target.env)
    answer = _get(f"{url}/ws/v1/cluster/scheduler")
    root = {} if answer is None else answer.said.get("scheduler", {}).get("schedulerInfo", {})
    names = {str(one.get(key)) for one in queues(root) for key in ("queueName", "queuePath")}
    if root.get("type") == "capacityScheduler" and queue not in names:
        return _Found(Level.FAIL, f"it has no queue {queue}", "correct spark.yarn.queue in conf")
    query = urlencode({"user": user})
    answer = _get(f"{url}/ws/v1/cluster/queues/{quote(queue, safe='')}/access?{query}")
    said = {} if answer is None else answer.said
    allowed = said.get("allowed", said.get("rmQueueAclInfo", {}).get("allowed"))
    if allowed is None:  # only administrators of the queue may ask
        return _Found(Level.OK, f"it does not tell whether {user} may submit to queue {queue}")
    if str(allowed).lower() != "true":
        advice = f"give {user} the right SUBMIT_APPLICATIONS, or correct spark.yarn.queue in conf"
        return _Found(Level.FAIL, f"{user} may not submit to queue {queue}", advice)
    return _Found(Level.OK, f"{user} may submit to queue {queue}")


def _kubernetes(target: SparkTarget) -> _Found:
    server = target.master.removeprefix("k8s://")
    server = server if "://" in server else f"https://{server}"
    token = target.token()
    try:
        verify = ssl.create_default_context(cafile=target.ca_file)
    except OSError as exc:
        return _Found(Level.FAIL, f"{target.ca_file} cannot be read: {exc}", "correct ca_file")
    answer = _get(f"{server}/version", token, verify)
    if answer is None:
        return _Found(Level.FAIL, f"{server} does not answer", "start it, or correct master and ca_file")
    if answer.status in (401, 403):
        return _Found(Level.FAIL, f"{server} refuses us: {answer.status}", "correct token_file")
    known = f"{server} answers, Kubernetes {answer.said.get('gitVersion', '?')}"
    if token is None:
        return _Found(Level.OK, f"{known}; no token_file, so rights are not asked")
    namespace = target.conf["spark.kubernetes.namespace"]
    denied = [
        f"{verb} {kind}"
        for kind, verbs in _RIGHTS.items()
        for verb in verbs
        if not _may(server, namespace, verb, kind, token, verify)
    ]
    if denied:
        advice = f"give the token's account a role in namespace {namespace} that may do this"
        return _Found(Level.FAIL, f"{known}; may not {', '.join(denied)} in {namespace}", advice)
    if _ends_with_newline(target.conf.get("spark.kubernetes.authenticate.submission.oauthTokenFile")):
        advice = "write it without one: printf %s TOKEN"
        return _Found(Level.FAIL, f"{known}; token_file ends with a newline, which Spark refuses", advice)
    return _Found(Level.OK, f"{known}; may do with {', '.join(_RIGHTS)} in {namespace} what is needed")


def _ends_with_newline(file: str | None) -> bool:
    return file is not None and Path(file).read_bytes().endswith((b"\n", b"\r"))


def _may(server: str, namespace: str, verb: str, kind: str, token: str, verify: ssl.SSLContext) -> bool:
    attributes = {"namespace": namespace, "verb": verb, "resource": kind, "group": _GROUPS.get(kind, "")}
    review = {"spec": {"resourceAttributes": attributes}}
    form = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    place = f"{server}/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    answer = _ask("POST", place, token, verify, {**form, **review})
    return answer is not None and bool(answer.said.get("status", {}).get("allowed"))


def _some_away(away: list[str], detail: str) -> _Found:
    if away:
        return _Found(Level.WARN, f"{detail}; {', '.join(away)} do not answer", "start them again")
    return _Found(Level.OK, detail)


def _judged_version(detail: str, theirs: str) -> _Found:
    from importlib.metadata import version

    ours = version("pyspark")
    if theirs.split(".")[:2] != ours.split(".")[:2]:
        advice = "install the version of PySpark that the cluster has"
        return _Found(Level.WARN, f"{detail}, Spark {theirs or '?'}; ours is {ours}", advice)
    return _Found(Level.OK, f"{detail}, Spark {theirs}")


def _reason(answer: _Answer | None) -> str:
    if answer is None:
        return "does not answer"
    return str(answer.said.get("message") or f"status {answer.status}")


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=_DEADLINE_S):
            return True
    except (OSError, OverflowError):  # the port is too high
        return False


def _get(url: str, token: str | None = None, verify: ssl.SSLContext | None = None) -> _Answer | None:
    return _ask("GET", url, token, verify, None)


def _ask(
    method: str, url: str, token: str | None, verify: ssl.SSLContext | None, body: Mapping[str, Any] | None
) -> _Answer | None:
    """Send one request. None: no answer."""
    import httpx

    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        answer = httpx.request(
            method,
            url,
            headers=headers,
            json=body,
            timeout=_DEADLINE_S,
            verify=True if verify is None else verify,
        )
    except (httpx.HTTPError, httpx.InvalidURL):
        return None
    try:
        said = answer.json()
    except ValueError:
        said = {}
    return _Answer(answer.status_code, said if isinstance(said, dict) else {})
