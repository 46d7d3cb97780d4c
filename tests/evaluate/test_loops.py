"""Loop detection: recall on generated loops, false alarms on honest text and on installed files."""

import random
import sysconfig
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quaver.evaluate.loops import find_loop, longest_repetition

VOCABULARY = """the ledger shows a transfer from account to branch and later notes that no receipt was filed for
this quarter while several clients asked about fees storage window paper harbour engine silver forest policy
market station bridge winter garden letter number signal report doctor copper island mirror"""
WORDS = VOCABULARY.split()
EACH = 25


def sentence(rng: random.Random, low: int = 4, high: int = 14) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(low, high))).capitalize() + "."


def prose(rng: random.Random, size: int) -> str:
    text = ""
    while len(text) < size:
        text += sentence(rng) + " "
    return text[:size]


def in_json(rng: random.Random, tail: str) -> str:
    """A JSON object whose last string is still open and holds ``tail``."""
    return '{"title": "' + sentence(rng) + '", "text": "' + prose(rng, rng.randint(50, 1500)) + tail


def in_text(rng: random.Random, tail: str) -> str:
    return prose(rng, rng.randint(50, 1500)) + "\n\n" + tail


def again(piece: str, size: int) -> str:
    return piece * (size // len(piece) + 1)


def few_phrases(rng: random.Random, size: int, kinds: int) -> str:
    phrases = [sentence(rng, 5, 9) for _ in range(kinds)]
    text = ""
    while len(text) < size:
        text += rng.choice(phrases) + " "
    return text


def counted(size: int, row: Callable[[int], str], first: int) -> str:
    text, n = "", first
    while len(text) < size:
        text += row(n)
        n += 1
    return text


Family = Callable[[random.Random, int], str]
LOOPS: dict[str, Family] = {
    "phrase": lambda r, n: in_json(r, again(" " + " ".join(r.choices(WORDS, k=r.randint(2, 6))), n)),
    "sentence in plain text": lambda r, n: in_text(r, again(sentence(r) + " ", n)),
    "escaped newline": lambda r, n: in_json(r, again("\\n", n)),
    "escaped bullets": lambda r, n: in_json(r, again("\\n- " + r.choice(WORDS), n)),
    "emoji": lambda r, n: in_json(r, again(r.choice(["🙂", "🔥🔥🚀", "👍🏽 "]), n)),
    "long paragraph": lambda r, n: in_text(r, again(prose(r, r.randint(400, 900)) + "\n", max(n, 5000))),
    "counter in a string": lambda r, n: in_json(r, counted(n, lambda i: f"item {i}. ", r.randint(1, 90))),
    "counter in plain text": lambda r, n: in_text(r, counted(n, lambda i: f"Step {i}: check it.\n", r.randint(1, 90))),
    "two counters": lambda r, n: in_json(r, counted(n, lambda i: f"({i}, {3 * i + 5}) ", r.randint(1, 900))),
    "drift in a string": lambda r, n: in_json(r, few_phrases(r, max(n, 4000), 3)),
    "drift in plain text": lambda r, n: in_text(r, few_phrases(r, max(n, 6000), 2)),
    "spaces": lambda r, n: in_json(r, '",' + again(" ", n)),
    "newline and indent": lambda r, n: in_json(r, '",' + again("\n" + " " * r.choice([2, 4, 8]), n)),
    "table row": lambda r, n: in_text(r, again(f"| {r.choice(WORDS)} | {r.randint(1, 99)} | n/a |\n", n)),
    "two lines in turn": lambda r, n: in_text(r, again(sentence(r) + "\n" + sentence(r) + "\n", n)),
    "JSON element": lambda r, n: '{"rows": [' + again(f'{{"name": "{r.choice(WORDS)}", "value": null}}, ', n),
    "URL path": lambda r, n: in_json(r, "https://example.org/" + again(f"{r.choice(WORDS)}/{r.choice(WORDS)}/", n)),
    "one letter": lambda r, n: in_json(r, again(r.choice("A0.-_1"), n)),
    "special token": lambda r, n: in_text(r, again(r.choice(["<unused49>", "<pad>", "</td><td>"]), n)),
    "Chinese phrase": lambda r, n: in_text(r, again(r.choice(["报告显示没有变化。", "请再检查一次，", "是的"]), n)),
    "code line": lambda r, n: in_text(r, again(f"    {r.choice(WORDS)} = {r.choice(WORDS)}.next()\n", n)),
}

HONEST: dict[str, Family] = {
    "prose": lambda r, n: prose(r, n),
    "JSON list": lambda r, n: (
        '{"rows": [' + ", ".join(f'{{"id": {i}, "name": "{sentence(r)}"}}' for i in range(n // 60))
    ),
    "records with a clock": lambda r, n: (
        '{"rows": [' + counted(n, lambda i: f'{{"second": {i}, "speaker": null, "text": ""}}, ', r.randint(0, 9))
    ),
    "table with blanks": lambda r, n: "\n".join(
        f"| {i} | {r.choice(WORDS)} | N/A | {r.choice(['N/A', r.randint(1, 99)])} |" for i in range(n // 30)
    ),
    "addresses": lambda r, n: "\n".join(
        f"https://example.org/{r.choice(WORDS)}/{r.getrandbits(32):x}" for _ in range(n // 40)
    ),
    "hex": lambda r, n: "".join(r.choices("0123456789abcdef", k=n)),
    "random numbers in a string": lambda r, n: '{"data": "' + " ".join(str(r.randint(0, 999)) for _ in range(n // 4)),
    "ruler at the end": lambda r, n: prose(r, n) + "\n" + "=" * 120,
    "log": lambda r, n: "\n".join(
        f"2026-08-{r.randint(1, 28):02} 12:{r.randint(0, 59):02} INFO worker {r.randint(1, 8)} {sentence(r)}"
        for _ in range(n // 60)
    ),
    "chorus": lambda r, n: prose(r, n) + again(sentence(r) + "\n", 20) * 2,
    "spreadsheet": lambda r, n: "\n".join(
        ",".join(str(r.choice([0, 0, r.randint(1, 999)])) for _ in range(8)) for _ in range(n // 20)
    ),
    "zeros": lambda r, n: prose(r, n) + "[" + ", ".join(["0"] * 40) + "]",
    "open string cut by the cap": lambda r, n: '{"text": "' + prose(r, n),
    "equal rows": lambda r, n: prose(r, n) + "\n" + "0,0,0,N/A\n" * 12,
}


def generated(families: dict[str, Family], found: bool) -> tuple[int, Counter[str]]:
    """(number of texts, those judged wrongly by family); every text ends at the cap."""
    wrong: Counter[str] = Counter()
    for name, family in families.items():
        for seed in range(EACH):
            rng = random.Random(f"{name} {seed}")
            size = rng.randint(1500, 9000)
            text = family(rng, size)
            text = text[: len(text) - rng.randint(0, 40)] if found else text
            wrong[name] += (find_loop(text, "length") is not None) != found
    return len(families) * EACH, +wrong


def test_recall_on_looping_families() -> None:
    total, missed = generated(LOOPS, found=True)
    assert len(LOOPS) >= 15
    assert missed.total() <= 0.01 * total, missed


def test_no_alarm_on_honest_families() -> None:
    total, alarms = generated(HONEST, found=False)
    assert alarms.total() <= 0.01 * total, alarms


SUFFIXES = (".txt", ".md", ".json", ".csv", ".h", ".c", ".html", ".rst", "METADATA", "LICENSE", "copyright", ".py")


def installed_files() -> dict[str, list[Path]]:
    """Files that machines with Python have, by how their names end, in a random order that is the same each time."""
    roots = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "include")]
    roots += [Path("/usr/include"), Path("/usr/share/doc"), Path("/usr/share/common-licenses")]
    found: dict[str, set[Path]] = {suffix: set() for suffix in SUFFIXES}
    for path in (path for root in roots for path in root.rglob("*")):
        kind = next((suffix for suffix in SUFFIXES if path.name.endswith(suffix)), None)
        if kind is not None and path.is_file() and 2000 <= path.stat().st_size <= 2_000_000:
            found[kind].add(path)
    return {kind: sorted(paths, key=lambda path: random.Random(str(path)).random()) for kind, paths in found.items()}


def installed_slices(size: int = 6000, of_a_kind: int = 130, in_all: int = 1500) -> Iterator[tuple[str, str]]:
    """One random slice a file; Python sources, which every machine has, fill up what other kinds leave open."""
    files = installed_files()
    fill = in_all - sum(min(of_a_kind, len(paths)) for kind, paths in files.items() if kind != ".py")
    for kind, paths in files.items():
        for path in paths[: max(of_a_kind, fill) if kind == ".py" else of_a_kind]:
            text = path.read_text(encoding="utf-8", errors="replace")
            start = random.Random(path.name).randrange(max(1, len(text) - size // 2))
            yield kind, text[start : start + size]


def test_few_false_alarms_on_installed_files() -> None:
    alarms: Counter[str] = Counter()
    total = 0
    for kind, text in installed_slices():
        total += 1
        alarms[kind] += find_loop(text, "length") is not None
    assert total >= 1500
    assert alarms.total() <= 0.02 * total, +alarms


def test_a_cap_alone_is_no_loop() -> None:
    text = prose(random.Random(1), 12_000)
    assert find_loop(text, "length") is None
    assert find_loop("", "length") is None
    assert find_loop('{"a": "', "length") is None


def test_a_run_that_stopped_by_itself_is_only_suspect() -> None:
    text = in_text(random.Random(2), again("And so on. ", 2000))
    capped, stopped = find_loop(text, "length"), find_loop(text, "stop")
    assert capped is not None and not capped.suspect
    assert stopped is not None and stopped.suspect
    assert (capped.kind, capped.start) == (stopped.kind, stopped.start)


def test_counters_and_drift_need_the_cap() -> None:
    counter = in_json(random.Random(3), counted(3000, lambda i: f"item {i}. ", 1))
    assert find_loop(counter, "length") is not None
    assert find_loop(counter, "stop") is None


@pytest.mark.parametrize("size", [2_000, 30_000])
def test_the_loop_starts_where_the_text_begins_to_repeat(size: int) -> None:
    honest = prose(random.Random(4), 700)
    found = find_loop(honest + "#" + again("over and over, ", size), "length")
    assert found is not None and found.kind == "period" and found.period == len("over and over, ")
    assert found.start == len(honest) + 1


def test_the_right_answer_may_repeat() -> None:
    gold = prose(random.Random(5), 400) + "0,0,0\n" * 60
    assert find_loop(gold, "length") is not None
    assert find_loop(gold, "length", longest_in_gold=longest_repetition(gold)) is None
    assert find_loop(gold + "0,0,0\n" * 300, "length", longest_in_gold=longest_repetition(gold)) is not None


def test_the_time_is_linear() -> None:
    rng = random.Random(6)
    worst = ["a" * 20_000, "ab" * 10_000 + "a", prose(rng, 20_000), "a" * 19_999 + "b", few_phrases(rng, 200_000, 3)]
    began = time.process_time()
    for text in worst:
        find_loop(text, "length")
    assert time.process_time() - began < 2


@given(st.text(max_size=300), st.sampled_from(["length", "stop", None]))
@settings(deadline=None, max_examples=150)
def test_any_text_is_judged_and_short_text_is_no_loop(text: str, reason: str | None) -> None:
    found = find_loop(text[:150], reason)
    assert found is None
    found = find_loop(text, reason)
    assert found is None or 0 <= found.start < len(text)
