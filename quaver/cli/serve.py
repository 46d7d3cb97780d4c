"""``quaver serve``: a model behind HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from quaver.cli import options, serve_vllm, vision
from quaver.cli.grouped import grouped
from quaver.cli.sizes import size
from quaver.cli.talk import console

#: Tokens of one request to a model without a limit of its own, so that one caller cannot keep it from the others.
SERVED_LENGTH = 262_144


class EngineName(StrEnum):
    quaver = "quaver"
    vllm = "vllm"


@grouped
def serve(
    *,
    context: typer.Context,
    model: Annotated[
        str, typer.Argument(help="embedded, a release folder, or a hub id such as Cloudflare/clef-flash.")
    ] = "embedded",
    engine: Annotated[
        EngineName,
        typer.Option(help="quaver: our own. vllm: vLLM's server with our plugin; its own flags may follow the model."),
    ] = EngineName.quaver,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 is every interface.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on.")] = 8093,
    api_key: Annotated[
        list[str] | None,
        typer.Option(
            envvar="QUAVER_API_KEY",
            help="Key that requests must carry; none means open. Repeatable, or several with commas between.",
        ),
    ] = None,
    api_keys_file: Annotated[Path | None, typer.Option(help="A file of more keys, one a line.")] = None,
    salt_by_key: Annotated[
        bool, typer.Option("--salt-by-key", help="Never reuse for one key what was read for another.")
    ] = False,
    asking: options.Asking,
    max_queue: Annotated[int, typer.Option(min=1, help="Requests that may wait; one more is answered 429.")] = 256,
    max_queue_tokens: Annotated[
        int, typer.Option(min=1, help="Input tokens that may wait, of all requests together.")
    ] = 1 << 20,
    step_tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens computed at a time; what suits the device when not given.")
    ] = None,
    state_cache: Annotated[
        int | None,
        typer.Option(
            parser=size, metavar="SIZE", help="Memory for states that may come again, such as 4GiB, 512MiB or off."
        ),
    ] = None,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Answers equal to the bit whatever else is asked; slower.")
    ] = False,
    labels: options.Labels,
    sight: vision.Vision,
    allow_media_hosts: Annotated[
        str,
        typer.Option(
            metavar="HOST[,HOST...]",
            help="Hosts that media may be fetched from, each HOST, HOST:PORT or *.SUFFIX; none when not given.",
        ),
    ] = "",
    allow_media_dir: Annotated[
        Path | None, typer.Option(help="Folder below which requests may name media files; none when not given.")
    ] = None,
) -> None:
    """Serve a model: POST /v1/systemone, /v1/systemone/batch and /v1/decisions, GET /v1/models, /healthz, /metrics."""
    if engine is EngineName.vllm:
        if model.startswith("-"):
            raise typer.BadParameter(f"name the model before {model} and other flags of vLLM's")
        serve_vllm.start(model, _given(context), _keys(api_key or [], None), context.args)
    if model.startswith("-") or context.args:
        raise typer.BadParameter(f"no such option or argument: {' '.join([model, *context.args])}")
    from quaver.server import ServerConfig, check_address, run

    config = ServerConfig(host=host, port=port, api_keys=_keys(api_key or [], api_keys_file), salt_by_key=salt_by_key)
    check_address(config)
    # With the decider comes torch, which takes seconds; wrong options are told before.
    from quaver.decider import find_model, limits_of
    from quaver.media import DecoderPool, MediaPolicy, MediaReader
    from quaver.models.release import inspect

    policy = MediaPolicy(_hosts(allow_media_hosts), allow_media_dir)
    console.print(f"loading {model} ...", highlight=False)
    folder = find_model(model)
    limits, _ = limits_of(inspect(folder))
    with DecoderPool() as decode:
        decider = options.load(
            str(folder),
            asking,
            labels,
            max_length=asking.max_length or (SERVED_LENGTH if limits.max_length is None else None),
            max_queue=max_queue,
            max_queue_tokens=max_queue_tokens,
            step_tokens=step_tokens,
            state_cache_bytes=state_cache,
            deterministic=deterministic,
            knobs=sight.knobs(),
            media=MediaReader(policy=policy, decode=decode),
        )
        console.print(f"{decider.name} on http://{host}:{port}/v1/systemone and /v1/decisions", highlight=False)
        run(decider, config)


def _given(context: typer.Context) -> dict[str, Any]:
    """Options of the command line, and those that say where to listen: both engines do so at the same place."""

    def named(name: str) -> bool:
        source = context.get_parameter_source(name)
        return source is not None and source.name == "COMMANDLINE"

    given = {
        name: getattr(value, "value", value)
        for name, value in context.params.items()
        if named(name) or name in ("host", "port")
    }
    if "allow_media_hosts" in given:
        given["allow_media_hosts"] = _hosts(given["allow_media_hosts"])
    paths = {name: str(value.resolve()) for name, value in given.items() if isinstance(value, Path)}
    return {name: value for name, value in (given | paths).items() if name not in ("model", "engine", "api_key")}


def _hosts(text: str) -> list[str]:
    return [entry.strip() for entry in text.split(",") if entry.strip()]


def _keys(given: Sequence[str], file: Path | None) -> tuple[str, ...]:
    """Keys between commas, and those of ``file``."""
    from quaver.server.auth import keys_in

    listed = [key.strip() for text in given for key in text.split(",") if key.strip()]
    return (*listed, *(keys_in(file) if file else ()))
