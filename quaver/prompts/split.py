"""Words a request for the split read: state, questions and options apart, each as token windows.

A small encoder has few positions, so no text is ever cut: one longer than a window goes into
several. The wording is fixed, because the release's head was trained on it.

=========  ==========================================================================
state      the text itself; other JSON values compact, keys sorted
question   its instructions
noul       ``<instructions> yes: <description>`` and ``no: <description>``, so that a state
           that is about what is asked lies nearer to the yes
choice     ``topic: <id>: <description>``, the wording at which the encoder's own cosine
           is best; a description that starts with the id replaces it
score      ``<instructions> level 2 of 5: <description>``
=========  ==========================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer

from quaver.errors import BadRelease, BadRequest
from quaver.prompts.render import words
from quaver.questions import Choice, Json, Noul, Question, Score

#: Token ids of one window, special tokens included.
Window = tuple[int, ...]
#: One text: its windows, at least one.
Text = tuple[Window, ...]

#: Tokens of a window, special tokens included: the length that the encoder was trained at.
WINDOW = 256
TYPES = {"noul": 0, "choice": 1, "score": 2}


@dataclass(frozen=True, slots=True)
class SplitQuestion:
    """``type`` is the head's: noul 0, choice 1, score 2. Options are in request order."""

    type: int
    text: Text
    options: tuple[Text, ...]


@dataclass(frozen=True, slots=True)
class SplitEncoded:
    """One request for the split read; requests that differ in ``salt`` never share anything."""

    state: Text
    questions: tuple[SplitQuestion, ...]
    salt: str = ""

    @property
    def tokens(self) -> int:
        """Tokens of the state and of every question and option."""
        schema = [text for question in self.questions for text in (question.text, *question.options)]
        return sum(len(window) for text in (self.state, *schema) for window in text)


class SplitPrompt:
    """Encodes requests with the release's tokenizer; windows hold at most ``window`` tokens.

    Everything in a request is plain text: ``[SEP]`` inside a state is something that somebody wrote.
    """

    def __init__(self, tokenizer: Tokenizer, window: int = WINDOW) -> None:
        start, end = (tokenizer.token_to_id(name) for name in ("[CLS]", "[SEP]"))
        if start is None or end is None:
            raise BadRelease("the tokenizer has no [CLS] and [SEP]; the split read needs that of a BERT encoder")
        self.start, self.end = int(start), int(end)
        # The packaged settings may cut and pad; the copy is ours to change.
        self.tokenizer = Tokenizer.from_str(tokenizer.to_str())
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.tokenizer.encode_special_tokens = True
        self.window = window

    def encode(self, state: Json, questions: Sequence[Question]) -> SplitEncoded:
        """All texts of one request. Raises BadRequest for text that is not valid Unicode."""
        written = [words(state)]
        for question in questions:
            written += [words(question.instructions), *option_texts(question)]
        texts = iter(self.texts(written))
        read = next(texts)
        return SplitEncoded(
            read,
            tuple(
                SplitQuestion(TYPES[question.type], next(texts), tuple(next(texts) for _ in question.option_ids))
                for question in questions
            ),
        )

    def texts(self, written: Sequence[str]) -> list[Text]:
        """Each text as token windows, at least one, none cut."""
        # Room for [CLS] and [SEP].
        step = self.window - 2
        try:
            encodings = self.tokenizer.encode_batch_fast(list(written), add_special_tokens=False)
        except TypeError as error:  # what tokenizers says of half a surrogate pair
            raise BadRequest("a text holds half of a surrogate pair; send valid Unicode") from error
        return [
            tuple((self.start, *ids[at : at + step], self.end) for at in range(0, max(len(ids), 1), step))
            for ids in (encoding.ids for encoding in encodings)
        ]


def option_texts(question: Question) -> list[str]:
    """The words of each option, in request order."""
    asked = words(question.instructions)
    match question:
        case Noul():
            # A null side and an absent one are the same here: this model has no default sentences.
            said = question.criteria or {}
            return [_join(asked, _described("yes", said.get("true"))), _described("no", said.get("false"))]
        case Choice():
            return [f"topic: {_described(name, about)}" for name, about in question.options.items()]
        case Score():
            levels = question.criteria
            return [
                _join(asked, _described(f"level {i} of {len(levels)}", level))
                for i, level in enumerate(levels, start=1)
            ]


def _described(name: str, about: Json) -> str:
    said = words(about)
    if not said:
        return name
    return said if said.lower().startswith(name.lower()) else f"{name}: {said}"


def _join(*parts: str) -> str:
    return " ".join(part for part in parts if part)
