"""Questions about feeling, answered by the people who rated each sentence.

The ratings of a sentence are a distribution, so a target is the share of raters for whom an
option is true. Wordings differ widely and half of the yes/no questions ask for the opposite.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from quaver.questions import Choice, Noul, Question, Score
from quaver.train.examples import Example, pick, yes
from quaver.train.sources import Rated

Target = Callable[[Sequence[int]], tuple[float, ...]]

NOUNS = ("text", "message", "comment", "sentence", "review", "post", "passage", "remark")

POSITIVE = (
    "Is the {x} positive?", "Is this {x} positive in tone?", "Does the writer sound happy?", "positive",
    "Does the author like what is described?", "Is the sentiment of the {x} favourable?", "Is this praise?",
    "Does the {x} express a good feeling?", "The {x} is positive.", "positive sentiment", "Is the writer pleased?",
    "Is the mood of the {x} upbeat?", "Is the customer satisfied?", "Does the {x} convey approval?",
    "Would the writer recommend it?", "Is this good news?", "Does the {x} say something nice?",
    "Does this {x} have a positive sentiment?", "Is the overall feeling good rather than bad?",
    "The author is happy about it.", "Is the speaker content?", "Does the {x} speak well of its subject?",
    "Is the attitude of the writer positive?", "Is this a favourable {x}?", "Does it sound like a recommendation?",
)  # fmt: skip
NEGATIVE = (
    "Is the {x} negative?", "Is this {x} negative in tone?", "Does the writer sound unhappy?", "negative",
    "Does the author dislike what is described?", "Is the sentiment of the {x} unfavourable?", "Is this criticism?",
    "Does the {x} express a bad feeling?", "The {x} is negative.", "negative sentiment", "Is the writer annoyed?",
    "Is the mood of the {x} gloomy?", "Is the customer dissatisfied?", "Is this a complaint?",
    "Would the writer warn others against it?", "Is this bad news?", "Does the {x} say something unpleasant?",
    "Does this {x} have a negative sentiment?", "Is the overall feeling bad rather than good?",
    "The author is disappointed.", "Is the speaker upset?", "Does the {x} speak badly of its subject?",
    "Is the attitude of the writer negative?", "Is this an unfavourable {x}?", "Does it sound like a warning?",
)  # fmt: skip
NOT_POSITIVE = (
    "Is the {x} not positive?", "Is it false that the {x} is positive?", "Does the writer not sound happy?",
    "Is the sentiment anything but favourable?", "The {x} is not positive.", "Is the writer not pleased?",
    "Is this {x} without praise?", "Does the author not like it?", "Isn't the customer satisfied?",
    "Does the {x} fail to express a good feeling?", "The author is not happy about it.", "not positive",
)  # fmt: skip
NOT_NEGATIVE = (
    "Is the {x} not negative?", "Is it false that the {x} is negative?", "Does the writer not sound unhappy?",
    "Is the sentiment anything but unfavourable?", "The {x} is not negative.", "Is the writer not annoyed?",
    "Is this {x} free of criticism?", "Does the author not dislike it?", "Is this no complaint?",
    "Does the {x} avoid bad feeling?", "The author is not disappointed.", "not negative",
)  # fmt: skip
STRONG = (
    "Does the {x} express strong feeling?", "Is the {x} emotional?", "Is the writer's reaction intense?",
    "Are strong words used?", "Is the opinion extreme?",
)  # fmt: skip

HOW_POSITIVE = (
    "How positive is the {x}?", "What is the sentiment of the {x}?", "Rate the tone of this {x}.", "sentiment",
    "How does the writer feel about it?", "How good is the feeling that the {x} expresses?", "How happy is the writer?",
    "How favourable is the opinion?", "Rate the attitude, from worst to best.", "How satisfied is the customer?",
)  # fmt: skip
HOW_NEGATIVE = (
    "How negative is the {x}?", "How unhappy is the writer?", "How strong is the criticism?",
    "How bad is the feeling that the {x} expresses?", "How dissatisfied is the customer?",
)  # fmt: skip

#: Upper rating of each level but the last; ``None`` marks scales on which 0 belongs half to each side.
SCALES: dict[int, tuple[int, ...]] = {
    2: (0,), 3: (-1, 0), 4: (-3, 0, 2), 5: (-3, -1, 0, 2), 6: (-3, -2, 0, 1, 2), 7: (-3, -2, -1, 0, 1, 2),
    9: (-4, -3, -2, -1, 0, 1, 2, 3),
}  # fmt: skip
LEVELS: dict[int, tuple[tuple[str, ...], ...]] = {
    2: (("negative", "positive"), ("bad", "good"), ("unhappy", "happy")),
    3: (("negative", "neutral", "positive"), ("bad", "mixed or neutral", "good"), ("unhappy", "neither", "happy")),
    4: (
        ("very negative", "negative", "positive", "very positive"),
        ("awful", "poor", "good", "excellent"),
    ),
    5: (
        ("very negative", "negative", "neutral", "positive", "very positive"),
        ("very bad", "bad", "neither good nor bad", "good", "very good"),
        ("terrible", "poor", "average", "good", "excellent"),
        ("hates it", "dislikes it", "indifferent", "likes it", "loves it"),
        ("1", "2", "3", "4", "5"),
        ("1 star", "2 stars", "3 stars", "4 stars", "5 stars"),
        ("strongly negative", "somewhat negative", "neither", "somewhat positive", "strongly positive"),
    ),
    6: (("very negative", "negative", "slightly negative", "slightly positive", "positive", "very positive"),),
    7: (
        ("extremely bad", "bad", "rather bad", "neutral", "rather good", "good", "extremely good"),
        ("1", "2", "3", "4", "5", "6", "7"),
    ),
    9: (("-4", "-3", "-2", "-1", "0", "1", "2", "3", "4"),),
}
STRENGTHS = (
    ("not at all", "slightly", "clearly", "extremely"),
    ("none", "a little", "quite", "very"),
    ("no", "mild", "moderate", "strong"),
)
OPPOSITES = (
    ("positive", "negative"), ("good", "bad"), ("happy", "unhappy"), ("praise", "complaint"),
    ("likes it", "dislikes it"), ("satisfied", "dissatisfied"), ("thumbs up", "thumbs down"),
    ("approval", "disapproval"),
)  # fmt: skip
DESCRIBED = {
    "positive": "the writer feels good about it", "negative": "the writer feels bad about it",
    "happy": "pleased or joyful", "unhappy": "sad, angry or disappointed", "praise": "says something good",
    "complaint": "says something bad",
}  # fmt: skip
SIDES = (
    ("the tone is positive", "the tone is negative"), ("a good feeling", "a bad feeling"), ("happy", "unhappy"),
    ("the writer is pleased", "the writer is displeased"),
)  # fmt: skip


def share(test: Callable[[int], bool]) -> Callable[[Sequence[int]], float]:
    """The share of raters for whom ``test`` holds; a rating of 0 counts half."""
    return lambda ratings: sum(0.5 if r == 0 else test(r) for r in ratings) / len(ratings)


def settled(probability: float) -> float:
    """Half share of raters, half majority: what one label for the sentence would say."""
    return 0.5 * probability + 0.5 * (0.5 if probability == 0.5 else float(probability > 0.5))


def levels_of(ratings: Sequence[int], size: int) -> tuple[float, ...]:
    """Share of raters on each level of a scale with ``size`` levels; without a middle, 0 counts half on each side."""
    totals = [0.0] * size
    for rating in ratings:
        level = sum(rating > upper for upper in SCALES[size])
        if rating == 0 and size % 2 == 0:
            totals[size // 2 - 1] += 0.5
            totals[size // 2] += 0.5
        else:
            totals[level] += 1
    return tuple(total / len(ratings) for total in totals)


def noul(rng: random.Random) -> tuple[Question, Target]:
    """A yes/no question about feeling."""
    positive, negative = share(lambda r: r > 0), share(lambda r: r < 0)
    wordings, probability = rng.choice(
        [
            *[(POSITIVE, positive), (NEGATIVE, negative)] * 2,
            *[(NOT_POSITIVE, negative), (NOT_NEGATIVE, positive)],
        ]
    )
    criteria: dict[str, str | None] | None = None
    if rng.random() < 0.35:
        good, bad = rng.choice(SIDES)
        criteria = {"true": good, "false": bad} if probability is positive else {"true": bad, "false": good}
        if rng.random() < 0.3:
            criteria[rng.choice(["true", "false"])] = None
    return Noul(pick(wordings, rng, NOUNS), criteria), lambda ratings: yes(settled(probability(ratings)))


def strong(rng: random.Random) -> tuple[Question, Target]:
    """Whether feeling is strong, whatever its direction."""
    return Noul(pick(STRONG, rng, NOUNS)), lambda ratings: yes(sum(abs(r) >= 3 for r in ratings) / len(ratings))


def score(rng: random.Random) -> tuple[Question, Target]:
    """A scale from worst to best, or from none to strong for one direction."""
    if rng.random() < 0.2:
        strengths = rng.choice(STRENGTHS)
        return Score(pick(HOW_NEGATIVE, rng, NOUNS), strengths), _badness
    size = rng.choice([2, 3, 4, 5, 5, 5, 5, 6, 7, 9])
    levels = rng.choice(LEVELS[size])
    return Score(pick(HOW_POSITIVE, rng, NOUNS), levels), lambda ratings: levels_of(ratings, size)


def _badness(ratings: Sequence[int]) -> tuple[float, ...]:
    bad = [min(max(-r, 0), 3) for r in ratings]
    return tuple(bad.count(level) / len(bad) for level in range(4))


def choice(rng: random.Random) -> tuple[Question, Target]:
    """One of two opposites, sometimes with a neutral third, in any order."""
    good, bad = rng.choice(OPPOSITES)
    names = [good, bad] + (["neutral"] if rng.random() < 0.4 else [])
    rng.shuffle(names)
    described = rng.random() < 0.4
    criteria = {name: DESCRIBED.get(name) if described else None for name in names}

    def target(ratings: Sequence[int]) -> tuple[float, ...]:
        below, zero, above = levels_of(ratings, 3)
        if "neutral" in names:
            return tuple({good: above, bad: below, "neutral": zero}[name] for name in names)
        up = settled(above + zero / 2)
        return tuple(up if name == good else 1 - up for name in names)

    wording = ("What is the sentiment?", "How does the writer feel?", "Which one fits the {x}?", "tone of the {x}")
    return Choice(pick(wording, rng, NOUNS), criteria), target


def batch(items: Mapping[str, Sequence[Rated]], sizes: Mapping[str, int], rng: random.Random) -> list[Example]:
    """``sizes`` of each source, with a yes/no question and a score or choice each; few questions, read once for all."""
    nouls = [noul(rng) for _ in range(5)] + [strong(rng)]
    others = [score(rng), score(rng), score(rng), choice(rng)]
    examples = []
    for source, size in sizes.items():
        for item in rng.sample(items[source], size):
            for kind, asked in (("noul", rng.choice(nouls)), ("graded", rng.choice(others))):
                question, target = asked
                examples.append(Example(f"sentiment-{kind}", item.text, question, target(item.ratings)))
    return examples
