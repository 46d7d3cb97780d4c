"""vLLM finds the plugin by its entry points, and takes from it what it names, once, and with known versions only."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import vllm.version
from vectors import FLASH, OMNI
from vllm.model_executor.models.config import MODELS_CONFIG_MAP
from vllm.model_executor.models.registry import ModelRegistry
from vllm.multimodal.cache import factories
from vllm.plugins import load_endpoint_plugins, load_plugins_by_group
from vllm.transformers_utils.config import get_config
from vllm.transformers_utils.model_arch_config_convertor import MODEL_ARCH_CONFIG_CONVERTORS

from quaver.vllm_plugin import configs

GROUP = "vllm.general_plugins"
TABLES: tuple[dict[str, Any], ...] = (ModelRegistry.models, MODELS_CONFIG_MAP, MODEL_ARCH_CONFIG_CONVERTORS)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """vLLM's tables as they were before the plugin, and as they were found afterwards."""
    before = [dict(table) for table in TABLES]
    for name in ("LruKeyReplicatedSenderCache", "ShmObjectStoreSenderCache"):
        monkeypatch.setattr(factories, name, getattr(factories, name))
    monkeypatch.setenv("VLLM_PLUGINS", "quaver")
    for table in TABLES:
        for name in [key for key, value in table.items() if "quaver" in str(key).lower() or ours(value)]:
            del table[name]
    yield
    for table, content in zip(TABLES, before, strict=True):
        table.clear()
        table.update(content)


def ours(value: object) -> bool:
    return getattr(value, "__module__", "").startswith("quaver")


def register() -> None:
    """As vLLM calls it."""
    load_plugins_by_group(GROUP)["quaver"]()


def architectures(folder: Path) -> list[str]:
    """What vLLM would serve a folder as."""
    config = get_config(folder, trust_remote_code=False)
    MODEL_ARCH_CONFIG_CONVERTORS[config.model_type](config, config.get_text_config())
    return list(config.architectures)


def test_releases_are_recognised_by_their_heads(tmp_path: Path) -> None:
    register()
    assert architectures(FLASH) == [configs.CLEF]
    assert architectures(OMNI) == [configs.OMNI]
    headless = tmp_path / "plain"
    shutil.copytree(FLASH, headless, ignore=shutil.ignore_patterns("joint_head*", "media*", "cases*", "*.safetensors"))
    assert architectures(headless) == ["Qwen3_5ForConditionalGeneration"]


def test_an_architecture_has_the_settings_of_its_backbone() -> None:
    register()
    for architecture, backbone in configs.BACKBONES.items():
        assert architecture in ModelRegistry.get_supported_archs()
        assert MODELS_CONFIG_MAP.get(architecture) is MODELS_CONFIG_MAP.get(backbone)
    assert configs.CLEF in MODELS_CONFIG_MAP


def test_twice_is_once() -> None:
    register()
    once = [dict(table) for table in TABLES]
    register()
    assert [dict(table) for table in TABLES] == once


@pytest.mark.parametrize("allowed", [None, "", "others"])
def test_without_its_name_nothing_changes(monkeypatch: pytest.MonkeyPatch, allowed: str | None) -> None:
    before = [dict(table) for table in TABLES]
    if allowed is None:
        monkeypatch.delenv("VLLM_PLUGINS")
    else:
        monkeypatch.setenv("VLLM_PLUGINS", allowed)
    for plugin in load_plugins_by_group(GROUP).values():
        plugin()
    assert [dict(table) for table in TABLES] == before


@pytest.mark.parametrize("version", ["0.31.2", "0.34.0", "1.0"])
def test_another_vllm_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, version: str
) -> None:
    monkeypatch.setattr(vllm.version, "__version__", version)
    monkeypatch.setattr(logging.getLogger("vllm"), "propagate", True)
    before = [dict(table) for table in TABLES]
    register()
    assert [dict(table) for table in TABLES] == before
    assert f"this is {version}; nothing was registered" in caplog.text
    assert load_endpoint_plugins(("token_classify",)) == []


def test_only_the_front_end_has_its_media_cache_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    process = multiprocessing.current_process()
    for name in ("EngineCore_DP0", "VllmWorker-1", "EngineCore"):
        monkeypatch.setattr(process, "_name", name)
        register()
        assert not ours(factories.LruKeyReplicatedSenderCache)
    monkeypatch.setattr(process, "_name", "ApiServer_0")
    register()
    assert ours(factories.LruKeyReplicatedSenderCache)


def test_registering_imports_no_model() -> None:
    code = """
import json, multiprocessing, sys
import vllm.engine.arg_utils
from quaver.vllm_plugin import register
multiprocessing.current_process()._name = "EngineCore"
before = set(sys.modules)
register()
print(json.dumps(sorted(set(sys.modules) - before)))
"""
    environment = {**os.environ, "VLLM_PLUGINS": "quaver"}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    imported = json.loads(ran.stdout.splitlines()[-1])
    assert "quaver.vllm_plugin.configs" in imported
    others = [name for name in imported if name.startswith("quaver.")]
    known = ("configs", "versions", "softcap")
    assert [name for name in others if not name.startswith(tuple(f"quaver.vllm_plugin.{one}" for one in known))] == []
    assert [name for name in imported if name.startswith("vllm.model_executor.models.qwen")] == []
