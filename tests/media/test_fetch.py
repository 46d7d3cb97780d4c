"""Fetching over http: what a request can never reach, whatever it spells and wherever it is redirected.

Listeners are real. Names are resolved by a stand-in for ``socket.getaddrinfo``, which is where every lookup of the
process goes, and connections pass a stand-in for ``socket.create_connection`` that records each of them, refuses
what is no listener of the test, and routes the one public address to a listener.
"""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quaver.errors import BadMedia, BadRequest
from quaver.media import fetch as fetching
from quaver.media.policy import MediaPolicy
from quaver.media.source import read_bytes

FILE = bytes(range(256)) * 4
PUBLIC = "93.184.216.34"
NAME = "media.test"
MOST = 4096


class Listener(ThreadingHTTPServer):
    """Answers what the path asks for and keeps every request."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.port = self.server_address[1]
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.stopping = threading.Event()
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        self.stopping.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, *_: Any) -> None:
        """A client that hangs up early is what some tests are about."""


class _Handler(BaseHTTPRequestHandler):
    server: Listener
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        kind, _, rest = self.path[1:].partition("/")
        getattr(self, f"_{kind}")(rest)

    def log_message(self, *_: Any) -> None:
        """Quiet."""

    def _send(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def _file(self, _: str) -> None:
        self._send(200, FILE, Set_Cookie="session=1")

    def _size(self, length: str) -> None:
        self._send(200, b"x" * int(length))

    def _status(self, status: str) -> None:
        self._send(int(status))

    def _encoded(self, encoding: str) -> None:
        self._send(200, FILE, Content_Encoding=encoding)

    def _to(self, target: str) -> None:
        self._send(302, Location=unquote(target).encode().decode("latin-1"))

    def _hop(self, number: str) -> None:
        self._send(
            (301, 302, 303, 307, 308)[int(number)], Location=f"/hop/{int(number) - 1}" if int(number) else "/file"
        )

    def _loop(self, _: str) -> None:
        self._send(302, Location="/loop")

    def _nowhere(self, _: str) -> None:
        self._send(302)

    def _short(self, _: str) -> None:
        self._send(200, FILE[:10], Content_Length="100")
        self.close_connection = True

    def _endless(self, _: str) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while not self.server.stopping.is_set():
            self.wfile.write(b"400\r\n" + b"x" * 1024 + b"\r\n")

    def _drip(self, what: str) -> None:
        start = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" if what == "body" else b"HTTP/1.1 200 OK\r\n"
        self.wfile.write(start)
        while not self.server.stopping.wait(0.02):
            self.wfile.write(b"x")
            self.wfile.flush()

    def _silent(self, _: str) -> None:
        self.server.stopping.wait(30)


@pytest.fixture
def listener() -> Iterator[Listener]:
    server = Listener()
    yield server
    server.stop()


class Network:
    """Scripted names, recorded connections."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, listener: Listener) -> None:
        self.names: dict[str, list[list[str]]] = {NAME: [["127.0.0.1"]]}
        self.lookups: list[str] = []
        self.dialled: list[str] = []
        self._listener = listener
        self._resolve, self._connect = socket.getaddrinfo, socket.create_connection
        monkeypatch.setattr(socket, "getaddrinfo", self.resolve)
        monkeypatch.setattr(socket, "create_connection", self.connect)

    def resolve(self, host: Any, port: Any, *rest: Any, **options: Any) -> Any:
        """Scripted answers, one after the other, the last one for ever; numbers as the system reads them."""
        if host not in self.names:
            return self._resolve(host, port, *rest, **{**options, "flags": socket.AI_NUMERICHOST})
        self.lookups.append(host)
        answers = self.names[host]
        addresses = answers.pop(0) if len(answers) > 1 else answers[0]
        return [row for address in addresses for row in self._resolve(address, port, *rest, **options)]

    def connect(self, address: tuple[str, int], *rest: Any, **options: Any) -> socket.socket:
        host, port = address
        self.dialled.append(host)
        assert host in ("127.0.0.1", PUBLIC), f"connected to {host}"
        return self._connect(("127.0.0.1", self._listener.port if host == PUBLIC else port), *rest, **options)


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch, listener: Listener) -> Network:
    return Network(monkeypatch, listener)


