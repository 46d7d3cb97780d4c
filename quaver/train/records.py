"""Generated JSON states with questions whose answers stand in them: lookups, flags, and the negation of both."""

from __future__ import annotations

import random

from quaver.questions import Choice, Noul
from quaver.train.examples import Example, one_hot, yes

FIELDS = {
    "status": ("open", "closed", "pending", "cancelled", "on hold"),
    "plan": ("free", "basic", "pro", "enterprise"),
    "country": ("France", "Japan", "Brazil", "Canada", "Kenya", "Norway"),
    "color": ("red", "blue", "green", "black", "white"),
    "priority": ("low", "medium", "high", "urgent"),
    "department": ("sales", "support", "billing", "engineering", "legal"),
    "payment": ("credit card", "bank transfer", "cash", "voucher"),
    "device": ("phone", "laptop", "tablet", "printer"),
    "weather": ("sunny", "rainy", "cloudy", "snowy"),
    "language": ("English", "German", "Spanish", "Chinese"),
    "shipping": ("express", "standard", "pickup"),
    "role": ("admin", "editor", "viewer", "guest"),
}
FLAGS = ("verified", "subscribed", "active", "insured", "refunded", "in_stock", "encrypted", "paid")
IS = ("Is the {f} {v}?", "The {f} is {v}.", "Is {v} the {f}?", "Does the record say that the {f} is {v}?")
IS_NOT = ("Is the {f} not {v}?", "The {f} is not {v}.", "Is the {f} something other than {v}?")


def batch(size: int, rng: random.Random) -> list[Example]:
    """``size`` records with one question each; a third each of choices, field questions and flag questions."""
    return [rng.choice((_choice, _field, _flag))(rng) for _ in range(size)]


def _record(rng: random.Random) -> tuple[dict[str, object], list[str]]:
    fields = rng.sample(sorted(FIELDS), rng.randint(2, 5))
    record: dict[str, object] = {field: rng.choice(FIELDS[field]) for field in fields}
    record["id"] = rng.randint(100, 99999)
    return record, fields


def _choice(rng: random.Random) -> Example:
    record, fields = _record(rng)
    field = rng.choice(fields)
    options = rng.sample(FIELDS[field], len(FIELDS[field]))
    wording = rng.choice(("What is the {f}?", "Which {f} is it?", "{f}", "Choose the {f} in the record."))
    asked = Choice(wording.format(f=field), dict.fromkeys(options))
    return Example(
        "record-choice", _shape(record, rng), asked, one_hot(options.index(str(record[field])), len(options))
    )


def _field(rng: random.Random) -> Example:
    record, fields = _record(rng)
    field = rng.choice(fields)
    actual = str(record[field])
    named = actual if rng.random() < 0.5 else rng.choice([v for v in FIELDS[field] if v != actual])
    negated = rng.random() < 0.3
    wording = rng.choice(IS_NOT if negated else IS).format(f=field, v=named)
    return Example("record-noul", _shape(record, rng), Noul(wording), yes(float((named == actual) != negated)))


def _flag(rng: random.Random) -> Example:
    record, _ = _record(rng)
    flag = rng.choice(FLAGS)
    record[flag] = rng.random() < 0.5
    negated = rng.random() < 0.3
    words = flag.replace("_", " ")
    wording = rng.choice(("Is it not {w}?", "not {w}") if negated else ("Is it {w}?", "{w}", "Is the {w} flag set?"))
    truth = yes(float(bool(record[flag]) != negated))
    return Example("record-noul", _shape(record, rng), Noul(wording.format(w=words)), truth)


def _shape(record: dict[str, object], rng: random.Random) -> object:
    """The record as JSON, nested JSON, or lines of text."""
    shape = rng.random()
    if shape < 0.5:
        return record
    if shape < 0.7:
        return {"record": record, "source": rng.choice(("web", "mail", "shop"))}
    return "\n".join(f"{key}: {value}" for key, value in record.items())
