"""vLLM believes its engine holds an image, clip or film once the engine was sent it, and not before.

vLLM prepares media in the API process and keeps them in a cache of the engine's; the API process only keeps a
list of what the engine should hold (``vllm/multimodal/cache/lru.py``) and sends nothing for what is on it. An item
enters that list while it is being prepared. When the request ends before it is sent (a schema that does not fit,
a client who leaves, an error), the list is wrong, and the next request with the same image fails.

With the shared-memory cache (``shm.py``) the item itself is always there, but every prepared request holds a
reference to it until a worker reads it. One that is never sent holds it for ever, and because memory is freed in the
order of arrival, everything that came after it too: the cache fills up and then stores nothing more.

``install`` mends both. A prepared item carries what is to be done once its request was sent; until then nothing is
believed, so no path out of a request has anything to undo. Between preparing and sending, a second request with
the same image gets the data too; sending an item twice is harmless.
"""

from __future__ import annotations

import functools
import inspect
import threading
import weakref
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from vllm.config import ModelConfig, VllmConfig
from vllm.multimodal.cache import LruKeyReplicatedSenderCache, ShmObjectStoreSenderCache, factories
from vllm.multimodal.cache.base import (
    MultiModalProcessorCacheInItem,
    MultiModalProcessorCacheItemMetadata,
    MultiModalProcessorCacheOutItem,
)
from vllm.multimodal.inputs import MultiModalKwargsItem
from vllm.v1.engine import EngineCoreRequest, core_client


class PreparedItem(MultiModalKwargsItem):
    """An item of a request that the engine has not seen yet."""

    def __init__(self, item: MultiModalKwargsItem) -> None:
        super().__init__(item)
        self.when_sent: Callable[[], object] = lambda: None


class LruSenderCache(LruKeyReplicatedSenderCache):
    """The list of what the engine holds, entered on sending.

    vLLM prepares media on one thread and sends on the event loop's, so what was sent waits in ``_sent`` for the next
    preparation: the order of sending is the order in which the engine's own cache evicts. What a preparation was
    told to be there stays in ``_promised`` until it ends, because it has not kept the data to prepare it again.
    """

    def __init__(self, model_config: ModelConfig) -> None:
        super().__init__(model_config)
        self._lock = threading.RLock()
        self._sent: dict[str, MultiModalProcessorCacheItemMetadata] = {}
        self._promised: dict[str, MultiModalProcessorCacheItemMetadata] = {}

    def is_cached_item(self, mm_hash: str) -> bool:
        with self._lock:
            self._settle()
            if mm_hash not in self._cache:
                self._promised.pop(mm_hash, None)
                return False
            self._promised[mm_hash] = self._cache.__getitem__(mm_hash, update_info=False)
            return True

    def get_and_update_item(
        self, mm_item: MultiModalProcessorCacheInItem, mm_hash: str
    ) -> MultiModalProcessorCacheOutItem:
        with self._lock:
            self._settle()
            known = self._cache.get(mm_hash)
            if known is None and mm_item is None:
                known = self._promised.get(mm_hash)
        if known is not None:
            return None, known.prompt_updates
        assert mm_item is not None, f"nothing is known of {mm_hash}, and its data were not prepared"
        item, updates = mm_item
        prepared = PreparedItem(item)
        prepared.when_sent = functools.partial(self._send, mm_hash, MultiModalProcessorCacheItemMetadata(item, updates))
        return prepared, updates

    def _send(self, mm_hash: str, metadata: MultiModalProcessorCacheItemMetadata) -> None:
        with self._lock:
            self._sent[mm_hash] = metadata

    def _settle(self) -> None:
        for mm_hash, metadata in self._sent.items():
            self.cache_if_fits(self._cache, mm_hash, metadata)
        self._sent = {}

    def touch_sender_cache_item(self, mm_hash: str) -> None:
        with self._lock:
            super().touch_sender_cache_item(mm_hash)

    def release_sender_touches(self) -> None:
        with self._lock:
            self._promised = {}

    def invalidate(self, mm_hash: str) -> None:
        with self._lock:
            self._sent.pop(mm_hash, None)
            super().invalidate(mm_hash)

    def clear_cache(self) -> None:
        with self._lock:
            self._sent, self._promised = {}, {}
            super().clear_cache()


class ShmSenderCache(ShmObjectStoreSenderCache):
    """The shared-memory cache, whose references of requests that were never sent are given back."""

    def __init__(self, vllm_config: VllmConfig) -> None:
        super().__init__(vllm_config)
        self._unsent: deque[int] = deque()

    def get_and_update_item(
        self, mm_item: MultiModalProcessorCacheInItem, mm_hash: str
    ) -> MultiModalProcessorCacheOutItem:
        # Here and not in the finalizer, because only the preparing thread may write to the store.
        in_use = self._shm_cache.writer_flag
        while self._unsent:
            monotonic_id = self._unsent.popleft()
            if monotonic_id in in_use:  # else the cache was cleared since
                in_use[monotonic_id] -= 1
        return super().get_and_update_item(mm_item, mm_hash)

    def address_as_item(self, address: int, monotonic_id: int, signature: list[int]) -> MultiModalKwargsItem:
        prepared = PreparedItem(super().address_as_item(address, monotonic_id, signature))
        never_sent = weakref.finalize(prepared, self._unsent.append, monotonic_id)
        never_sent.atexit = False
        prepared.when_sent = never_sent.detach
        return prepared


def install() -> None:
    """Makes vLLM build these caches, and tell their items when a request was sent.

    Call before an engine is built; again changes nothing. Mends vLLM's own routes as well, because all of them
    prepare and send through the same two places.
    """
    factories.LruKeyReplicatedSenderCache = LruSenderCache
    factories.ShmObjectStoreSenderCache = ShmSenderCache
    for client in vars(core_client).values():
        if inspect.isclass(client) and issubclass(client, core_client.EngineCoreClient):
            for name, wrap in (("add_request", _telling), ("add_request_async", _telling_async)):
                method = client.__dict__.get(name)
                if method is not None and not hasattr(method, "tells_when_sent"):
                    telling: Any = wrap(method)
                    telling.tells_when_sent = True
                    setattr(client, name, telling)


def _telling(add_request: Callable[[Any, EngineCoreRequest], None]) -> Callable[..., None]:
    @functools.wraps(add_request)
    def add(client: Any, request: EngineCoreRequest) -> None:
        prepared = _prepared(request)
        add_request(client, request)
        for item in prepared:
            item.when_sent()

    return add


def _telling_async(add_request: Callable[[Any, EngineCoreRequest], Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    @functools.wraps(add_request)
    async def add(client: Any, request: EngineCoreRequest) -> None:
        prepared = _prepared(request)
        await add_request(client, request)
        for item in prepared:
            item.when_sent()

    return add


def _prepared(request: EngineCoreRequest) -> list[PreparedItem]:
    return [feature.data for feature in request.mm_features or () if isinstance(feature.data, PreparedItem)]
