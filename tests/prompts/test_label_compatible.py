"""Prompts as vLLM writes them: its wording by hand, its ids by the template's own rendering in one piece."""

import pytest
from chat_models import RELEASES, rendered_ids, tokenizer, turn

from quaver.errors import BadQuestion, BadRelease, TooLong
from quaver.prompts.chat_template import UserTurn
from quaver.prompts.label_compatible import CompatibleLabelPrompt
from quaver.questions import Choice, Noul, Question, Request, Score

CASES: list[tuple[Question, str, tuple[str, ...]]] = [
    (Noul("Late?"), "Question: Late?\nyes\nno\nAnswer with yes or no only.", ("yes", "no")),
    (Noul(None, {"false": "on time"}), "yes\nno: on time\nAnswer with yes or no only.", ("yes", "no")),
    (
        Choice("Which?", {"b": "second", "a": None}),
        "Question: Which?\nA: b - second\nB: a\nAnswer with the letter of one option only.",
        ("A", "B"),
    ),
    (
        Choice({"ask": [True]}, {"x": {"k": 1}}),
        "Question: {'ask': [True]}\nA: x - {'k': 1}\nAnswer with the letter of one option only.",
        ("A",),
    ),
    (
        Score("How?", ["bad", 2, "good"]),
        "Question: How?\n0: bad\n1: 2\n2: good\nAnswer with the number of one level only.",
        ("0", "1", "2"),
    ),
]
STATES = [
    "plain",
    "Ends in a stop.",
    "ends in lines\n\n",
    "  spaces around \n",
    "",
    "naïve 漢字 🎉",
    "code:\n\n\tx = 1  ",
]


@pytest.mark.parametrize("name", RELEASES)
@pytest.mark.parametrize("special_tokens", ["escape", "reference"])
def test_ids_are_those_of_the_rendered_chat(name: str, special_tokens: str) -> None:
    prompt = CompatibleLabelPrompt(tokenizer(name), turn(name), 8192, special_tokens)  # type: ignore[arg-type]
    for state in STATES:
        encoded = prompt.encode(Request(state, {str(i): question for i, (question, _, _) in enumerate(CASES)}))
        for one, (question, text, labels) in zip(encoded, CASES, strict=True):
            assert list(one.ids) == rendered_ids(name, f"{state}\n\n{text}")
            assert (one.labels.labels, one.option_ids) == (labels, question.option_ids)
            assert [len(group) for group in one.labels.nodes[0].groups] == [1] * len(labels)
        # Every question shares what the state alone decides.
        assert len({one.ids[: min(one.state_end for one in encoded)] for one in encoded}) == 1


@pytest.mark.parametrize("name", RELEASES)
def test_nearly_all_of_a_state_is_shared(name: str) -> None:
    prompt = CompatibleLabelPrompt(tokenizer(name), turn(name), 8192)
    state = "One sentence after another. " * 50
    alone = len(rendered_ids(name, state.strip())) - len(rendered_ids(name, ""))
    for encoded in prompt.encode(Request(state, {"a": CASES[0][0], "b": CASES[4][0]})):
        assert alone - 3 <= encoded.state_end - encoded.media_start <= alone + 1


@pytest.mark.parametrize("name", ["qwen3", "smollm2", "llama3"])
def test_control_tokens_of_a_caller_stay_text_unless_honoured(name: str) -> None:
    hostile = Request(turn(name).tail + turn(name).head, {"q": Noul("?")})
    both = tokenizer(name)
    kept, honoured = (
        CompatibleLabelPrompt(both, turn(name), 8192, mode).encode(hostile)[0].ids for mode in ("escape", "reference")
    )
    control = {both.fixed(token)[0] for token in both.added if token in turn(name).head + turn(name).tail}
    counts = [sum(token in control for token in ids) for ids in (kept, honoured)]
    assert counts[1] == 2 * counts[0]


def test_other_values_of_a_state_are_json_with_pythons_separators() -> None:
    prompt = CompatibleLabelPrompt(tokenizer("qwen3"), turn("qwen3"), 8192)
    [encoded] = prompt.encode(Request({"b": [1, "é"], "a": None}, {"q": CASES[0][0]}))
    assert list(encoded.ids) == rendered_ids("qwen3", f'{{"b": [1, "é"], "a": null}}\n\n{CASES[0][1]}')


def test_what_this_style_cannot_ask_is_refused() -> None:
    prompt = CompatibleLabelPrompt(tokenizer("qwen3"), turn("qwen3"), 60)
    with pytest.raises(BadQuestion, match=r"'q' has 27 options and this style of prompt has 26"):
        prompt.encode(Request("s", {"q": Choice("?", [f"o{i}" for i in range(27)])}))
    with pytest.raises(TooLong, match=r"'q' makes a prompt of \d+ tokens and the limit is 60"):
        prompt.encode(Request("word " * 60, {"q": Noul("?")}))
    with pytest.raises(BadRelease, match="not one distinct token"):
        CompatibleLabelPrompt(tokenizer("qwen3"), UserTurn("<|im_start|>", "<|im_end|>The answer is ye", False), 8192)
