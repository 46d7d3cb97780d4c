"""What one training step reads: a fixed number of examples of every family, drawn by the step's own seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from quaver.train import pairs, records, sentiment, sources
from quaver.train.examples import Example
from quaver.train.pairs import Family
from quaver.train.sources import Mail, Part, Rated

#: Rated texts of a step by source. Words are short and cheap; the rest is near an even share.
RATED = {"tweets": 15, "amazonReviewSnippets": 10, "movieReviewSnippets": 14, "nytEditorialSnippets": 9, "lexicon": 16}


@dataclass(frozen=True, slots=True)
class Mixture:
    """All items of one part of the data."""

    rated: dict[str, list[Rated]]
    mails: list[Mail]
    subjects: Family
    intents: Family
    glosses: tuple[Family, ...]

    def draw(self, seed: int) -> list[Example]:
        """About 180 examples, most states under 100 tokens."""
        rng = random.Random(seed)
        # Mails are long, so only every second step reads them for their subjects too.
        subjects = pairs.batch(self.subjects, 8, rng, words=60) if seed % 2 else []
        return [
            *sentiment.batch(self.rated, RATED, rng),
            *pairs.spam_batch(self.mails, 10, rng, words=60),
            *subjects,
            *pairs.batch(rng.choice(self.glosses), 10, rng),
            *pairs.batch(self.intents, 6, rng),
            *records.batch(6, rng),
        ]

    def draw_pairs(self, seed: int, size: int = 20) -> list[Example]:
        """Choices with up to ``size`` options and yes/no questions of every topical family, over longer texts."""
        rng = random.Random(seed)
        families = (self.subjects, self.intents, *self.glosses)
        return [example for family in families for example in pairs.batch(family, size, rng, words=200)]


def load(folder: Path, part: Part) -> Mixture:
    """The items of ``part`` from packages in ``folder``."""
    mails = [mail for mail in sources.mails(folder) if mail.part == part]
    glosses = {name: [pair for pair in found if pair.part == part] for name, found in sources.wordnet(folder).items()}
    intents = [pair for pair in sources.intents(folder) if pair.part == part]
    rated = [*sources.rated(folder), *sources.lexicon(folder)]
    return Mixture(
        rated={source: [item for item in rated if item.source == source and item.part == part] for source in RATED},
        mails=mails,
        subjects=Family("subject", pairs.subjects(mails)),
        intents=Family("intent", intents, pairs.INTENT, pairs.WANTS, pairs.NOT_WANTS),
        glosses=tuple(Family(f"gloss-{name}", found) for name, found in glosses.items()),
    )
