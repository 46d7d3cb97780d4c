"""The gate: no arm is run, and no run of it is counted, without proof that it ran what it says.

It fails closed. What a server does not say is not proven; what it says otherwise refuses the arm; what
changes between the canaries before and after quarantines all of the arm's runs. An arm that nothing in
its proof tells from the base must answer the canary differently, byte for byte, or it is a no-op.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from quaver.errors import QuaverError
from quaver.evaluate.compare.fields import MISSING, point
from quaver.evaluate.compare.plan import REPLY_FACTS, Arm, Case, Plan
from quaver.evaluate.compare.probe import mask_probe
from quaver.evaluate.compare.reply import FINISH_REASONS, facts, text_of
from quaver.evaluate.compare.servers import ECHOES_MODEL, Server
from quaver.questions import Json

State = Literal["proven", "refused", "quarantined", "no-op"]

#: Cases that a canary asks, and the tokens it lets a generating arm write.
CANARIES = 8
CANARY_TOKENS = 128
#: Facts of a canary that must stand still whether or not the proof names them.
_STEADY = ("model", "fingerprint", "prompt_tokens", "image_tokens")


@dataclass(frozen=True, slots=True)
class Evidence:
    """One thing a proof asks for, and what was found; ``found`` is None where the server said nothing."""

    what: str
    expected: Json
    found: Json
    holds: bool

    def __str__(self) -> str:
        return f"{self.what} is {self.found!r} and should be {self.expected!r}"


@dataclass(frozen=True, slots=True)
class Canary:
    """What one case came to: facts, content, and whether asking again gave the same bytes."""

    facts: Mapping[str, Json]
    text: str
    repeats: bool


@dataclass(frozen=True, slots=True)
class Standing:
    """Whether an arm may be run and counted, and ``why`` not; ``canaries`` by case id."""

    arm: str
    state: State
    why: str = ""
    evidence: tuple[Evidence, ...] = ()
    canaries: Mapping[str, Canary] | None = None
    read_back: Mapping[str, Json] | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> Standing:
        canaries = line.get("canaries")
        return cls(
            line["arm"],
            line["state"],
            line["why"],
            tuple(Evidence(**e) for e in line["evidence"]),
            None if canaries is None else {name: Canary(**c) for name, c in canaries.items()},
            line.get("read_back"),
        )


def body_of(plan: Plan, arm: Arm, case: Case, seed: int) -> dict[str, Json]:
    """What is sent: the case's body, the arm's fields over it, and the seed where something is generated."""
    body = {**case.body, **arm.request}
    return {**body, "seed": seed} if plan.endpoint == "chat" else body


def examine_reply(arm: Arm, case: Case, found: Mapping[str, Json]) -> list[Evidence]:
    """The facts of one reply against the arm's proof. Equality, to the last token."""
    evidence = []
    for what, expected in arm.proof.items():
        if what.startswith("/") or what == "mask":
            continue
        wanted = expected[case.id] if isinstance(expected, Mapping) and what in REPLY_FACTS else expected
        evidence.append(_evidence(what, wanted, found.get(what, MISSING)))
    reason = found.get("finish_reason")
    if reason is not None and reason not in FINISH_REASONS:
        evidence.append(Evidence("finish_reason", sorted(FINISH_REASONS), reason, False))
    return evidence


def examine(arm: Arm, server: Server, read_back: Mapping[str, Json]) -> list[Evidence]:
    """The server's own words, and the mask probe where the proof asks for it, against the arm's proof."""
    evidence = [_evidence(what, wanted, point(read_back, what)) for what, wanted in arm.proof.items() if what[0] == "/"]
    if "mask" in arm.proof:
        evidence.append(_evidence("mask", arm.proof["mask"], mask_probe(server, arm.request, arm.probe or {})))
    return evidence


def enter(plan: Plan, arm: Arm, server: Server, base: Standing | None, earlier: Standing | None) -> Standing:
    """The standing of an arm before its first run. ``base`` is that of the base arm, None for the base itself.

    ``earlier`` is the arm's standing when the run was begun, for a run that is resumed.
    """
    if base is not None and base.state != "proven":
        return Standing(arm.name, "refused", f"the base arm is {base.state}, so nothing can be compared with it")
    if all(what.startswith("/") or what == "mask" for what in _witnesses(arm)):
        return Standing(arm.name, "refused", "its proof names nothing that every live answer must carry")
    try:
        read_back = server.read_back()
        evidence = examine(arm, server, read_back)
        canaries, of_replies = _canaries(plan, arm, server)
    except (QuaverError, ValueError, LookupError, TypeError, AttributeError) as error:
        return Standing(arm.name, "refused", f"the server did not answer the canary: {error}")
    evidence += of_replies
    standing = Standing(arm.name, "proven", "", tuple(evidence), canaries, read_back)
    broken = [e for e in evidence if not e.holds]
    if broken:
        return replace(standing, state="refused", why=f"{broken[0]}")
    if base is not None and not arm.twin and not _separates(arm, plan.arm(plan.base)):
        standing = _must_differ(standing, base)
    moved = _moved(earlier, standing) if earlier is not None and standing.state == "proven" else ""
    return replace(standing, state="quarantined", why=f"since the run was begun, {moved}") if moved else standing


