"""The commands as a person runs them, on the model that comes with the package."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def quaver(*arguments: str | Path, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "quaver", *arguments], capture_output=True, text=True, input=stdin)


ASKED = ("--noul", "Is this a complaint?", "--score", "How angry? = calm | annoyed | furious", "--json")
STATE = "The box was torn and nobody answers. I am furious!"


def answers(*arguments: str | Path, stdin: str | None = None) -> dict[str, object]:
    done = quaver("ask", *arguments, *ASKED, stdin=stdin)
    assert done.returncode == 0, done.stderr
    reply: dict[str, dict[str, object]] = json.loads(done.stdout)
    return reply["answers"]


def test_a_state_comes_by_argument_stdin_or_file(tmp_path: Path) -> None:
    text = tmp_path / "state.txt"
    text.write_text(STATE)
    structured = tmp_path / "state.json"
    structured.write_text(json.dumps(STATE))
    by_argument = answers(STATE)
    assert set(by_argument) == {"Is this a complaint?", "How angry?"}
    assert answers("-", stdin=STATE) == by_argument
    assert answers("--file", text) == by_argument
    assert answers("--file", structured) == by_argument


def test_a_table_is_printed_for_people() -> None:
    done = quaver("ask", STATE, "--choice", "What is it? = complaint | praise: somebody is happy | question")
    assert done.returncode == 0, done.stderr
    for shown in ("What is it?", "complaint", "praise", "question", "%", "confidence"):
        assert shown in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--noul", "Is it?"], "give the state once"),
        ([STATE, "--file", "x"], "give the state once"),
        (["--file", "none.txt", "--noul", "Is it?"], "none.txt cannot be read"),
        ([STATE], "questions must not be empty"),
        ([STATE, "--score", "How? = " + " | ".join("abcdefghijk")], "1 to 10 levels, got 11"),
        ([STATE, "--noul", "Is it?", "--model", "/nowhere"], "/nowhere"),
        ([STATE, "--noul", "Is it?", "--image", "cat.png"], "cannot see images; it reads text"),
        ([STATE, "--noul", "Is it?", "--reading", "joint"], 'reading "joint"'),
        (["--batch", "x.jsonl"], "--batch needs --out"),
        (["--batch", "none.jsonl", "--out", "out.jsonl"], "none.jsonl cannot be read"),
        ([STATE, "--batch", "x.jsonl", "--out", "out.jsonl"], "--batch takes states, images and videos from its lines"),
        ([STATE, "--out", "out.jsonl", "--noul", "Is it?"], "--out goes with --batch"),
    ],
)
def test_mistakes_are_explained_without_a_traceback(arguments: list[str], message: str) -> None:
    done = quaver("ask", *arguments)
    assert done.returncode == 1
    assert message in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_terminal_without_the_characters_gets_the_answer_all_the_same() -> None:
    asked = [sys.executable, "-m", "quaver", "ask", STATE, "--choice", "Où? = café | thé"]
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    table = subprocess.run(asked, capture_output=True, env=ascii_only)
    assert table.returncode == 0 and b"caf?" in table.stdout and b"%" in table.stdout
    as_json = subprocess.run([*asked, "--json"], capture_output=True, env=ascii_only)
    assert set(json.loads(as_json.stdout.decode("ascii"))["answers"]["Où?"]["probabilities"]) == {"café", "thé"}


def test_files_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"state": "s"}\n')
    done = quaver("ask", "--batch", tmp_path / "in.jsonl", "--out", tmp_path / "no/out.jsonl", "--noul", "Is it?")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "no/out.jsonl: No such file or directory" in done.stderr.replace("\n", "")


def test_models_lists_what_is_here(tmp_path: Path) -> None:
    golden = Path(__file__).parents[1] / "golden"
    done = quaver("models", golden / "clef-flash-tiny", golden / "clef-omni-tiny", tmp_path, "--json")
    embedded, release, omni = json.loads(done.stdout)
    assert embedded["load"] == "embedded"
    assert embedded["reads"] == ["text"]
    assert embedded["max_length"] is None
    assert release["reads"] == ["text", "images", "videos"]
    assert release["reading"] == ["joint", "independent"]
    assert release["max_length"] == 16_384
    assert omni["reads"] == ["text", "images", "audio", "videos"]
    assert omni["max_length"] == 64_000
    assert f"not listed: {tmp_path}" in done.stderr.replace("\n", "")
    assert "no limit" in quaver("models").stdout


@pytest.mark.parametrize("command", [[], ["ask"], ["serve"], ["models"]])
def test_help_needs_no_torch(command: list[str]) -> None:
    code = (
        "import sys; sys.argv = ['quaver', *sys.argv[1:]]\n"
        "from quaver.cli.main import app\n"
        "try: app()\n"
        "except SystemExit as done: assert done.code == 0, done.code\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code, *command, "--help"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout


@pytest.mark.parametrize(
    ("library", "extra", "arguments"),
    [("torch", "serve", ["ask", "x", "-n", "y"]), ("scipy", "eval", ["compare", "plan.yaml"])],
)
def test_a_missing_library_names_the_extra_that_brings_it(library: str, extra: str, arguments: list[str]) -> None:
    code = f"import sys; sys.modules[{library!r}] = None; from quaver.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert done.returncode == 1
    assert f"needs {library}, which is not installed; pip install 'quaver[{extra}]'" in done.stderr.replace("\n", " ")
