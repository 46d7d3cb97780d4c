"""``quaver calibrate``: a run of ``quaver eval`` to a calibration file and a table of thresholds."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from quaver.cli.talk import console, print_json
from quaver.errors import BadRequest
from quaver.questions.calibration import OFS, Of, Temperature

if TYPE_CHECKING:
    from quaver.evaluate.calibrate import Calibrated
    from quaver.questions.calibration import Isotonic


def calibrate(
    run: Annotated[Path, typer.Argument(help="The run file of quaver eval on records kept for this.")],
    out: Annotated[Path, typer.Option(help="The calibration file to write.")] = Path("calibration.json"),
    fold: Annotated[
        str | None,
        typer.Option(help="Also write this release with one temperature folded into its head, to --fold-to."),
    ] = None,
    fold_to: Annotated[Path | None, typer.Option(help="The new folder that --fold writes.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Fit a calibration on answers to held-out labelled records, and thresholds to abstain by.

    Example: quaver eval held_out.jsonl --out run.jsonl, then quaver calibrate run.jsonl
    """
    from quaver.evaluate.calibrate import calibrate as fit
    from quaver.evaluate.run import read_run

    if (fold is None) != (fold_to is None):
        raise BadRequest("--fold RELEASE and --fold-to FOLDER go together")
    found = fit(*read_run(run), single=fold is not None)
    found.calibration.save(out)
    console.print(f"calibration {found.calibration.id} of {found.calibration.model} in {out}", highlight=False)
    if fold and fold_to:
        from quaver.evaluate.fold import fold_release
        from quaver.models.release import find, inspect

        info = inspect(find(fold))
        fold_release(info.path, info.name, found.calibration, fold_to)
        console.print(f"folded release {inspect(fold_to).name} in {fold_to}", highlight=False)
    if as_json:
        print_json(_json(found))
    else:
        Console().print(_maps_table(found), *(_thresholds_table(found, of) for of in OFS))


def _maps_table(found: Calibrated) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title="What the maps change, on records they were not fitted on")
    for name in ("questions", "n", "map", "log loss", "calibration error"):
        table.add_column(name, justify="left" if name in ("questions", "map") else "right")
    for fit in found.fits:
        loss, ece = (f"{before:.3f} → {after:.3f}" for before, after in (fit.log_loss, fit.ece))
        table.add_row(fit.bucket, str(fit.n), _words(fit.map), loss, ece)
    return table


PROMISES: dict[Of, str] = {
    "asked": "In expectation at most the target share of all questions asked gets a wrong answer.",
    "answered": "With 95 % certainty at most the target share of the answers given is wrong.",
}


def _thresholds_table(found: Calibrated, of: Of) -> Table:
    caption = (
        f"Abstain below the probability given. {PROMISES[of]} This holds as long as requests are like these records. "
        "Wrong among them is what was seen here, with its 95 % interval."
    )
    title = f"Thresholds for an error among the questions {of}"
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=title, caption=caption, caption_justify="left")
    for name in ("questions", "target error", "answer from", "answered", "wrong among them", "n"):
        table.add_column(name, justify="left" if name == "questions" else "right")
    for row in found.thresholds:
        if row.of != of:
            continue
        if math.isinf(row.least):
            table.add_row(row.kind, f"{row.target:.0%}", "never", "0%", "", str(row.n))
            continue
        wrong = f"{row.wrong:.1%} ({100 * row.low:.1f} – {100 * row.high:.1f})"
        table.add_row(row.kind, f"{row.target:.0%}", f"{row.least:.3f}", f"{row.answered:.0%}", wrong, str(row.n))
    return table


def _words(map_: Temperature | Isotonic | None) -> str:
    if map_ is None:
        return "as they are"
    return f"temperature {map_.value:.3f}" if isinstance(map_, Temperature) else f"curve of {len(map_.knots)} knots"


def _json(found: Calibrated) -> dict[str, Any]:
    def finite(value: float) -> float | None:
        return value if math.isfinite(value) else None

    return {
        "calibration": found.calibration.id,
        "model": found.calibration.model,
        "fits": [
            {"bucket": fit.bucket, "n": fit.n, "map": _words(fit.map), "log_loss": fit.log_loss, "ece": fit.ece}
            for fit in found.fits
        ],
        "thresholds": [
            {
                "kind": row.kind,
                "of": row.of,
                "target": row.target,
                "answer_from": finite(row.least),
                "answered": row.answered,
                "wrong_among_answered": finite(row.wrong),
                "interval": [row.low, row.high],
                "n": row.n,
            }
            for row in found.thresholds
        ],
    }
