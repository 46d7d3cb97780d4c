"""Prometheus metrics, in a registry of their own unless told otherwise: two apps in one process do not meet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from quaver.protocol import BatchError
from quaver.questions import Answers

#: Of histograms: from a short text that was read before to a long one on a CPU.
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

#: What a decider's ``stats`` mean, in the order in which they are shown.
STATS: Mapping[str, tuple[Literal["counter", "gauge"], str]] = {
    "jobs_done": ("counter", "Requests that the engine answered."),
    "jobs_failed": ("counter", "Requests that the engine answered with an error."),
    "jobs_dropped": ("counter", "Requests whose caller left or whose time was over before they were answered."),
    "jobs_waiting": ("gauge", "Requests that wait for the model."),
    "jobs_running": ("gauge", "Requests that the model reads now."),
    "tokens_waiting": ("gauge", "Input tokens of the requests that wait."),
    "tokens_computed": ("counter", "Input tokens that went through the model."),
    "tokens_reused": ("counter", "Input tokens whose results were kept from an earlier request."),
    "steps": ("counter", "Forward passes of the model."),
    "rows": ("counter", "Rows of all passes; by passes, the mean batch size."),
    "state_cache_bytes": ("gauge", "Bytes of kept states."),
    "state_cache_budget": ("gauge", "Bytes that kept states may take."),
    "state_cache_nodes": ("gauge", "Runs of tokens whose results are kept."),
    "cache_evictions": ("counter", "Kept runs that made room for others."),
}

#: Names by which routers in front of several vLLM servers know the same numbers.
VLLM = {"vllm:num_requests_waiting": "jobs_waiting", "vllm:num_requests_running": "jobs_running"}


class Metrics:
    """What a server counts. ``stats`` of the decider appear as ``quaver_decider_...`` when they are read."""

    def __init__(self, stats: Callable[[], Mapping[str, float]], registry: CollectorRegistry | None = None) -> None:
        self._registry = registry = registry or CollectorRegistry()
        self.requests = Counter(
            "quaver_requests", "Decision requests by dialect and status.", ["dialect", "status"], registry=registry
        )
        self.seconds = Histogram(
            "quaver_request_seconds",
            "Time from the first byte to the reply.",
            ["dialect"],
            buckets=SECONDS,
            registry=registry,
        )
        self.batch_states = Counter(
            "quaver_batch_states", "States of batches by the status of each.", ["status"], registry=registry
        )
        self.phases = Histogram(
            "quaver_phase_seconds",
            "Where the time of an answer went: prepare, queue, prefill or head.",
            ["phase"],
            buckets=SECONDS,
            registry=registry,
        )
        self.in_flight = Gauge("quaver_requests_in_flight", "Decision requests being answered.", registry=registry)
        self.input_tokens = Counter("quaver_input_tokens", "Input tokens of answered requests.", registry=registry)
        self.cached_tokens = Counter("quaver_cached_tokens", "Input tokens not read again.", registry=registry)
        self.truncated = Counter("quaver_truncated_requests", "Answers about a cut state.", registry=registry)
        registry.register(_Stats(stats))

    def answered(self, answers: Answers) -> None:
        self.input_tokens.inc(answers.input_tokens)
        self.cached_tokens.inc(answers.cached_tokens)
        self.truncated.inc(bool(answers.truncated_tokens))
        times = answers.timing
        phases = {"prepare": times.prepare, "queue": times.queued, "prefill": times.prefill, "head": times.head}
        for phase, seconds in phases.items():
            self.phases.labels(phase).observe(seconds)

    def batch_answered(self, results: Sequence[Answers | BatchError]) -> None:
        for result in results:
            if isinstance(result, Answers):
                self.answered(result)
            self.batch_states.labels(200 if isinstance(result, Answers) else result["status"]).inc()

    def finished(self, dialect: str, status: int, seconds: float) -> None:
        self.requests.labels(dialect, str(status)).inc()
        self.seconds.labels(dialect).observe(seconds)

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self._registry)


class _Stats(Collector):
    def __init__(self, stats: Callable[[], Mapping[str, float]]) -> None:
        self._stats = stats

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Nothing beforehand: which numbers a decider keeps is known when it is asked."""
        return iter(())

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """What the decider keeps and this table explains."""
        stats = self._stats()
        for name, (kind, text) in STATS.items():
            if name in stats:
                family = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
                yield family(f"quaver_decider_{name}", text, stats[name])
        for name, own in VLLM.items():
            if own in stats:
                yield GaugeMetricFamily(name, f"{STATS[own][1]} As vLLM names it.", stats[own])
        if stats.get("state_cache_budget"):
            used = stats["state_cache_bytes"] / stats["state_cache_budget"]
            yield GaugeMetricFamily("vllm:kv_cache_usage_perc", "Share of the budget for kept states in use.", used)
