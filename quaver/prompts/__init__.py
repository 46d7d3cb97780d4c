"""A request to token ids, spans and the end of the reusable part; one file per family of models."""