def policy(listener: Listener, *more: str, **settings: Any) -> MediaPolicy:
    """The listener under its name, and the hosts of ``more``."""
    return MediaPolicy((f"{NAME}:{listener.port}", *more), allow_addresses={NAME: ["127.0.0.1"]}, **settings)


def get(listener: Listener, path: str, *more: str, most: int = MOST, **settings: Any) -> bytes:
    return read_bytes(f"http://{NAME}:{listener.port}/{path}", most, policy(listener, *more, **settings))


def test_a_file_of_an_allowed_host(listener: Listener, network: Network) -> None:
    assert get(listener, "file") == FILE
    assert network.lookups == [NAME]
    path, headers = listener.requests[0]
    assert path == "/file"
    assert headers == {
        "host": f"{NAME}:{listener.port}",
        "user-agent": "quaver",
        "accept": "*/*",
        "accept-encoding": "identity",
    }


#: Ways to write, or to be told, an address that must not be reached. ``{p}`` is the listener's port.
SPELLINGS = [
    # loopback as resolvers have always read it
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "2130706433",
    "0x7f000001",
    "0x7f.0x0.0x0.0x1",
    "0x7f.1",
    "017700000001",
    "00000177.1",
    "127.255.255.254",
    "0.0.0.0",
    "0",
    "0x0",
    "127。0。0。1",
    # private, shared, link-local, metadata
    "10.0.0.1",
    "10.1",
    "167772161",
    "172.16.0.1",
    "172.31.255.254",
    "192.168.0.1",
    "0xc0a80001",
    "192.168.1",
    "100.64.0.1",
    "100.100.100.200",
    "169.254.169.254",
    "2852039166",
    "0xa9fea9fe",
    "169.254.43518",
    "168.63.129.16",
    "192.0.0.192",
    # no host at all
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "198.18.0.1",
    "192.0.2.1",
    # IPv6, and IPv4 inside it
    "[::]",
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[0000:0000:0000:0000:0000:0000:0000:0001]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[0:0:0:0:0:ffff:127.0.0.1]",
    "[::ffff:169.254.169.254]",
    "[::ffff:a9fe:a9fe]",
    "[::127.0.0.1]",
    "[::ffff:0:127.0.0.1]",
    "[64:ff9b::127.0.0.1]",
    "[64:ff9b::a9fe:a9fe]",
    "[64:ff9b:1::1]",
    "[2002:7f00:1::]",
    "[2002:a9fe:a9fe::1]",
    "[2001:0:4136:e378:8000:63bf:80ff:fffe]",
    "[fc00::1]",
    "[fd00:ec2::254]",
    "[fe80::1]",
    "[fec0::1]",
    "[ff02::1]",
    "[2001:db8::1]",
    "[100::1]",
    "[4000::1]",
    # names
    "localhost",
    "loopback.test",
    "metadata.google.internal",
    "private.test",
    "mixed.test",
    "six.test",
    "mapped.test",
]
NAMES = {
    "localhost": ["127.0.0.1"],
    "loopback.test": ["127.0.0.1"],
    "metadata.google.internal": ["169.254.169.254"],
    "private.test": ["10.1.2.3"],
    "mixed.test": [PUBLIC, "192.168.7.7"],
    "six.test": ["fd12::1"],
    "mapped.test": ["::ffff:127.0.0.1"],
}


@pytest.mark.parametrize("by_redirect", [False, True], ids=["direct", "redirect"])
@pytest.mark.parametrize("host", SPELLINGS)
def test_no_spelling_reaches_an_inner_address(
    listener: Listener, network: Network, host: str, by_redirect: bool
) -> None:
    """Every host here is on the list of allowed hosts, so that the address is all that can refuse it."""
    network.names.update({name: [addresses] for name, addresses in NAMES.items()})
    place = f"{host}:{listener.port}"
    allowed = policy(listener, place)
    url = f"http://{place}/file"
    if by_redirect:
        url = f"http://{NAME}:{listener.port}/to/{url}"
    with pytest.raises(BadMedia, match="is not at a public address"):
        read_bytes(url, MOST, allowed)
    assert len(listener.requests) == by_redirect
    assert network.dialled == ["127.0.0.1"] * by_redirect


