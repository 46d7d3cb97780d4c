"""``quaver probe``: facts about a model that no server states."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from quaver.cli import options, vision
from quaver.cli.grouped import grouped
from quaver.cli.talk import print_json
from quaver.errors import BadRequest

if TYPE_CHECKING:
    from quaver.evaluate.mask import MaskReading

NOT_SHOWN = 3

app = typer.Typer(help="Find out what a model does that no server states.", no_args_is_help=True)


class Mask(StrEnum):
    causal = "causal"
    bidirectional = "bidirectional"


@app.callback()
def probe() -> None:
    """Find out what a model does that no server states."""


@app.command()
@grouped
def mask(
    *,
    url: Annotated[
        str | None,
        typer.Option(
            help="A server with /v1/chat/completions and prompt_logprobs, as vLLM's, such as http://host:8000."
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="A Gemma 4 to look into instead: a release folder or a hub id.")
    ] = None,
    served_model: Annotated[
        str | None, typer.Option(help="With --url: the model to ask for; the first of /v1/models when not given.")
    ] = None,
    key_env: Annotated[
        str | None, typer.Option(help="With --url: name of the environment variable that holds the server's key.")
    ] = None,
    image_token: Annotated[
        int | None,
        typer.Option(help="With --url: id of the image token; the one repeated most in a row when not given."),
    ] = None,
    width: Annotated[int, typer.Option(min=1, help="Pixels of the pictures.")] = 960,
    height: Annotated[int, typer.Option(min=2, help="Pixels of the pictures.")] = 960,
    expect: Annotated[Mask | None, typer.Option(help="Exit with 3 unless this is found.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
    hardware: options.Hardware,
    sight: vision.Vision,
) -> None:
    """Whether the tokens of an image see each other, or only those before them.

    Reads two pictures that are equal above and different below, and one of them twice: under a causal mask
    the log-probabilities at the first tokens of the image cannot change. Behind a vision tower only "causal"
    is proof when a server is asked, because the tower sees the whole picture first; --model looks past it.

    Exit codes: 0 done, 3 undecided or not what --expect says.
    """
    if (url is None) == (model is None):
        raise typer.BadParameter("give either --url, a server, or --model, a folder or hub id")
    if url is not None:
        if sight != vision.Vision(image_budget=sight.image_budget):
            raise typer.BadParameter("how a server's model sees is the server's to set; of these only --image-budget")
        reading, said = _of_server(url, served_model, key_env, image_token, (width, height), sight.image_budget)
    else:
        if served_model or key_env or image_token is not None:
            raise typer.BadParameter("--served-model, --key-env and --image-token go with --url")
        reading, said = _of_model(str(model), hardware, (width, height), sight.knobs())
    found = reading.facts() | said
    if as_json:
        print_json(found)
    else:
        Console().print(_table(found))
    raise typer.Exit(NOT_SHOWN if reading.verdict == "undecided" or expect not in (None, reading.verdict) else 0)


def _of_server(
    url: str, model: str | None, key_env: str | None, image_token: int | None, size: tuple[int, int], budget: int | None
) -> tuple[MaskReading, dict[str, Any]]:
    from quaver.evaluate.compare.servers import HttpServer
    from quaver.evaluate.mask import probe_mask, probe_pictures

    if key_env is not None and key_env not in os.environ:
        raise BadRequest(f"the environment has no {key_env}, which should hold the server's key")
    server = HttpServer("vllm", url.rstrip("/"), "chat", key=os.environ[key_env] if key_env else "")
    name = model or _first_model(server.read_back(), url)
    request: dict[str, Any] = {"model": name}
    if budget is not None:
        request["mm_processor_kwargs"] = {"max_soft_tokens": budget}
    reading = probe_mask(lambda body: server.ask(body)[0], request, probe_pictures(*size), image_token)
    return reading, {"model": name}


def _first_model(said: dict[str, Any], url: str) -> str:
    listed = said.get("models", {}).get("data") or []
    if not listed:
        raise BadRequest(f"{url} lists no models; name one with --served-model")
    return str(listed[0]["id"])


def _of_model(
    model: str, hardware: options.Hardware, size: tuple[int, int], knobs: Any
) -> tuple[MaskReading, dict[str, Any]]:
    from quaver.decider.mask import look
    from quaver.evaluate.mask import MaskReading

    seen = look(model, hardware.device.value, hardware.dtype.value, knobs, *size)
    reading = MaskReading(seen.tokens, seen.compared, seen.change, seen.noise)
    return reading, {"model": seen.model, "x_config": seen.config, "change_under": seen.others}


def _table(found: dict[str, Any]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_header=False)
    for name, value in found.items():
        for inner, shown in value.items() if isinstance(value, dict) else [("", value)]:
            table.add_row(f"{name} {inner}".strip(), f"{shown:.3g}" if isinstance(shown, float) else str(shown))
    return table
