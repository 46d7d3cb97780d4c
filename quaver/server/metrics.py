"""Prometheus metrics in a registry of their own, so that two apps in one process do not meet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from quaver.questions import Answers

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """What a server counts. ``stats`` of the decider appear as ``quaver_decider_...`` when they are read."""

    def __init__(self, stats: Callable[[], Mapping[str, float]]) -> None:
        self._registry = registry = CollectorRegistry()
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
        self.in_flight = Gauge("quaver_requests_in_flight", "Decision requests being answered.", registry=registry)
        self.input_tokens = Counter("quaver_input_tokens", "Input tokens of answered requests.", registry=registry)
        self.cached_tokens = Counter("quaver_cached_tokens", "Input tokens not read again.", registry=registry)
        self.truncated = Counter("quaver_truncated_requests", "Answers about a cut state.", registry=registry)
        registry.register(_Stats(stats))

    def answered(self, answers: Answers) -> None:
        self.input_tokens.inc(answers.input_tokens)
        self.cached_tokens.inc(answers.cached_tokens)
        self.truncated.inc(bool(answers.truncated_tokens))

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

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for name, value in self._stats().items():
            yield GaugeMetricFamily(f"quaver_decider_{name}", f"{name} of the decider.", value)
