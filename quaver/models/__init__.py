"""Releases on disk or hub to models that give hidden rows. Knows tokens and pixels, no questions."""
