"""Hidden rows to logits: small, pure tensor maths and the checkpoints of heads."""
