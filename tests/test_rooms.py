"""Rooms import only rooms above them, and heavy libraries stay in the rooms that own them."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "quaver"

ROWS = {
    "errors": 0,
    "questions": 1,
    "protocol": 2,
    "media": 2,
    "heads": 2,
    "models": 2,
    "prompts": 3,
    "engine": 4,
    "decider": 5,
    "server": 6,
    "client": 6,
    "evaluate": 6,
    "train": 6,
    "vllm_plugin": 7,  # our server's wire over vLLM's engine, so it stands above the server
    "cli": 8,
    "testing": 8,
}
ONLY = {
    "protocol": {"errors", "questions"},
    "media": {"errors"},
    "heads": {"errors"},
    "models": {"errors"},
    "prompts": {"errors", "questions", "media"},
    "engine": {"errors", "prompts", "models", "heads"},
    "client": {"errors", "questions", "protocol"},
    "evaluate": {"errors", "questions", "protocol", "heads"},
}
OWNERS = {
    "torch": {"heads", "models", "engine", "train", "evaluate", "vllm_plugin"},
    "transformers": {"models", "train", "vllm_plugin"},
    "pydantic": {"protocol"},
    "fastapi": {"server", "vllm_plugin"},
    "vllm": {"vllm_plugin"},
    "PIL": {"media"},
    "av": {"media"},
}


def imports() -> Iterator[tuple[str, str, str]]:
    """(room, imported module, file) of every import in the package."""
    for path in PACKAGE.rglob("*.py"):
        inside = path.relative_to(PACKAGE)
        room = inside.parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from ((room, alias.name, str(inside)) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{inside}: imports are absolute"
                if node.module == "quaver":
                    yield from ((room, f"quaver.{alias.name}", str(inside)) for alias in node.names)
                elif node.module is not None:
                    yield room, node.module, str(inside)


ALL = list(imports())


def test_every_room_has_a_row() -> None:
    rooms = {path.name.removesuffix(".py") for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert rooms - {"__init__", "__main__", "__pycache__", "embedded", "py.typed"} == set(ROWS)


def test_rooms_import_downwards_only() -> None:
    wrong = []
    for room, module, path in ALL:
        parts = module.split(".")
        if parts[0] != "quaver" or len(parts) < 2 or room in ("__init__", "__main__") or parts[1] == room:
            continue
        other = parts[1]
        allowed = ONLY.get(room)
        below = ROWS[other] < ROWS[room] if other in ROWS else room in ("cli", "testing")
        if not below or (allowed is not None and other not in allowed):
            wrong.append(f"{path}: {room} may not import {module}")
    assert wrong == []


@pytest.mark.parametrize("library", OWNERS)
def test_libraries_stay_in_their_rooms(library: str) -> None:
    rooms = {room for room, module, _ in ALL if module.split(".")[0] == library}
    assert rooms <= OWNERS[library]


def test_engine_imports_only_encoded_prompts() -> None:
    modules = {module for room, module, _ in ALL if room == "engine" and module.startswith("quaver.prompts")}
    assert modules <= {"quaver.prompts.encoded", "quaver.prompts.label_encoded", "quaver.prompts.split"}


def test_the_client_needs_no_torch() -> None:
    code = (
        "import sys, quaver, quaver.client; quaver.Client, quaver.AsyncClient; "
        "heavy = {'torch', 'transformers', 'fastapi'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
