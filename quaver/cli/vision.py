"""Options of how Gemma 4 sees, worded once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from quaver.cli.grouped import Group


@dataclass(frozen=True, slots=True)
class Vision(Group):
    image_budget: Annotated[
        int | None,
        typer.Option(
            help="Gemma 4: tokens that an image may take at most: 70, 140, 280, 560 or 1120; the release's own when "
            "not given. A request may choose another with mm_processor_kwargs."
        ),
    ] = None
    no_bidirectional: Annotated[
        bool, typer.Option("--no-bidirectional", help="Gemma 4: no token of an image sees a later one.")
    ] = False
    bidirectional_full_layers: Annotated[
        bool,
        typer.Option(
            "--bidirectional-full-layers",
            help="Gemma 4: the tokens of an image see each other in all layers, not in those with a window alone.",
        ),
    ] = False
    fp32_layernorm: Annotated[
        bool,
        typer.Option("--fp32-layernorm", help="Gemma 4 unified: LayerNorms of the patch embedder in float32."),
    ] = False
    fp32_vision: Annotated[
        bool, typer.Option("--fp32-vision", help="Gemma 4: all of the vision path in float32, pixels too.")
    ] = False
    sliding_window: Annotated[
        int | None,
        typer.Option(min=1, help="Gemma 4: tokens that layers with a window see; the release's own when not given."),
    ] = None

    def knobs(self) -> Any:
        """The options as ``Gemma4Knobs``. Raises BadRequest for a value that cannot be."""
        from quaver.models.gemma4_knobs import Gemma4Knobs

        return Gemma4Knobs(
            image_budget=self.image_budget,
            bidirectional=not self.no_bidirectional,
            bidirectional_full_layers=self.bidirectional_full_layers,
            fp32_layernorm_statistics=self.fp32_layernorm,
            fp32_vision_embedder=self.fp32_vision,
            sliding_window=self.sliding_window,
        )
