"""An image whose first request was refused is read by the next one, on vLLM's own route and server application.

Everything in the API process is real: application, route, processor, caches, sending. The engine's process is
replaced by its receiving half: it decodes what was sent, looks media up in the real receiver cache, and answers
every option alike.
"""

import asyncio
import base64
import io
import multiprocessing
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import torch
from PIL import Image
from vllm.config import VllmConfig
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.cli.serve import make_arg_parser
from vllm.entrypoints.launchers.api_server.app_state import init_app_state
from vllm.entrypoints.launchers.app import build_app
from vllm.multimodal.cache import (
    LruKeyReplicatedSenderCache,
    ShmObjectStoreSenderCache,
    engine_receiver_cache_from_config,
    factories,
    worker_receiver_cache_from_config,
)
from vllm.multimodal.inputs import MultiModalKwargsItem
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs, EngineCoreRequest, EngineCoreRequestType, FinishReason
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.core import EngineCoreProc, MultiModalCacheMissError
from vllm.v1.engine.core_client import AsyncMPClient, EngineCoreClient
from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder

try:
    from vllm.entrypoints.generate.structured_decisions.strategies import READ_STRATEGIES, JointSchemaStrategy
except ImportError:  # moved in 0.33
    from vllm.entrypoints.openai.decisions.strategies import READ_STRATEGIES, JointSchemaStrategy

from quaver.models.backbone import Media
from quaver.prompts.encoded import Encoded, EncodedQuestion
from quaver.vllm_plugin import media_cache
from quaver.vllm_plugin.joint_reads import JointAsk
from quaver.vllm_plugin.media import VllmMedia
from quaver.vllm_plugin.record import KEY

RELEASE = Path(__file__).parents[1] / "golden" / "clef-omni-tiny"
TASKS = ("token_classify",)


class Engine(EngineCoreProc):
    """What the engine and its worker do with a request's media, and no model behind them."""

    def __init__(self, config: VllmConfig) -> None:
        self.mm_receiver_cache = engine_receiver_cache_from_config(config)
        self.worker_cache = worker_receiver_cache_from_config(config, multiprocessing.Lock())
        self.request_block_hasher = None
        self.engine_index = 0
        self.output_queue: Any = asyncio.Queue()
        self.decoder = MsgpackDecoder(EngineCoreRequest)
        self.media: list[Any] = []
        self.misses = 0

    def receive(self, frames: Any) -> None:
        request = self.decoder.decode([bytes(frame) for frame in frames])
        features = request.mm_features or []
        self.media += [feature.data for feature in features]
        try:
            self.preprocess_add_request(request)
        except MultiModalCacheMissError as error:
            self.misses += 1
            self._handle_mm_cache_miss(request, error)
            return
        if self.worker_cache is not None:
            self.worker_cache.get_and_update_features(features)
        asked = request.pooling_params.extra_kwargs
        options = sum(asked[KEY]["counts"] if KEY in asked else asked["joint_schema"]["option_counts"])
        answer = EngineCoreOutput(
            request_id=request.request_id,
            new_token_ids=[],
            pooling_output=torch.full((options,), 1 / options),
            finish_reason=FinishReason.STOP,
        )
        self.output_queue.put_nowait((0, EngineCoreOutputs(outputs=[answer], finished_requests={request.request_id})))


class Wire(AsyncMPClient):
    """The client of an engine in this process; encodes and sends as the real one, without sockets."""

    def __init__(self, config: VllmConfig) -> None:
        self.client_index = 0
        self.resources: Any = SimpleNamespace(engine_dead=False)
        self.encoder = MsgpackEncoder()
        self.engine = Engine(config)
        self.instead: Callable[[], Awaitable[Any]] | None = None

    def _send_input(self, request_type: EngineCoreRequestType, request: Any, _: Any = None) -> Awaitable[Any]:
        instead, self.instead = self.instead, None
        if instead is not None:
            return instead()
        if request_type == EngineCoreRequestType.ADD:
            self.engine.receive(self.encoder.encode(request))
        return asyncio.sleep(0)

    def _ensure_output_queue_task(self) -> None:
        pass

    async def get_output_async(self) -> EngineCoreOutputs:
        return (await self.engine.output_queue.get())[1]

    async def get_supported_tasks_async(self) -> tuple[str, ...]:
        return TASKS

    def shutdown(self, timeout: float | None = None) -> None:
        pass


