"""What a release's chat template writes around the text of a user, with thinking off.

A template is a program in Jinja, run in its sandbox. It is asked once, when the model loads; every
prompt is then the text before, the user's text, the text after.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from quaver.errors import BadRelease

#: Stand for the user's text and the reply; private-use characters, which no template writes.
USER, REPLY = "\ue000user\ue001", "\ue000reply\ue001"
#: What opens a block of thinking in the templates we know of, and what closes it.
THINKING = {"<think>": "</think>", "<|channel>thought": "<channel|>", "[THINK]": "[/THINK]"}

#: The day for templates that write a date: an answer must not depend on when it is asked. Llama's fall back to it.
TODAY = date(2024, 7, 26)

Messages = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class UserTurn:
    """``head`` stands before the user's text and ``tail`` between it and the reply; ``trims``: the template
    strips white space from both ends of the text.

    ``image`` and ``video`` are what it writes for one of them between head and text, None where it has no
    place for them. ``trims_after_media``: it also strips the beginning of a text that follows them.
    """

    head: str
    tail: str
    trims: bool
    image: str | None = None
    video: str | None = None
    trims_after_media: bool = False

    def opening(self, images: int, videos: int) -> str:
        """What stands before the text of a turn that shows so many images and then so many videos."""
        return self.head + (self.image or "") * images + (self.video or "") * videos


class ChatTemplate:
    """One template; ``tokens`` are the special tokens it may name, such as ``bos_token``.

    Raises BadRelease when the text is not a template.
    """

    def __init__(self, text: str, tokens: Mapping[str, str]) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
        )
        environment.globals.update(raise_exception=_refuse, strftime_now=TODAY.strftime)
        environment.filters["tojson"] = _to_json
        try:
            self._template = environment.from_string(text)
        except jinja2.TemplateError as error:
            raise BadRelease(f"the chat template cannot be read: {error}") from error
        self._tokens = dict(tokens)

    def turn(self, system: str | None = None) -> UserTurn:
        """The surroundings of one user turn after an optional system message.

        Raises BadRelease when the template refuses such a conversation, changes the user's text, or
        does not let a reply follow at once.
        """
        first: Messages = [] if system is None else [{"role": "system", "content": system}]
        head, tail = self._around([*first, {"role": "user", "content": USER}])
        spaced = [*first, {"role": "user", "content": f" \n{USER}\n "}]
        trims = self._around(spaced) == (head, tail)
        if not trims and self._around(spaced) != (f"{head} \n", f"\n {tail}"):
            raise BadRelease("the chat template changes the text of a user by more than trimming it")
        self._check_reply([*first, {"role": "user", "content": USER}], tail)
        image, video = (self._piece(first, kind, head, tail) for kind in ("image", "video"))
        if image and video and self._opened(first, ["image", "video"], tail) != head + image + video:
            video = None
        after = self._opened(first, ["image" if image else "video"], tail, f" \n{USER}")
        return UserTurn(head, tail, trims, image, video, after == head + (image or video or ""))

    def _piece(self, first: Messages, kind: str, head: str, tail: str) -> str | None:
        """What is written for one medium before the text; None unless two are written as twice that."""
        one, two = (self._opened(first, [kind] * count, tail) for count in (1, 2))
        piece = one.removeprefix(head) if one else ""
        return piece if piece and (one, two) == (head + piece, head + piece * 2) else None

    def _opened(self, first: Messages, kinds: Sequence[str], tail: str, text: str = USER) -> str | None:
        """What stands before a text that follows media; None when the template has no place for them."""
        parts = [*({"type": kind} for kind in kinds), {"type": "text", "text": text}]
        try:
            before, after = self._around([*first, {"role": "user", "content": parts}])
        except BadRelease:  # what templates of text make of parts
            return None
        return before if after == tail else None

    def _around(self, messages: Messages) -> tuple[str, str]:
        text = self._render(messages, generation=True)
        if text.count(USER) != 1:
            raise BadRelease(f"the chat template writes the text of a user {text.count(USER)} times, not once")
        head, _, tail = text.partition(USER)
        return head, tail

    def _check_reply(self, messages: Messages, tail: str) -> None:
        """A label is the first token of the reply, so what precedes a reply must be the prompt's own end."""
        for opening, closing in THINKING.items():
            if tail.rfind(opening) > tail.rfind(closing):
                raise BadRelease(
                    f"the chat template opens a block of thinking ({opening}) even with thinking off, so an answer is "
                    "not the first token of the reply"
                )
        text = self._render([*messages, {"role": "assistant", "content": REPLY}], generation=False)
        before = text.partition(USER)[2].partition(REPLY)[0]
        # A closed block of thinking may stand between the two, which replies of the past do not have.
        if not tail.startswith(before):
            raise BadRelease(
                f"the chat template writes {before!r} before a reply and {tail!r} when it asks for one, so an answer "
                "is not the first token of the reply"
            )

    def _render(self, messages: Messages, generation: bool) -> str:
        try:
            return self._template.render(
                messages=messages,
                add_generation_prompt=generation,
                # Templates know one of these names or neither.
                enable_thinking=False,
                thinking=False,
                **self._tokens,
            )
        except Exception as error:  # a template is somebody's program and may fail in any way
            roles = ", ".join(message["role"] for message in messages)
            raise BadRelease(f"the chat template refuses a conversation of {roles}: {error}") from error


def load_chat_template(folder: Path) -> ChatTemplate:
    """The template of a release: ``chat_template.jinja``, ``chat_template.json`` or in ``tokenizer_config.json``.

    Raises BadRelease when there is none, as in a base model.
    """
    config = _read_json(folder / "tokenizer_config.json")
    # A file of its own overrides the config, as in transformers.
    found = _read_text(folder / "chat_template.jinja")
    found = found or _read_json(folder / "chat_template.json").get("chat_template") or config.get("chat_template")
    if isinstance(found, list):  # several, by name
        found = next((e.get("template") for e in found if isinstance(e, dict) and e.get("name") == "default"), None)
    if not isinstance(found, str):
        raise BadRelease(
            f"{folder} has no chat template; a label read needs a model that was trained to answer, or a "
            "chat_template.jinja in the folder that says how to ask a base model (docs/label-reads.md has a plain one)"
        )
    tokens = {name: value for name, value in config.items() if name.endswith("_token")}
    named = {name: value.get("content") if isinstance(value, dict) else value for name, value in tokens.items()}
    return ChatTemplate(found, {name: value for name, value in named.items() if isinstance(value, str)})


class _Generation(Extension):
    """``{% generation %}`` marks replies for training and writes what is inside it."""

    tags = {"generation"}  # noqa: RUF012 - the base class declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    """As templates expect it: Jinja's own filter escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def _read_json(file: Path) -> dict[str, Any]:
    text = _read_text(file)
    try:
        value = {} if text is None else json.loads(text)
    except ValueError as error:
        raise BadRelease(f"{file} cannot be read as JSON: {error}") from error
    return value if isinstance(value, dict) else {}


def _read_text(file: Path) -> str | None:
    """The text in ``file``, None where there is no such file."""
    if not file.is_file():
        return None
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise BadRelease(f"{file} cannot be read as text: {error}") from error
