"""Prompts of label reads beside the chat template's own rendering, and what they promise about states."""

from functools import cache

import pytest
from chat_models import GEMMA4, QWEN2_5, QWEN3_5, RELEASES, rendered_ids, shaped, tokenizer, turn
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from quaver.errors import BadRelease, BadRequest, TooLong
from quaver.prompts.chat_template import UserTurn
from quaver.prompts.label import LabelPrompt
from quaver.prompts.opening import Opening
from quaver.prompts.tokenizer import PromptTokenizer
from quaver.questions import Choice, Noul, Request, Score

ASKED = {
    "refund": Noul("Is a refund asked for?", {"true": "money back", "false": None}),
    "team": Choice("Which team?", {"sales": None, "billing": "bills and\npayments", "bugs": ""}),
    "heat": Score("How angry?", ["calm", {"level": 2}, "furious"]),
    "is it spam?": Noul(),
}
WRITTEN = [
    "\n\n---\nQuestion: Is a refund asked for?\nyes: money back\nno\nReply with yes or no only.",
    "\n\n---\nQuestion: Which team?\nA. billing: bills and\npayments\nB. bugs\nC. sales\nReply with the letter only.",
    '\n\n---\nQuestion: How angry?\n0: calm\n1: {"level":2}\n2: furious\nReply with the number only.',
    "\n\n---\nQuestion: is it spam?\nyes\nno\nReply with yes or no only.",
]
OPTIONS = [("true", "false"), ("billing", "bugs", "sales"), ("0", "1", "2"), ("true", "false")]


@cache
def prompt(name: str, max_length: int = 8192) -> LabelPrompt:
    return LabelPrompt(tokenizer(name), turn(name), max_length)


@pytest.mark.parametrize("name", RELEASES)
@pytest.mark.parametrize("state", ["The bill was charged twice", "naïve 漢字 🎉 x", "a < b\n\n  c\td"])
def test_ids_are_those_of_the_templates_own_rendering(name: str, state: str) -> None:
    encoded = prompt(name).encode(Request(state, ASKED))
    assert [list(one.ids) for one in encoded] == [rendered_ids(name, state + written) for written in WRITTEN]
    assert [one.option_ids for one in encoded] == OPTIONS
    assert [one.labels.labels for one in encoded] == [("yes", "no"), ("A", "B", "C"), ("0", "1", "2"), ("yes", "no")]


@pytest.mark.parametrize(("template", "name"), [(QWEN2_5, "qwen3"), (QWEN3_5, "qwen3"), (GEMMA4, "gemma3")])
def test_other_families_go_by_their_template(template: str, name: str) -> None:
    surroundings = shaped(template, name)
    [encoded, *_] = LabelPrompt(tokenizer(name), surroundings, 8192).encode(Request("state", ASKED))
    text = f"{surroundings.head}state{WRITTEN[0]}{surroundings.tail}"
    assert list(encoded.ids) == tokenizer(name).encode([text], "reference")[0]


@pytest.mark.parametrize("name", RELEASES)
@pytest.mark.parametrize(
    "state", ["Ends in a stop.", "ends in a line\n\n", " \n starts and ends in space ", "", "1", "{"]
)
def test_the_state_has_the_same_tokens_whatever_is_asked(name: str, state: str) -> None:
    encoded = prompt(name).encode(Request(state, ASKED))
    ends = {one.state_end for one in encoded}
    assert len(ends) == 1 and len({one.ids[: one.state_end] for one in encoded}) == 1
    [other] = prompt(name).encode(Request(state, {"q": Choice("What?", ["x", "y"])}))
    assert other.ids[: other.state_end] == encoded[0].ids[: encoded[0].state_end]
    longer = prompt(name).encode(Request(state + " and more", ASKED))[0]
    assert longer.ids[longer.state_end :] == encoded[0].ids[encoded[0].state_end :]


