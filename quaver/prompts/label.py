"""The prompt of a label read: one chat turn per question, state first, then the question with labelled options.

Head of the chat template, state, question and tail are tokenised apart, so the state's tokens are the
same whatever is asked of it. Options of a choice are written sorted by code point unless an order is
given, so that the order of the request changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from quaver.errors import BadRelease, TooLong
from quaver.prompts.chat_template import UserTurn
from quaver.prompts.encoded import over
from quaver.prompts.label_encoded import LabelEncoded, LabelSet
from quaver.prompts.label_schemes import LabelSchemes, Scheme
from quaver.prompts.opening import Opening
from quaver.prompts.render import words
from quaver.prompts.tokenizer import PromptTokenizer, SpecialTokens
from quaver.questions import Choice, Noul, OverflowRule, Question, Request

#: A state that says nothing, of which a model's answer is its prior; one of those of Zhao et al. (arXiv:2102.09690).
CONTENT_FREE = "N/A"

SIDES = {"true": "yes", "false": "no"}


@dataclass(frozen=True, slots=True)
class Option:
    """An option by the id that the answer names, the name that the model reads and its description."""

    id: str
    name: str
    about: str


@dataclass(frozen=True, slots=True)
class _Asked:
    """One question as it will be written."""

    text: str
    labels: LabelSet
    option_ids: tuple[str, ...]


class LabelPrompt:
    """Writes the questions of a request for a chat model; ``max_length`` is in tokens of one prompt.

    Raises BadRelease when the tokenizer cannot write the parts of a prompt apart, or has no labels.
    """

    def __init__(
        self, tokenizer: PromptTokenizer, turn: UserTurn, max_length: int, special_tokens: SpecialTokens = "escape"
    ) -> None:
        self.max_length = max_length
        self._tokenizer = tokenizer
        self._turn = turn
        self._special_tokens = special_tokens
        self._schemes = LabelSchemes(tokenizer, turn.tail)
        self._check_pieces()

    def opening(self, images: int, videos: int) -> Opening:
        """How a turn with so many media begins, to be filled by their processor."""
        return Opening.of(self._tokenizer, self._turn, images, videos)

    def encode(
        self,
        request: Request,
        opening: Opening | None = None,
        on_overflow: OverflowRule = "truncate",
        orders: Mapping[str, Sequence[int]] | None = None,
    ) -> tuple[LabelEncoded, ...]:
        """One prompt per question of ``request``, in its order; all begin with the same head, media and state.

        ``opening`` is that of a turn with its images and videos. ``orders`` gives, by question id, the order
        in which to write the options, as indices into the order they are written in otherwise.
        A state that does not fit beside the longest question is cut at its end, or, with ``refuse``,
        raises TooLong; TooLong also when a question and the media alone do not fit. BadRequest for text
        that is not valid Unicode or a value that is not JSON.
        """
        asked = [self._ask(name, question, (orders or {}).get(name)) for name, question in request.questions.items()]
        state, *questions = self._tokenizer.encode(
            # With the template's own words before it: some tokenizers write a line break by what follows it.
            [(opening.rest if opening else "") + words(request.state), *(question.text for question in asked)],
            self._special_tokens,
        )
        head, tail = self._tokenizer.fixed(self._turn.head), self._tokenizer.fixed(self._turn.tail)
        before = opening.ids if opening else head
        room = self.max_length - len(before) - len(tail) - max(map(len, questions))
        if room < 0:
            longest = max(zip(map(len, questions), request.questions, strict=True))[1]
            raise TooLong(
                f"question {longest!r} and the media need {self.max_length - room} tokens before any state and the "
                f"limit is {self.max_length}; ask a shorter question",
                ("questions", longest),
            )
        truncated = over(len(state), room, self.max_length, on_overflow)
        prefix = (*before, *state[: len(state) - truncated])
        return tuple(
            LabelEncoded(
                ids=(*prefix, *ids, *tail),
                labels=question.labels,
                option_ids=question.option_ids,
                media_start=0 if opening else len(head),
                state_end=len(prefix),
                truncated=truncated,
            )
            for question, ids in zip(asked, questions, strict=True)
        )

    def _ask(self, question_id: str, question: Question, order: Sequence[int] | None) -> _Asked:
        written = options(question)
        scheme, labels = self._schemes.labels_of(question.type, len(written))
        if order is not None:
            written = [written[i] for i in order]
            # A yes means the true side wherever it stands, a letter means what stands beside it.
            labels = labels.ordered(order) if scheme.natural else labels
        lines = [_line(scheme, label, option) for label, option in zip(labels.labels, written, strict=True)]
        # A question without instructions asks what its id says, as in the Clef releases.
        instructions = words(question.instructions) or question_id
        text = "\n".join(["\n\n---", f"Question: {instructions}", *lines, f"Reply with {scheme.noun} only."])
        return _Asked(text, labels, tuple(option.id for option in written))

    def _check_pieces(self) -> None:
        """The pieces of a plain prompt must be what the tokenizer makes of it as one text."""
        plain = Request("plain", {"question": Noul("Is this a question?")})
        [encoded] = self.encode(plain)
        written = self._ask("question", plain.questions["question"], None).text
        [whole] = self._tokenizer.encode([f"{self._turn.head}plain{written}{self._turn.tail}"], "reference")
        if list(encoded.ids) != whole:
            raise BadRelease(
                "the tokenizer writes a text differently when its parts are apart (one that puts a space before every "
                "text does), so a state cannot be shared between questions; this model cannot be asked for labels"
            )


def options(question: Question) -> list[Option]:
    """The options in the order they are written unless told otherwise."""
    match question:
        case Noul():
            said = question.criteria or {}
            return [Option(side, name, words(said.get(side))) for side, name in SIDES.items()]
        case Choice():
            return [
                Option(name, name, words(about)) for name, about in sorted(question.options.items(), key=itemgetter(0))
            ]
        case _:
            levels = zip(question.option_ids, question.criteria, strict=True)
            return [Option(level, "", words(about)) for level, about in levels]


def _line(scheme: Scheme, label: str, option: Option) -> str:
    if scheme.natural:  # the label says what the option is
        return f"{label}: {option.about}" if option.about else label
    return f"{label}. {': '.join(filter(None, (option.name, option.about)))}"
