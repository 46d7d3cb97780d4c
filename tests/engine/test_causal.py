"""The engine over a real backbone that is made to fail: who is hurt, and what stays behind."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any

import pytest
import tiny
import torch
from tiny import KINDS, TOLERANCE, Prompt, Reader, distance, fresh, probabilities, prompt, tokens

from quaver.engine import Engine, Policy
from quaver.engine.causal import TAIL, CausalReader
from quaver.engine.job import Finished
from quaver.errors import EngineFault, Expired, Overloaded
from quaver.models.backbone import Computed, Pause, Row

BAD = tokens(999, 40)


class Failing:
    """A backbone that fails when a row holds the tokens of ``BAD``, in the way it is told to."""

    def __init__(self, kind: str, how: str) -> None:
        self._backbone, self.how = tiny.model(kind)[0], how
        self.batches: list[list[int]] = []
        self.pause = 0.0
        self.between_layers: Callable[[], None] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backbone, name)

    def forward(self, rows: Sequence[Row], pause: Pause | None = None) -> list[Computed]:
        def between() -> None:
            if arrive := self.between_layers:
                self.between_layers = None
                arrive()
            if pause:
                pause()

        time.sleep(self.pause)
        lengths = [row.end - row.start for row in rows]
        if not self.between_layers:
            self.batches.append(lengths)
            return self._forward(rows, pause)
        results = self._forward(rows, between)
        self.batches.append(lengths)
        return results

    def _forward(self, rows: Sequence[Row], pause: Pause | None) -> list[Computed]:
        bad = [tuple(row.inputs.ids[: len(BAD)].tolist()) == BAD for row in rows]
        if self.how == "memory" and sum(row.end - row.start for row in rows) > 64:
            raise torch.OutOfMemoryError("out of memory")
        if self.how == "raise" and any(bad):
            raise RuntimeError("no")
        results = self._backbone.forward(rows, pause)
        if self.how == "nan":
            for result, is_bad in zip(results, bad, strict=True):
                if is_bad:
                    result.hidden[-1] = torch.nan
        return results


@contextmanager
def engine(
    kind: str, how: str = "", cache_bytes: int = 1 << 24, **settings: Any
) -> Iterator[tuple[Engine[Prompt, Any], Reader, Failing]]:
    backbone = Failing(kind, how)
    reader: Reader = CausalReader(backbone, tiny.model(kind)[1], cache_bytes)
    policy = Policy(settings.pop("step_tokens", 1000), patience=settings.pop("patience", 5.0))
    running: Engine[Prompt, Any] = Engine(reader, policy, **settings)
    try:
        yield running, reader, backbone
    finally:
        running.close()
        reader.tree.check()


def check(finished: Finished, kind: str, *asked: Prompt) -> None:
    for reading, one in zip(finished.readings, asked, strict=True):
        assert distance(probabilities(reading), fresh(kind, one)) < TOLERANCE


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["raise", "nan"])
def test_a_failing_row_fails_alone_and_leaves_nothing(kind: str, how: str) -> None:
    good = [prompt(tokens(seed, 100), schema=seed, kind=kind) for seed in range(4)]
    bad = prompt(BAD, kind=kind)
    with engine(kind, how) as (running, reader, backbone):
        backbone.pause = 0.2  # all are there when the first step is planned
        first = running.submit([prompt(tokens(77, 10), kind=kind)])
        jobs = [running.submit([one]) for one in [*good[:2], bad, *good[2:]]]
        first.result(60)
        with pytest.raises(EngineFault):
            jobs[2].result(60)
        for job, one in zip([*jobs[:2], *jobs[3:]], good, strict=True):
            check(job.result(60), kind, one)
        assert [bad.tokens] in backbone.batches, "the bad row was tried alone"
        assert any(len(batch) > 1 for batch in backbone.batches)
        assert reader.tree.length("", bad.symbols) == 0
        assert running.stats()["jobs_failed"] == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_fails_whole(kind: str) -> None:
    """Of several prompts one fails: the job is answered once, with the error, and keeps nothing."""
    fine, bad = prompt(tokens(1, 90), kind=kind), prompt(BAD, kind=kind)
    with engine(kind, "raise") as (running, reader, _):
        with pytest.raises(EngineFault, match="RuntimeError: no"):
            running.submit([fine, bad]).result(60)
        assert reader.tree.length("", fine.symbols) == 0
        check(running.submit([fine]).result(60), kind, fine)


@pytest.mark.parametrize("kind", KINDS)
def test_running_out_of_memory_makes_smaller_steps(kind: str) -> None:
    asked = [prompt(tokens(seed, 150), schema=seed, kind=kind) for seed in range(3)]
    with engine(kind, "memory") as (running, _, backbone):
        jobs = [running.submit([one]) for one in asked]
        for job, one in zip(jobs, asked, strict=True):
            check(job.result(60), kind, one)
        assert sum(backbone.batches[-1]) <= 64


@pytest.mark.parametrize("kind", KINDS)
def test_who_leaves_costs_no_more_and_hands_the_state_on(kind: str) -> None:
    state = tokens(3, 400)
    first, second = prompt(state, schema=1, kind=kind), prompt(state, schema=2, kind=kind)
    with engine(kind, step_tokens=40) as (running, _, backbone):
        backbone.pause = 0.05
        leaving, staying = running.submit([first]), running.submit([second])
        while sum(map(sum, backbone.batches)) < 200:
            time.sleep(0.01)
        assert leaving.cancel()
        check(staying.result(60), kind, second)
        with pytest.raises(CancelledError):
            leaving.result()
        assert running.stats()["tokens_computed"] <= second.tokens + 40 + TAIL
        assert running.stats()["jobs_dropped"] == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_deadline_ends_a_job(kind: str) -> None:
    with engine(kind, step_tokens=20) as (running, reader, backbone):
        backbone.pause = 0.05
        asked = prompt(tokens(4, 600), kind=kind)
        with pytest.raises(Expired, match="within the time"):
            running.submit([asked], deadline=time.monotonic() + 0.2).result(60)
        assert reader.tree.length("", asked.symbols) == 0
        # A twin without a deadline is not hurt by the one that has one.
        short = prompt(tokens(5, 200), kind=kind)
        hurried = running.submit([short], deadline=time.monotonic() + 0.1)
        patient = running.submit([short])
        with pytest.raises(Expired):
            hurried.result(60)
        check(patient.result(60), kind, short)


@pytest.mark.parametrize("kind", KINDS)
def test_a_short_prompt_does_not_wait_for_a_giant(kind: str) -> None:
    with engine(kind, step_tokens=64) as (running, _, backbone):
        backbone.pause = 0.02
        giant = running.submit([prompt(tokens(6, 3_000), kind=kind)])
        while not backbone.batches:
            time.sleep(0.005)
        short = running.submit([prompt(tokens(7, 20), kind=kind)])
        short.result(60)
        assert not giant.done()
        giant.result(120)


def test_admission_counts_tokens() -> None:
    with engine("dense", max_tokens=500) as (running, _, backbone):
        backbone.pause = 0.2
        giant = running.submit([prompt(tokens(8, 2_000), kind="dense")])
        with pytest.raises(Overloaded, match="tokens wait already") as refused:
            running.submit([prompt(tokens(9, 400), kind="dense")])
        assert refused.value.retry_after >= 1
        giant.result(60)
        running.submit([prompt(tokens(9, 400), kind="dense")]).result(60)
        assert running.stats()["tokens_waiting"] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_any_order_of_operations_leaves_right_answers(kind: str) -> None:
    """A thousand requests of growing, branching, failing and cancelled prompts over a cache that is too small."""
    rng = random.Random(11)
    roots = [tokens(seed, 30) for seed in range(4)]
    pool = [prompt(BAD, schema=s, kind=kind) for s in range(2)]
    for _ in range(48):
        state = rng.choice(roots)[: rng.randint(1, 30)] + tokens(rng.randrange(6), rng.choice([0, 8, 40, 90]))
        pool.append(prompt(state, schema=rng.randrange(4), salt=rng.choice(["", "", "t"]), kind=kind))
    expected = {one: fresh(kind, one) for one in pool[2:]}
    size = 60_000 if kind == "dense" else 200_000
    with engine(kind, "nan", cache_bytes=size, step_tokens=48) as (running, reader, _):
        for _ in range(100):
            batch = rng.sample(pool, 10)
            jobs = [running.submit([one], priority=rng.randint(-1, 1)) for one in batch]
            gone = [job.cancel() for job in rng.sample(jobs, 2)]
            assert gone
            for one, job in zip(batch, jobs, strict=True):
                if job.cancelled():
                    continue
                if one in expected:
                    assert distance(probabilities(job.result(60).readings[0]), expected[one]) < TOLERANCE
                else:
                    with pytest.raises(EngineFault):
                        job.result(60)
        stats = running.stats()
        assert stats["cache_evictions"] > 0 and stats["tokens_reused"] > 0
        assert stats["state_cache_bytes"] <= size
        assert reader.tree.length("", BAD) < len(BAD) // 2


@pytest.mark.parametrize("kind", KINDS)
def test_the_short_come_between_the_layers_of_a_long_step(kind: str) -> None:
    giant, short = prompt(tokens(6, 4_000), kind=kind), prompt(tokens(7, 20), kind=kind)
    late = []
    with engine(kind, step_tokens=10_000) as (running, _, backbone):

        def arrive() -> None:
            late.append(running.submit([short]))

        backbone.between_layers = arrive
        job = running.submit([giant])
        check(job.result(60), kind, giant)
        for reply in late:
            check(reply.result(60), kind, short)
        assert backbone.batches[:2] == [[short.tokens], [giant.tokens]], "the order in which forwards ended"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["leaves", "expires"])
def test_a_step_that_nobody_waits_for_is_not_finished(kind: str, how: str) -> None:
    giant, after = prompt(tokens(6, 4_000), kind=kind), prompt(tokens(7, 20), kind=kind)
    jobs = []
    with engine(kind, step_tokens=10_000) as (running, reader, backbone):

        def leave() -> None:
            if how == "leaves":
                jobs[0].cancel()
            time.sleep(0.6)

        backbone.between_layers = leave
        deadline = time.monotonic() + 0.5 if how == "expires" else None
        jobs.append(running.submit([giant], deadline=deadline))
        with pytest.raises(Expired if how == "expires" else CancelledError):
            jobs[0].result(60)
        check(running.submit([after]).result(60), kind, after)
        assert backbone.batches == [[after.tokens]], "the forward of the giant came to its end"
        assert reader.tree.length("", giant.symbols) == 0
        assert running.stats()["jobs_dropped"] == 1
