"""API keys, read from ``Authorization: Bearer`` or ``X-API-Key``, and the tenants that they stand for."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from hmac import compare_digest
from pathlib import Path

from fastapi import HTTPException, Request

from quaver.errors import BadRequest
from quaver.questions import Request as Asked
from quaver.server.service import service_of


def keys_in(file: Path) -> tuple[str, ...]:
    """The API keys in a file, one a line. BadRequest when it cannot be read or has none."""
    try:
        keys = tuple(line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip())
    except (OSError, ValueError) as error:
        raise BadRequest(f"{file}: cannot be read as a list of API keys: {error}") from error
    # An empty file would open the server that it was meant to lock.
    if not keys:
        raise BadRequest(f"{file} has no API key in it; write one a line")
    return keys


async def require_key(request: Request) -> None:
    """403 for a missing key, 401 for a wrong one, as TypeSafe answers. Without keys set, any header is fine."""
    config = service_of(request).config
    if not config.api_keys:
        return
    given = _given(request)
    if given is None:
        raise HTTPException(403, "an API key is required: send Authorization: Bearer KEY or X-API-Key: KEY")
    # Header text is the bytes that came, read as Latin-1. All keys are compared, so that time tells nothing.
    known = [key for key in config.api_keys if compare_digest(given.encode("latin-1"), key.encode())]
    if not known:
        raise HTTPException(401, "the API key is not valid", {"www-authenticate": "Bearer"})
    # A digest, because salts live in the engine's cache and may be logged. Its length is fixed, so no salt that a
    # caller sends can make one key look like another.
    if config.salt_by_key:
        request.state.tenant = hashlib.sha256(known[0].encode()).hexdigest()


def salted(request: Request, asked: Asked) -> Asked:
    """``asked`` with the tenant of ``request`` before its salt, where the server keeps the keys' caches apart."""
    tenant = getattr(request.state, "tenant", None)
    return asked if tenant is None else replace(asked, cache_salt=f"{tenant}:{asked.cache_salt}")


def _given(request: Request) -> str | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    # Some clients send both, and Basic may be a proxy's.
    return request.headers.get("x-api-key") or None
