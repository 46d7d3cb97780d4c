"""What ``quaver serve --engine vllm`` tells vLLM, by vLLM's own reading of it. That it serves, all other tests show."""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser

from quaver.cli.serve_vllm import SETTINGS, arguments
from quaver.errors import BadRequest
from quaver.vllm_plugin.settings import VllmSettings


def read(arguments: list[str]) -> Namespace:
    return make_arg_parser(FlexibleArgumentParser()).parse_args(arguments)


def test_options_and_flags() -> None:
    given = {"host": "127.0.0.1", "port": 8093, "max_queue": 7, "reading": "independent", "min_label_mass": 0.5}
    told = read(arguments(given, ["one", "two"], ["--max-model-len", "2048", "--enforce-eager"]))
    assert (told.host, told.port, told.api_key) == ("127.0.0.1", 8093, ["one", "two"])
    assert (told.max_num_queued_reqs, told.max_model_len, told.enforce_eager) == (7, 2048, True)
    # x_priority would do nothing without.
    assert told.scheduling_policy == "priority"
    assert VllmSettings.of(told.additional_config) == VllmSettings(reading="independent", min_label_mass=0.5)


def test_flags_win_over_defaults_and_options_over_configuration() -> None:
    config = json.dumps({"other": 1, "quaver": {"reading": "joint", "confidence": "max"}})
    for flags in (["--additional-config", config], [f"--additional-config={config}"]):
        told = read(arguments({"reading": "independent"}, [], [*flags, "--scheduling-policy=fcfs"]))
        assert told.additional_config == {"other": 1, "quaver": {"reading": "independent", "confidence": "max"}}
        assert told.scheduling_policy == "fcfs"


@pytest.mark.parametrize(
    ("flags", "scales"),
    [
        ([], False),
        (["--no-mm-device-do-normalize"], False),
        (["--mm-device-do-normalize"], True),
        (["--mm_device_do_normalize"], True),
    ],
)
def test_pixels_are_not_scaled_again_unless_asked_for(flags: list[str], scales: bool) -> None:
    assert read(arguments({}, [], flags)).mm_device_do_normalize is scales


def test_every_option_that_is_passed_on_is_a_setting() -> None:
    assert set(SETTINGS) <= set(VllmSettings.__dataclass_fields__)


@pytest.mark.parametrize(
    ("given", "flags", "message"),
    [
        ({"device": "cpu"}, [], "--device belongs to quaver's engine"),
        ({}, ["--additional-config", "{"], "is not JSON"),
        ({}, ["--additional-config", "[]"], "must be a JSON object"),
    ],
)
def test_refused(given: dict[str, Any], flags: list[str], message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        arguments(given, [], flags)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"quaver": []}, "must be an object"),
        ({"quaver": {"readings": "joint"}}, "has no 'readings'; known: reading, "),
        ({"quaver": {"reading": "both"}}, "reading may not be 'both'"),
        ({"quaver": {"option_orders": True}}, "option_orders may not be True"),
        ({"quaver": {"allow_media_hosts": "example.org"}}, "allow_media_hosts may not be"),
    ],
)
def test_settings_that_are_none(config: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        VllmSettings.of(config)


def test_the_embedded_model_is_ours() -> None:
    done = subprocess.run([sys.executable, "-m", "quaver", "serve", "--engine", "vllm"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "read by quaver's own engine" in " ".join((done.stdout + done.stderr).split())


def test_the_model_comes_before_vllms_flags(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "quaver", "serve", "--engine", "vllm", "--max-model-len", "2048", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "name the model before --max-model-len" in " ".join(done.stderr.replace("│", " ").split())
