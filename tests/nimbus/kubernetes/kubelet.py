"""Replaces scheduler, kubelet and garbage collector: it starts each pod as processes of this host.

It only uses the API server, so it works with the test server and with a real one. Each pod has a group of
processes, a folder, and a loopback address. Mounts are folders below the pod's folder. It rewrites arguments
and variables that contain a path in a mount. Memory and CPU are not limited.
"""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

Object = dict[str, Any]
Command = Callable[[list[str], Mapping[str, str]], list[str]]
"""Makes the command of the image from the container's arguments and environment."""
_EVERY_S = 0.2
_MERGE = {"Content-Type": "application/merge-patch+json"}


@dataclass
class _Running:
    process: subprocess.Popen[bytes]
    folder: Path
    kill_at_s: float | None = None
    images: list[str] = field(default_factory=list)


class Kubelet:
    """One node. Thread `kubelet`; another one forks all containers, which die with it."""

    def __init__(self, root: Path, url: str, token: str, ca_file: Path | None, command: Command) -> None:
        self._root, self._command = root, command
        verify: Any = ssl.create_default_context(cafile=ca_file) if ca_file else True
        headers = {"Authorization": f"Bearer {token}"}
        self._http = httpx.Client(base_url=url, headers=headers, verify=verify, timeout=10)
        self.namespace = "nimbus"
        self.pods_at_most = 100
        """Further pods wait, unschedulable."""
        self.missing_images: set[str] = set()
        self._running: dict[str, _Running] = {}
        """By uid."""
        self._stopping = threading.Event()
        self._forks = ThreadPoolExecutor(1, "kubelet-forks")
        self._thread = threading.Thread(target=self._run, name="kubelet")
        self.started: list[str] = []
        """Names of the pods whose container was started, in order."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Kill all pods."""
        self._stopping.set()
        self._thread.join(60)
        for one in self._running.values():
            _signal(one, signal.SIGKILL)
            one.process.wait(60)
        self._forks.shutdown()
        self._http.close()

    def folder(self, name: str) -> Path:
        """Folder of the last pod with that name. It contains its container's working folder and output."""
        return max(self._root.glob(f"{name}.*"), key=lambda place: place.stat().st_mtime)

    def said(self, name: str) -> str:
        """The output of a pod's container."""
        return (self.folder(name) / "out").read_text(errors="replace")

    def _run(self) -> None:
        while not self._stopping.wait(_EVERY_S):
            with suppress(httpx.HTTPError, KeyError):  # the server is unavailable, or a pod was deleted
                self._look()

    def _get(self, what: str) -> httpx.Response:
        return self._http.get(f"/api/v1/namespaces/{self.namespace}/{what}")

    def _look(self) -> None:
        owned = {kind: self._list(kind) for kind in ("pods", "configmaps", "services")}
        pods = self._list("pods")  # read after their dependents, so that no owner is missed
        uids = {pod["metadata"]["uid"] for pod in pods}
        self._collect(owned, uids)
        for uid, one in list(self._running.items()):
            if uid not in uids:  # deleted without grace
                _signal(one, signal.SIGKILL)
                one.process.wait(60)
                del self._running[uid]
        for pod in pods:
            self._advance(pod)

    def _advance(self, pod: Object) -> None:
        uid, phase = pod["metadata"]["uid"], pod["status"].get("phase")
        one = self._running.get(uid)
        if one is not None and one.process.poll() is not None:
            _signal(one, signal.SIGKILL)  # its remaining processes
            self._report_end(pod, one.process.returncode)
            del self._running[uid]
            one = None
        if "deletionTimestamp" in pod["metadata"]:
            self._delete(pod, one)
        elif phase == "Pending" and one is None:
            if not pod["spec"].get("nodeName"):
                self._bind(pod)
            elif self._is_ready(pod):
                self._start(pod)

    def _bind(self, pod: Object) -> None:
        name = pod["metadata"]["name"]
        if len(self._running) >= self.pods_at_most:
            message = "0/1 nodes are available: 1 Insufficient cpu."
            condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
            self._write(pod, {"conditions": [{**condition, "message": message}]})
            return
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}}
        node = {"apiVersion": "v1", "kind": "Node", "name": "node-1"}
        place = f"/api/v1/namespaces/{self.namespace}/pods/{name}/binding"
        self._http.post(place, json={**binding, "target": node}).raise_for_status()

    def _is_ready(self, pod: Object) -> bool:
        """Whether its image and its mounted ConfigMaps exist."""
        container = pod["spec"]["containers"][0]
        if container["image"] in self.missing_images:
            waiting = {"reason": "ImagePullBackOff", "message": f"Back-off pulling {container['image']}"}
        elif all(self._get(f"configmaps/{name}").status_code == 200 for name in _maps(pod).values()):
            return True
        else:
            waiting = {"reason": "ContainerCreating"}
        self._write_container(pod, "Pending", {"waiting": waiting})
        return False

    def _start(self, pod: Object) -> None:
        meta, container = pod["metadata"], pod["spec"]["containers"][0]
        folder = self._root / f"{meta['name']}.{meta['uid'][:8]}"
        work = folder / "work"
        work.mkdir(parents=True)
        mounts = {
            mount["mountPath"]: self._mount(pod, folder, mount["name"])
            for mount in container.get("volumeMounts") or ()
        }

        def placed(text: str) -> str:
            for inside, outside in mounts.items():
                if text == inside or text.startswith(f"{inside}/"):
                    return f"{outside}{text[len(inside) :]}"
            return text

        address = _address(meta["uid"])
        pod["status"]["podIP"] = address
        env = {name: placed(value) for name, value in _variables(pod, container).items()}
        hosts = folder / "hosts"
        hosts.write_text(self._hosts())
        env["JAVA_TOOL_OPTIONS"] = f"-Djdk.net.hosts.file={hosts}"
        kept = {name: os.environ[name] for name in ("PATH", "NIMBUS_TEST") if name in os.environ}
        words = [placed(word) for word in container.get("args") or ()]
        command = self._command(words, env)
        with (folder / "out").open("wb") as out:
            process = self._forks.submit(
                subprocess.Popen,
                command,
                cwd=work,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**kept, "HOME": str(work), "HOSTNAME": meta["name"], **env},
                start_new_session=True,
            ).result()
        self._running[meta["uid"]] = _Running(process, folder)
        self.started.append(meta["name"])
        self._write_container(pod, "Running", {"running": {"startedAt": _now()}}, podIP=address)

    def _mount(self, pod: Object, folder: Path, volume: str) -> Path:
        place = folder / "volumes" / volume
        place.mkdir(parents=True, exist_ok=True)
        if (name := _maps(pod).get(volume)) is not None:
            for file, text in (self._get(f"configmaps/{name}").json().get("data") or {}).items():
                (place / file).write_text(text)
        return place

    def _hosts(self) -> str:
        """The cluster's DNS: the address of each headless service is that of its pod."""
        lines = ["127.0.0.1 localhost", f"127.0.0.1 {os.uname().nodename}"]
        pods = self._get("pods").json()["items"]
        for service in self._get("services").json()["items"]:
            wanted = (service["spec"].get("selector") or {}).items()
            for pod in pods:
                if wanted <= (pod["metadata"].get("labels") or {}).items():
                    name = f"{service['metadata']['name']}.{self.namespace}.svc"
                    lines.append(f"{_address(pod['metadata']['uid'])} {name}")
        return "\n".join([*lines, ""])

    def _delete(self, pod: Object, one: _Running | None) -> None:
        meta = pod["metadata"]
        if one is not None:
            if one.kill_at_s is None:
                one.kill_at_s = time.monotonic() + float(meta.get("deletionGracePeriodSeconds") or 0)
                _signal(one, signal.SIGTERM)
            elif time.monotonic() >= one.kill_at_s:
                _signal(one, signal.SIGKILL)
            return
        self._remove("pods", meta)

    def _list(self, kind: str) -> list[Object]:
        found: list[Object] = self._get(kind).raise_for_status().json()["items"]
        return found

    def _collect(self, owned: Mapping[str, list[Object]], uids: set[str]) -> None:
        """Delete objects whose owner pods do not exist any more."""
        for kind, objects in owned.items():
            for one in objects:
                owners = one["metadata"].get("ownerReferences") or ()
                gone = [owner for owner in owners if owner["kind"] == "Pod" and owner["uid"] not in uids]
                if owners and len(gone) == len(owners) and "deletionTimestamp" not in one["metadata"]:
                    self._remove(kind, one["metadata"], grace=None)

    def _remove(self, kind: str, meta: Object, grace: int | None = 0) -> None:
        body: Object = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": meta["uid"]}}
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        place = f"/api/v1/namespaces/{self.namespace}/{kind}/{meta['name']}"
        self._http.request("DELETE", place, json=body)

    def _report_end(self, pod: Object, status: int) -> None:
        code = 128 - status if status < 0 else status
        ended = {"exitCode": code, "reason": "Completed" if code == 0 else "Error", "finishedAt": _now()}
        self._write_container(pod, "Succeeded" if code == 0 else "Failed", {"terminated": ended})

    def _write_container(self, pod: Object, phase: str, state: Object, **more: object) -> None:
        container = pod["spec"]["containers"][0]
        told = {"name": container["name"], "image": container["image"], "imageID": "", "ready": False}
        status = {**told, "restartCount": 0, "state": state}
        scheduled = {"type": "PodScheduled", "status": "True"}
        self._write(pod, {"phase": phase, "conditions": [scheduled], "containerStatuses": [status], **more})

    def _write(self, pod: Object, status: Object) -> None:
        if {name: pod["status"].get(name) for name in status} == status:
            return
        place = f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}/status"
        patch = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        self._http.patch(place, json=patch, headers=_MERGE).raise_for_status()


