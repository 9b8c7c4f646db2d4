"""The login page, and the cookies of sessions. It works without JavaScript."""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape
from urllib.parse import quote

from fastapi.responses import HTMLResponse, RedirectResponse, Response

from nimbus.access.gate import Gate, Refusal
from nimbus.access.session import MOST_BYTES, end_of
from nimbus.api.access import COOKIE, LOGIN, PLAIN_COOKIE
from nimbus.domain.access import Principal

HOME = "/ui"
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
# The pages' package is above this one, and only it knows the version of its files. A URL with another version
# gets the same file, which the browser does not cache.
_STYLE = "/ui/static/login/style.css"
_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Log in · Nimbus</title>
<link rel="stylesheet" href="{style}">
</head>
<body>
<header><span class="brand" translate="no">Nimbus</span></header>
<main>
<h1>Log in</h1>
{said}{provider}<form class="filters" method="post" action="{action}">
<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<input type="hidden" name="next" value="{after}">
<button>Log in</button>
</form>
<p class="hint">An admin makes one: <code>nimbus token create NAME --role ROLE</code></p>
</main>
</body>
</html>
"""
_PROVIDER = """\
<p><a href="{place}?next={after}">Log in with your organisation</a></p>
<p>Or with a token:</p>
"""
PROVIDER = f"{LOGIN}/provider"
CALLBACK = f"{LOGIN}/callback"
NOT_YET = Refusal(
    status=503,
    code="access_unknown",
    message="This scheduler has not read the key of sessions yet; ask again.",
    retry_after_s=2,
)
TOO_LARGE = Refusal(
    status=403,
    code="session_too_large",
    message="You are in too many groups with a role here for one cookie: an admin can name fewer of them.",
)


def login_page(after: str, refusal: Refusal | None = None, *, provider: bool) -> HTMLResponse:
    """The page. `after`: path that is shown after the login; `provider`: True: there is a provider."""
    place = local_path(after)
    offer = _PROVIDER.format(place=PROVIDER, after=escape(quote(place, safe=""))) if provider else ""
    said = "" if refusal is None else f'<p class="warn" role="alert">{escape(refusal.message)}</p>\n'
    text = _PAGE.format(style=_STYLE, said=said, action=LOGIN, after=escape(place), provider=offer)
    headers = dict(_HEADERS)
    if refusal is not None and refusal.retry_after_s is not None:
        headers["Retry-After"] = str(refusal.retry_after_s)
    return HTMLResponse(text, status_code=200 if refusal is None else refusal.status, headers=headers)


def local_path(path: str) -> str:
    """`path` if it is a page of this server, else the first page. It never leads to another server."""
    plain = path.isascii() and path.isprintable() and "\\" not in path
    return path if plain and path.startswith("/ui") else HOME


def show_next(path: str) -> Response:
    """Redirect a browser to the requested page."""
    return RedirectResponse(local_path(path), 303, headers={"Cache-Control": "no-store"})


def begin_session(done: Response, gate: Gate, found: Principal) -> Refusal | None:
    """Set a session for a principal on an answer, or return the refusal."""
    now = datetime.now(UTC)
    begun = gate.begin_session(found, now)
    if begun is None:
        return NOT_YET
    if len(begun) > MOST_BYTES:
        return TOO_LARGE
    set_session(done, gate, begun, int((end_of(found, now) - now).total_seconds()))
    return None


def set_session(response: Response, gate: Gate, value: str, max_age_s: int) -> None:
    """Set the cookie of a session; with 0 s, remove it."""
    set_cookie(response, COOKIE if gate.secure else PLAIN_COOKIE, value, max_age_s)


def set_cookie(response: Response, name: str, value: str, max_age_s: int) -> None:
    """Set a cookie that scripts cannot read. A name with `__Host-` needs TLS."""
    response.set_cookie(
        name,
        value,
        max_age=max_age_s,
        path="/",
        secure=name.startswith("__Host-"),
        httponly=True,
        samesite="lax",
    )
