"""Sentences of the home intents' templates: ``(a|b)``, ``[optional]``, ``<rule>``, ``{slot}``, ``(x;y)`` either way."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping

#: Stand-ins for the open slots of intent templates.
SLOTS = {
    "name": ("kitchen lamp", "bedroom light", "heater", "front door", "tv", "coffee machine", "fan", "garage door"),
    "area": ("kitchen", "living room", "bedroom", "office", "bathroom", "garage", "hall"),
    "floor": ("first floor", "ground floor", "basement", "attic"),
    "item": ("milk", "eggs", "batteries", "call mom", "bread"),
    "message": ("dinner is ready", "the car is here", "I will be late"),
    "search_query": ("jazz", "the beatles", "rain sounds", "a quiet piano album"),
}
GROUP = re.compile(r"\(([^()\[\]]*)\)|\[([^()\[\]]*)\]")


def expand(template: str, rules: Mapping[str, str], rng: random.Random) -> str:
    """One random sentence of a template; rules refer to rules, brackets nest."""
    text, named, grouped = template, 1, 1
    while named or grouped:
        text, named = re.subn(r"<(\w+)>", lambda m: rules.get(m[1], m[1].replace("_", " ")), text)
        text, grouped = GROUP.subn(lambda m: _alternative(m, rng), text)
    text = re.sub(r"\{(\w+)(:\w+)?\}", lambda m: _slot(m[1], rng), text)
    return re.sub(r"\s+", " ", text).strip()


def _alternative(match: re.Match[str], rng: random.Random) -> str:
    required, optional = match.groups()
    if required is None:
        return rng.choice(str(optional).split("|")) if rng.random() < 0.5 else ""
    parts = str(required).split(";")
    rng.shuffle(parts)
    return " ".join(parts) if len(parts) > 1 else rng.choice(str(required).split("|"))


def _slot(name: str, rng: random.Random) -> str:
    if name in SLOTS:
        return rng.choice(SLOTS[name])
    if "state" in name or "class" in name or "color" in name:
        return rng.choice(("open", "on", "off", "closed", "red", "windows", "curtains"))
    return str(rng.randint(2, 50))
