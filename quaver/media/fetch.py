"""One file from one of the allowed hosts, over http or https.

The name is looked up once, here; every address it gives is checked and the connection goes to one of those
very addresses, while TLS and the Host header keep the name. httpcore is used without httpx around it, because
it takes a network backend and knows neither proxies of the environment nor content encodings.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from ipaddress import ip_address
from typing import Any

import httpcore
import httpx

from quaver.errors import BadMedia
from quaver.media.policy import MediaPolicy

REDIRECTS = (301, 302, 303, 307, 308)
# An encoded body would have to be unpacked under the limit; media are compressed already.
HEADERS = (("User-Agent", "quaver"), ("Accept", "*/*"), ("Accept-Encoding", "identity"))

#: Lookups cannot be given a time limit, so they wait in threads that a fetch can leave behind.
_LOOKUPS = ThreadPoolExecutor(8, thread_name_prefix="quaver-lookup")


def fetch(address: str, most: int, policy: MediaPolicy) -> bytes:
    """The body at ``address``. Raises BadMedia when it may not be fetched, cannot be, or has over ``most`` bytes."""
    url = policy.check_url(address)
    ends = policy.ends or time.monotonic() + policy.fetch_seconds
    backend = _Pinned(policy, lambda: _left(ends))
    try:
        with httpcore.ConnectionPool(ssl_context=_ssl_context(), network_backend=backend) as pool:
            for _ in range(policy.redirects + 1):
                with pool.stream("GET", _for_core(url), headers=[("Host", url.netloc.decode()), *HEADERS]) as response:
                    if response.status not in REDIRECTS:
                        return _body(response, most, url.host)
                    url = policy.check_url(_target(url, response))
    except (TimeoutError, httpcore.TimeoutException) as error:
        raise BadMedia(f"{url.host} did not send the file within {policy.fetch_seconds:g} s") from error
    # The lookup cannot write every name down: UnicodeError for one with an empty or very long part.
    except (OSError, UnicodeError, httpcore.NetworkError, httpcore.ProtocolError) as error:
        raise BadMedia(f"{url.host} cannot be fetched from: {error or type(error).__name__}") from error
    raise BadMedia(f"{url.host} redirects more than {policy.redirects} times")


@lru_cache(maxsize=1)
def _ssl_context() -> ssl.SSLContext:
    return httpx.create_ssl_context()


def _for_core(url: httpx.URL) -> httpcore.URL:
    return httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)


def _target(url: httpx.URL, response: httpcore.Response) -> str:
    try:
        return str(url.join(_header(response, b"location")))
    except httpx.InvalidURL as error:
        raise BadMedia(f"{url.host} redirects to an address that cannot be read: {error}") from error


def _body(response: httpcore.Response, most: int, host: str) -> bytes:
    if response.status != 200:
        raise BadMedia(f"{host} answered {response.status} instead of sending the file")
    if (encoding := _header(response, b"content-encoding").lower()) not in ("", "identity"):
        raise BadMedia(f"{host} sent the file with content-encoding {encoding[:40]}; only identity is read")
    data = bytearray()
    for chunk in response.iter_stream():
        data += chunk
        if len(data) > most:
            raise BadMedia(f"{host} sent more than the {most} bytes that are allowed; use a smaller file")
    return bytes(data)


def _header(response: httpcore.Response, name: bytes) -> str:
    found = [value for key, value in response.headers if key.lower() == name]
    return found[-1].decode("utf-8", "replace") if found else ""


def _left(ends: float) -> float:
    """Seconds until ``ends``, or TimeoutError."""
    left = ends - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


class _Pinned(httpcore.NetworkBackend):
    """Connects to addresses that the policy allows; everything on the connection ends with the time of the fetch."""

    def __init__(self, policy: MediaPolicy, left: Callable[[], float]) -> None:
        self._policy = policy
        self._left = left
        self._sockets = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ARG002 (the fetch has one time limit in all)
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        failure: Exception = OSError(f"no address is known for {host}")
        addresses = self._addresses(host, port)
        for tried, address in enumerate(addresses):
            # An address that does not answer leaves time for those after it.
            patience = self._left() / (len(addresses) - tried)
            try:
                stream = self._sockets.connect_tcp(address, port, patience, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
            else:
                return _Timed(stream, self._left)
        raise failure

    def _addresses(self, host: str, port: int) -> list[str]:
        """Every address of ``host``; none may be used when one of them must not be."""
        lookup = _LOOKUPS.submit(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        found = list(dict.fromkeys(str(row[4][0]) for row in lookup.result(self._left())))
        for address in found:
            self._policy.check_address(host, ip_address(address))
        return found


class _Timed(httpcore.NetworkStream):
    """A stream whose every wait ends with the time of the fetch, so that a host cannot drip its reply."""

    def __init__(self, stream: httpcore.NetworkStream, left: Callable[[], float]) -> None:
        self._stream = stream
        self._left = left

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002
        return self._stream.read(max_bytes, self._left())

    def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002
        self._stream.write(buffer, self._left())

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ARG002
    ) -> httpcore.NetworkStream:
        return _Timed(self._stream.start_tls(ssl_context, server_hostname, self._left()), self._left)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

    def close(self) -> None:
        self._stream.close()
