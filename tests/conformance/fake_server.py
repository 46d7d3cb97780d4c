"""A server with the fake decider, as a process: ``python fake_server.py serve --port P [--api-key K]``."""

import argparse

from quaver.server import ServerConfig, run
from quaver.testing import FakeDecider

parser = argparse.ArgumentParser()
parser.add_argument("command", choices=["serve"])
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--api-key")
options = parser.parse_args()
run(FakeDecider(), ServerConfig(port=options.port, api_key=options.api_key))
