"""The split family: a small encoder reads the state and every question and option apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from quaver.decider.family import EncodedView, Limits, Prepared
from quaver.errors import TooLong
from quaver.prompts.encoded import Span
from quaver.prompts.split import SplitEncoded, SplitPrompt, Text
from quaver.questions import Json, OverflowRule, ReadingMode, Request

LIMITS = Limits(max_length=None)
READINGS: tuple[ReadingMode, ...] = ("independent",)


class SplitFamily:
    """Reads requests with a split release; see ``Family`` for the contract.

    States of any length are read whole. ``max_length`` is for those who share the model with others: a
    request with more tokens in all is refused, never cut.
    """

    readings = READINGS
    reads_labels = False

    def __init__(self, name: str, prompt: SplitPrompt, max_length: int | None = None) -> None:
        self.name = name
        self.config: Mapping[str, Json] = {}
        self.limits = replace(LIMITS, max_length=max_length)
        self._prompt = prompt

    def prepare(self, request: Request, _: ReadingMode, __: OverflowRule) -> Prepared[SplitEncoded]:
        encoded = self._encode(request)
        return Prepared(
            (encoded,),
            option_ids=tuple(question.option_ids for question in request.questions.values()),
            input_tokens=encoded.tokens,
        )

    def view(self, request: Request, _: ReadingMode, __: OverflowRule) -> EncodedView:
        encoded = self._encode(request)
        ids: list[int] = []

        def write(text: Text) -> Span:
            start = len(ids)
            ids.extend(token for window in text for token in window)
            return start, len(ids)

        write(encoded.state)
        questions = [(write(q.text), [write(option) for option in q.options]) for q in encoded.questions]
        return EncodedView(
            ids,
            [span for span, _ in questions],
            [spans for _, spans in questions],
            [list(question.option_ids) for question in request.questions.values()],
        )

    def _encode(self, request: Request) -> SplitEncoded:
        encoded = self._prompt.encode(request.state, list(request.questions.values()))
        if self.limits.max_length is not None and encoded.tokens > self.limits.max_length:
            raise TooLong(
                f"the request has {encoded.tokens} tokens and the limit here is {self.limits.max_length}; "
                "split the state or ask fewer questions"
            )
        return replace(encoded, salt=request.cache_salt)