def _maps(pod: Object) -> dict[str, str]:
    """The ConfigMap of each volume that has one."""
    return {
        volume["name"]: volume["configMap"]["name"]
        for volume in pod["spec"].get("volumes") or ()
        if "configMap" in volume
    }


def _variables(pod: Object, container: Object) -> dict[str, str]:
    """A container's environment. References to fields are followed, `$(NAME)` and `$$` replaced."""
    found: dict[str, str] = {}
    for one in container.get("env") or ():
        if "valueFrom" in one:
            value: Any = pod
            for part in one["valueFrom"]["fieldRef"]["fieldPath"].split("."):
                value = value[part]
            found[one["name"]] = str(value)
        else:
            found[one["name"]] = _expanded(one.get("value") or "", found)
    return found


def _expanded(text: str, known: Mapping[str, str]) -> str:
    result, at = "", 0
    while at < len(text):
        if text.startswith("$$", at):
            result, at = result + "$", at + 2
        elif text.startswith("$(", at) and (end := text.find(")", at)) > 0:
            name = text[at + 2 : end]
            result, at = result + known.get(name, text[at : end + 1]), end + 1
        else:
            result, at = result + text[at], at + 1
    return result


def _address(uid: str) -> str:
    number = int(uid[:4], 16)
    return f"127.9.{number >> 8}.{number % 254 + 1}"


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _signal(one: _Running, number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(one.process.pid, number)


def bootstrap_alone(words: list[str], _env: Mapping[str, str]) -> list[str]:
    """The driver's Python program without the JVM around it: for tests without Spark."""
    assert words[0] == "driver", words
    fetch = (
        "import os, sys, urllib.request as u; place, _ = u.urlretrieve(sys.argv[1], 'bootstrap.py'); "
        "os.execv(sys.executable, [sys.executable, '-I', '-u', place])"
    )
    return [sys.executable, "-I", "-u", "-c", fetch, words[-1]]


def spark_image(spark_home: Path, java_home: Path, *, without_service: bool = False) -> Command:
    """Like `entrypoint.sh` of Spark's images. Without a Service, a driver has its pod's address."""

    def command(words: list[str], env: Mapping[str, str]) -> list[str]:
        assert isinstance(env, dict)
        env |= {"SPARK_HOME": str(spark_home), "JAVA_HOME": str(java_home), "PYSPARK_PYTHON": sys.executable}
        if words[0] == "driver":
            address = env["SPARK_DRIVER_BIND_ADDRESS"]
            return [
                *(str(spark_home / "bin" / "spark-submit"), "--conf", f"spark.driver.bindAddress={address}"),
                *("--conf", f"spark.executorEnv.SPARK_DRIVER_POD_IP={address}"),
                *(("--conf", f"spark.driver.host={address}") if without_service else ()),
                *("--deploy-mode", "client", *words[1:]),
            ]
        assert words[0] == "executor", words
        options = [env[name] for name in sorted(env) if name.startswith("SPARK_JAVA_OPT_")]
        classes = f"{env.get('SPARK_CONF_DIR', '')}:{spark_home / 'jars'}/*"
        return [
            *(str(java_home / "bin" / "java"), *options, f"-Xmx{env['SPARK_EXECUTOR_MEMORY']}"),
            *("-cp", classes, "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"),
            *("--driver-url", env["SPARK_DRIVER_URL"], "--executor-id", env["SPARK_EXECUTOR_ID"]),
            *("--cores", env["SPARK_EXECUTOR_CORES"], "--app-id", env["SPARK_APPLICATION_ID"]),
            *("--hostname", env["SPARK_EXECUTOR_POD_IP"]),
            *("--resourceProfileId", env["SPARK_RESOURCE_PROFILE_ID"]),
            *("--podName", env["SPARK_EXECUTOR_POD_NAME"]),
        ]

    return command
