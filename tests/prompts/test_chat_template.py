"""What a chat template writes around a user's text, beside transformers' own rendering, and what is refused."""

import json
from pathlib import Path

import pytest
from chat_models import GEMMA4, QWEN2_5, QWEN3_5, RELEASES, folder, rendered, shaped, turn

from quaver.errors import BadRelease
from quaver.prompts.chat_template import ChatTemplate, load_chat_template


@pytest.mark.parametrize("name", RELEASES)
@pytest.mark.parametrize("text", ["plain", "  spaces around\n", "<b>&amp; {{ x }}", "naïve 漢字"])
def test_head_and_tail_are_what_transformers_renders(name: str, text: str) -> None:
    ours = turn(name)
    assert rendered(name, text) == ours.head + (text.strip() if ours.trims else text) + ours.tail


@pytest.mark.parametrize("name", ["smollm2", "qwen3", "gemma3"])
def test_a_system_message_goes_into_the_head(name: str) -> None:
    ours = load_chat_template(folder(name)).turn("Decide.")
    assert rendered(name, "x", system="Decide.") == f"{ours.head}x{ours.tail}"


@pytest.mark.parametrize(
    ("template", "name", "tail", "trims"),
    [
        (QWEN2_5, "qwen3", "<|im_end|>\n<|im_start|>assistant\n", False),
        (QWEN3_5, "qwen3", "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n", True),
        (GEMMA4, "gemma3", "<end_of_turn>\n<start_of_turn>model\n<|channel>thought\n<channel|>", True),
    ],
    ids=["qwen2.5", "qwen3.5", "gemma4"],
)
def test_thinking_is_off_in_every_shape(template: str, name: str, tail: str, trims: bool) -> None:
    found = shaped(template, name)
    assert (found.tail, found.trims) == (tail, trims)


SAID = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
TURN = SAID + "{% if add_generation_prompt %}[assistant]{% endif %}"
REFUSED = {
    "always thinks": (TURN + "{% if add_generation_prompt %}<think>\n{% endif %}", "thinking off"),
    "a header before the reply": (
        "{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' %}<final>{% endif %}{{ m.content }}"
        "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}",
        r"writes '\[assistant\]<final>' before a reply",
    ),
    "says it twice": ("{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}", "2 times"),
    "says it never": ("hello", "0 times"),
    "changes it": ("{% for m in messages %}{{ m.content.lstrip() }}{% endfor %}", "more than trimming"),
    "refuses": ("{{ raise_exception('tools only') }}", "tools only"),
    "fails": ("{{ messages[7].content.missing }}", "refuses a conversation of user"),
    "is no template": ("{% for %}", "cannot be read"),
    "reaches out": ("{{ messages.__class__.__mro__[1].__subclasses__() }}", "unsafe"),
}


@pytest.mark.parametrize(("template", "reason"), REFUSED.values(), ids=list(REFUSED))
def test_what_cannot_be_asked_for_a_label_is_refused(template: str, reason: str) -> None:
    with pytest.raises(BadRelease, match=reason):
        ChatTemplate(template, {}).turn()


def test_a_date_in_a_template_is_always_the_same() -> None:
    assert ChatTemplate("{{ strftime_now('%d %b %Y') }} " + TURN, {}).turn().head == "26 Jul 2024 [user]"


def test_marks_of_training_write_what_is_inside() -> None:
    marked = ChatTemplate(SAID + "{% generation %}[{{ 'assistant' }}]{% endgeneration %}", {})
    assert marked.turn().tail == "[assistant]"


def test_every_place_that_holds_a_template(tmp_path: Path) -> None:
    with pytest.raises(BadRelease, match="no chat template"):
        load_chat_template(tmp_path)
    config = {"bos_token": {"content": "<s>"}, "eos_token": None, "chat_template": "{{ bos_token }}config" + TURN}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert load_chat_template(tmp_path).turn().head == "<s>config[user]"
    (tmp_path / "chat_template.json").write_text(json.dumps({"chat_template": "json" + TURN}))
    assert load_chat_template(tmp_path).turn().head == "json[user]"
    (tmp_path / "chat_template.jinja").write_text("jinja" + TURN)
    assert load_chat_template(tmp_path).turn().head == "jinja[user]"


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("chat_template.jinja", b"\xff{{ messages }}", "cannot be read as text"),
        ("tokenizer_config.json", b"\xff", "cannot be read as text"),
        ("tokenizer_config.json", b"{", "cannot be read as JSON"),
        ("tokenizer_config.json", b'{"chat_template": [{"name": "default"}, 3]}', "no chat template"),
        ("tokenizer_config.json", b'{"chat_template": ["default"]}', "no chat template"),
    ],
)
def test_a_template_that_cannot_be_read(tmp_path: Path, file: str, content: bytes, reason: str) -> None:
    (tmp_path / file).write_bytes(content)
    with pytest.raises(BadRelease, match=reason):
        load_chat_template(tmp_path)


def test_of_several_templates_the_default_counts(tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "tools" + TURN}, {"name": "default", "template": "default" + TURN}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    assert load_chat_template(tmp_path).turn().head == "default[user]"
