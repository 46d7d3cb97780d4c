"""What can be changed about how Gemma 4 sees, for experiments. Every default is the released specification."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from quaver.errors import BadRequest

#: Soft tokens that an image may take at most, as the release's image processor allows them.
IMAGE_BUDGETS = (70, 140, 280, 560, 1120)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemma4Knobs:
    """``bidirectional``: the tokens of one image see each other, where the release says so; False reads
    images causally. ``bidirectional_full_layers``: not in layers with a sliding window alone but in all.

    ``fp32_layernorm_statistics`` computes the LayerNorms of the unified model's patch embedder in float32.
    ``fp32_vision_embedder`` computes all of the vision path in float32, from pixels that were not rounded to
    the model's precision. ``image_budget``: soft tokens of an image at most; ``sliding_window``: tokens that
    layers with a window see; None leaves both to the release.

    Raises BadRequest, leading to the knob, for values that cannot be.
    """

    bidirectional: bool = True
    bidirectional_full_layers: bool = False
    fp32_layernorm_statistics: bool = False
    fp32_vision_embedder: bool = False
    image_budget: int | None = None
    sliding_window: int | None = None

    def __post_init__(self) -> None:
        if self.bidirectional_full_layers and not self.bidirectional:
            raise BadRequest(
                "bidirectional_full_layers: images are read causally, so no layer can see them both ways; leave "
                "bidirectional on",
                ("bidirectional_full_layers",),
            )
        if self.image_budget is not None and self.image_budget not in IMAGE_BUDGETS:
            allowed = ", ".join(map(str, IMAGE_BUDGETS))
            raise BadRequest(
                f"image_budget: an image can have {allowed} tokens at most, got {self.image_budget}", ("image_budget",)
            )
        if self.sliding_window is not None and self.sliding_window < 1:
            raise BadRequest(
                f"sliding_window: a layer sees 1 token or more, got {self.sliding_window}", ("sliding_window",)
            )

    def facts(self) -> dict[str, bool | int | None]:
        """The knobs as JSON values, defaults too."""
        return asdict(self)
