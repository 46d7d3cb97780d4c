"""What is compared: arms, cases, seeds; read from one file and fixed before the first call."""

from __future__ import annotations

import base64
import hashlib
import json
import mimetypes
import random
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from quaver.errors import BadRequest
from quaver.evaluate.compare.fields import known
from quaver.evaluate.compare.power import Design, Sprt
from quaver.evaluate.files import json_lines, read_data
from quaver.questions import Json

Endpoint = Literal["chat", "systemone", "decisions"]
Metric = Literal["loop", "parsed", "passed", "checks"]
ServerKind = Literal["quaver", "vllm", "sglang", "llama.cpp", "ollama", "local"]

#: Facts of single replies that a proof may name; anything else is a pointer into the read-back.
REPLY_FACTS = ("model", "fingerprint", "image_digest", "prompt_tokens", "image_tokens", "cached_tokens", "mask")
TWIN = " (twin)"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must hold of a reply: at a JSON pointer of the parsed reply, or in its text (``at`` None)."""

    kind: Literal["is", "has", "matches"]
    value: Json
    at: str | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """One request. ``gold`` is the right text where there is one: what repeats in it is not a loop."""

    id: str
    body: Mapping[str, Json]
    checks: tuple[Check, ...] = ()
    gold: str = ""

    @property
    def digest(self) -> str:
        """sha256 of all that is sent and checked, images included."""
        content = [self.body, [[c.kind, c.value, c.at] for c in self.checks], self.gold]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Arm:
    """A configuration and what proves it.

    ``request`` is laid over every case's body. ``proof`` maps a fact of every reply (``REPLY_FACTS``, or a
    reply's ``x_`` field), or a pointer into the read-back such as ``/version/version``, to the value it must
    have; token counts may be given per case. ``probe`` are the settings of the mask probe. ``key_env`` names
    the environment variable with the server's key. ``twin`` marks the base asked a second time.
    """

    name: str
    server: ServerKind
    url: str
    request: Mapping[str, Json] = field(default_factory=dict)
    proof: Mapping[str, Json] = field(default_factory=dict)
    probe: Mapping[str, Json] | None = None
    key_env: str | None = None
    twin: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """``primary`` is the outcome that verdicts are about; ``margin`` is what counts as no change, as a rate."""

    name: str
    endpoint: Endpoint
    arms: tuple[Arm, ...]
    cases: tuple[Case, ...]
    seeds: tuple[int, ...]
    base: str
    primary: Metric
    control: str | None = None
    parse: Literal["json", "text"] = "text"
    margin: float = 0.1
    order_seed: int = 0
    stop: Sprt | None = None

    def arm(self, name: str) -> Arm:
        return next(arm for arm in self.arms if arm.name == name)

    def case(self, name: str) -> Case:
        return next(case for case in self.cases if case.id == name)

    @property
    def rivals(self) -> tuple[Arm, ...]:
        """The arms that are judged against the base."""
        return tuple(arm for arm in self.arms if arm.name != self.base and not arm.twin)

    @property
    def design(self) -> Design:
        return Design(len(self.cases), len(self.seeds), len(self.rivals))

    def asked(self) -> dict[str, Any]:
        """All that decides what is asked, for the manifest: a run may only be resumed with the same."""
        arms = [
            {"name": a.name, "server": a.server, "url": a.url, "request": a.request, "proof": a.proof, "probe": a.probe}
            for a in self.arms
        ]
        stop = None if self.stop is None else [self.stop.first, self.stop.second, self.stop.alpha, self.stop.beta]
        asked = {
            **{key: getattr(self, key) for key in ("name", "endpoint", "base", "control", "primary", "parse")},
            "margin": self.margin,
            "order_seed": self.order_seed,
            "seeds": list(self.seeds),
            "stop": stop,
            "arms": arms,
            "cases": {case.id: case.digest for case in self.cases},
        }
        # As the record file will give it back.
        return json.loads(json.dumps(asked))  # type: ignore[no-any-return]

    def schedule(self) -> list[tuple[str, str, int]]:
        """(arm, case, seed) in the order of asking.

        Base and control open and close the run with their first and last seeds (with one seed: half of the
        cases each); everything else lies between them, interleaved at random from ``order_seed``.
        """
        first: list[tuple[str, str, int]] = []
        middle, last = first.copy(), first.copy()
        for arm in self.arms:
            for place, case in enumerate(self.cases):
                for index, seed in enumerate(self.seeds):
                    job = (arm.name, case.id, seed)
                    frames = arm.name in (self.base, self.control)
                    at = index / max(1, len(self.seeds) - 1) if len(self.seeds) > 1 else place % 2
                    (first if frames and at == 0 else last if frames and at == 1 else middle).append(job)
        rng = random.Random(self.order_seed)
        for block in (first, middle, last):
            rng.shuffle(block)
        return first + middle + last


def read_plan(path: Path) -> Plan:
    """The plan in a YAML or JSON file; files that it names are looked for beside it. Raises BadRequest."""
    required = {"name": str, "endpoint": str, "arms": dict, "cases": object, "base": str}
    optional = {"seeds": list, "control": str, "primary": str, "parse": str, "margin": float, "order_seed": int}
    given = known(read_data(path), str(path), required, {**optional, "stop": dict})
    for name, kind in (("endpoint", Endpoint), ("primary", Metric), ("parse", Literal["json", "text"])):
        if name in given and given[name] not in get_args(kind):
            raise BadRequest(f"{path}: {name} must be one of {', '.join(get_args(kind))}, got {given[name]!r}")
    rows = json_lines(path.parent / given["cases"]) if isinstance(given["cases"], str) else given["cases"]
    if not isinstance(rows, Iterable):
        raise BadRequest(f"{path}: cases must be a list or name a JSON Lines file, got {rows!r}")
    cases = tuple(_case(row, f"{path}: case {i}", path.parent) for i, row in enumerate(rows, 1))
    arms = tuple(_arm(str(name), arm, f"{path}: arm {name}", cases) for name, arm in given["arms"].items())
    names = [arm.name for arm in arms]
    seeds = tuple(given.get("seeds", (1,)))
    # A seed twice would be counted as two runs and asked once.
    if not seeds or not all(type(seed) is int for seed in seeds) or len({*seeds}) < len(seeds):
        raise BadRequest(f"{path}: seeds must be whole numbers, each once, got {list(seeds)}")
    for role in ("base", "control"):
        if role in given and given[role] not in names:
            raise BadRequest(f"{path}: {role} {given[role]!r} is none of the arms {', '.join(names)}")
    if not cases or len({case.id for case in cases}) < len(cases):
        raise BadRequest(f"{path}: there must be cases, and their ids must differ")
    if "stop" in given and given.get("primary") not in ("loop", "parsed", "passed"):
        raise BadRequest(f"{path}: stop tests a rate, so primary must be loop, parsed or passed")
    base = next(arm for arm in arms if arm.name == given["base"])
    return Plan(
        given["name"],
        given["endpoint"],
        (*arms, replace(base, name=base.name + TWIN, twin=True)),
        cases,
        seeds,
        base.name,
        given.get("primary", "passed" if any(case.checks for case in cases) else "loop"),
        given.get("control"),
        given.get("parse", "text"),
        float(given.get("margin", 0.1)),
        given.get("order_seed", 0),
        _stop(given["stop"], f"{path}: stop") if "stop" in given else None,
    )


def _arm(name: str, value: Json, where: str, cases: tuple[Case, ...]) -> Arm:
    optional = {"request": dict, "proof": dict, "probe": dict, "key_env": str}
    given = known(value, where, {"server": str, "url": str}, optional)
    if given["server"] not in get_args(ServerKind):
        raise BadRequest(f"{where}: server must be one of {', '.join(get_args(ServerKind))}")
    # YAML reads a case called 7 as a number; cases are called by text.
    given["proof"] = {
        fact: {str(case): count for case, count in wanted.items()} if isinstance(wanted, Mapping) else wanted
        for fact, wanted in given.get("proof", {}).items()
    }
    for fact, expected in given["proof"].items():
        if fact not in REPLY_FACTS and not fact.startswith(("/", "x_")):
            raise BadRequest(f"{where}: proof {fact!r} is neither {', '.join(REPLY_FACTS)}, x_..., nor a /pointer")
        strangers = [case.id for case in cases if isinstance(expected, Mapping) and case.id not in expected]
        if fact in REPLY_FACTS and strangers:
            raise BadRequest(f"{where}: proof {fact} has no value for case {strangers[0]!r}")
    return Arm(name, **given)


def _case(value: Json, where: str, folder: Path) -> Case:
    given = known(value, where, {"id": str, "body": dict}, {"checks": list, "labels": dict, "gold": str})
    checks = [_check(check, f"{where}, check {i}") for i, check in enumerate(given.get("checks", ()), 1)]
    checks += [Check("is", _label(label), f"/{name}/label") for name, label in given.get("labels", {}).items()]
    return Case(given["id"], _with_files(given["body"], folder), tuple(checks), given.get("gold", ""))


def _check(value: Json, where: str) -> Check:
    given = known(value, where, {}, {"at": str, "is": object, "has": str, "matches": str})
    kinds: list[Literal["is", "has", "matches"]] = [kind for kind in ("is", "has", "matches") if kind in given]
    if len(kinds) != 1:
        raise BadRequest(f"{where}: needs exactly one of is, has and matches")
    try:
        re.compile(given.get("matches", ""))
    except re.error as error:
        raise BadRequest(f"{where}: matches {given['matches']!r} is not a regular expression: {error}") from error
    return Check(kinds[0], given[kinds[0]], given.get("at"))


def _label(label: Json) -> Json:
    """Labels are compared as text, as an answer's own label is."""
    return str(label).lower() if isinstance(label, bool) else str(label)


def _stop(value: Json, where: str) -> Sprt:
    given = known(value, where, {"first": float, "second": float}, {"alpha": float, "beta": float})
    try:
        return Sprt(**given)
    except ValueError as error:
        raise BadRequest(f"{where}: {error}") from error


def _with_files(value: Json, folder: Path, key: str = "") -> Json:
    """``value`` with image files named in it as data URLs, so that the digest covers their content."""
    if isinstance(value, Mapping):
        return {name: _with_files(content, folder, name) for name, content in value.items()}
    if isinstance(value, list):
        return [_with_files(item, folder, key) for item in value]
    if not isinstance(value, str) or key not in ("url", "image_url", "images") or value.startswith("data:"):
        return value
    if "://" in value:
        raise BadRequest(f"{value[:80]}: images are sent by content, which an address does not fix; name a file")
    path = folder / value
    if len(value) > 1024 or not path.is_file():
        return value
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
