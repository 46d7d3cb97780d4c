"""The held-out tasks: fixed items that no training, calibration or early stopping has seen.

The topic tasks are zero-shot: nothing of 20 Newsgroups or Reuters is used anywhere else. Questions
are worded here once, with instructions that no training template has, and every answerer gets the same ones.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from quaver.questions import Choice, Json, Noul, Question, Score
from quaver.train import sources
from quaver.train.sentiment import levels_of
from quaver.train.sources import Mail, Part, Rated

NEWSGROUPS = {
    "alt.atheism": "atheism", "comp.graphics": "computer graphics",
    "comp.os.ms-windows.misc": "Microsoft Windows operating system", "comp.sys.ibm.pc.hardware": "IBM PC hardware",
    "comp.sys.mac.hardware": "Apple Macintosh hardware", "comp.windows.x": "X Window System",
    "misc.forsale": "items for sale", "rec.autos": "cars", "rec.motorcycles": "motorcycles",
    "rec.sport.baseball": "baseball", "rec.sport.hockey": "ice hockey", "sci.crypt": "cryptography",
    "sci.electronics": "electronics", "sci.med": "medicine", "sci.space": "space",
    "soc.religion.christian": "Christianity", "talk.politics.guns": "gun politics",
    "talk.politics.mideast": "Middle East politics", "talk.politics.misc": "politics", "talk.religion.misc": "religion",
}  # fmt: skip
SIX = ("rec.sport.baseball", "sci.space", "sci.med", "talk.politics.guns", "comp.graphics", "rec.autos")
REUTERS = {
    "earn": "earnings", "acq": "acquisitions", "crude": "crude oil", "money-fx": "foreign exchange",
    "interest": "interest rates", "trade": "trade", "ship": "shipping", "grain": "grain",
}  # fmt: skip

POSITIVE = Noul("Is the tone of this text positive?")
SPAM = Noul("Is this email spam?")
LEVELS = ("very negative", "negative", "neutral", "positive", "very positive")
FEELING = Score("What feeling does the text express?", LEVELS)
TOPIC = "What is the topic of this text?"


@dataclass(frozen=True, slots=True)
class Item:
    """A state and the share of people who chose each option (one-hot where there is one label).

    ``wanted`` is a number to rank against: the mean rating of a score, None elsewhere.
    """

    state: Json
    target: tuple[float, ...]
    wanted: float | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """One question over many states. ``metric``: accuracy, auc or spearman."""

    name: str
    metric: str
    question: Question
    items: Sequence[Item]


def all_tasks(folder: Path, most: int = 2000) -> list[Task]:
    """The test's tasks; at most ``most`` newsgroup texts, drawn with a fixed seed."""
    rated, mails = sources.rated(folder), sources.mails(folder)
    groups = list(sources.topics(folder, "20newsgroups-test"))
    groups = random.Random(20).sample(groups, min(most, len(groups)))
    return [
        _topics("20 Newsgroups, 6 classes", [g for g in groups if g[0] in SIX], {k: NEWSGROUPS[k] for k in SIX}),
        _topics("20 Newsgroups, all 20", groups, NEWSGROUPS),
        _topics("Reuters R8", list(sources.topics(folder, "reuters-r8-test")), REUTERS),
        *feeling_tasks([item for item in rated if item.part == "test"]),
        spam_task([mail for mail in mails if mail.part == "test"]),
    ]


def _topics(name: str, labelled: Sequence[tuple[str, str]], words: dict[str, str]) -> Task:
    order = list(words)
    items = [Item(text, tuple(float(label == one) for one in order)) for label, text in labelled]
    return Task(name, "accuracy", Choice(TOPIC, dict.fromkeys(words.values())), items)


def feeling_tasks(rated: Sequence[Rated]) -> list[Task]:
    """Yes/no and score over the sentences of each source; tweets are the ones that targets are set for."""
    tasks = []
    for source in sources.RATED:
        chosen = [item for item in rated if item.source == source]
        clear = [item for item in chosen if abs(item.mean) >= 0.5]
        truth = [Item(item.text, (float(item.mean > 0), float(item.mean <= 0))) for item in clear]
        scored = [Item(item.text, levels_of(item.ratings, 5), item.mean) for item in chosen]
        tasks += [
            Task(f"positive, {source}", "auc", POSITIVE, truth),
            Task(f"score, {source}", "spearman", FEELING, scored),
        ]
    return tasks


def spam_task(mails: Sequence[Mail]) -> Task:
    """Whole mails, subject and body."""
    items = [
        Item(f"Subject: {mail.subject}\n\n{mail.body}", (float(mail.spam), float(not mail.spam))) for mail in mails
    ]
    return Task("spam", "auc", SPAM, items)


def part_tasks(folder: Path, part: Part) -> list[Task]:
    """The feeling and spam tasks over another part of the data, for calibration."""
    rated = [item for item in sources.rated(folder) if item.part == part]
    return [*feeling_tasks(rated), spam_task([mail for mail in sources.mails(folder) if mail.part == part])]