@pytest.mark.parametrize("host", [*SPELLINGS, "evil.test", f"{NAME}.evil.test", f"evil{NAME}", PUBLIC])
def test_a_redirect_to_a_host_that_is_not_allowed(listener: Listener, network: Network, host: str) -> None:
    network.names.update({name: [addresses] for name, addresses in NAMES.items()})
    with pytest.raises(BadMedia, match="is not among the hosts"):
        get(listener, f"to/http://{host}/file")
    assert len(listener.requests) == 1
    assert network.lookups == [NAME]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://evil.test/a.png", "evil.test is not among the hosts"),
        ("http://media.test/file", "media.test is not among the hosts"),  # another port
        ("https://media.test/file", "media.test is not among the hosts"),
        ("http://user@media.test:{p}/file", "user name or password"),
        ("http://user:word@media.test:{p}/file", "user name or password"),
        ("http://media.test:{p}@evil.test/file", "user name or password"),
        ("http://evil.test#@media.test:{p}/file", "evil.test is not among"),
        ("http://evil.test?@media.test:{p}/file", "evil.test is not among"),
        ("http://evil.test\\@media.test:{p}/file", "user name or password"),
        ("http://media.test:{p}\\.evil.test/file", "cannot be read"),
        ("http://media.test%2eevil.test:{p}/file", "not among the hosts"),
        ("http:///file", "not among the hosts"),
        ("http:/media.test/file", "not among the hosts"),
        ("http:media.test:{p}/file", "not among the hosts"),
        ("http://media.test:{p}/a\r\nHost: evil.test", "cannot be read"),
        ("http://media.test:99999999/", "cannot be read|not among"),
        ("http://[::1/", "cannot be read"),
        ("http://0177.0.0.1/", "cannot be read"),
        ("http://0251.0376.0251.0376/", "cannot be read"),
        ("http://①②⑦.0.0.1/", "cannot be read"),
        ("http://media.test:{p}/" + "a" * 70_000, "cannot be read"),
        ("ftp://media.test:{p}/file", "ftp: addresses are not read"),
        ("gopher://media.test:{p}/_GET", "gopher: addresses are not read"),
        ("javascript:alert(1)", "javascript: addresses are not read"),
        ("file://media.test/etc/passwd", "--allow-media-dir"),
    ],
)
def test_addresses_that_are_refused_before_any_lookup(
    listener: Listener, network: Network, url: str, message: str
) -> None:
    with pytest.raises(BadMedia, match=message):
        read_bytes(url.replace("{p}", str(listener.port)), MOST, policy(listener))
    assert (network.lookups, network.dialled, listener.requests) == ([], [], [])


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("file:///etc/passwd", "file: addresses are not fetched"),
        ("ftp://media.test/x", "ftp: addresses are not fetched"),
        ("data:image/png;base64,AAAA", "data: addresses are not fetched"),
        ("gopher://media.test/x", "gopher: addresses are not fetched"),
        ("http://user:word@media.test/file", "user name or password"),
        ("//evil.test/file", "evil.test is not among"),
        ("http://media.test:1/file", "not among the hosts"),
        ("http://[::1/file", "cannot be read"),
    ],
)
def test_redirects_that_are_not_followed(listener: Listener, network: Network, target: str, message: str) -> None:
    with pytest.raises(BadMedia, match=message):
        get(listener, f"to/{target}")
    assert len(listener.requests) == len(network.dialled) == 1


@pytest.mark.usefixtures("network")
def test_redirects_inside_the_rules_are_followed_so_often(listener: Listener) -> None:
    assert get(listener, "hop/2") == FILE
    assert [path for path, _ in listener.requests] == ["/hop/2", "/hop/1", "/hop/0", "/file"]
    with pytest.raises(BadMedia, match="redirects more than 3 times"):
        get(listener, "hop/3")
    listener.requests.clear()
    with pytest.raises(BadMedia, match="redirects more than 1 times"):
        get(listener, "loop", redirects=1)
    assert len(listener.requests) == 2


def test_a_name_is_looked_up_once_and_the_connection_goes_to_what_was_checked(
    listener: Listener, network: Network
) -> None:
    """A name that is public at first and inner afterwards; nothing but the first answer is ever used."""
    network.names["rebind.test"] = [[PUBLIC], ["127.0.0.1"]]
    place = f"rebind.test:{listener.port}"
    assert read_bytes(f"http://{place}/file", MOST, MediaPolicy((place,))) == FILE
    assert (network.lookups, network.dialled) == (["rebind.test"], [PUBLIC])
    assert listener.requests[0][1]["host"] == place
    with pytest.raises(BadMedia, match="not at a public address"):
        read_bytes(f"http://{place}/file", MOST, MediaPolicy((place,)))


