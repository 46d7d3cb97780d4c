"""The pooler against logits that the reference computed in float64, in vLLM's own batches of prompts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from vectors import GOLDEN, tensors
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor.layers.pooler.tokwise.methods import AllPool
from vllm.pooling_params import PoolingParams
from vllm.v1.pool.metadata import PoolingMetadata, PoolingStates

from quaver.heads.joint_schema import HeadInput, JointSchemaHead
from quaver.prompts.encoded import Encoded, EncodedQuestion
from quaver.vllm_plugin.pooler import JointPooler
from quaver.vllm_plugin.record import KEY, TASK, JointRecord

VECTORS = json.loads((GOLDEN / "head-cases.json").read_text())
CASES = VECTORS["cases"]
NAMES = ("noul", "choice", "score")


@cache
def stored() -> dict[str, Tensor]:
    return tensors("head-cases")


def head(name: str, kind: type[JointSchemaHead] = JointSchemaHead) -> JointSchemaHead:
    made = kind(**VECTORS["heads"][name])
    made.load_state_dict({key: stored()[f"{name}.{key}"] for key in made.state_dict()})
    return made.eval()


@pytest.fixture(autouse=True)
def current() -> Iterator[None]:
    with torch.no_grad(), set_current_vllm_config(VllmConfig()):
        yield


def pooler(name: str, kind: type[JointSchemaHead] = JointSchemaHead) -> JointPooler:
    table = stored()[f"{name}.output_embeddings"]
    return JointPooler(head(name, kind), AllPool(), lambda ids: table[ids])


def record(case: dict[str, Any]) -> dict[str, Any]:
    questions = [
        EncodedQuestion(
            asked["type"] if isinstance(asked["type"], str) else NAMES[asked["type"]],
            tuple(asked["question_span"]),
            tuple(map(tuple, asked["option_spans"])),
            tuple(map(str, range(len(asked["option_spans"])))),
        )
        for asked in case["questions"]
    ]
    return JointRecord.of(Encoded((0,) * case["L"], tuple(questions), 0, 0)).plain()


class Batch:
    """Prompts under way in vLLM's runner: ``step`` schedules some tokens of each."""

    def __init__(self, prompts: Sequence[tuple[Tensor, Tensor, dict[str, Any] | None]]) -> None:
        self.hidden = [hidden for hidden, _, _ in prompts]
        self.read = [0] * len(prompts)
        ids = torch.nn.utils.rnn.pad_sequence([ids for _, ids, _ in prompts], batch_first=True).long()
        params = [PoolingParams(task=TASK, extra_kwargs=extra) for _, _, extra in prompts]
        lengths = torch.tensor([len(hidden) for hidden in self.hidden])
        states = [PoolingStates() for _ in prompts]
        self.metadata = PoolingMetadata(lengths, None, ids, params, states)

    def step(self, made: JointPooler, tokens: Sequence[int]) -> list[Tensor | None]:
        rows = [hidden[at : at + n] for hidden, at, n in zip(self.hidden, self.read, tokens, strict=True)]
        self.read = [at + n for at, n in zip(self.read, tokens, strict=True)]
        self.metadata.build_pooling_cursor(np.array(tokens), torch.tensor(self.read), torch.device("cpu"))
        return made(torch.cat(rows), self.metadata)

    def whole(self, made: JointPooler) -> list[Tensor | None]:
        return self.step(made, [len(hidden) for hidden in self.hidden])


def prompt(case: dict[str, Any], extra: Any = ...) -> tuple[Tensor, Tensor, Any]:
    name = case["id"]
    carried = {KEY: record(case)} if extra is ... else extra
    return stored()[f"{name}.hidden"], stored()[f"{name}.token_ids"], carried


def error(logits: Tensor | None, case: dict[str, Any]) -> float:
    assert logits is not None and logits.dtype == torch.float32
    return (logits.double() - stored()[f"{case['id']}.logits"].double()).abs().max().item()


