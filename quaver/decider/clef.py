"""The Clef family: joint reads of one prompt, or of one prompt per question."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from quaver.decider.family import EncodedView, Limits, Prepared
from quaver.engine.job import Reading
from quaver.prompts.encoded import Encoded
from quaver.questions import OverflowRule, ReadingMode, Request
