"""``quaver bench``: load on one or several decision servers."""

from __future__ import annotations

import secrets
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from quaver.cli.talk import console, print_json
from quaver.errors import BadRequest

if TYPE_CHECKING:
    from quaver.evaluate.bench.load import Load, Server
    from quaver.evaluate.bench.plan import Result


class Mode(StrEnum):
    closed = "closed"
    constant = "constant"
    poisson = "poisson"
    sweep = "sweep"
    saturation = "saturation"


def bench(
    servers: Annotated[
        list[str],
        typer.Argument(
            help="Addresses; a path that ends in /decisions is asked in that dialect, no path means /v1/systemone.",
            metavar="[NAME=]URL...",
        ),
    ],
    mode: Annotated[
        Mode,
        typer.Option(
            help="closed: so many requests at once. constant, poisson: requests at --rate, answered or not. "
            "sweep: 1, 2, 4, ... at once. saturation: searches the highest rate that is kept up with."
        ),
    ] = Mode.closed,
    concurrency: Annotated[int, typer.Option(min=1, help="Requests at once; the most of a sweep.")] = 8,
    rate: Annotated[float, typer.Option(min=0.01, help="Requests per second; where a saturation search begins.")] = 1.0,
    slowest: Annotated[float, typer.Option(min=0, help="Seconds that p95 may take while a server keeps up.")] = 1.0,
    step: Annotated[
        float, typer.Option(min=0, help="Seconds that a step of a saturation search lasts at least.")
    ] = 10.0,
    requests: Annotated[int, typer.Option(min=1, help="Counted requests per server and level.")] = 200,
    rounds: Annotated[int, typer.Option(min=1, help="Parts they are sent in, servers in random order.")] = 4,
    warmup: Annotated[int, typer.Option(min=0, help="Requests per server before counting begins.")] = 20,
    new_states: Annotated[float, typer.Option(min=0, max=1, help="Share of states never sent before.")] = 0.5,
    shared_schemas: Annotated[float, typer.Option(min=0, max=1, help="Share that asks the common questions.")] = 0.5,
    words: Annotated[int, typer.Option(min=1, help="Words of a state.")] = 200,
    questions: Annotated[int, typer.Option(min=1, help="Questions of a request.")] = 4,
    choices: Annotated[int, typer.Option(min=2, max=255, help="Options of a choice.")] = 4,
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds after which a request counts as an error.")] = 60.0,
    seed: Annotated[
        int | None, typer.Option(help="Draws the requests and their order; a new one each time when not given.")
    ] = None,
    api_key: Annotated[str | None, typer.Option(envvar="QUAVER_API_KEY", help="The servers' key.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with plots.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print only the JSON.")] = False,
) -> None:
    """Measure how fast servers answer under load, side by side. The last line is JSON.

    Example: quaver bench http://127.0.0.1:8093 other=http://127.0.0.1:9000/v1/decisions --mode sweep
    """
    import anyio

    from quaver.evaluate.bench.page import page
    from quaver.evaluate.bench.plan import Plan
    from quaver.evaluate.bench.plan import bench as run
    from quaver.evaluate.bench.workload import Workload

    # A state that an earlier run sent may still be cached, so "never sent before" needs words of its own.
    seed = secrets.randbelow(2**31) if seed is None else seed
    asked = [_server(text, api_key) for text in servers]
    if len({server.name for server in asked}) < len(asked):
        raise BadRequest("two servers have one name; give names as NAME=URL")
    workload = Workload(new_states, shared_schemas, words, questions, choices, seed=seed)
    plan = Plan(_levels(mode, concurrency, rate), requests, rounds, warmup, rate, slowest, step, seed)
    with console.status("warming up", spinner="dots") as status:
        result = anyio.run(lambda: run(asked, workload, plan, timeout=timeout, on_progress=status.update))
    settings = {
        "servers": {server.name: server.url for server in asked},
        "mode": mode.value,
        "requests": requests,
        "rounds": rounds,
        "warmup": warmup,
        "new_states": new_states,
        "shared_schemas": shared_schemas,
        "words": words,
        "questions": questions,
        "choices": choices,
        "seed": seed,
    }
    if html:
        html.write_text(page(result, settings), encoding="utf-8")
    if not as_json:
        Console().print(_table(result))
    print_json({"settings": settings, "results": result.to_json()})


def _server(text: str, api_key: str | None) -> Server:
    from quaver.evaluate.bench.load import Server

    name, equals, url = text.partition("=") if "://" in text.partition("=")[2] else ("", "", text)
    try:
        parts = urlsplit(url)
        whole = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # brackets that do not close, and, once it is read, a port that is none
        whole = False
    if not whole:
        raise BadRequest(f"{text} is not an address such as http://127.0.0.1:8093")
    if parts.path in ("", "/"):
        url = parts._replace(path="/v1/systemone").geturl()
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    return Server(name if equals else text, url, headers)


def _levels(mode: Mode, concurrency: int, rate: float) -> tuple[Load, ...]:
    from quaver.evaluate.bench.load import Closed, Open

    if mode is Mode.closed:
        return (Closed(concurrency),)
    if mode is Mode.sweep:
        powers = [2**i for i in range(concurrency.bit_length())]
        return tuple(Closed(n) for n in sorted({*powers, concurrency}))
    if mode is Mode.saturation:
        return ()
    return (Open(rate, "constant" if mode is Mode.constant else "poisson"),)


def _table(result: Result) -> Table:
    from quaver.evaluate.bench.page import words
    from quaver.evaluate.bench.summary import summarise

    kept = [f"{name} keeps up with {rate:.3g} requests per second" for name, rate in result.sustained.items()]
    caption = "\n".join(["p50, p95 and p99 in milliseconds", *kept])
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), caption=caption, caption_justify="left")
    for name in ("server", "load", "p50", "p95", "p99", "per s", "tokens/s", "cached", "errors"):
        if name in ("server", "errors"):
            table.add_column(name, overflow="fold", min_width=9)
        else:
            table.add_column(name, justify="left" if name == "load" else "right", no_wrap=True)
    for server, levels in result.levels.items():
        for i, level in enumerate(levels):
            found = summarise(level.load, level.blocks)
            times = (_number(found["seconds"][p], 1000, 1) for p in ("p50", "p95", "p99"))
            rates = (_number(found["per_second"], 1, 1), _number(found["tokens_per_second"], 1, 0))
            cached = "–" if found["cached_share"] is None else f"{found['cached_share']:.0%}"
            errors = ", ".join(f"{count} {kind}" for kind, count in found["errors"].items())
            load = words(level.load).partition(",")[0]
            table.add_row(server if i == 0 else "", load, *times, *rates, cached, errors)
        table.add_section()
    return table


def _number(value: float | None, scale: float, digits: int) -> str:
    return "–" if value is None else f"{value * scale:.{digits}f}"
