"""Where media may come from when a request names a place instead of carrying them."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from pathlib import Path

import httpx

from quaver.errors import BadMedia, BadRequest
from quaver.media.addresses import Address, is_public

DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class MediaPolicy:
    """The hosts and the folder that text in a request may name. As it is made without arguments: none.

    ``hosts`` are ``HOST``, ``HOST:PORT`` or either with ``*.`` in front for every name below HOST; without a
    port, 80 for http and 443 for https are meant. A fetch may follow ``redirects``, and the fetches of a request
    may take ``fetch_seconds`` together; ``ends`` is set for one. ``folder`` is the one below which files may be read.
    ``allow_addresses`` names, per host, addresses that may be connected to although they are not public.
    Raises BadRequest for an entry that is not a host, and a folder that is none.
    """

    hosts: Collection[str] = ()
    folder: Path | None = None
    fetch_seconds: float = 10.0
    redirects: int = 3
    allow_addresses: Mapping[str, Collection[str]] = field(default_factory=dict)
    ends: float | None = None

    def __post_init__(self) -> None:
        for entry in self.hosts:
            _host_and_port(entry)
        if self.folder is not None and not self.folder.is_dir():
            raise BadRequest(f"{self.folder} is not a folder, so no media can be read below it")

    def begun(self) -> MediaPolicy:
        """This policy for one request, the time for its fetches running from now on."""
        return replace(self, ends=time.monotonic() + self.fetch_seconds)

    def check_url(self, text: str) -> httpx.URL:
        """``text`` as a URL that may be fetched, or BadMedia saying what is wrong with it."""
        if not self.hosts:
            raise BadMedia(
                "addresses are not fetched by this server (--allow-media-hosts names hosts that are); "
                "send the file itself, as data:<type>;base64,<data>"
            )
        try:
            url = httpx.URL(text)
        except httpx.InvalidURL as error:
            raise BadMedia(f"the address cannot be read: {error}") from error
        if url.scheme not in DEFAULT_PORTS:
            raise BadMedia(f"{url.scheme[:20]}: addresses are not fetched; use http or https")
        # "https://allowed.example@evil.example" reads like the first and leads to the second.
        if url.userinfo:
            raise BadMedia("the address carries a user name or password; media are fetched without credentials")
        if not any(_matches(entry, url) for entry in self.hosts):
            raise BadMedia(
                f"{url.netloc.decode()[:100]} is not among the hosts that this server fetches from "
                "(--allow-media-hosts); send the file itself, as data:<type>;base64,<data>"
            )
        return url

    def check_address(self, host: str, address: Address) -> None:
        """BadMedia unless ``host`` may be reached at ``address``; it is not named, names may be internal knowledge."""
        excepted = (ip_address(text) for text in self.allow_addresses.get(host, ()))
        if address not in excepted and not is_public(address):
            raise BadMedia(f"{host[:100]} is not at a public address; media are fetched from the internet only")


def _matches(entry: str, url: httpx.URL) -> bool:
    host, port = _host_and_port(entry)
    # "host." is the same name as "host", written in full (RFC 1034, 3.1).
    name, usual = url.host.rstrip(".").lower(), DEFAULT_PORTS[url.scheme]
    fits = name.endswith(host[1:]) if host.startswith("*.") else name == host
    return fits and (url.port or usual) == (port or usual)


def _host_and_port(entry: str) -> tuple[str, int | None]:
    """An entry of ``hosts`` in lower case; a leading ``*.`` stays."""
    wild = "*." if entry.startswith("*.") else ""
    try:
        # A scheme without a usual port, so that a port that is written is also seen.
        url = httpx.URL(f"host://{entry.removeprefix(wild)}")
    except httpx.InvalidURL as error:
        raise BadRequest(f"{entry!r} is not a host to fetch media from: {error}") from error
    if not url.host or {*"*%"} & {*url.host} or url.userinfo or url.raw_path not in (b"", b"/") or url.fragment:
        raise BadRequest(f"{entry!r} is not a host to fetch media from; write HOST, HOST:PORT or *.SUFFIX")
    return wild + url.host.rstrip(".").lower(), url.port