class Server:
    def __init__(self, http: httpx.AsyncClient, client: AsyncLLM) -> None:
        self.http, self.client = http, client
        self.wire: Wire = client.engine_core
        self.engine = self.wire.engine

    async def ask(self, *images: str, instructions: str = "Is it red?") -> int:
        question = {"type": "noul", "instructions": instructions}
        body = {"state": "a picture", "images": images, "questions": {"q": question}}
        return (await self.http.post("/v1/systemone", json=body)).status_code

    async def ask_too_much(self, *images: str) -> int:
        return await self.ask(*images, instructions="word " * 4000)

    def sent(self) -> list[bool]:
        """Whether media travelled with their data, since the last call."""
        media, self.engine.media = self.engine.media, []
        return [item is not None for item in media]


def picture(colour: str) -> str:
    buffer = io.BytesIO()
    Image.new("RGB", (96, 64), colour).save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


RED, BLUE, GREEN = picture("red"), picture("blue"), picture("green")
Conversation = Callable[[Server], Awaitable[None]]


def configuration(*options: str) -> tuple[Any, VllmConfig]:
    arguments = ["--model", str(RELEASE), "--max-model-len", "1024", "--dtype", "bfloat16", "--enforce-eager"]
    arguments += ["--limit-mm-per-prompt", '{"image": 4, "audio": 0, "video": 0}', *options]
    args = make_arg_parser(FlexibleArgumentParser()).parse_args(arguments)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_PLUGINS", "none")
        return args, AsyncEngineArgs.from_cli_args(args).create_engine_config()


@pytest.fixture(scope="module")
def lru() -> Any:
    return configuration()


@pytest.fixture(scope="module")
def shm() -> Any:
    """A cache in shared memory that has room for three of the pictures."""
    room = ["--mm-processor-cache-gb", "0.004", "--mm-shm-cache-max-object-size-mb", "1"]
    return configuration("--mm-processor-cache-type", "shm", *room)


@pytest.fixture
def talk(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, Conversation], None]:
    """Has a conversation with a new server that has vLLM's routes alone, whatever other tests have registered."""
    monkeypatch.setenv("VLLM_PLUGINS", "none")
    monkeypatch.setattr(EngineCoreClient, "make_async_mp_client", lambda **kwargs: Wire(kwargs["vllm_config"]))

    async def converse(configured: Any, conversation: Conversation) -> None:
        args, config = configured
        monkeypatch.setitem(READ_STRATEGIES, config.model_config.architecture, JointSchemaStrategy)
        engine = AsyncLLM.from_vllm_config(config, disable_log_stats=True)
        app = build_app(args, TASKS, engine.model_config)
        await init_app_state(engine, app.state, args, TASKS)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as http:
            await conversation(Server(http, engine))
        engine.shutdown()

    return lambda configured, conversation: asyncio.run(converse(configured, conversation))


@pytest.fixture
def unmended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factories, "LruKeyReplicatedSenderCache", LruKeyReplicatedSenderCache)
    monkeypatch.setattr(factories, "ShmObjectStoreSenderCache", ShmObjectStoreSenderCache)


@pytest.fixture
def mended(unmended: None) -> None:  # noqa: ARG001
    media_cache.install()


@pytest.mark.usefixtures("unmended")
def test_vllm_alone_fails_the_retry(talk: Any, lru: Any) -> None:
    """When this fails, vLLM has mended it, and ours may go."""

    async def conversation(server: Server) -> None:
        assert await server.ask_too_much(RED) == 400
        assert await server.ask(RED) != 200
        assert server.engine.misses == 1

    talk(lru, conversation)


@pytest.mark.usefixtures("mended")
def test_refused_then_fitting_then_warm_then_another_image(talk: Any, lru: Any) -> None:
    async def conversation(server: Server) -> None:
        assert await server.ask_too_much(RED) == 400
        assert [await server.ask(RED), await server.ask(RED), await server.ask(BLUE)] == [200] * 3
        assert server.sent() == [True, False, True], "a warm image travels without its data"
        assert await server.ask_too_much(BLUE, RED) == 400
        assert [await server.ask(BLUE, RED), await server.ask(GREEN, RED, GREEN)] == [200] * 2
        assert server.sent() == [False, False, True, False, True]
        assert server.engine.misses == 0

    talk(lru, conversation)


