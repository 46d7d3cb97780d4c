"""Asks every arm, case and seed in a random order into an append-only file that can be resumed.

The first line of the file is the manifest, frozen before the first call. Then follow standings (what the
gate decided, with its evidence) and records, each with the manifest's digest. A later line about the same
thing replaces an earlier one; failed calls are asked again when the run is resumed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from quaver.errors import BadRequest, QuaverError
from quaver.evaluate.compare.gate import Standing, body_of, enter, examine_reply, leave
from quaver.evaluate.compare.outcomes import OUTCOMES
from quaver.evaluate.compare.plan import Plan
from quaver.evaluate.compare.reply import facts, grade
from quaver.evaluate.compare.servers import Server
from quaver.evaluate.files import end_line, written_lines
from quaver.evaluate.run import Manifest

Job = tuple[str, str, int]


@dataclass(slots=True)
class RecordFile:
    """The lines of a run: ``records`` by (arm, case, seed), the first and the last standing by arm."""

    path: Path
    digest: str
    records: dict[Job, dict[str, Any]] = field(default_factory=dict)
    first: dict[str, Standing] = field(default_factory=dict)
    last: dict[str, Standing] = field(default_factory=dict)
    calls: int = 0

    @classmethod
    def begin(cls, path: Path, manifest: Manifest) -> RecordFile:
        """The file of a run, begun or resumed. Raises BadRequest when it holds another run."""
        if path.exists() and path.stat().st_size:
            found = cls.read(path)
            if found.digest != manifest.digest:
                raise BadRequest(f"{path} holds a run of another plan, or of one that was changed; name another file")
            end_line(path)
            return found
        path.parent.mkdir(parents=True, exist_ok=True)
        found = cls(path, manifest.digest)
        found._append({"asked": dict(manifest.asked), "noted": dict(manifest.noted)})
        return found

    @classmethod
    def read(cls, path: Path) -> RecordFile:
        """The lines of ``path``. A last line that was cut short is dropped."""
        lines = written_lines(path)
        try:
            found = cls(path, Manifest(lines[0]["asked"], lines[0]["noted"]).digest)
        except (LookupError, TypeError) as error:
            raise BadRequest(f"{path} is not a record file of quaver compare: {error!r}") from error
        for line in lines[1:]:
            found._take(line)
        return found

    def add_record(self, record: dict[str, Any]) -> None:
        """Append a record; it gets its place in the order of asking."""
        self._add({"record": record | {"order": self.calls}})

    def add_standing(self, standing: Standing) -> None:
        self._add({"standing": standing.to_json()})

    def _add(self, line: dict[str, Any]) -> None:
        self._append({**line, "manifest": self.digest})
        self._take({**line, "manifest": self.digest})

    def _take(self, line: Mapping[str, Any]) -> None:
        if line.get("manifest") != self.digest:
            return
        if "record" in line:
            record = line["record"]
            self.calls += 1
            self.records[(record["arm"], record["case"], record["seed"])] = record
        if "standing" in line:
            standing = Standing.from_json(line["standing"])
            self.last[standing.arm] = standing
            if standing.state == "proven":
                self.first.setdefault(standing.arm, standing)

    def _append(self, line: Mapping[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as sink:
            sink.write(json.dumps(line, ensure_ascii=False) + "\n")


def run(
    plan: Plan,
    servers: Mapping[str, Server],
    path: Path,
    *,
    concurrency: int = 1,
    on_progress: Callable[[int, int], None] | None = None,
) -> RecordFile:
    """Gate, ask, gate again. ``servers`` by arm name; the base's twin is asked through the base's server.

    Calls of one server that overlap may answer differently than calls that do not: ``concurrency`` above 1
    is for servers whose answers do not depend on their neighbours. Raises BadRequest for a foreign file.
    """
    noted = {"began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "warnings": plan.design.warnings()}
    book = RecordFile.begin(path, Manifest(plan.asked(), {**noted, "power": plan.design.table()}))
    of_arm = {arm.name: servers[plan.base if arm.twin else arm.name] for arm in plan.arms}
    _enter_all(plan, of_arm, book)
    jobs = plan.schedule()
    with ThreadPoolExecutor(concurrency) as pool:
        for start in range(0, len(jobs), concurrency):
            todo = [job for job in jobs[start : start + concurrency] if _wanted(plan, book, job)]
            for record in pool.map(lambda job: _ask(plan, of_arm[job[0]], job), todo):
                book.add_record(record)
                _watch(book, record)
            if on_progress is not None:
                on_progress(min(len(jobs), start + concurrency), len(jobs))
    for arm in plan.arms:
        book.add_standing(leave(plan, arm, of_arm[arm.name], book.last[arm.name]))
    return book


def decided(plan: Plan, records: Mapping[Job, Mapping[str, Any]], arm: str) -> str | None:
    """What the plan's sequential test says of an arm's primary outcome; None: nothing yet, or no such test."""
    if plan.stop is None or plan.arm(arm).twin or arm in (plan.base, plan.control):
        return None
    events = n = 0
    for record in sorted((r for key, r in records.items() if key[0] == arm), key=lambda r: r["order"]):
        if "error" not in record:
            n += 1
            events += int(OUTCOMES[plan.primary](record))
            decision = plan.stop.decide(events, n)
            if decision is not None:
                return decision
    return None


def _enter_all(plan: Plan, servers: Mapping[str, Server], book: RecordFile) -> None:
    """The base first: the others are held against its canaries. A quarantine is never lifted."""
    base: Standing | None = None
    for arm in sorted(plan.arms, key=lambda arm: arm.name != plan.base):
        last = book.last.get(arm.name)
        if last is None or last.state != "quarantined":
            book.add_standing(enter(plan, arm, servers[arm.name], base, book.first.get(arm.name)))
        if arm.name == plan.base:
            base = book.last[arm.name]


def _wanted(plan: Plan, book: RecordFile, job: Job) -> bool:
    answered = job in book.records and "error" not in book.records[job]
    return not answered and book.last[job[0]].state == "proven" and decided(plan, book.records, job[0]) is None


def _watch(book: RecordFile, record: Mapping[str, Any]) -> None:
    """Quarantine an arm as soon as one of its answers does not carry the proof."""
    standing = book.last[record["arm"]]
    if record.get("broken") and standing.state == "proven":
        why = f"during the run, case {record['case']}: {record['broken'][0]}"
        book.add_standing(replace(standing, state="quarantined", why=why))


def _ask(plan: Plan, server: Server, job: Job) -> dict[str, Any]:
    arm, case = plan.arm(job[0]), plan.case(job[1])
    record: dict[str, Any] = {"arm": job[0], "case": job[1], "seed": job[2]}
    began = time.perf_counter()
    try:
        reply, attempts = server.ask(body_of(plan, arm, case, job[2]))
        found, graded = facts(reply), grade(plan, case, reply)
    except QuaverError as error:
        return record | {"error": f"{type(error).__name__}: {error}"}
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        return record | {"error": f"the reply has not the form of this endpoint: {error!r}"}
    return record | {
        "seconds": round(time.perf_counter() - began, 4),
        "attempts": attempts,
        "facts": found,
        "broken": [str(e) for e in examine_reply(arm, case, found) if not e.holds],
        "text": graded.text,
        "parsed": graded.parsed,
        "passed": graded.passed,
        "checks": graded.checks,
        "loop": None if graded.loop is None else asdict(graded.loop),
    }
