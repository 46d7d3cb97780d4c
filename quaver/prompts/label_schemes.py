"""Which labels stand for the options of a question, proved for one tokenizer and one chat prompt.

Schemes are tried in order: what is natural for the question (yes and no, the number of a level), then
capital letters, digits, and pairs of capital letters. A scheme serves when each label is one token of
its own, straight after the generation prompt. When none does, labels are read whole: at every place
where they differ (see ``LabelSet``).
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from quaver.errors import BadRelease
from quaver.prompts.label_encoded import LabelNode, LabelSet
from quaver.prompts.tokenizer import PromptTokenizer
from quaver.questions import MAX_LEVELS, MAX_OPTIONS

Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scheme:
    """``natural`` labels mean an option wherever it is written, others mean a place in the list.

    ``noun`` says in a prompt what to reply with. ``any_case``: a label counts in lower case, capitalised
    and in capitals.
    """

    labels: tuple[str, ...]
    noun: str
    natural: bool = False
    any_case: bool = False

    def ways(self, label: str) -> list[str]:
        """How a reply may write the label; the label itself comes first."""
        cases = [label, label.lower(), label.capitalize(), label.upper()] if self.any_case else [label]
        return list(dict.fromkeys([*cases, *(f" {case}" for case in cases)]))


YES_NO = Scheme(("yes", "no"), "yes or no", natural=True, any_case=True)
LEVELS = Scheme(tuple(string.digits), "the number", natural=True)
LETTERS = Scheme(tuple(string.ascii_uppercase), "the letter")
DIGITS = Scheme(tuple(string.digits), "the number")
PAIRS = Scheme(tuple(a + b for a in string.ascii_uppercase for b in string.ascii_uppercase), "the two letters")

SCHEMES = {
    "noul": (YES_NO, LETTERS, DIGITS, PAIRS),
    "score": (LEVELS, LETTERS, PAIRS),
    "choice": (LETTERS, DIGITS, PAIRS),
}

#: Question types and numbers of options whose labels, once proved, leave no other number in doubt.
LARGEST = (("noul", 2), ("score", MAX_LEVELS), ("choice", len(LETTERS.labels)), ("choice", MAX_OPTIONS))


class LabelSchemes:
    """The labels that one model can be asked for; ``tail`` is the text between the user's and the reply.

    Every label is proved when this is made. Raises BadRelease when the tokenizer merges labels with the
    end of the prompt or cannot tell them apart.
    """

    def __init__(self, tokenizer: PromptTokenizer, tail: str) -> None:
        self._tokenizer = tokenizer
        self._tail = tail
        self._proved = {scheme: self._prove(scheme) for scheme in {s for row in SCHEMES.values() for s in row}}
        # More than there are question types with numbers of options.
        self.labels_of = lru_cache(maxsize=512)(self._labels_of)
        for question_type, count in LARGEST:
            self.labels_of(question_type, count)

    def _labels_of(self, question_type: str, count: int) -> tuple[Scheme, LabelSet]:
        """The first scheme with ``count`` labels for a question type, and its labels."""
        for scheme in SCHEMES[question_type]:
            proved = self._proved[scheme]
            # A natural label has one meaning, so all of the first ones are needed; of the others, any.
            known = [label for label in scheme.labels[:count] if label in proved] if scheme.natural else list(proved)
            if len(known) >= count:
                labels = tuple(known[:count])
                return scheme, LabelSet.of_tokens(labels, [proved[label] for label in labels])
        scheme = next(scheme for scheme in SCHEMES[question_type] if len(scheme.labels) >= count)
        labels = scheme.labels[:count]
        replies = reply_ids(self._tokenizer, self._tail, labels)
        merged = next((label for label, ids in zip(labels, replies, strict=True) if ids is None), None)
        if merged is not None:
            raise BadRelease(
                f"the tokenizer merges the label {merged!r} with the end of the chat prompt, so it has no token of its "
                "own"
            )
        return scheme, whole_labels(labels, [ids for ids in replies if ids is not None])

    def _prove(self, scheme: Scheme) -> dict[str, Ids]:
        """The tokens of each label that is one distinct token, and of its other ways to be written."""
        ways = [scheme.ways(label) for label in scheme.labels]
        ids = iter(reply_ids(self._tokenizer, self._tail, [way for row in ways for way in row]))
        tokens = [[next(ids) for _ in row] for row in ways]
        single = [[way[0] for way in row if way and len(way) == 1] for row in tokens]
        # A token that could mean two labels counts for neither.
        owners: dict[int, set[int]] = {}
        for i, row in enumerate(single):
            for token in row:
                owners.setdefault(token, set()).add(i)
        proved = {}
        for label, row, (first, *_) in zip(scheme.labels, single, tokens, strict=True):
            own = tuple(token for token in dict.fromkeys(row) if len(owners[token]) == 1)
            # A label that itself is no token of its own cannot be asked for, whatever its other ways are.
            if own and first == own[:1]:
                proved[label] = own
        # Pairs of letters are 676, and no question needs more than this.
        return dict(list(proved.items())[:MAX_OPTIONS])


def reply_ids(tokenizer: PromptTokenizer, tail: str, texts: Sequence[str]) -> list[Ids | None]:
    """The tokens that each text adds to a prompt that ends with ``tail``, as the beginning of the reply.

    None for a text that changes the prompt's own last tokens.
    """
    end = tokenizer.fixed(tail)
    replies = tokenizer.encode([tail + text for text in texts], "reference")
    return [tuple(ids[len(end) :]) if tuple(ids[: len(end)]) == end else None for ids in replies]


def whole_labels(labels: Sequence[str], replies: Sequence[Ids]) -> LabelSet:
    """Labels of several tokens, read at every place where they differ.

    Raises BadRelease when one label's tokens begin another's, because then no place tells them apart.
    """
    for a, b in zip(sorted(replies), sorted(replies)[1:], strict=False):
        if b[: len(a)] == a:
            first, second = (labels[list(replies).index(ids)] for ids in (a, b))
            raise BadRelease(f"the tokens of the label {first!r} begin those of {second!r}; they cannot be told apart")
    nodes: list[LabelNode] = []
    paths: list[list[tuple[int, int]]] = [[] for _ in labels]

    def split(members: list[int], start: int) -> None:
        """Adds the node at which ``members``, equal in their first ``start`` tokens, differ."""
        at = start
        shortest = min(len(replies[i]) for i in members)
        # Never past the last token of the shortest: it has to tell that label from the others.
        while at < shortest - 1 and len({replies[i][at] for i in members}) == 1:
            at += 1
        ways = _grouped((replies[i][at], i) for i in members)
        number = len(nodes)
        nodes.append(LabelNode(replies[members[0]][:at], tuple((token,) for token in ways)))
        for group, following in enumerate(ways.values()):
            for i in following:
                paths[i].append((number, group))
            if len(following) > 1:
                split(following, at + 1)

    split(list(range(len(labels))), 0)
    return LabelSet(tuple(labels), tuple(nodes), tuple(map(tuple, paths)))


def _grouped(pairs: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    groups: dict[int, list[int]] = {}
    for token, member in pairs:
        groups.setdefault(token, []).append(member)
    return groups
