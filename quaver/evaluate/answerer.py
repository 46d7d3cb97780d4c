"""What can be evaluated, and the two baselines that everything should beat."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from quaver.errors import ServerError
from quaver.evaluate.records import Record
from quaver.questions import Answer, ChoiceAnswer, Json, MediaSource, NoulAnswer, Question, ScoreAnswer, answer


class Answerer(Protocol):
    """Anything that decides: a decider in this process, a client of a server, a baseline.

    The mapping may also have ``model``, ``input_tokens``, ``cached_tokens``, ``truncated_tokens`` and
    ``calibration``; they are kept when they are there. Raises a ``QuaverError`` when it cannot answer.
    """

    def decide(
        self,
        state: Json,
        questions: Mapping[str, Question],
        *,
        images: Sequence[MediaSource] = (),
        audio: Sequence[MediaSource] = (),
        videos: Sequence[MediaSource] = (),
    ) -> Mapping[str, Answer]: ...


class Prior:
    """Answers with the share of each label among labelled records, whatever the state: the best constant guess.

    Questions count as the same when their type, instructions and options are. One is added to every
    count, so a question without labels is answered uniformly; ``Prior(())`` is the uniform baseline.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        self._counts: dict[str, Counter[int]] = {}
        for record in records:
            for name, label in record.labels.items():
                self._counts.setdefault(_key(record.questions[name]), Counter())[label] += 1

    def decide(self, state: Json, questions: Mapping[str, Question], **_: Any) -> dict[str, Answer]:  # noqa: ARG002
        return {name: self._guess(question) for name, question in questions.items()}

    def _guess(self, question: Question) -> Answer:
        counts = self._counts.get(_key(question), Counter())
        total = counts.total() + len(question.option_ids)
        return answer(question, [(counts[i] + 1) / total for i in range(len(question.option_ids))])


def probabilities(question: Question, given: Answer | None) -> tuple[float, ...]:
    """The probabilities of an answer in ``option_ids`` order, sum 1; those of a noul are (true, false).

    Raises ServerError when the answer is missing, lacks an option or has numbers that are no probabilities.
    """
    try:
        match given:
            case NoulAnswer():
                found = [given.probability, 1.0 - given.probability]
            case ChoiceAnswer():
                found = [given.probabilities[option] for option in question.option_ids]
            case ScoreAnswer():
                found = list(given.probabilities)
            case None:
                raise ServerError("a question was not answered", 502)
    except KeyError as error:
        raise ServerError(f"an answer lacks the option {error}", 502) from None
    total = sum(found)
    if len(found) != len(question.option_ids) or not (min(found) >= 0 and 0 < total < math.inf):
        raise ServerError(f"an answer has {found} for the options {', '.join(question.option_ids)}", 502)
    return tuple(p / total for p in found)


def _key(question: Question) -> str:
    return repr((question.type, question.instructions, question.option_ids))