@pytest.mark.usefixtures("mended")
def test_requests_that_fail_while_being_sent(talk: Any, lru: Any) -> None:
    async def fails() -> None:
        raise ConnectionError("nobody listens")

    reached = asyncio.Event()

    async def hangs() -> None:
        reached.set()
        await asyncio.Event().wait()

    async def conversation(server: Server) -> None:
        server.wire.instead = fails
        assert await server.ask(RED) == 500
        assert await server.ask(RED) == 200

        server.wire.instead = hangs
        leaving = asyncio.create_task(server.ask(BLUE))
        await reached.wait()
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        assert await server.ask(BLUE) == 200
        assert server.sent() == [True, True]
        assert server.engine.misses == 0

    talk(lru, conversation)


@pytest.mark.usefixtures("mended")
def test_refused_and_fitting_requests_at_once(talk: Any, lru: Any) -> None:
    async def conversation(server: Server) -> None:
        for image in (RED, BLUE):
            asked = [
                server.ask_too_much(image),
                server.ask(image),
                server.ask(GREEN, image),
                server.ask_too_much(GREEN),
            ]
            assert await asyncio.gather(*asked) == [400, 200, 200, 400]
        server.sent()
        assert await server.ask(RED, BLUE, GREEN) == 200
        assert server.sent() == [False] * 3
        assert server.engine.misses == 0

    talk(lru, conversation)


@pytest.mark.usefixtures("mended")
@pytest.mark.parametrize(("room", "warm"), [("0.001", [False]), ("0.0001", [True])], ids=["one picture", "none"])
def test_caches_smaller_than_a_request(talk: Any, room: str, warm: list[bool]) -> None:
    async def conversation(server: Server) -> None:
        assert await server.ask(RED, BLUE) == 200
        assert server.sent() == [True, True]
        assert await server.ask(RED) == 200
        assert server.sent() == [True], "blue has driven it out"
        assert await server.ask(RED) == 200
        assert server.sent() == warm
        assert [await server.ask(RED, BLUE), await server.ask(BLUE, RED)] == [200] * 2
        assert server.engine.misses == 0

    talk(configuration("--mm-processor-cache-gb", room), conversation)


@pytest.mark.usefixtures("mended")
def test_our_reads_send_again_what_the_engine_lost(talk: Any, lru: Any) -> None:
    pad = 9
    tensors = {"pixel_values": torch.ones(16, 8), "image_grid_thw": torch.tensor([[1, 4, 4]])}
    media = VllmMedia(Media((1, pad, pad, pad, pad, 2), tensors, ((0, b"content"),)), (1, 0, 0), {"<pad>": pad})
    question = EncodedQuestion("noul", (6, 7), ((7, 8), (8, 9)), ("true", "false"))
    ask = JointAsk(Encoded((*media.ids, 3, 4, 5), (question,), media_start=0, state_end=6), media, salt="")

    async def conversation(server: Server) -> None:
        for lost in (False, False, True, False):
            if lost:
                server.engine.mm_receiver_cache.clear_cache()
            assert len((await ask.read(server.client, "request", 0)).logits[0]) == 2
        assert server.sent() == [True, False, False, True, False]

    talk(lru, conversation)


def test_what_the_engine_lost_is_sent_again(lru: Any) -> None:
    cache = media_cache.LruSenderCache(lru[1].model_config)
    item = MultiModalKwargsItem.dummy()

    def send() -> bool:
        """Whether an item that was prepared travels with its data."""
        data, _ = cache.get_and_update_item((item, []), "hash")
        if data is not None:
            data.when_sent()
        return data is not None

    assert [send(), send()] == [True, False]
    assert cache.is_cached_item("hash")
    cache.invalidate("hash")
    assert cache.get_and_update_item(None, "hash") == (None, []), "its data were not prepared again"
    assert [send(), send()] == [True, False]
    cache.clear_cache()
    assert [send(), send()] == [True, False]


@pytest.mark.parametrize("mends", [False, True])
def test_refusals_do_not_fill_the_shared_memory(request: Any, talk: Any, shm: Any, mends: bool) -> None:
    request.getfixturevalue("mended" if mends else "unmended")

    async def conversation(server: Server) -> None:
        for colour in ("black", "white", "gray", "pink"):
            assert await server.ask_too_much(picture(colour)) == 400
        assert [await server.ask(RED), await server.ask(RED)] == [200, 200]
        assert ["address" in item for item in server.engine.media] == [mends] * 2

    talk(shm, conversation)
