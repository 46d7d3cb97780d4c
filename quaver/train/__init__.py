"""Builds ``quaver-mini``: data, training, calibration, held-out quality. Needs the ``train`` extra."""
