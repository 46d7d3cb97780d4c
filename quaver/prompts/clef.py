"""The Clef prompt: system text, media, state, schema fields, closing text.

Every piece is tokenised on its own and the ids are joined, so that pieces never merge; joining the
text first gives other ids. Options of a choice are read sorted by code point, whatever order the
request has. Source: ``encode_record`` of the Clef releases' ``joint_schema_model.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

from quaver.errors import BadQuestion, TooLong
from quaver.prompts.encoded import Encoded, EncodedQuestion, Span, over
from quaver.prompts.render import render
from quaver.prompts.tokenizer import PromptTokenizer, SpecialTokens
from quaver.questions import Choice, Json, Noul, OverflowRule, Question, Request

# Character for character as in the releases, whose heads were trained on these words.
PREFIX = (
    "<|im_start|>system\n"
    "Read the complete state and schema. Decide every field jointly. "
    "Each answer must be exactly one of that field's allowed options."
    "<|im_end|>\n<|im_start|>user\nSTATE:\n"
)
SCHEMA = "\n\nSCHEMA FIELDS:\n"
OPTIONS = "\nALLOWED OPTIONS:\n"
OPTION_END = "\n"
FIELD_END = "END FIELD\n"
SUFFIX = "\n<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nJOINT SCHEMA DECISIONS:"

#: What a noul's sides say unless its criteria say otherwise. A side that is null says nothing, as in the reference;
#: vLLM and llama.cpp put the default back there.
NOUL = {
    "true": "The proposition is true or the answer is yes.",
    "false": "The proposition is false or the answer is no.",
}

#: The id under which a question is read when it is read alone.
NEUTRAL_ID = "question"


@dataclass(frozen=True, slots=True)
class ClefPrompt:
    """Writes requests as a Clef release reads them; ``max_length`` is in tokens, media included."""

    tokenizer: PromptTokenizer
    max_length: int = 16_384
    special_tokens: SpecialTokens = "escape"

    def encode(
        self, request: Request, media_ids: Sequence[int] = (), on_overflow: OverflowRule = "truncate"
    ) -> Encoded:
        """Ids and spans of ``request``; ``media_ids`` are the expanded ids of its images and videos.

        A state that does not fit is cut at its end (``Encoded.truncated`` says by how much), or, with
        ``refuse``, raises TooLong. TooLong also when the questions and media alone do not fit;
        BadQuestion for a question without id and instructions; BadRequest for text that is not valid
        Unicode or a value that is not JSON.
        """
        schema = _Schema(self.tokenizer, self.special_tokens, request)
        prefix, suffix = self.tokenizer.fixed(PREFIX), self.tokenizer.fixed(SUFFIX)
        state = schema.state
        room = self.max_length - len(prefix) - len(media_ids) - len(schema.ids) - len(suffix)
        if room < 0:
            raise TooLong(
                f"the questions and media need {self.max_length - room} tokens before any state and the limit is "
                f"{self.max_length}; ask fewer or shorter questions",
                ("questions",),
            )
        # Only ever the state: a schema that is cut would have options without spans.
        truncated = over(len(state), room, self.max_length, on_overflow)
        state = state[: len(state) - truncated]
        state_end = len(prefix) + len(media_ids) + len(state)
        return Encoded(
            ids=(*prefix, *media_ids, *state, *schema.ids, *suffix),
            questions=tuple(question.shifted(state_end) for question in schema.questions),
            media_start=len(prefix),
            state_end=state_end,
            truncated=truncated,
        )


def alone(request: Request) -> Iterator[tuple[str, Request]]:
    """Each question of ``request`` as a request of its own, with the id it answers to.

    It is read under a neutral id, so neither its name, its place nor its neighbours change the
    answer. A question whose only text is its id keeps that text as instructions; BadQuestion for one
    that has neither.
    """
    for question_id, question in request.questions.items():
        if _empty(question.instructions):
            # Under the neutral id it would be asked the word "question".
            if not question_id:
                raise _nothing_asked(question_id)
            question = replace(question, instructions=question_id)
        yield question_id, replace(request, questions={NEUTRAL_ID: question})


def options(question: Question) -> list[tuple[str, Json]]:
    """Option ids and descriptions (None: no description) in the order the model reads them."""
    match question:
        case Noul():
            criteria = {**NOUL, **(question.criteria or {})}
            return [(side, criteria[side]) for side in NOUL]
        case Choice():
            # By code point, which is how Python compares text.
            return sorted(question.options.items(), key=itemgetter(0))
        case _:
            return list(zip(question.option_ids, question.criteria, strict=True))


class _Schema:
    """The pieces of one request in writing order, tokenised in one call; spans count from the schema's start."""

    def __init__(self, tokenizer: PromptTokenizer, special_tokens: SpecialTokens, request: Request) -> None:
        # One call for all that a caller wrote. What this project wrote is tokenised once and kept.
        texts = list(_pieces(request))
        state, *pieces = tokenizer.encode(texts, special_tokens)
        self.state = state
        self.ids: list[int] = []
        self.questions: list[EncodedQuestion] = []
        self._fixed = tokenizer.fixed
        self._pieces = iter(pieces)
        self._write(SCHEMA)
        for question_id, question in request.questions.items():
            self.questions.append(self._question(question_id, question))

    def _question(self, question_id: str, question: Question) -> EncodedQuestion:
        # The head line, which is a caller's piece too: it holds the id.
        self._read()
        span = self._read()
        if span[0] == span[1]:
            raise _nothing_asked(question_id)
        self._write(OPTIONS)
        named = options(question)
        spans = []
        for number in range(1, len(named) + 1):
            self._write(f"OPTION {number}: ")
            spans.append(self._read())
            self._write(OPTION_END)
        self._write(FIELD_END)
        return EncodedQuestion(question.type, span, tuple(spans), tuple(option_id for option_id, _ in named))

    def _write(self, text: str) -> None:
        self.ids += self._fixed(text)

    def _read(self) -> Span:
        start = len(self.ids)
        self.ids += next(self._pieces)
        return start, len(self.ids)


def _pieces(request: Request) -> Iterator[str]:
    """What a caller wrote: the state, then head line, instructions and options of every question."""
    yield render(request.state)
    for number, (question_id, question) in enumerate(request.questions.items(), start=1):
        yield f"\nFIELD {number}\nID: {question_id}\nTYPE: {question.type}\nINSTRUCTION: "
        yield question_id if _empty(question.instructions) else render(question.instructions)
        for option_id, description in options(question):
            known = {} if description is None else {"description": description}
            yield render({"option_id": option_id, **known})


def _nothing_asked(question_id: str) -> BadQuestion:
    return BadQuestion("a question needs an id or instructions, this one has neither", ("questions", question_id))


def _empty(instructions: Json) -> bool:
    return instructions is None or instructions == ""
