"""What one training step reads: a fixed number of examples of every family, drawn by the step's own seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from quaver.train import pairs, records, sentiment, sources
from quaver.train.examples import Example
from quaver.train.pairs import Family
from quaver.train.sources import Mail, Part, Rated


@dataclass(frozen=True, slots=True)
class Mixture:
    """All items of one part of the data."""

    rated: list[Rated]
    mails: list[Mail]
    subjects: Family
    intents: Family
    glosses: tuple[Family, ...]

    def draw(self, seed: int) -> list[Example]:
        """About 130 examples, most states under 100 tokens."""
        rng = random.Random(seed)
        # Mails are long, so a step reads them for one purpose or the other.
        if seed % 2:
            mails = pairs.spam_batch(self.mails, 10, rng, words=60)
        else:
            mails = pairs.batch(self.subjects, 10, rng, words=60)
        return [
            *mails,
            *sentiment.batch(self.rated, 48, rng),
            *pairs.batch(rng.choice(self.glosses), 10, rng),
            *pairs.batch(self.intents, 6, rng),
            *records.batch(6, rng),
        ]


def load(folder: Path, part: Part) -> Mixture:
    """The items of ``part`` from packages in ``folder``."""
    mails = [mail for mail in sources.mails(folder) if mail.part == part]
    glosses = {name: [pair for pair in found if pair.part == part] for name, found in sources.wordnet(folder).items()}
    intents = [pair for pair in sources.intents(folder) if pair.part == part]
    return Mixture(
        rated=[item for item in sources.rated(folder) if item.part == part],
        mails=mails,
        subjects=Family("subject", pairs.subjects(mails)),
        intents=Family("intent", intents, pairs.INTENT, pairs.WANTS, pairs.NOT_WANTS),
        glosses=tuple(Family(f"gloss-{name}", found) for name, found in glosses.items()),
    )
