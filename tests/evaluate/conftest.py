"""A decider without a model: it knows the truth, is sure by a stated degree, and is wrong by hash of the state."""

import hashlib
import json
import math
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import typer
import uvicorn
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from typer.testing import CliRunner, Result

from quaver.cli.bench import bench
from quaver.cli.calibrate import calibrate
from quaver.cli.eval import evaluate
from quaver.errors import QuaverError
from quaver.evaluate.answerer import Answerer
from quaver.evaluate.records import Record, read_records
from quaver.evaluate.run import Manifest, Outcome, Settings, read_run, run
from quaver.questions import Answers, Question, Request, answer
from quaver.server import create_app

TOPICS = ("billing", "delivery", "returns", "other")
QUESTIONS = {
    "refund": {"type": "noul", "instructions": "Does the writer ask for money back?"},
    "queue": {"type": "choice", "instructions": "Which desk?", "criteria": dict.fromkeys(TOPICS)},
    "heat": {"type": "score", "instructions": "How angry?", "criteria": ["calm", "annoyed", "angry", "furious"]},
}


def chance(*parts: object) -> float:
    """A number in [0, 1) that depends on nothing but ``parts``."""
    found = hashlib.sha256(json.dumps([str(part) for part in parts]).encode()).digest()
    return int.from_bytes(found[:6], "big") / 2**48


def rows(count: int) -> list[dict[str, Any]]:
    """Labelled rows; the state spells the labels, so the fake can know them."""
    made = []
    for i in range(count):
        labels = {"refund": chance(i, "r") < 0.4, "queue": TOPICS[int(4 * chance(i, "q"))], "heat": int(4 * chance(i))}
        made.append({"id": f"r{i}", "state": {"ticket": i, **labels}, "questions": QUESTIONS, "labels": labels})
    return made


class Fake:
    """Right options stand ``skill`` above unit Gaussian noise; it shows the exact posterior's logits times ``boast``.

    ``before`` may return an error for the number of a call. ``bend`` changes the probabilities shown.
    """

    def __init__(self, skill: float = 3.0, boast: float = 1.0, model: str = "fake-1") -> None:
        self.skill, self.boast, self.name = skill, boast, model
        self.calls = 0
        self.ready = True
        self.before: Callable[[int], QuaverError | None] = lambda _: None
        self.bend: Callable[[str, Sequence[float]], Sequence[float]] = lambda _, p: p
        self.asked: list[Mapping[str, Question]] = []
        self.calibration: str | None = None
        self.config: dict[str, Any] = {}

    def decide(self, state: Any, questions: Mapping[str, Question], **_: Any) -> Answers:
        self.calls += 1
        self.asked.append(questions)
        if error := self.before(self.calls):
            raise error
        found = {name: self._answer(state, name, question) for name, question in questions.items()}
        return Answers(found, model=self.name, reading="independent", input_tokens=40, cached_tokens=10)

    def submit(self, request: Request) -> Future[Answers]:
        done: Future[Answers] = Future()
        try:
            done.set_result(self.decide(request.state, request.questions))
        except QuaverError as error:
            done.set_exception(error)
        return done

    def stats(self) -> dict[str, int]:
        return {}

    def close(self) -> None:
        pass

    def _answer(self, state: Any, name: str, question: Question) -> Any:
        negated = str(question.instructions).startswith("Is the answer to this question no?")
        truth = str(state.get(name)).lower() if isinstance(state, dict) else ""
        logits = []
        for option in question.option_ids:
            meant = {"true": "false", "false": "true"}[option] if negated else option
            u, v = chance(state, name, meant, "u"), chance(state, name, meant, "v")
            noise = math.sqrt(-2 * math.log(1 - u)) * math.cos(2 * math.pi * v)
            logits.append(self.boast * self.skill * (noise + self.skill * (truth == meant)))
        weights = [math.exp(x - max(logits)) for x in logits]
        return answer(question, self.bend(question.type, [w / sum(weights) for w in weights]))


@pytest.fixture(scope="session")
def fake() -> type[Fake]:
    return Fake


@pytest.fixture(scope="session")
def rows_file(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    def write(count: int) -> Path:
        path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows(count)))
        return path

    return write


@pytest.fixture(scope="session")
def records(rows_file: Callable[[int], Path]) -> Callable[[int], list[Record]]:
    return lambda count: read_records(str(rows_file(count)))


@pytest.fixture(scope="session")
def manifest() -> Manifest:
    return Manifest({"target": "fake", "data": {"sha256": "0" * 64}}, {"begun": "2026-01-01T00:00:00+00:00"})


@pytest.fixture(scope="session")
def quaver() -> Callable[..., Result]:
    """Runs a command in this process; an exception of ours comes out, another exit code than ``code`` fails."""
    app = typer.Typer()
    for name, function in (("eval", evaluate), ("calibrate", calibrate), ("bench", bench)):
        app.command(name)(function)

    def run_command(*arguments: str | Path, code: int = 0) -> Result:
        done = CliRunner().invoke(app, [str(argument) for argument in arguments])
        if isinstance(done.exception, QuaverError):
            raise done.exception
        assert done.exit_code == code, done.output
        return done

    return run_command


Ask = Callable[..., tuple[Manifest, list[Outcome]]]


@pytest.fixture(scope="session")
def ask(tmp_path_factory: pytest.TempPathFactory, manifest: Manifest) -> Ask:
    """Runs records through an answerer and reads the run file back."""

    def asked(
        records: Sequence[Record], answerer: Answerer, settings: Settings | None = None
    ) -> tuple[Manifest, list[Outcome]]:
        path = tmp_path_factory.mktemp("run") / "run.jsonl"
        run(records, answerer, path, manifest, settings or Settings(2, 0))
        return read_run(path)

    return asked


@pytest.fixture
def serve() -> Iterator[Callable[[Fake], str]]:
    """Puts a decider behind a Quaver server with a socket and gives its address."""
    running: list[tuple[uvicorn.Server, threading.Thread]] = []

    def start(decider: Fake) -> str:
        server = uvicorn.Server(uvicorn.Config(create_app(decider), port=0, log_level="warning"))
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        running.append((server, thread))
        while not server.started:
            thread.join(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}"

    yield start
    for server, thread in running:
        server.should_exit = True
        thread.join(5)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """Headless Chromium that makes no connections of its own."""
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("chromium and chromedriver are not installed")
    options = ChromeOptions()
    options.binary_location = program
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    flags = "headless no-sandbox disable-gpu disable-quic no-first-run disable-background-networking"
    for flag in f"{flags} disable-component-update disable-sync".split():
        options.add_argument(f"--{flag}")
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('chromium')}")
    found = Chrome(options, Service(driver))
    yield found
    found.quit()
