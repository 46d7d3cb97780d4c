"""Fakes that tests of any room, and of other projects, can use instead of a model."""

from quaver.testing.fake_decider import FakeDecider

__all__ = ["FakeDecider"]
