"""Questions made from texts and their labels: subjects of mails, words of glosses, aims of commands.

Any set of labels makes a choice: the wrong options are the labels of other texts of the batch.
The same pairs make yes/no questions ("Is this about X?"), plain and negated.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from quaver.questions import Choice, Noul
from quaver.train.examples import Example, one_hot, pick, window, worn, yes
from quaver.train.sources import Mail, Pair

TOPIC = (
    "What is the text about?", "Which topic fits best?", "What is this about?", "topic", "subject of the text",
    "Choose the subject of this text.", "Which of these is the text about?", None, "Where should this be filed?",
)  # fmt: skip
INTENT = (
    "What does the user want?", "Which action is asked for?", "intent", "What should be done?", "Pick the command.",
)  # fmt: skip
ABOUT = (
    "Is this about {0}?", "Is the text about {0}?", "Does the text concern {0}?", "The topic is {0}.", "{0}",
    "Does this deal with {0}?", "Is {0} the subject?",
)  # fmt: skip
NOT_ABOUT = ("Is this not about {0}?", "The topic is not {0}.", "Is the text about something other than {0}?")
WANTS = ("Does the user want this: {0}?", "Is the request: {0}?", "The user asks for: {0}.", "Is the intent {0}?")
NOT_WANTS = ("Does the user want something other than {0}?", "Is the request not: {0}?")
LIST_TAG = re.compile(r"^\s*((re|fwd?|aw):\s*|\[[^\]]*\]\s*)+", re.I)


@dataclass(frozen=True, slots=True)
class Family:
    """Pairs of one kind with the wordings that suit them."""

    name: str
    pairs: Sequence[Pair]
    asks: Sequence[str | None] = TOPIC
    true_if: Sequence[str] = ABOUT
    false_if: Sequence[str] = NOT_ABOUT


def subjects(mails: Sequence[Mail]) -> list[Pair]:
    """Bodies with their subject lines, list tags and reply marks removed; spam is left out."""
    return [
        Pair(mail.body, LIST_TAG.sub("", mail.subject).strip(), mail.part)
        for mail in mails
        if not mail.spam and len(LIST_TAG.sub("", mail.subject).split()) >= 2
    ]


def batch(family: Family, size: int, rng: random.Random, words: int = 90) -> list[Example]:
    """``size`` texts, each with a choice among labels of the batch and, for a third of them, a yes/no question."""
    chosen = rng.sample(family.pairs, size)
    labels = sorted({pair.label for pair in chosen})
    examples = []
    for pair in chosen:
        state = worn(window(pair.text, words, rng), rng)
        others = [label for label in labels if label != pair.label]
        if not others:
            continue
        wrong = rng.sample(others, rng.randint(1, len(others)))
        names = [*wrong, pair.label]
        rng.shuffle(names)
        asked = Choice(rng.choice(family.asks), dict.fromkeys(names))
        target = one_hot(names.index(pair.label), len(names))
        examples.append(Example(f"{family.name}-choice", state, asked, target, topical=True))
        if rng.random() < 0.35:
            examples.append(_about(family, state, pair.label, rng.choice(wrong), rng))
    return examples


def _about(family: Family, state: str, right: str, wrong: str, rng: random.Random) -> Example:
    named = rng.choice([right, wrong])
    negated = rng.random() < 0.2
    wording = rng.choice(family.false_if if negated else family.true_if).format(named)
    return Example(f"{family.name}-noul", state, Noul(wording), yes(float((named == right) != negated)))


SPAM = (
    "Is this mail spam?", "Is the message unwanted advertising?", "Is this junk mail?", "spam", "Is it a scam or spam?",
    "Should this mail go to the spam folder?", "Was this sent in bulk to sell something?", "The message is spam.",
    "Is somebody trying to sell me something I did not ask for?", "Should the filter block this message?",
)  # fmt: skip
HAM = (
    "Is this mail legitimate?", "Is this not spam?", "Is this a real message from a person or a list I read?", "ham",
    "Should this mail stay in the inbox?", "The message is not spam.", "Is it safe to deliver this message?",
)  # fmt: skip
SPAM_NAMES = (
    {"spam": None, "ham": None}, {"spam": "unwanted advertising or fraud", "ham": "a wanted message"},
    {"junk": None, "legitimate": None}, {"block": "spam or scam", "deliver": "normal mail"},
)  # fmt: skip


def spam_batch(mails: Sequence[Mail], size: int, rng: random.Random, words: int = 90) -> list[Example]:
    """``size`` mails, half of them spam, with a yes/no question or a choice each."""
    spam, ham = ([mail for mail in mails if mail.spam is kind] for kind in (True, False))
    asks = [(pick(SPAM, rng), True), (pick(SPAM, rng), True), (pick(HAM, rng), False)]
    names = rng.choice(SPAM_NAMES)
    examples = []
    for mail in rng.sample(spam, size // 2) + rng.sample(ham, size // 2):
        state = mail_state(mail, words, rng)
        if rng.random() < 0.2:
            order = list(names)
            rng.shuffle(order)
            place = order.index(list(names)[0 if mail.spam else 1])
            asked = Choice("What kind of mail is it?", {name: names[name] for name in order})
            examples.append(Example("spam-choice", state, asked, one_hot(place, 2)))
        else:
            wording, of_spam = rng.choice(asks)
            examples.append(Example("spam-noul", state, Noul(wording), yes(float(mail.spam is of_spam))))
    return examples


def mail_state(mail: Mail, words: int, rng: random.Random) -> str | dict[str, str]:
    """A mail as people send it to a classifier: subject and body, body alone, or a JSON object."""
    body = worn(window(mail.body, words, rng), rng)
    shape = rng.random()
    if shape < 0.25:
        return body
    if shape < 0.5:
        return {"subject": mail.subject, "body": body}
    return f"Subject: {mail.subject}\n\n{body}"