@pytest.mark.parametrize("name", VECTORS["heads"])
def test_all_prompts_of_a_step_give_the_references_logits(name: str) -> None:
    cases = [case for case in CASES if case["head"] == name]
    outputs = Batch([prompt(case) for case in cases]).whole(pooler(name))
    assert max(error(logits, case) for logits, case in zip(outputs, cases, strict=True)) < 2e-4


def test_a_prompt_in_parts_beside_a_whole_one() -> None:
    first, second = [case for case in CASES if case["head"] == "head0"][:2]
    made, batch = pooler("head0"), Batch([prompt(first), prompt(second)])
    part = first["L"] // 2
    early, whole = batch.step(made, [part, second["L"]])
    assert early is None
    assert error(whole, second) < 2e-4
    late, _ = batch.step(made, [first["L"] - part, 0])
    assert error(late, first) < 2e-4


def test_a_prompt_that_was_pushed_out_half_read_is_read_anew() -> None:
    case = CASES[0]
    made, batch = pooler(case["head"]), Batch([prompt(case)])
    assert batch.step(made, [case["L"] // 2]) == [None]
    batch.read = [0]
    assert error(*batch.whole(made), case) < 2e-4


def broken(case: dict[str, Any]) -> Iterator[Any]:
    """Whatever a request may carry that is no record of its prompt."""
    yield None
    yield {}
    yield {"joint_schema": record(case)}
    for value in (None, 7, "", [], {}):
        yield {KEY: value}
    for key, values in {
        "types": ([3], [True], ["noul"], [], None),
        "counts": ([0], [1], [10**30], [-1]),
        "questions": ([[0, 0]], [[-1, 0, 0]], [[-(10**9), 0]], [[-2, -2]], [7]),
        "options": ([], [[-1, 1]], [[-1]], "ab"),
        "state_end": (0, -(10**9), None, 1.5, -1),
    }.items():
        for value in values:
            yield {KEY: {**record(case), key: value}}
    yield {KEY: {**record(case), "more": 1}}


def test_what_is_no_record_is_empty_and_its_neighbour_is_read() -> None:
    case = next(case for case in CASES if len(case["questions"]) > 1)
    bad = list(broken(case))
    outputs = Batch([*(prompt(case, extra) for extra in bad), prompt(case)]).whole(pooler(case["head"]))
    assert [len(logits) for logits in outputs[:-1] if logits is not None] == [0] * len(bad)
    assert error(outputs[-1], case) < 2e-4


def test_vllms_profiling_pass_is_empty() -> None:
    case = CASES[0]
    params = PoolingParams(task=TASK)
    made = pooler(case["head"])
    made.get_pooling_updates(TASK).apply(params)
    assert params.requires_token_ids and made.get_supported_tasks() == {TASK}
    (output,) = Batch([prompt(case, params.extra_kwargs)]).whole(made)
    assert output is not None and output.numel() == 0


class SmallMemory(JointSchemaHead):
    """A head on a device with room for so many memory rows at a time."""

    rows = 0

    def forward(self, records: Sequence[HeadInput], alone: bool = False) -> list[Tensor]:
        if sum(len(record.memory) for record in records) > self.rows:
            raise torch.OutOfMemoryError
        return super().forward(records, alone)


def test_prompts_that_fit_alone_are_read_alone_and_the_others_are_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    name, cases = max(
        ((name, list(of_head)) for name, of_head in groupby(CASES, lambda case: case["head"])),
        key=lambda item: len(item[1]),
    )
    cases.sort(key=lambda case: case["L"])
    assert cases[-1]["L"] > cases[-2]["L"]
    monkeypatch.setattr(SmallMemory, "rows", cases[-2]["L"])
    outputs = Batch([prompt(case) for case in cases]).whole(pooler(name, SmallMemory))
    assert all(error(logits, case) < 2e-4 for logits, case in zip(outputs[:-1], cases[:-1], strict=True))
    assert outputs[-1] is not None and outputs[-1].numel() == 0


def test_a_stage_without_the_head_says_what_is_supported() -> None:
    made = JointPooler()
    assert made.get_supported_tasks() == {TASK}
    assert not list(made.parameters())
