"""A little of the fuzzing of ``scripts/fuzz-media``, with a fixed seed."""

from fuzz import fuzz

MIB = 2**20
SECONDS = 15


def test_mutated_files_are_decoded_or_refused_and_memory_stays_flat() -> None:
    tally = fuzz(SECONDS, start=20_261_130)
    assert tally.outcomes.keys() >= {"decoded", "refused"}
    middle, end = tally.memory[len(tally.memory) // 2], tally.memory[-1]
    for before, after in zip(middle, end, strict=True):
        assert after < before + 128 * MIB
