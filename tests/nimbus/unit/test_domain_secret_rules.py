"""Which pipelines may use which secrets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nimbus.domain.cluster.access import SecretRules
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import PipelineName, TaskName
from nimbus.domain.pipelines.pipeline import PipelineSpec, TaskKind, TaskSpec
from nimbus.domain.pipelines.webhooks import Webhook

RULES = SecretRules({"warehouse": ["mart", "load_*"], "nobody": []})


@pytest.mark.parametrize(
    ("pipeline", "secrets", "denied"),
    [
        ("mart", ["warehouse"], None),
        ("load_orders", ["warehouse"], None),
        ("martial", ["warehouse"], "warehouse"),
        ("mart", ["nobody"], "nobody"),
        ("mart", ["unnamed", "warehouse"], "unnamed"),
        ("other", [], None),
    ],
)
def test_secrets_are_for_the_pipelines_that_are_named(
    pipeline: str, secrets: list[str], denied: str | None
) -> None:
    why = RULES.denied(PipelineName(pipeline), secrets)

    assert (why is None) == (denied is None)
    assert denied is None or f"worker.secrets.allow.{denied}" in str(why)
    assert SecretRules().denied(PipelineName(pipeline), secrets) is None


def test_definition_is_refused_for_the_secret_of_a_task_or_of_its_webhook() -> None:
    task = TaskSpec(name=TaskName("a"), kind=TaskKind.PYTHON, script="a.py", secrets={"P": "warehouse"})
    spec = PipelineSpec(name=PipelineName("mart"), tasks=(task,))
    RULES.check(spec)

    for wrong in (
        replace(spec, name=PipelineName("other")),
        replace(spec, webhook=Webhook(secret="unnamed")),
    ):
        with pytest.raises(RefusedError) as refused:
            RULES.check(wrong)
        assert refused.value.code == "secret_denied"
