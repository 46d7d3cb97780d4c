"""Options of how Gemma 4 sees, worded once."""

from __future__ import annotations

from typing import Annotated, Any

import typer

ImageBudgetOption = Annotated[
    int | None,
    typer.Option(
        help="Gemma 4: tokens that an image may take at most: 70, 140, 280, 560 or 1120; the release's own when not "
        "given. A request may choose another with mm_processor_kwargs."
    ),
]
NoBidirectionalOption = Annotated[
    bool, typer.Option("--no-bidirectional", help="Gemma 4: no token of an image sees a later one.")
]
BidirectionalFullLayersOption = Annotated[
    bool,
    typer.Option(
        "--bidirectional-full-layers",
        help="Gemma 4: the tokens of an image see each other in all layers, not in those with a window alone.",
    ),
]
Fp32LayernormOption = Annotated[
    bool,
    typer.Option("--fp32-layernorm", help="Gemma 4 unified: LayerNorms of the patch embedder in float32."),
]
Fp32VisionOption = Annotated[
    bool, typer.Option("--fp32-vision", help="Gemma 4: all of the vision path in float32, pixels too.")
]
SlidingWindowOption = Annotated[
    int | None,
    typer.Option(min=1, help="Gemma 4: tokens that layers with a window see; the release's own when not given."),
]


def knobs(
    image_budget: int | None,
    no_bidirectional: bool,
    bidirectional_full_layers: bool,
    fp32_layernorm: bool,
    fp32_vision: bool,
    sliding_window: int | None,
) -> Any:
    """The options as ``Gemma4Knobs``. Raises BadRequest for a value that cannot be."""
    from quaver.models.gemma4_knobs import Gemma4Knobs

    return Gemma4Knobs(
        image_budget=image_budget,
        bidirectional=not no_bidirectional,
        bidirectional_full_layers=bidirectional_full_layers,
        fp32_layernorm_statistics=fp32_layernorm,
        fp32_vision_embedder=fp32_vision,
        sliding_window=sliding_window,
    )
