"""Questions and answers: frozen, pure Python, no wire and no tensors."""

from quaver.questions.answers import (
    Answer,
    ChoiceAnswer,
    ConfidenceRule,
    NoulAnswer,
    ScoreAnswer,
    answer,
)
from quaver.questions.kinds import MAX_LEVELS, MAX_OPTIONS, Choice, Json, Noul, Question, Score
from quaver.questions.labels import LabelFacts, LabelRule
from quaver.questions.request import Abstention, Answers, MediaSource, OverflowRule, ReadingMode, Request, Timing

__all__ = [
    "MAX_LEVELS",
    "MAX_OPTIONS",
    "Abstention",
    "Answer",
    "Answers",
    "Choice",
    "ChoiceAnswer",
    "ConfidenceRule",
    "Json",
    "LabelFacts",
    "LabelRule",
    "MediaSource",
    "Noul",
    "NoulAnswer",
    "OverflowRule",
    "Question",
    "ReadingMode",
    "Request",
    "Score",
    "ScoreAnswer",
    "Timing",
    "answer",
]
