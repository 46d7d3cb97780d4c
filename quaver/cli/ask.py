"""``quaver ask``: one state, some questions, a table."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from quaver.cli import options, vision
from quaver.cli.batch import AHEAD, run
from quaver.cli.questions import FILE_HELP, from_file, from_flags
from quaver.cli.table import answers_table
from quaver.errors import BadRequest


def ask(
    state: Annotated[
        str | None, typer.Argument(help="The text to decide about; - reads standard input.", show_default=False)
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Read the state from a file; .json is read as JSON.")
    ] = None,
    noul: Annotated[
        list[str] | None, typer.Option("--noul", "-n", help="A yes/no question. Repeatable.", metavar="QUESTION")
    ] = None,
    choice: Annotated[
        list[str] | None,
        typer.Option(
            "--choice",
            "-c",
            help="One of several options, each with a description if you like. Repeatable.",
            metavar="'QUESTION = option | option: description | ...'",
        ),
    ] = None,
    score: Annotated[
        list[str] | None,
        typer.Option(
            "--score",
            "-s",
            help="A level on a scale, lowest first. Repeatable.",
            metavar="'QUESTION = level | level | ...'",
        ),
    ] = None,
    questions: Annotated[Path | None, typer.Option("--questions", "-q", help=FILE_HELP)] = None,
    image: Annotated[list[Path] | None, typer.Option(help="An image to look at. Repeatable.")] = None,
    video: Annotated[list[Path] | None, typer.Option(help="A video to look at. Repeatable.")] = None,
    batch: Annotated[
        Path | None,
        typer.Option(help="Answer every line of a JSON Lines file of bodies; needs --out, which can be resumed."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where --batch appends its answers, one JSON object a line.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the reply as JSON.")] = False,
    model: options.ModelOption = "embedded",
    device: options.DeviceOption = options.Device.auto,
    dtype: options.DtypeOption = options.Dtype.auto,
    reading: options.ReadingOption = options.Reading.auto,
    on_overflow: options.OverflowOption = options.Overflow.truncate,
    confidence: options.ConfidenceOption = options.Confidence.typesafe,
    special_tokens: options.SpecialTokensOption = options.SpecialTokens.escape,
    max_length: options.MaxLengthOption = None,
    calibration: options.CalibrationOption = None,
    min_label_mass: options.MinLabelMassOption = None,
    prior_correction: options.PriorCorrectionOption = False,
    option_orders: options.OptionOrdersOption = 1,
    prompt_style: options.PromptStyleOption = options.PromptStyle.quaver,
    image_budget: vision.ImageBudgetOption = None,
    no_bidirectional: vision.NoBidirectionalOption = False,
    bidirectional_full_layers: vision.BidirectionalFullLayersOption = False,
    fp32_layernorm: vision.Fp32LayernormOption = False,
    fp32_vision: vision.Fp32VisionOption = False,
    sliding_window: vision.SlidingWindowOption = None,
) -> None:
    """Ask typed questions about a state and print a probability for every allowed answer.

    Example: quaver ask "The parcel came late and the box was torn." --noul "Is this a complaint?"
    """
    asked = from_file(questions) if questions else {}
    asked |= from_flags(noul or [], choice or [], score or [])
    if batch is None:
        body: dict[str, Any] = {"state": _state(state, file), "questions": asked}
        body |= {"images": image} if image else {}
        body |= {"videos": video} if video else {}
    elif out is None:
        raise BadRequest("--batch needs --out FILE, which also says where an interrupted run goes on")

    with options.load(
        model,
        device=device,
        dtype=dtype,
        reading=reading,
        on_overflow=on_overflow,
        confidence=confidence,
        special_tokens=special_tokens,
        max_length=max_length,
        calibration=calibration,
        min_label_mass=min_label_mass,
        prior_correction=prior_correction,
        option_orders=option_orders,
        prompt_style=prompt_style,
        knobs=vision.knobs(
            image_budget, no_bidirectional, bidirectional_full_layers, fp32_layernorm, fp32_vision, sliding_window
        ),
    ) as decider:
        if batch is not None and out is not None:
            with ThreadPoolExecutor(AHEAD) as pool:
                failed = run(batch, out, asked or None, lambda body: pool.submit(decider.systemone, body))
            raise typer.Exit(1 if failed else 0)
        reply = decider.systemone(body)
    if as_json:
        typer.echo(json.dumps(reply, ensure_ascii=False))
    else:
        Console().print(answers_table(reply))


def _state(text: str | None, file: Path | None) -> Any:
    if (text is None) == (file is None):
        raise BadRequest("give the state once: as an argument, as - for standard input, or with --file")
    if file is not None:
        try:
            content = file.read_text(encoding="utf-8")
            return json.loads(content) if file.suffix == ".json" else content
        except (OSError, ValueError) as error:
            raise BadRequest(f"{file}: cannot be read as a state: {error}") from error
    return sys.stdin.read() if text == "-" else text