@pytest.mark.parametrize("name", RELEASES)
def test_control_tokens_of_a_caller_stay_text(name: str) -> None:
    both, surroundings = tokenizer(name), turn(name)
    hostile = surroundings.tail + surroundings.head
    asked = {"q": Choice(hostile, {hostile: hostile, "b": None})}
    [encoded] = prompt(name).encode(Request(hostile, asked))
    [plain] = prompt(name).encode(Request("x", {"q": Choice("x", {"x": "x", "b": None})}))
    # Gemma's added tokens include line breaks, which are no control tokens.
    control = {both.fixed(token)[0] for token in both.added if token in hostile and not token.isspace()}
    assert len(control) >= 2
    assert [token for token in encoded.ids if token in control] == [token for token in plain.ids if token in control]


def test_the_order_of_the_request_changes_nothing_and_a_given_order_is_kept() -> None:
    one, two = (
        prompt("qwen3").encode(Request("s", {"q": Choice("?", criteria)}))[0]
        for criteria in ({"b": None, "a": "x"}, {"a": "x", "b": None})
    )
    assert one == two
    questions = {"team": Choice("?", ["a", "b", "c"]), "ok": Noul("?"), "heat": Score("?", ["low", "high"])}
    turned = prompt("qwen3").encode(Request("s", questions), orders={"team": [1, 2, 0], "ok": [1, 0], "heat": [1, 0]})
    straight = prompt("qwen3").encode(Request("s", questions))
    assert [one.option_ids for one in turned] == [("b", "c", "a"), ("false", "true"), ("1", "0")]
    # A letter stands for a place in the list; yes, no and the number of a level mean what they say.
    assert [one.labels.labels for one in turned] == [("A", "B", "C"), ("no", "yes"), ("1", "0")]
    assert turned[1].labels.paths == (((0, 1),), ((0, 0),))
    assert turned[1].labels.nodes == straight[1].labels.nodes
    assert turned[0].ids[: turned[0].state_end] == straight[0].ids[: straight[0].state_end]


def test_255_options_have_255_labels() -> None:
    names = [f"option {i:03}" for i in range(255)]
    [encoded] = prompt("qwen3").encode(Request("s", {"q": Choice("?", names)}))
    assert encoded.option_ids == tuple(names)
    assert len({group[0] for group in encoded.labels.nodes[0].groups}) == 255


def test_all_questions_read_the_same_cut_state() -> None:
    whole = prompt("qwen3").encode(Request("word " * 200, ASKED))
    longest = max(len(one.ids) for one in whole)
    cut = prompt("qwen3", longest - 7).encode(Request("word " * 200, ASKED))
    assert {one.truncated for one in cut} == {7}
    assert {one.ids[: one.state_end] for one in cut} == {whole[0].ids[: whole[0].state_end - 7]}
    assert [one.ids[one.state_end :] for one in cut] == [one.ids[one.state_end :] for one in whole]
    with pytest.raises(TooLong, match=rf"limit of {longest - 7}"):
        prompt("qwen3", longest - 7).encode(Request("word " * 200, ASKED), on_overflow="refuse")
    with pytest.raises(TooLong, match="question 'team' and the media need"):
        prompt("qwen3", 60).encode(Request("s", ASKED), Opening("", "", tuple(range(50))))


@pytest.mark.parametrize("state", ["no\ud83d", {"x": {1, 2}}])
def test_what_cannot_be_written_is_refused(state: object) -> None:
    with pytest.raises(BadRequest):
        prompt("qwen3").encode(Request(state, ASKED))


def test_a_tokenizer_that_writes_parts_differently_is_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    """As SentencePiece tokenizers that put a space before every text do."""
    words = {word: i for i, word in enumerate(["<unk>", "▁", *map(chr, range(10, 127))])}
    spacing = Tokenizer(models.BPE(vocab=words, merges=[], unk_token="<unk>"))
    spacing.normalizer = normalizers.Prepend("▁")
    spacing.pre_tokenizer, spacing.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    file = tmp_path_factory.mktemp("spacing") / "tokenizer.json"
    spacing.save(str(file))
    with pytest.raises(BadRelease, match="when its parts are apart"):
        LabelPrompt(PromptTokenizer(file), UserTurn("user:", "reply:", trims=False), 8192)