def test_an_address_that_refuses_leaves_its_turn_to_the_next(
    listener: Listener, network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    network.names[NAME] = [["::1", "127.0.0.1"]]
    allowed = MediaPolicy((f"{NAME}:{listener.port}",), allow_addresses={NAME: ["127.0.0.1", "::1"]})
    connect = network.connect

    def refuse_six(address: tuple[str, int], *rest: Any, **options: Any) -> socket.socket:
        if address[0] == "::1":
            network.dialled.append("::1")
            raise ConnectionRefusedError("refused")
        return connect(address, *rest, **options)

    monkeypatch.setattr(socket, "create_connection", refuse_six)
    assert read_bytes(f"http://{NAME}:{listener.port}/file", MOST, allowed) == FILE
    assert network.dialled == ["::1", "127.0.0.1"]


@pytest.mark.usefixtures("network")
@pytest.mark.parametrize("path", ["size/4097", "endless/"])
def test_more_bytes_than_allowed(listener: Listener, path: str) -> None:
    with pytest.raises(BadMedia, match="more than the 4096 bytes"):
        get(listener, path)
    assert len(get(listener, "size/4096")) == MOST


@pytest.mark.usefixtures("network")
@pytest.mark.parametrize("path", ["silent/", "drip/headers", "drip/body"])
def test_a_host_that_takes_too_long(listener: Listener, path: str) -> None:
    with pytest.raises(BadMedia, match=r"did not send the file within 0\.3 s"):
        get(listener, path, fetch_seconds=0.3)


@pytest.mark.usefixtures("network")
def test_the_fetches_of_a_request_share_their_time(listener: Listener) -> None:
    begun = policy(listener, fetch_seconds=0.5).begun()
    assert read_bytes(f"http://{NAME}:{listener.port}/file", MOST, begun) == FILE
    for _ in range(2):
        with pytest.raises(BadMedia, match=r"within 0\.5 s"):
            read_bytes(f"http://{NAME}:{listener.port}/silent/", MOST, begun)
    # The second one was not even asked for: nothing was left of the time.
    assert [path for path, _ in listener.requests] == ["/file", "/silent/"]


def test_a_lookup_that_takes_too_long(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answer.wait(30) and [])
    with pytest.raises(BadMedia, match=r"within 0\.2 s"):
        get(listener, "file", fetch_seconds=0.2)
    answer.set()


@pytest.mark.usefixtures("network")
@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("status/404", "answered 404"),
        ("status/500", "answered 500"),
        ("status/206", "answered 206"),
        ("status/304", "answered 304"),
        ("status/204", "answered 204"),
        ("size/0", "media are empty"),
        ("encoded/gzip", "content-encoding gzip"),
        ("encoded/zstd", "content-encoding zstd"),
        ("short/", "cannot be fetched from"),
        ("nowhere/", "redirects more than"),
    ],
)
def test_replies_that_are_no_file(listener: Listener, path: str, message: str) -> None:
    with pytest.raises(BadMedia, match=message):
        get(listener, path)


@pytest.mark.parametrize("host", ["a..test", ".a.test", "a" * 64 + ".test", "a." * 200 + "test", "%00.test", "-.test"])
@pytest.mark.usefixtures("network")
def test_names_that_no_lookup_takes(host: str) -> None:
    with pytest.raises(BadMedia, match=r"test cannot be fetched from"):
        read_bytes(f"http://{host}/", MOST, MediaPolicy(("*.test",)))


def _no_connection(*_: Any, **__: Any) -> Any:
    raise OSError("there is no network here")


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    start=st.sampled_from(["http://", "https://", "HTTP:", "http:/\\", "http://u@"]),
    host=st.text(max_size=80) | st.from_regex(r"[a-z0-9.:@%\[\]/\\-]{0,80}", fullmatch=True),
    end=st.sampled_from(["", ".test", ".test:80/", ".test/\r\n", "@a.test/", "#@a.test", "?.test"])
    | st.text(max_size=20),
)
def test_whatever_is_written_ends_in_a_refusal(
    monkeypatch: pytest.MonkeyPatch, start: str, host: str, end: str
) -> None:
    real = socket.getaddrinfo

    def numbers_only(name: Any, port: Any, *rest: Any, **options: Any) -> Any:
        return real(name, port, *rest, **{**options, "flags": socket.AI_NUMERICHOST})

    with monkeypatch.context() as patched:
        patched.setattr(socket, "getaddrinfo", numbers_only)
        patched.setattr(socket, "create_connection", _no_connection)
        with pytest.raises(BadMedia):
            read_bytes(start + host + end, MOST, MediaPolicy(("*.test",)))


