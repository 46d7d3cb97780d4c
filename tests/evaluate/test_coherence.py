"""Each relation is caught when it is broken, and holds for a decider that keeps it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from quaver.evaluate.answerer import Prior
from quaver.evaluate.coherence import IRRELEVANT, coherence, total_variation, variants
from quaver.evaluate.records import Record
from quaver.evaluate.report.summary import summarise
from quaver.questions import Choice

Records = Callable[[int], list[Record]]


def test_variants_ask_what_the_relation_says(records: Records) -> None:
    (record,) = records(1)
    record = replace(record, paraphrases={"queue": "To which desk?"})
    made = {(v.variant.relation, v.variant.question): v for v in variants([record]) if v.variant}
    assert {relation for relation, _ in made} == {
        "negation", "option_order", "paraphrase", "irrelevant_option", "batch",
    }  # fmt: skip
    assert len({v.id for v in made.values()}) == len(made)
    assert made["paraphrase", "queue"].questions["queue"].instructions == "To which desk?"
    reordered = made["option_order", "queue"].questions["queue"]
    assert reordered.option_ids == record.questions["queue"].option_ids[::-1]
    assert made["irrelevant_option", "queue"].questions["queue"].option_ids[-1] == IRRELEVANT
    assert all(list(v.questions) == [v.variant.question] and not v.labels for v in made.values() if v.variant)
    assert ("negation", "queue") not in made and ("option_order", "heat") not in made


def test_a_coherent_decider_breaks_nothing(records: Records, fake: Any, ask: Any) -> None:
    asked = records(15)
    _, outcomes = ask([*asked, *variants(asked)], fake(skill=1.0))
    found = coherence(outcomes)
    assert [relation.n for relation in found] == [15, 15, 45, 15, 45]
    assert all(relation.violation < 1e-9 and relation.flips == 0 for relation in found)


@pytest.mark.parametrize(
    ("broken", "relation"),
    [
        (lambda question, p: [p[0] ** 0.5, 1 - p[0] ** 0.5] if question.type == "noul" else p, "negation"),
        (lambda _, p: [x * w for x, w in zip(p, range(1, len(p) + 1), strict=True)], "option_order"),
        (lambda question, p: p[::-1] if "answer this" in question.instructions else p, "paraphrase"),
        (lambda _, p: [*[1 / len(p)] * len(p)] if len(p) == 5 else p, "irrelevant_option"),
    ],
)
def test_every_broken_relation_is_seen(
    records: Records, fake: Any, ask: Any, broken: Callable[[Any, Sequence[float]], Sequence[float]], relation: str
) -> None:
    class Broken(fake):  # type: ignore[misc]
        def _answer(self, state: Any, name: str, question: Any) -> Any:
            def bend(_: str, p: Sequence[float]) -> Sequence[float]:
                bent = broken(question, p)
                return [x / sum(bent) for x in bent]

            self.bend = bend
            return super()._answer(state, name, question)

    asked = records(15)
    found = {c.relation: c for c in coherence(ask([*asked, *variants(asked)], Broken(skill=1.0))[1])}
    assert found[relation].violation > 0.05
    assert found[relation].low > 0


def test_a_question_read_with_others_may_not_change(records: Records, fake: Any, ask: Any) -> None:
    class Distracted(fake):  # type: ignore[misc]
        def decide(self, state: Any, questions: Any, **media: Any) -> Any:
            self.bend = (lambda _, p: p[::-1]) if len(questions) > 1 else (lambda _, p: p)
            return super().decide(state, questions, **media)

    asked = records(10)
    found = {c.relation: c for c in coherence(ask([*asked, *variants(asked)], Distracted())[1])}
    assert found["batch"].violation > 0.5 and found["batch"].flips > 0.5


def test_failures_leave_pairs_out_and_uniform_stands_beside(records: Records, fake: Any, ask: Any) -> None:
    asked = records(10)
    decider = fake(skill=1.0)
    _, outcomes = ask([*asked, *variants(asked)], decider)
    outcomes[0] = replace(outcomes[0], answers={})
    assert [relation.n for relation in coherence(outcomes)] == [9, 9, 27, 9, 27]
    summary = summarise(*ask([*asked, *variants(asked)], Prior(())))
    assert all(relation.violation == 0 for relation in (*summary.coherence, *summary.uniform_coherence))
    assert summary.groups[0].metrics[0].value == summary.uniform[0].value


def test_pairs_of_one_record_are_no_further_evidence(records: Records, fake: Any, ask: Any) -> None:
    """With every question asked five times the pairs are five times as many, and the interval is what it was."""
    once = records(12)
    five = [
        replace(r, questions={f"{q}{i}": asked for q, asked in r.questions.items() for i in range(5)}) for r in once
    ]
    five = [replace(record, labels={}) for record in five]

    class ByKind(fake):  # type: ignore[misc]
        def _answer(self, state: Any, name: str, question: Any) -> Any:
            return super()._answer(state, name.rstrip("01234"), question)

    few, many = (
        next(
            c for c in coherence(ask([*asked, *variants(asked)], ByKind(skill=1.0))[1]) if c.relation == "option_order"
        )
        for asked in (once, five)
    )
    assert (few.n, many.n) == (12, 60)
    assert many.violation == pytest.approx(few.violation)
    assert (many.low, many.high) == pytest.approx((few.low, few.high))


def test_total_variation() -> None:
    assert total_variation((0.5, 0.5), (0.2, 0.8)) == pytest.approx(0.3)
    assert total_variation((1, 0, 0), (0, 0, 1)) == 1


def test_an_option_called_like_the_irrelevant_one_is_left_alone(records: Records) -> None:
    (record,) = records(1)
    record = replace(record, questions={"c": Choice("?", {IRRELEVANT: None, "b": None})}, labels={})
    assert "irrelevant_option" not in {v.variant.relation for v in variants([record]) if v.variant}
