"""The reference file itself, run beside Quaver on freshly drawn records."""

from functools import cache
from typing import Any

import torch
from clef_finetune._vendor import joint_schema_model as reference
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from transformers import PreTrainedTokenizerFast, Qwen3_5ForConditionalGeneration
from vectors import FLASH, OMNI, question, read, tokenizer

from quaver.errors import BadQuestion, TooLong
from quaver.prompts.clef import ClefPrompt
from quaver.questions import Request

SNIPPETS = ["<|im_end|>", "<think>", "</tool_call>", "<|image_pad|>", "e\u0301", "ก็", "\n\n", "\t", '"\\', "漢字", "🙂"]
TEXT = st.lists(st.one_of(st.sampled_from(SNIPPETS), st.text(max_size=12)), max_size=6).map("".join)
NUMBERS = st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False))
JSON = st.recursive(
    st.one_of(TEXT, NUMBERS, st.booleans(), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=8,
)
SIDES = st.sampled_from(["true", "false", "other"])
QUESTION = st.one_of(
    st.fixed_dictionaries({"type": st.just("noul")}, optional={"criteria": st.dictionaries(SIDES, JSON)}),
    st.fixed_dictionaries({"type": st.just("choice"), "criteria": st.dictionaries(TEXT, JSON, min_size=1, max_size=6)}),
    st.fixed_dictionaries({"type": st.just("score"), "criteria": st.lists(JSON, min_size=1, max_size=10)}),
)
ASKED = st.tuples(QUESTION, st.one_of(st.just({}), JSON.map(lambda value: {"instructions": value})))
RECORD = st.fixed_dictionaries(
    {
        "state": JSON,
        "questions": st.dictionaries(TEXT, ASKED.map(lambda parts: parts[0] | parts[1]), min_size=1, max_size=5),
    }
)


@cache
def theirs(folder: Any) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))


@cache
def model() -> reference.ClefModel:
    backbone = Qwen3_5ForConditionalGeneration.from_pretrained(FLASH, dtype=torch.float32)
    head = reference.JointSchemaHead(hidden_size=64, width=64, routing_layers=2, layers=2, heads=4, feedforward=128)
    head.load_state_dict(load_file(FLASH / "joint_head.safetensors"))
    return reference.ClefModel(backbone, head.float()).eval()


def ours(record: dict[str, Any]) -> Request:
    return Request(record["state"], {name: question(body) for name, body in record["questions"].items()})


def has_empty_span(record: dict[str, Any]) -> bool:
    return any(not name and body.get("instructions") in (None, "") for name, body in record["questions"].items())


def compare(record: dict[str, Any], folder: Any, max_length: int) -> None:
    prompt = ClefPrompt(tokenizer(folder / "tokenizer.json"), max_length, "reference")
    try:
        expected = reference.encode_record(theirs(folder), record, max_length)
    except ValueError:
        expected = None
    try:
        encoded = prompt.encode(ours(record))
    except BadQuestion:
        assert has_empty_span(record)
        return
    except TooLong:
        assert expected is None
        return
    assert expected is not None
    assert encoded.ids == expected.input_ids
    for mine, other in zip(encoded.questions, expected.questions, strict=True):
        assert (mine.span, mine.option_spans, mine.option_ids) == (
            other.question_span,
            other.option_spans,
            other.option_ids,
        )
        assert reference.QUESTION_TYPES[mine.type] == other.question_type


@given(RECORD, st.sampled_from([FLASH, OMNI]), st.sampled_from([100, 250, 16_384]))
@settings(max_examples=300, deadline=None)
def test_prompts_are_equal(record: dict[str, Any], folder: Any, max_length: int) -> None:
    compare(record, folder, max_length)


@given(RECORD.filter(lambda record: not has_empty_span(record)))
@settings(max_examples=40, deadline=None, phases=[Phase.generate])  # shrinking through a model takes minutes
def test_probabilities_are_equal(record: dict[str, Any]) -> None:
    encoded = ClefPrompt(tokenizer(FLASH / "tokenizer.json"), special_tokens="reference").encode(ours(record))
    logits = read(encoded)
    batch = reference.collate_records([reference.encode_record(theirs(FLASH), record)], 3000, torch.device("cpu"))
    with torch.inference_mode():
        [expected] = model()(batch)
    for mine, other in zip(logits, expected, strict=True):
        torch.testing.assert_close(mine.softmax(-1), other.softmax(-1), atol=1e-4, rtol=0)
