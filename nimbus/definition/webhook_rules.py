"""Checks of a pipeline's webhook."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from nimbus.definition.faults import Fault
from nimbus.definition.models import DefinitionModel
from nimbus.domain.spelling import closest
from nimbus.domain.webhooks import path_fault


def webhook_faults(model: DefinitionModel) -> Iterator[Fault]:
    """Faults: parameters that the pipeline does not have, or that it needs and the webhook does not give."""
    if model.webhook is None:
        return
    given = model.webhook.params
    for name, text in given.items():
        if name not in model.parameters:
            yield Fault(
                ("webhook", "params", name),
                "the pipeline has no such parameter",
                partial(closest, name, model.parameters),
            )
        elif (fault := path_fault(text)) is not None:
            yield Fault(("webhook", "params", name), fault)
    needed = sorted(
        name for name, parameter in model.parameters.items() if parameter.required and name not in given
    )
    if needed:
        yield Fault(
            ("webhook",), f"does not give {', '.join(needed)}, which has no default; add it to params"
        )
