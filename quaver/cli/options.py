"""Options that more than one command takes, worded once."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from quaver.cli.grouped import Group


class Reading(StrEnum):
    auto = "auto"
    joint = "joint"
    independent = "independent"


class Overflow(StrEnum):
    truncate = "truncate"
    refuse = "refuse"


class Confidence(StrEnum):
    typesafe = "typesafe"
    max = "max"


class SpecialTokens(StrEnum):
    escape = "escape"
    reference = "reference"


class PromptStyle(StrEnum):
    quaver = "quaver"
    vllm = "vllm"


class Device(StrEnum):
    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


class Dtype(StrEnum):
    auto = "auto"
    float32 = "float32"
    bfloat16 = "bfloat16"


ModelOption = Annotated[
    str, typer.Option("--model", "-m", help="embedded, a release folder, or a hub id such as Cloudflare/clef-flash.")
]


@dataclass(frozen=True, slots=True)
class Hardware(Group):
    """Where a model runs."""

    device: Annotated[Device, typer.Option(help="Where the model runs; auto takes a GPU when there is one.")] = (
        Device.auto
    )
    dtype: Annotated[Dtype, typer.Option(help="Number format of the weights; auto suits the device.")] = Dtype.auto


CalibrationOption = Annotated[
    Path | None, typer.Option(help="A file of quaver calibrate, fitted on this model; every answer then states it.")
]
ReadingOption = Annotated[
    Reading,
    typer.Option(
        help="joint: one pass over all questions, which see each other. independent: each question alone, so "
        "that ids, order and neighbours change nothing. auto: as the model was trained."
    ),
]


@dataclass(frozen=True, slots=True)
class Asking(Hardware):
    """Where a model runs, how it reads, and what its answers say."""

    reading: ReadingOption = Reading.auto
    on_overflow: Annotated[
        Overflow,
        typer.Option(
            help="A state that is too long is cut at its end, and the answer says so, or it is refused.",
        ),
    ] = Overflow.truncate
    confidence: Annotated[
        Confidence, typer.Option(help="typesafe: 0 for a uniform guess, 1 for certainty. max: the largest probability.")
    ] = Confidence.typesafe
    special_tokens: Annotated[
        SpecialTokens,
        typer.Option(
            help="Text that spells a special token: escape reads it as plain text, reference honours it as the "
            "releases' own code does."
        ),
    ] = SpecialTokens.escape
    max_length: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Most tokens of one request; the model's own limit when not given. The embedded model has none and "
            "never cuts: it refuses what is over the limit, 262,144 when it is served.",
        ),
    ] = None
    calibration: CalibrationOption = None


@dataclass(frozen=True, slots=True)
class Labels(Group):
    """How chat models are read."""

    min_label_mass: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Chat models: mark answers to be left aside whose labels hold less of the next token's probability.",
        ),
    ] = None
    prior_correction: Annotated[
        bool,
        typer.Option(
            "--prior-correction", help="Chat models: correct for what is answered about a state that says nothing."
        ),
    ] = False
    option_orders: Annotated[
        int, typer.Option(min=1, max=255, help="Chat models: read the options in so many orders and average.")
    ] = 1
    prompt_style: Annotated[
        PromptStyle, typer.Option(help="Chat models: how prompts are written; vllm writes them as that server does.")
    ] = PromptStyle.quaver


def load(model: str, *groups: Group, **settings: Any) -> Any:
    """The decider for a model name, with the settings of ``groups`` and others.

    torch is imported here and no earlier, so that help stays quick.
    """
    from quaver.decider import load as load_model

    given = {field.name: getattr(group, field.name) for group in groups for field in fields(group)} | settings
    return load_model(model, **{name: getattr(value, "value", value) for name, value in given.items()})
