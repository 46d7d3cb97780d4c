"""The ``input`` of a decisions body: messages, parts and tool calls, to a state and its media."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, SkipValidation

from quaver.errors import BadRequest
from quaver.protocol.media_slots import Media
from quaver.protocol.strict_json import Where, excerpt, place
from quaver.protocol.types import Strict, one_of
from quaver.questions import Json


class CacheBreakpoint(Strict):
    """A hint of the dialect; prefixes are found without it."""

    mode: Literal["explicit"]


class InputText(Strict):
    type: Literal["input_text"]
    text: str
    prompt_cache_breakpoint: CacheBreakpoint | None = None


class InputImage(Strict):
    type: Literal["input_image"]
    image_url: str = Field(description="A data URL, base64, or an address that the server fetches from.")
    detail: Literal["low", "high", "auto", "original"] | None = None
    prompt_cache_breakpoint: CacheBreakpoint | None = None


class AudioData(Strict):
    data: str = Field(description="As for images.")
    format: str | None = Field(None, description="Not needed: the content says what it is.")


class InputAudio(Strict):
    """As in OpenAI's other interfaces; its Decisions have none."""

    type: Literal["input_audio"]
    input_audio: AudioData
    prompt_cache_breakpoint: CacheBreakpoint | None = None


class InputVideo(Strict):
    """Of our own."""

    type: Literal["input_video"]
    video_url: str = Field(description="As for images.")
    prompt_cache_breakpoint: CacheBreakpoint | None = None


class InputJson(Strict):
    type: Literal["input_json"]
    data: dict[str, Any] | list[dict[str, Any]]
    prompt_cache_breakpoint: CacheBreakpoint | None = None


class OutputText(Strict):
    type: Literal["output_text"]
    text: str


class Refusal(Strict):
    type: Literal["refusal"]
    refusal: str


UserPart = Annotated[InputText | InputImage | InputAudio | InputVideo | InputJson, Field(discriminator="type")]
AssistantPart = Annotated[OutputText | Refusal, Field(discriminator="type")]
OutputPart = Annotated[InputText | InputImage | InputAudio | InputVideo, Field(discriminator="type")]

TEXT: Mapping[str, type[Strict]] = {"input_text": InputText}
OUTPUT: Mapping[str, type[Strict]] = {
    **TEXT,
    "input_image": InputImage,
    "input_audio": InputAudio,
    "input_video": InputVideo,
}
USER: Mapping[str, type[Strict]] = {**OUTPUT, "input_json": InputJson}
ASSISTANT: Mapping[str, type[Strict]] = {"output_text": OutputText, "refusal": Refusal}
#: What OpenAI allows to whom; audio and video are ours.
ROLES = {"user": USER, "developer": TEXT, "system": TEXT, "assistant": ASSISTANT}


class Message(Strict):
    # The one kind of item whose type may be left out.
    type: Literal["message"] = "message"
    role: Literal["user", "developer", "system", "assistant"]
    content: SkipValidation[str | list[UserPart | AssistantPart]]
    phase: Literal["commentary", "final_answer"] | None = None


class _Tool(Strict):
    call_id: str
    # These two come along where the items of a Responses conversation are handed on. They say nothing to a model.
    id: str | None = None
    status: Literal["in_progress", "completed", "incomplete"] | None = None


class FunctionCall(_Tool):
    type: Literal["function_call"]
    name: str
    arguments: str
    namespace: str | None = None


class CustomToolCall(_Tool):
    type: Literal["custom_tool_call"]
    name: str
    input: str
    namespace: str | None = None


class FunctionCallOutput(_Tool):
    type: Literal["function_call_output"]
    output: SkipValidation[str | list[OutputPart]]


class CustomToolCallOutput(_Tool):
    type: Literal["custom_tool_call_output"]
    output: SkipValidation[str | list[OutputPart]]


InputItem = Message | FunctionCall | CustomToolCall | FunctionCallOutput | CustomToolCallOutput
ITEMS: Mapping[str, type[Strict]] = {
    "message": Message,
    "function_call": FunctionCall,
    "custom_tool_call": CustomToolCall,
    "function_call_output": FunctionCallOutput,
    "custom_tool_call_output": CustomToolCallOutput,
}


def state_of(value: Json, media: Media) -> Json:
    """The state that an ``input`` stands for: text where it is only that, else JSON that keeps the roles.

    A lone user message is its content. Media parts go to ``media``; where the state stays structured a marker
    such as ``[image 1]`` keeps their place.
    """
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not value:
        raise BadRequest(f"input must be text or a list of items, got {excerpt(value)}", ("input",))
    items = [one_of(ITEMS, item, ("input", index), default="message") for index, item in enumerate(value)]
    _check_calls(items)
    # The same words and pictures are the same state, however they were wrapped.
    if len(items) == 1 and isinstance(items[0], Message) and items[0].role == "user":
        return content_of(items[0].content, USER, media, ("input", 0, "content"), markers=False)
    return [_item(item, media, ("input", index)) for index, item in enumerate(items)]


def content_of(
    content: Json, allowed: Mapping[str, type[Strict]], media: Media, where: Where, *, markers: bool = True
) -> Json:
    """Text, or parts as one text, a line each; parts with JSON among them stay a list, one of them stands alone."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        raise BadRequest(f"{place(where)} must be text or a list of parts, got {excerpt(content)}", where)
    pieces: list[Json] = []
    for index, item in enumerate(content):
        match one_of(allowed, item, (*where, index)):
            case InputText(text=text) | OutputText(text=text) | Refusal(refusal=text):
                pieces.append(text)
            case InputJson(data=data):
                pieces.append(data)
            case part:
                marker = _add_media(part, media, (*where, index))
                pieces += [marker] * markers
    if all(isinstance(piece, str) for piece in pieces):
        return "\n".join(pieces)
    return pieces[0] if len(pieces) == 1 else pieces


def _add_media(part: Strict, media: Media, where: Where) -> str:
    match part:
        case InputImage(image_url=url):
            return media.add("images", url, where)
        case InputAudio(input_audio=audio):
            return media.add("audio", audio.data, where)
        case InputVideo(video_url=url):
            return media.add("videos", url, where)
    raise TypeError(f"no medium is in {type(part).__name__}")


def _item(item: Strict, media: Media, where: Where) -> dict[str, Json]:
    match item:
        case Message():
            content = content_of(item.content, ROLES[item.role], media, (*where, "content"))
            return {"role": item.role, "content": content}
        case FunctionCall(name=name, arguments=given) | CustomToolCall(name=name, input=given):
            # Ids of calls tie items together; here they stand in order, and another id must not change an answer.
            return {"call": name, "input": given}
        case FunctionCallOutput(output=output) | CustomToolCallOutput(output=output):
            return {"output": content_of(output, OUTPUT, media, (*where, "output"))}
    raise TypeError(f"no state is made of {type(item).__name__}")


def _check_calls(items: Sequence[Strict]) -> None:
    """Every output answers a call that came before it; each call has its own id."""
    calls: dict[str, str] = {}
    for index, item in enumerate(items):
        where: Where = ("input", index, "call_id")
        match item:
            case FunctionCall() | CustomToolCall():
                if item.call_id in calls:
                    raise BadRequest(f"{place(where)} {excerpt(item.call_id)} is used by two calls", where)
                calls[item.call_id] = f"{item.type}_output"
            case FunctionCallOutput() | CustomToolCallOutput():
                if calls.get(item.call_id) != item.type:
                    wanted = item.type.removesuffix("_output")
                    raise BadRequest(f"{place(where)} {excerpt(item.call_id)} matches no {wanted} before it", where)
