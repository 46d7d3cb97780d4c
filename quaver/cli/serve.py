"""``quaver serve``: a model behind HTTP."""

from __future__ import annotations

from typing import Annotated

import typer

from quaver.cli import options
from quaver.cli.talk import console

#: Tokens of one request to a model without a limit of its own, so that one caller cannot keep it from the others.
SERVED_LENGTH = 262_144


def serve(
    model: Annotated[
        str, typer.Argument(help="embedded, a release folder, or a hub id such as Cloudflare/clef-flash.")
    ] = "embedded",
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 is every interface.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on.")] = 8093,
    api_key: Annotated[
        str | None, typer.Option(envvar="QUAVER_API_KEY", help="Key that requests must carry; none means open.")
    ] = None,
    device: options.DeviceOption = options.Device.auto,
    dtype: options.DtypeOption = options.Dtype.auto,
    reading: options.ReadingOption = options.Reading.auto,
    on_overflow: options.OverflowOption = options.Overflow.truncate,
    confidence: options.ConfidenceOption = options.Confidence.typesafe,
    special_tokens: options.SpecialTokensOption = options.SpecialTokens.escape,
    max_length: options.MaxLengthOption = None,
    calibration: options.CalibrationOption = None,
    max_queue: Annotated[int, typer.Option(min=1, help="Requests that may wait; one more is answered 429.")] = 256,
) -> None:
    """Serve a model: POST /v1/systemone and POST /v1/decisions, GET /v1/models, /healthz, /readyz, /metrics."""
    from quaver.decider import find_model, limits_of
    from quaver.models.release import inspect
    from quaver.server import ServerConfig, run

    console.print(f"loading {model} ...", highlight=False)
    folder = find_model(model)
    limits, _ = limits_of(inspect(folder))
    decider = options.load(
        str(folder),
        device=device,
        dtype=dtype,
        reading=reading,
        on_overflow=on_overflow,
        confidence=confidence,
        special_tokens=special_tokens,
        max_length=max_length or (SERVED_LENGTH if limits.max_length is None else None),
        calibration=calibration,
        max_queue=max_queue,
    )
    console.print(f"{decider.name} on http://{host}:{port}/v1/systemone and /v1/decisions", highlight=False)
    run(decider, ServerConfig(host=host, port=port, api_key=api_key))
