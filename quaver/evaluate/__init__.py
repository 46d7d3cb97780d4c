"""Measures anything that decides: quality with intervals, calibration, coherence, load, and arms against each other.

Knows nothing of models, engines, servers or clients: what is measured is anything with ``decide``.
"""
