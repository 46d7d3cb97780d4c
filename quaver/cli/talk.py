"""Talk to the person: stderr, so that stdout carries only results."""

from rich.console import Console

console = Console(stderr=True)
