"""The page about the answering scheduler: versions, checks, settings, tokens and grants."""

from __future__ import annotations

import platform
from collections import Counter

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from nimbus.api.asking import grants, principal
from nimbus.api.routes.access import list_tokens
from nimbus.api.routes.cluster import effective_settings
from nimbus.api.services import ApiServices
from nimbus.domain.access import AccessRole
from nimbus.web.pages import Pages


def router(services: ApiServices, pages: Pages) -> APIRouter:
    """Build the routes over `services`."""
    routes = APIRouter()

    @routes.get("/about")
    def about(request: Request, changed: bool = False) -> Response:
        asks = principal()
        is_admin = asks.role is AccessRole.ADMIN
        settings = effective_settings(services).settings if is_admin else []
        reader = services.reader
        shown = {
            "me": services.health.info(),
            "schema": services.health.schema(),
            "python": platform.python_version(),
            "schedulers": sorted(Counter(one.version for one in reader.schedulers()).items()),
            "workers": sorted(Counter(one.version for one in reader.workers()).items()),
            "checks": services.health.readiness(),
            "asks": asks,
            "is_admin": is_admin,
            "changed": changed,
            "settings": [one for one in settings if not (changed and one.default)],
            "grants": reader.settings().grants if is_admin else grants(),
            "tokens": list_tokens(services).tokens if is_admin else [],
        }
        return pages.answer(request, "about.html", shown)

    return routes
