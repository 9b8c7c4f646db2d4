"""Replaces Spark's client in tests without Spark: creates the same objects, in the same order.

`spark-submit --properties-file FILE --load-spark-defaults URL`
"""

import json
import re
import ssl
import sys
import urllib.error
import urllib.request
import uuid


def main(words: list[str]) -> int:
    conf = _properties(words[words.index("--properties-file") + 1])
    name, namespace = conf["spark.kubernetes.driver.pod.name"], conf["spark.kubernetes.namespace"]
    base = f"{conf['spark.master'].removeprefix('k8s://')}/api/v1/namespaces/{namespace}"
    with open(conf["spark.kubernetes.authenticate.submission.oauthTokenFile"]) as file:  # noqa: PTH123
        token = file.read().strip()
    ca_file = conf.get("spark.kubernetes.authenticate.submission.caCertFile")
    verify = ssl.create_default_context(cafile=ca_file) if ca_file else None
    config = f"spark-drv-{uuid.uuid4().hex[:16]}-conf-map"
    container = {
        "name": "spark-kubernetes-driver",
        "image": conf["spark.kubernetes.container.image"],
        "args": ["driver", "--class", "org.apache.spark.deploy.PythonRunner", words[-1]],
        "env": [
            *({"name": key, "value": value} for key, value in _below(conf, "spark.kubernetes.driverEnv.")),
            {"name": "SPARK_DRIVER_BIND_ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ],
        "volumeMounts": [{"name": "conf", "mountPath": "/opt/spark/conf"}],
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"spark-role": "driver", **dict(_below(conf, "spark.kubernetes.driver.label."))},
            "annotations": dict(_below(conf, "spark.kubernetes.driver.annotation.")),
        },
        "spec": {
            "restartPolicy": "Never",
            "containers": [container],
            "volumes": [{"name": "conf", "configMap": {"name": config}}],
        },
    }
    made = _ask("POST", f"{base}/pods", token, verify, pod)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": made["metadata"]["uid"]}
    meta = {"name": config, "ownerReferences": [owner]}
    text = "".join(f"{key}={value}\n" for key, value in conf.items())
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"spark.properties": text}}
    _ask("PATCH", f"{base}/configmaps/{config}?fieldManager=fabric8&force=true", token, verify, body)
    return 0


def _properties(file: str) -> dict[str, str]:
    with open(file) as lines:  # noqa: PTH123
        pairs = (line.rstrip("\n").split("=", 1) for line in lines)
        return {_read(name): _read(value) for name, value in pairs}


def _read(spelled: str) -> str:
    units = re.sub(r"\\u([0-9a-f]{4})", lambda found: chr(int(found[1], 16)), spelled)
    return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def _below(conf: dict[str, str], prefix: str) -> list[tuple[str, str]]:
    return [(name.removeprefix(prefix), value) for name, value in conf.items() if name.startswith(prefix)]


def _ask(
    method: str, url: str, token: str, verify: ssl.SSLContext | None, body: dict[str, object]
) -> dict[str, dict[str, str]]:
    request = urllib.request.Request(url, json.dumps(body).encode(), method=method)
    request.add_header("Authorization", f"Bearer {token}")
    kind = "apply-patch+yaml" if method == "PATCH" else "json"
    request.add_header("Content-Type", f"application/{kind}")
    try:
        with urllib.request.urlopen(request, timeout=10, context=verify) as answer:
            found: dict[str, dict[str, str]] = json.load(answer)
            return found
    except urllib.error.HTTPError as exc:
        status = json.load(exc)
        sys.exit(
            'Exception in thread "main" io.fabric8.kubernetes.client.KubernetesClientException: Failure '
            f"executing: {method} at: {url}. Message: {status['message']}. Received status: "
            f"Status(apiVersion=v1, code={exc.code}, details=null)."
        )
    except OSError as exc:
        sys.exit(f"io.fabric8.kubernetes.client.KubernetesClientException: An error has occurred: {exc}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
