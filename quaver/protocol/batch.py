"""Many states under one set of questions: a batch body in, a result per state out, in order.

The reply has the shape of opendecider's ``/v1/systemone/batch``: ``model``, ``results``, ``total_usage``. A result
is what the same body with that one state would have been answered, an answer or an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import Field

from quaver.errors import BadRequest
from quaver.protocol.replies import BatchError, BatchReply
from quaver.protocol.systemone import Asked, Asking, asked, reply_body
from quaver.protocol.types import Attachments, Wanted, require_object, validated
from quaver.questions import Answers, Json, Request

#: All of them wait in memory from the start, and their results until the last is there.
MAX_STATES = 10_000


class BatchBody(Asking):
    """The body of ``POST /v1/systemone/batch``: that of ``/v1/systemone`` with a list of states."""

    states: list[Json] = Field(
        min_length=1, description=f"Each is answered on its own; at most {MAX_STATES} in one request."
    )


@dataclass(frozen=True, slots=True)
class BatchCall:
    """A parsed batch: one set of questions, many states, and how to word the reply."""

    asked: Asked
    states: Sequence[Json]
    model: str | None
    wanted: Wanted

    @property
    def timeout(self) -> float | None:
        """Seconds that the whole batch may take; a state without an answer by then is an error of its own."""
        return self.asked.body.timeout

    def request(self, index: int) -> Request:
        """The request about one state; BadRequest when that state cannot be asked about."""
        return self.asked.about(self.states[index])

    def reply(self, model: str, results: Sequence[Answers | BatchError]) -> BatchReply:
        """The reply body, with a result per state, in order."""
        answered = [result for result in results if isinstance(result, Answers)]
        return {
            "model": model,
            "results": [reply_body(item, self.wanted) if isinstance(item, Answers) else item for item in results],
            "total_usage": {
                # States that failed have no count.
                "input_tokens": sum(answers.input_tokens for answers in answered),
                "output_tokens": 0,
                "input_tokens_details": {"cached_tokens": sum(answers.cached_tokens for answers in answered)},
            },
        }


def parse_batch(body: Json, attachments: Attachments | None = None) -> BatchCall:
    """A batch body that came from elsewhere, read by ``strict_json.loads``.

    BadRequest when anything but a single state breaks a rule.
    """
    require_object(body)
    # System One ignores what it does not know, and one state among many would be missed.
    if "state" in body:
        raise BadRequest("a batch has a list of states, and no state beside it", ("state",))
    checked = validated(BatchBody, dict(body))
    if len(checked.states) > MAX_STATES:
        raise BadRequest(
            f"states has {len(checked.states)} items and one request takes at most {MAX_STATES}; send several requests",
            ("states",),
        )
    return BatchCall(
        asked(checked, body["questions"], attachments or {}), checked.states, checked.model, checked.wanted
    )