def leave(plan: Plan, arm: Arm, server: Server, before: Standing) -> Standing:
    """The standing after the last run: the same proof and the same canaries once more.

    A server that is gone leaves its runs without proof; a resumed run may still bring it.
    """
    if before.state != "proven":
        return before
    try:
        read_back = server.read_back()
        evidence = examine(arm, server, read_back)
        canaries, of_replies = _canaries(plan, arm, server)
    except (QuaverError, ValueError, LookupError, TypeError, AttributeError) as error:
        return replace(before, state="refused", why=f"the canary after the run was not answered: {error}")
    after = Standing(arm.name, "proven", "", (*evidence, *of_replies), canaries, read_back)
    broken = [e for e in after.evidence if not e.holds]
    moved = f"{broken[0]}" if broken else _moved(before, after)
    return replace(after, state="quarantined", why=f"after the run, {moved}") if moved else after


def _witnesses(arm: Arm) -> list[str]:
    """What in the proof only the right server can answer. A repeated model name is no witness."""
    return [what for what in arm.proof if not (what == "model" and arm.server in ECHOES_MODEL)]


def _separates(arm: Arm, base: Arm) -> bool:
    """Whether some witness must have one value for the arm and another for the base."""
    shared = [what for what in _witnesses(arm) if what in _witnesses(base)]
    return any(arm.proof[what] != base.proof[what] for what in shared)


def _must_differ(standing: Standing, base: Standing) -> Standing:
    ours, theirs = standing.canaries or {}, base.canaries or {}
    steady = [case for case in ours if ours[case].repeats and theirs[case].repeats]
    if not steady:
        why = "nothing in its proof tells it from the base, and the canary does not repeat, so no difference proves it"
        return replace(standing, state="refused", why=why)
    if all(ours[case].text == theirs[case].text for case in steady):
        why = "nothing in its proof tells it from the base, and it answers the canary byte for byte as the base does"
        return replace(standing, state="no-op", why=f"no-op or not applied: {why}")
    return standing


def _canaries(plan: Plan, arm: Arm, server: Server) -> tuple[dict[str, Canary], list[Evidence]]:
    canaries, evidence = {}, []
    for case in plan.cases[:CANARIES]:
        (found, text), (again, text_again) = (_canary(plan, arm, server, case) for _ in range(2))
        canaries[case.id] = Canary(found, text, text == text_again)
        evidence += _named(case, examine_reply(arm, case, found))
        evidence += [
            Evidence(f"{what} of case {case.id}, asked twice", found.get(what), again.get(what), False)
            for what in _STEADY
            if found.get(what) != again.get(what)
        ]
    return canaries, evidence


def _canary(plan: Plan, arm: Arm, server: Server, case: Case) -> tuple[dict[str, Json], str]:
    body = body_of(plan, arm, case, plan.seeds[0])
    if plan.endpoint == "chat":
        limit = "max_completion_tokens" if "max_completion_tokens" in body else "max_tokens"
        body = {**body, limit: CANARY_TOKENS, "temperature": 0}
    reply, _ = server.ask(body)
    return facts(reply), text_of(plan.endpoint, reply)


def _moved(before: Standing, after: Standing) -> str:
    """What changed between two canaries; empty when nothing did. Text counts only where it repeats."""
    ours, theirs = before.canaries or {}, after.canaries or {}
    for case in ours:
        for what in _STEADY:
            if ours[case].facts.get(what) != theirs[case].facts.get(what):
                return f"the canary moved: {what} of case {case} went from " + (
                    f"{ours[case].facts.get(what)!r} to {theirs[case].facts.get(what)!r}"
                )
        if ours[case].repeats and theirs[case].repeats and ours[case].text != theirs[case].text:
            return f"the canary moved: the answer to case {case} is another one"
    return ""


def _evidence(what: str, expected: Json, found: Json) -> Evidence:
    if found is MISSING:
        return Evidence(what, expected, None, False)
    # To Python 1 is True; to a server it is another setting.
    return Evidence(what, expected, found, found == expected and isinstance(found, bool) == isinstance(expected, bool))


def _named(case: Case, evidence: Sequence[Evidence]) -> list[Evidence]:
    return [replace(e, what=f"{e.what} of case {case.id}") for e in evidence]
