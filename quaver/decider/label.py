"""The label family: a chat model reads every question in a prompt of its own, and answers with its next token."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol

from quaver.decider.family import EncodedView, Limits, Prepared, Scored
from quaver.decider.media import MediaOf, check_size
from quaver.engine.job import Prompt, Reading
from quaver.errors import BadRequest
from quaver.heads.label_bias import average_orders, cyclic_orders, subtract_prior
from quaver.heads.labels import LabelRead, join
from quaver.models.chat_release import blindness, has_eyes
from quaver.models.gemma4_image import PROCESSORS
from quaver.models.gemma4_knobs import IMAGE_BUDGETS
from quaver.models.release import ReleaseInfo
from quaver.prompts.chat_template import load_chat_template
from quaver.prompts.label import CONTENT_FREE, LabelPrompt
from quaver.prompts.label_encoded import LabelEncoded, LabelPlace
from quaver.prompts.opening import Opening
from quaver.questions import Json, LabelFacts, LabelRule, OverflowRule, ReadingMode, Request

READINGS: tuple[ReadingMode, ...] = ("independent",)
#: Tokens of a prompt unless told otherwise, or what the model has positions for when that is less.
MAX_LENGTH = 16_384
#: Priors that are remembered; each is a few numbers and the prompt it belongs to.
MAX_PRIORS = 1024


def default_length(info: ReleaseInfo) -> int:
    """Tokens that a prompt of this model may have unless told otherwise."""
    text = info.config.get("text_config", info.config)
    return min(MAX_LENGTH, int(text.get("max_position_embeddings", MAX_LENGTH)))


def limits(info: ReleaseInfo) -> Limits:
    """What a chat model can read unless told otherwise. Raises BadRelease for a chat template that cannot be used."""
    sees, why = has_eyes(info), blindness(info)
    if sees and not why and load_chat_template(info.path).turn().image is None:
        why = "because its chat template has no place for them"
    images = sees and not why
    budgets = IMAGE_BUDGETS if images and info.backbone in PROCESSORS else ()
    return Limits(default_length(info), images=images, image_budgets=budgets, blind=why)


class Priors:
    """What the model answered about a state that says nothing, by prompt; the least recently used are forgotten."""

    def __init__(self, size: int = MAX_PRIORS) -> None:
        self._size = size
        self._reads: OrderedDict[Hashable, LabelRead] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> LabelRead | None:
        with self._lock:
            if key in self._reads:
                self._reads.move_to_end(key)
            return self._reads.get(key)

    def put(self, key: Hashable, read: LabelRead) -> None:
        with self._lock:
            self._reads[key] = read
            self._reads.move_to_end(key)
            while len(self._reads) > self._size:
                self._reads.popitem(last=False)


@dataclass(frozen=True, slots=True)
class Variant:
    """A question with its options in one ``order``: its prompt, the same about a state that says nothing where
    that is wanted, and what is known to be answered there."""

    order: tuple[int, ...]
    encoded: LabelEncoded
    blank: LabelEncoded | None
    prior: LabelRead | None

    @property
    def to_read(self) -> list[LabelEncoded]:
        return [self.encoded, self.blank] if self.blank and not self.prior else [self.encoded]


@dataclass(frozen=True, kw_only=True)
class LabelPrepared(Prepared[Prompt]):
    """``asked`` has, per question, the variants that are averaged; the places of all of them are the prompts."""

    asked: tuple[tuple[Variant, ...], ...]
    min_mass: float | None
    remember: Callable[[LabelEncoded, LabelRead], None]

    def scores(self, readings: Sequence[Reading]) -> list[Scored]:
        reads = (reading.labels[0] for reading in readings)
        return [self._score(variants, reads) for variants in self.asked]

    def _score(self, variants: Sequence[Variant], reads: Iterator[LabelRead]) -> Scored:
        found, probabilities = [], []
        for variant in variants:
            read = _joined(variant.encoded, reads)
            found.append(read)
            probabilities.append(self._probabilities(variant, read, reads))
        averaged = average_orders(probabilities, [variant.order for variant in variants])
        ids, p = variants[0].encoded.option_ids, averaged.probabilities
        best = [name for name, value in zip(ids, p, strict=True) if value == max(p)]
        facts = LabelFacts(
            mass=sum(read.label_mass for read in found) / len(found),
            argmax_is_label=all(read.argmax_is_label for read in found),
            ties=tuple(best) if len(best) > 1 else (),
            order_spread=max(averaged.spread) if len(variants) > 1 else None,
        )
        return Scored(
            dict(zip(ids, p, strict=True)), facts, None if self.min_mass is None else facts.mass < self.min_mass
        )

    def _probabilities(self, variant: Variant, read: LabelRead, reads: Iterator[LabelRead]) -> tuple[float, ...]:
        if variant.blank is None:
            return read.probabilities
        prior = variant.prior
        if prior is None:
            prior = _joined(variant.blank, reads)
            self.remember(variant.blank, prior)
        return subtract_prior(read.log_probabilities, prior.log_probabilities)


def _joined(encoded: LabelEncoded, reads: Iterator[LabelRead]) -> LabelRead:
    """The read of all labels of a prompt, from the next of the reads of its places."""
    return join([next(reads) for _ in encoded.labels.nodes], encoded.labels.paths)


class FixedPrompt(Protocol):
    """Prompts of a form that others have set: options in the order of the request, and nothing is cut."""

    max_length: int

    def opening(self, images: int, videos: int) -> Opening: ...

    def encode(self, request: Request, opening: Opening | None = None) -> tuple[LabelEncoded, ...]: ...


class LabelFamily(Generic[Prompt, MediaOf]):
    """Reads requests with a chat model; see ``Family`` for the contract. ``rule`` holds unless a request has one.

    ``see`` decodes and encodes the media of a request that has some, given the text with which its prompt
    opens; ``limits`` say which it may have. ``make`` gives the engine's prompt for a place, the request's
    media and its salt. Raises BadRequest for orders of options with prompts whose order is fixed.
    """

    readings = READINGS
    reads_labels = True

    def __init__(
        self,
        name: str,
        prompt: LabelPrompt | FixedPrompt,
        make: Callable[[LabelPlace, MediaOf | None, str], Prompt],
        rule: LabelRule,
        *,
        limits: Limits | None = None,
        see: Callable[[Request, str], MediaOf] | None = None,
        config: Mapping[str, Json] | None = None,
    ) -> None:
        self.name = name
        self.limits = replace(limits or Limits(None), max_length=prompt.max_length)
        self.config = config or {}
        self._prompt = prompt
        self._make = make
        self._see = see
        self._rule = rule
        self._priors = Priors()
        self._check_orders(rule)

    def prepare(self, request: Request, _: ReadingMode, on_overflow: OverflowRule) -> LabelPrepared[Prompt]:
        rule, salt = request.labels.over(self._rule), request.cache_salt
        media, opening = self._opening(request)
        asked = self._variants(request, rule, on_overflow, opening)
        variants = [variant for of_question in asked for variant in of_question]
        prompts = tuple(
            self._make(place, media if encoded is variant.encoded else None, salt)
            for variant in variants
            for encoded in variant.to_read
            for place in encoded.places()
        )
        known = sum(
            len(place.ids)
            for variant in variants
            if variant.blank and variant.prior
            for place in variant.blank.places()
        )
        return LabelPrepared(
            prompts=prompts,
            option_ids=tuple(of_question[0].encoded.option_ids for of_question in asked),
            input_tokens=known + sum(prompt.tokens for prompt in prompts),
            truncated_tokens=max(variant.encoded.truncated for variant in variants),
            known_tokens=known,
            asked=asked,
            min_mass=rule.min_mass,
            remember=lambda blank, read: self._priors.put((salt, blank), read),
        )

    def view(self, request: Request, _: ReadingMode, on_overflow: OverflowRule) -> EncodedView:
        """The prompts one after another. A question's span is what follows its state; options have none."""
        ids: list[int] = []
        spans = []
        encoded = self._encode(request, on_overflow, None, self._opening(request)[1])
        for one in encoded:
            spans.append((len(ids) + one.state_end, len(ids) + len(one.ids)))
            ids += one.ids
        return EncodedView(ids, spans, [[] for _ in encoded], [list(one.option_ids) for one in encoded])

    def _opening(self, request: Request) -> tuple[MediaOf | None, Opening | None]:
        """The media of a request, and how its prompts begin for them."""
        images, videos = len(request.images), len(request.videos)
        if self._see is None or not images + videos:
            return None, None
        opening = self._prompt.opening(images, videos)
        media = self._see(request, opening.text)
        check_size(request, media, self._prompt.max_length)
        return media, opening.filled(media.ids)

    def _variants(
        self, request: Request, rule: LabelRule, on_overflow: OverflowRule, opening: Opening | None
    ) -> tuple[tuple[Variant, ...], ...]:
        """Per question, what has to be read for it. Questions with few options have fewer orders than others."""
        self._check_orders(rule)
        count = rule.orders or 1
        orders = {name: cyclic_orders(len(q.option_ids), count) for name, q in request.questions.items()}
        asked: dict[str, list[Variant]] = {name: [] for name in request.questions}
        for number in range(max(map(len, orders.values()))):
            turn = {name: known[number] for name, known in orders.items() if number < len(known)}
            encoded = self._encode(request, on_overflow, turn, opening)
            blanks: Sequence[LabelEncoded | None] = [None] * len(encoded)
            if rule.prior_correction:
                # Neither text nor pictures: what is then answered is the same for all of them.
                blanks = self._encode(replace(request, state=CONTENT_FREE), on_overflow, turn, None)
            for name, one, blank in zip(asked, encoded, blanks, strict=True):
                if name in turn:
                    prior = self._priors.get((request.cache_salt, blank)) if blank else None
                    asked[name].append(Variant(turn[name], one, blank, prior))
        return tuple(map(tuple, asked.values()))

    def _encode(
        self,
        request: Request,
        on_overflow: OverflowRule,
        orders: Mapping[str, Sequence[int]] | None,
        opening: Opening | None,
    ) -> tuple[LabelEncoded, ...]:
        if isinstance(self._prompt, LabelPrompt):
            return self._prompt.encode(request, opening, on_overflow, orders)
        return self._prompt.encode(request, opening)

    def _check_orders(self, rule: LabelRule) -> None:
        if (rule.orders or 1) > 1 and not isinstance(self._prompt, LabelPrompt):
            raise BadRequest(
                "prompts in vLLM's style, and those of decision checkpoints, have their options in the order of the "
                "request; ask in one order, or serve a chat model with prompts of quaver's style",
                ("x_option_orders",),
            )
