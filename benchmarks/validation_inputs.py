"""The requests of the validation: decisions about invoices, and what may lie beside them. Media are named by file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
MEDIA = ROOT / "tests/golden"
#: Tokens of a prompt; the long state is cut there.
MAX_LENGTH = 2048

QUESTIONS: dict[str, Any] = {
    "approve": {"type": "noul", "instructions": "Approve up to 5,000 EUR when the order number is there."},
    "route": {
        "type": "choice",
        "instructions": "Above 10,000 EUR the board decides, above 5,000 EUR the head of department.",
        "criteria": {"clerk": "at most 5,000 EUR", "head": "more than 5,000 EUR", "board": "more than 10,000 EUR"},
    },
    "risk": {"type": "score", "instructions": "How unusual is it?", "criteria": ["not", "a little", "very", "fraud"]},
}
WORDLESS: dict[str, Any] = {
    "approve": {"type": "noul", "instructions": ""},
    "route": {"type": "choice", "criteria": {"clerk": None, "head": None, "board": None}},
    "risk": {"type": "score", "instructions": "", "criteria": ["none", "some", "much", "fraud"]},
}
INVOICE = "Invoice 2024/0815, order 77-1: 40 chairs, total 4,990.00 EUR, due in 30 days."


def about(state: Any, questions: dict[str, Any] = QUESTIONS, **media: list[str]) -> dict[str, Any]:
    return {"state": state, "questions": questions, **media}


TALL, WIDE = "clef-flash-tiny/media/odd_37x91.png", "clef-flash-tiny/media/scene_640x480.png"
#: A film without sound.
FILM = "clef-flash-tiny/media/clip32_64x96.mp4"
INPUTS: dict[str, dict[str, Any]] = {
    "below the threshold": about(INVOICE),
    "above the threshold": about(
        {"invoice": "2024/0816", "order": None, "total": 12400.5, "currency": "EUR", "lines": [1, 2.5, []]}
    ),
    "Unicode": about("Überprüfung: Betrag 1.299,00 € – 請求書 № ٤٢, naïve cafe\u0301 👍🏽\u200d\n\tстрока"),
    "empty instructions": about(INVOICE, WORDLESS),
    "empty state": about(""),
    "cut state": about("Line item, quantity, price. " * 1000),
    "one image": about("The invoice as it was scanned.", images=[WIDE]),
    "two images": about("Two pages.", images=[TALL, WIDE]),
    "film": about("The delivery.", videos=[FILM]),
    "image and film": about("The invoice and the delivery.", images=[TALL], videos=[FILM]),
}
