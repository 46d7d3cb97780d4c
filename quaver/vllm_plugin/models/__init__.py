"""vLLM's model classes of Clef releases. Imported by the process that runs the model, and by none other."""
