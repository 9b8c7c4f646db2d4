"""Routes about the cluster's variables, which templates read as `vars.NAME`."""

from __future__ import annotations

from fastapi import APIRouter, Response

from nimbus.api.entity_tags import tag_with
from nimbus.api.models import CommandModel, VariableModel, VariablesModel
from nimbus.api.problems import NotFoundError
from nimbus.api.requests import VariableBody, VariableNameText
from nimbus.api.services import ApiServices
from nimbus.api.submitting import CONDITIONAL, Submit
from nimbus.domain.commands import RemoveVariable, SetVariable
from nimbus.domain.revisions import of_variable


def router(services: ApiServices, prefix: str) -> APIRouter:
    """Build the routes over `services`, below `prefix`."""
    routes = APIRouter(tags=["variables"], prefix=f"{prefix}/variables")

    @routes.get("")
    def variables() -> VariablesModel:
        """All variables, by name."""
        return VariablesModel(variables=dict(sorted(services.reader.settings().variables.items())))

    @routes.get("/{name}")
    def variable(name: VariableNameText, response: Response) -> VariableModel:
        """One variable."""
        value = services.reader.settings().variables.get(name)
        if value is None:
            raise NotFoundError("unknown_variable", f"there is no variable {name}: see `nimbus var list`.")
        tag_with(response, of_variable(name, value))
        return VariableModel(name=name, value=value)

    @routes.put("/{name}", **CONDITIONAL)
    async def set_variable(name: VariableNameText, body: VariableBody, submit: Submit) -> CommandModel:
        """Set a variable. Existing runs keep the old value."""
        return await submit(SetVariable(name=name, value=body.value))

    @routes.delete("/{name}", **CONDITIONAL)
    async def remove_variable(name: VariableNameText, submit: Submit) -> CommandModel:
        """Remove a variable. Existing runs keep its value."""
        return await submit(RemoveVariable(name=name))

    return routes
