"""The ``quaver`` command."""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import NoReturn

import typer

from quaver.cli import probe
from quaver.cli.ask import ask
from quaver.cli.bench import bench
from quaver.cli.calibrate import calibrate
from quaver.cli.compare import compare
from quaver.cli.eval import evaluate
from quaver.cli.models import models
from quaver.cli.serve import serve
from quaver.cli.talk import console
from quaver.cli.train import train
from quaver.errors import QuaverError

app = typer.Typer(
    name="quaver",
    help="Decisions on your own machine: a state and typed questions in, a probability for every answer out.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(ask)
app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(serve)
app.command()(models)
app.command()(train)
app.command("eval")(evaluate)
app.command()(calibrate)
app.command()(compare)
app.command()(bench)
app.add_typer(probe.app, name="probe")


#: Which extra brings a library that a command may lack.
EXTRAS = {
    **dict.fromkeys(("torch", "transformers", "tokenizers", "safetensors", "fastapi", "uvicorn"), "serve"),
    **dict.fromkeys(("numpy", "scipy", "matplotlib", "jinja2", "prometheus_client"), "eval"),
    **dict.fromkeys(("PIL", "av"), "media"),
}


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 something failed, 2 wrong usage."""
    # A terminal or pipe that is not UTF-8 has no blocks for bars; a question mark is better than no answer.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        app()
    except QuaverError as error:
        _fail(str(error))
    except OSError as error:
        # With a name it is a file that the person named; without, a fault of ours that needs its traceback.
        if error.filename is None:
            raise
        _fail(f"{error.filename}: {error.strerror}")
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in EXTRAS:
            raise
        _fail(f"this command needs {missing}, which is not installed; pip install 'quaver[{EXTRAS[missing]}]'")


def _fail(message: str) -> NoReturn:
    console.print("error:", style="red", end=" ")
    console.print(message, markup=False, highlight=False)
    sys.exit(1)
