"""Which pipelines may use which secrets (`worker.secrets.allow`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import PipelineName
from nimbus.domain.pipeline import PipelineSpec


@dataclass(frozen=True, slots=True)
class SecretRules:
    """Checked by a scheduler when a release is published, and by a worker before each attempt."""

    allow: Mapping[str, Iterable[str]] | None = None
    """Patterns of the pipelines that may use a secret, by its name. None: each pipeline may use each secret.
    Otherwise a secret without an entry may be used by none."""

    def denied(self, pipeline: PipelineName, secrets: Iterable[str]) -> str | None:
        """Why a pipeline may not use some secrets; None: it may."""
        for secret in sorted(secrets):
            patterns = () if self.allow is None else self.allow.get(secret, ())
            if self.allow is not None and not any(fnmatchcase(pipeline, pattern) for pattern in patterns):
                return (
                    f"pipeline {pipeline} may not use secret {secret}: an operator must name the pipeline in "
                    f"worker.secrets.allow.{secret}"
                )
        return None

    def check(self, spec: PipelineSpec) -> None:
        """Check all secrets of a definition, also that of its webhook.

        Raises:
            RefusedError: it may not use one of them.
        """
        names = {name for task in spec.tasks for name in task.secrets.values()}
        if spec.webhook is not None:
            names.add(spec.webhook.secret)
        if (why := self.denied(spec.name, names)) is not None:
            raise RefusedError("secret_denied", f"{why}.")
