"""Fields of forms that filter a list: a form sends empty fields as empty text."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator

from nimbus.api.requests import PipelineNameText


def none_if_empty(value: Any) -> Any:
    """The value of a filter; None if it is empty."""
    return None if value == "" else value


PipelineFilter = Annotated[PipelineNameText | None, BeforeValidator(none_if_empty)]