def test_an_unknown_name_and_a_closed_port(listener: Listener, network: Network) -> None:
    network.names["gone.test"] = [[]]
    with pytest.raises(BadMedia, match=r"gone\.test cannot be fetched from"):
        read_bytes(f"http://gone.test:{listener.port}/", MOST, policy(listener, f"gone.test:{listener.port}"))
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        place = f"{NAME}:{closed.getsockname()[1]}"
        with pytest.raises(BadMedia, match="cannot be fetched from"):
            read_bytes(f"http://{place}/", MOST, policy(listener, place))


@pytest.mark.usefixtures("network")
def test_proxies_and_credentials_of_the_environment_are_not_used(
    listener: Listener, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    netrc = tmp_path / "netrc"
    netrc.write_text(f"machine {NAME} login a password b\n")
    monkeypatch.setenv("NETRC", str(netrc))
    assert get(listener, "file") == FILE
    assert "authorization" not in listener.requests[0][1]


@pytest.mark.parametrize(
    ("entry", "fits", "others"),
    [
        (
            "Media.Test",
            ["http://media.test/", "https://media.test:443/", "http://MEDIA.TEST./"],
            ["http://a.media.test/"],
        ),
        ("media.test:8080", ["http://media.test:8080/", "https://media.test:8080/"], ["http://media.test/"]),
        (
            "*.media.test",
            ["http://a.media.test/", "http://a.b.media.test/"],
            ["http://media.test/", "http://xmedia.test/"],
        ),
        ("*.media.test:81", ["http://a.media.test:81/"], ["http://a.media.test/"]),
        ("bücher.test", ["http://bücher.test/", "http://xn--bcher-kva.test/"], ["http://bucher.test/"]),
        ("[2606:4700::1]:80", ["http://[2606:4700::1]/"], ["https://[2606:4700::1]/"]),
        ("8.8.8.8", ["http://8.8.8.8/"], ["http://134744072/", "http://8.8.8.8:81/"]),
    ],
)
def test_entries_of_the_list_of_hosts(entry: str, fits: list[str], others: list[str]) -> None:
    allowed = MediaPolicy((entry,))
    for url in fits:
        allowed.check_url(url)
    for url in others:
        with pytest.raises(BadMedia, match="not among the hosts"):
            allowed.check_url(url)


@pytest.mark.parametrize(
    "entry", ["", "*", "*.", "http://a.test", "a.test/x", "u@a.test", "a.*.test", "a.test?x", "a b", "a:x"]
)
def test_entries_that_are_no_hosts(entry: str) -> None:
    with pytest.raises(BadRequest, match="is not a host to fetch media from"):
        MediaPolicy((entry,))


@pytest.mark.skipif(not shutil.which("openssl"), reason="makes a certificate with openssl")
def test_tls_keeps_the_name(
    listener: Listener, network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The certificate is checked for the name of the URL, although the connection is made to an address."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=x"
    named = ["-addext", f"subjectAltName=DNS:{NAME}", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command.split(), *named], check=True, capture_output=True)
    seen: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.sni_callback = lambda _socket, name, _context: seen.append(name)
    listener.socket = context.wrap_socket(listener.socket, server_side=True)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    fetching._ssl_context.cache_clear()

    network.names |= {NAME: [[PUBLIC]], "other.test": [[PUBLIC]]}
    allowed = MediaPolicy((f"{NAME}:{listener.port}", f"other.test:{listener.port}"))
    try:
        assert read_bytes(f"https://{NAME}:{listener.port}/file", MOST, allowed) == FILE
        with pytest.raises(BadMedia, match=r"other\.test cannot be fetched from.*CERTIFICATE_VERIFY_FAILED"):
            read_bytes(f"https://other.test:{listener.port}/file", MOST, allowed)
    finally:
        fetching._ssl_context.cache_clear()
    assert seen == [NAME, "other.test"]
    assert len(listener.requests) == 1
