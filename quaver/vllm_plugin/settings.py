"""What can be set beside vLLM's own flags: ``--additional-config '{"quaver": {"reading": "independent"}}'``."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from quaver.decider.load import PromptStyle
from quaver.errors import BadRequest
from quaver.prompts.tokenizer import SpecialTokens
from quaver.questions import ConfidenceRule, OverflowRule, ReadingMode
from quaver.vllm_plugin.state_reuse import KEY


@dataclass(frozen=True, slots=True)
class VllmSettings:
    """The options of ``quaver serve`` of the same names. ``reading`` None takes the model's own, ``max_length``
    None the release's limit, or vLLM's ``--max-model-len`` where that is less; ``state_reuse`` is vLLM's alone."""

    reading: ReadingMode | None = None
    on_overflow: OverflowRule = "truncate"
    confidence: ConfidenceRule = "typesafe"
    special_tokens: SpecialTokens = "escape"
    max_length: int | None = None
    calibration: str | None = None
    min_label_mass: float | None = None
    prior_correction: bool = False
    option_orders: int = 1
    prompt_style: PromptStyle = "quaver"
    allow_media_hosts: tuple[str, ...] = ()
    allow_media_dir: str | None = None
    api_keys_file: str | None = None
    salt_by_key: bool = False
    state_reuse: bool = False

    @classmethod
    def of(cls, additional_config: object) -> VllmSettings:
        """Those in vLLM's additional configuration. BadRequest for one that is not known or has a wrong value."""
        given = additional_config.get(KEY, {}) if isinstance(additional_config, Mapping) else {}
        if not isinstance(given, Mapping):
            raise BadRequest(f'"{KEY}" of the additional configuration must be an object, got {given!r}')
        hints = get_type_hints(cls)
        for name, value in given.items():
            if name not in hints:
                raise BadRequest(f'"{KEY}" of the additional configuration has no {name!r}; known: {", ".join(hints)}')
            if not _fits(value, hints[name]):
                raise BadRequest(f'"{KEY}" of the additional configuration: {name} may not be {value!r}')
        values: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in given.items()}
        return cls(**values)


def _fits(value: object, hint: Any) -> bool:
    """Whether a value of JSON is of the type that a setting has."""
    match get_origin(hint):
        case origin if origin in (Union, types.UnionType):
            return any(_fits(value, one) for one in get_args(hint))
        case origin if origin is Literal:
            return value in get_args(hint)
        case origin if origin is tuple:
            return isinstance(value, list) and all(isinstance(item, str) for item in value)
    if isinstance(value, bool):
        return hint is bool
    return isinstance(value, (int, float) if hint is float else hint)
