"""``quaver ask``: one state, some questions, a table."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from quaver.cli import options, vision
from quaver.cli.batch import AHEAD, run
from quaver.cli.grouped import grouped
from quaver.cli.questions import FILE_HELP, from_file, from_flags
from quaver.cli.table import answers_table
from quaver.cli.talk import print_json
from quaver.errors import BadRequest
from quaver.evaluate.files import read_data, read_text


@grouped
def ask(
    *,
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
    asking: options.Asking,
    labels: options.Labels,
    sight: vision.Vision,
) -> None:
    """Ask typed questions about a state and print a probability for every allowed answer.

    Example: quaver ask "The parcel came late and the box was torn." --noul "Is this a complaint?"
    """
    asked = from_file(questions) if questions else {}
    asked |= from_flags(noul or [], choice or [], score or [])
    # What is asked is settled before a model is loaded, which takes seconds.
    if batch is None:
        if out is not None:
            raise BadRequest("--out goes with --batch; without it the answer is printed, and > FILE keeps it")
        body = _body(state, file, asked, image or [], video or [])
    elif out is None:
        raise BadRequest("--batch needs --out FILE, which also says where an interrupted run goes on")
    elif state is not None or file is not None or image or video:
        raise BadRequest("--batch takes states, images and videos from its lines; leave them out of the command")
    with options.load(model, asking, labels, knobs=sight.knobs()) as decider:
        if batch is not None and out is not None:
            with ThreadPoolExecutor(AHEAD) as pool:
                failed = run(batch, out, asked or None, lambda body: pool.submit(decider.systemone, body))
            raise typer.Exit(1 if failed else 0)
        reply = decider.systemone(body)
    if as_json:
        print_json(reply)
    else:
        Console().print(answers_table(reply))


def _body(
    state: str | None, file: Path | None, asked: dict[str, Any], images: list[Path], videos: list[Path]
) -> dict[str, Any]:
    media = {"images": images, "videos": videos}
    return {"state": _state(state, file), "questions": asked} | {kind: paths for kind, paths in media.items() if paths}


def _state(text: str | None, file: Path | None) -> Any:
    if (text is None) == (file is None):
        raise BadRequest("give the state once: as an argument, as - for standard input, or with --file")
    if file is not None:
        return read_data(file) if file.suffix == ".json" else read_text(file)
    return sys.stdin.read() if text == "-" else text
