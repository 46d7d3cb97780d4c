"""The optional API key, read from ``Authorization: Bearer`` or ``X-API-Key``."""

from __future__ import annotations

from hmac import compare_digest

from fastapi import HTTPException, Request

from quaver.server.service import service_of


async def require_key(request: Request) -> None:
    """403 for a missing key, 401 for a wrong one, as TypeSafe answers. Without a key set, any header is fine."""
    key = service_of(request).config.api_key
    if key is None:
        return
    given = _given(request)
    if given is None:
        raise HTTPException(403, "an API key is required: send Authorization: Bearer KEY or X-API-Key: KEY")
    # Header text is the bytes that came, read as Latin-1.
    if not compare_digest(given.encode("latin-1"), key.encode()):
        raise HTTPException(401, "the API key is not valid", {"www-authenticate": "Bearer"})


def _given(request: Request) -> str | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return request.headers.get("x-api-key") or None
