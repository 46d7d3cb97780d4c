"""The command line: parse, call, print. Data goes to stdout, talk to stderr."""

from quaver.cli.main import main

__all__ = ["main"]
