"""How a turn with media begins, beside transformers' own rendering of the chat tokenised in one piece."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from chat_models import GEMMA4_TOKENS, GEMMA4_WITH_MEDIA, QWEN3_5_WITH_MEDIA, gemma4_tokenizer, tokenizer
from transformers.utils.chat_template_utils import render_jinja_template

from quaver.prompts.chat_template import ChatTemplate
from quaver.prompts.label import LabelPrompt
from quaver.prompts.label_compatible import CompatibleLabelPrompt
from quaver.prompts.opening import Opening
from quaver.prompts.tokenizer import PromptTokenizer
from quaver.questions import Noul, Request

#: Template, its tokens, and per kind what of it becomes several tokens.
FAMILIES: dict[str, tuple[str, dict[str, str], dict[str, str]]] = {
    "gemma4": (GEMMA4_WITH_MEDIA, GEMMA4_TOKENS, {"image": "<|image|>", "video": "<|video|>"}),
    "gemma4 later": (
        GEMMA4_WITH_MEDIA.replace("\\n\\n<|image|>\\n\\n", "<|image|>"),
        GEMMA4_TOKENS,
        {"image": "<|image|>", "video": "<|video|>"},
    ),
    "qwen3.5": (QWEN3_5_WITH_MEDIA, {}, {"image": "<|image_pad|>", "video": "<|video_pad|>"}),
}
STATES = ["plain", "", "\n\nbegins with lines", "  two spaces", "Ends in a stop."]
SHOWN = [(1, 0), (2, 0), (0, 1), (2, 1)]


@cache
def tokens_of(family: str) -> PromptTokenizer:
    return gemma4_tokenizer() if family.startswith("gemma4") else tokenizer("qwen3")


def rendered(family: str, text: str, images: int, videos: int) -> list[int]:
    """The ids of the whole chat, with three tokens for every image and two for every video."""
    template, named, placeholders = FAMILIES[family]
    parts: list[dict[str, Any]] = [{"type": "image"}] * images + [{"type": "video"}] * videos
    messages = [{"role": "user", "content": [*parts, {"type": "text", "text": text}]}]
    [chat], _ = render_jinja_template(
        [messages], chat_template=template, add_generation_prompt=True, enable_thinking=False, **named
    )
    return expanded(tokens_of(family), placeholders, str(chat))


def expanded(tokens: PromptTokenizer, placeholders: dict[str, str], text: str) -> list[int]:
    [image], [video] = (tokens.fixed(placeholders[kind]) for kind in ("image", "video"))
    [ids] = tokens.encode([text], "reference")
    return [i for token in ids for i in [token] * {image: 3, video: 2}.get(token, 1)]


def filled(family: str, prompt: LabelPrompt | CompatibleLabelPrompt, images: int, videos: int) -> Opening:
    opening = prompt.opening(images, videos)
    return opening.filled(expanded(tokens_of(family), FAMILIES[family][2], opening.text))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("images", "videos"), SHOWN)
def test_our_style_begins_as_the_template_does(family: str, images: int, videos: int) -> None:
    template, named, _ = FAMILIES[family]
    prompt = LabelPrompt(tokens_of(family), ChatTemplate(template, named).turn(), 8192)
    opening = filled(family, prompt, images, videos)
    written = "\n\n---\nQuestion: Is it?\nyes\nno\nReply with yes or no only."
    [encoded] = prompt.encode(Request("plain", {"q": Noul("Is it?")}), opening)
    assert list(encoded.ids) == rendered(family, f"plain{written}", images, videos)
    assert encoded.ids[: len(opening.ids)] == opening.ids
    [other] = prompt.encode(Request("plain", {"q": Noul("Or is it not?")}), opening)
    assert other.ids[: other.state_end] == encoded.ids[: encoded.state_end]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("images", "videos"), SHOWN)
@pytest.mark.parametrize("special_tokens", ["escape", "reference"])
def test_the_style_of_vllm_is_the_whole_chat(family: str, images: int, videos: int, special_tokens: str) -> None:
    template, named, _ = FAMILIES[family]
    turn = ChatTemplate(template, named).turn()
    prompt = CompatibleLabelPrompt(tokens_of(family), turn, 8192, special_tokens)  # type: ignore[arg-type]
    opening = filled(family, prompt, images, videos)
    for state in STATES:
        [encoded] = prompt.encode(Request(state, {"q": Noul("Is it?")}), opening)
        text = f"{state}\n\nQuestion: Is it?\nyes\nno\nAnswer with yes or no only."
        assert list(encoded.ids) == rendered(family, text, images, videos)
        assert encoded.media_start == 0 and encoded.state_end >= len(opening.ids)


def test_a_callers_placeholder_is_text() -> None:
    prompt = LabelPrompt(gemma4_tokenizer(), ChatTemplate(GEMMA4_WITH_MEDIA, GEMMA4_TOKENS).turn(), 8192)
    opening = filled("gemma4", prompt, 1, 0)
    [image] = gemma4_tokenizer().fixed("<|image|>")
    [encoded] = prompt.encode(Request("<|image|>", {"q": Noul("<|image|>")}), opening)
    assert encoded.ids.count(image) == 3


@pytest.mark.parametrize(
    ("template", "image", "video"),
    [
        ("{% for m in messages %}{{ m.content }}{% endfor %}", None, None),
        ("{% for m in messages %}{% if m.content is string %}{{ m.content }}{% endif %}{% endfor %}", None, None),
        # Numbered: what stands for two is not twice what stands for one.
        (
            "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}"
            "{% if p.type == 'text' %}{{ p.text }}{% else %}<{{ loop.index }}>{% endif %}{% endfor %}{% endif %}"
            "{% endfor %}",
            None,
            None,
        ),
        (
            "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}"
            "{{ p.text if p.type == 'text' else '<' + p.type + '>' }}{% endfor %}{% endif %}{% endfor %}",
            "<image>",
            "<video>",
        ),
    ],
    ids=["prints parts", "drops parts", "numbers", "has places"],
)
def test_only_places_that_a_template_has(template: str, image: str | None, video: str | None) -> None:
    turn = ChatTemplate(template, {}).turn()
    assert (turn.image, turn.video, turn.trims_after_media) == (image, video, False)
