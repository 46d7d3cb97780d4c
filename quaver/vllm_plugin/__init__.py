"""Quaver inside vLLM: Clef's model classes, the joint head as a pooler, and our wire as vLLM's endpoint."""
