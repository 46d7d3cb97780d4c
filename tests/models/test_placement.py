"""Devices and precisions."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from quaver.errors import Unavailable
from quaver.models.placement import on_one_core, prepare_thread, resolve_device, resolve_dtype


def test_auto_takes_cuda_when_it_is_there() -> None:
    assert resolve_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


def test_auto_precision_follows_the_device() -> None:
    assert resolve_dtype("auto", torch.device("cpu")) == torch.float32
    assert resolve_dtype("auto", torch.device("cuda")) == torch.bfloat16
    assert resolve_dtype("bfloat16", torch.device("cpu")) == torch.bfloat16


@pytest.mark.parametrize("name", ["warp", "cuda:99", "mps:3"])
def test_devices_that_are_not_there(name: str) -> None:
    with pytest.raises(Unavailable, match="use 'auto' or 'cpu'"):
        resolve_device(name)


def test_float16_is_not_offered() -> None:
    with pytest.raises(Unavailable, match="'bfloat16'"):
        resolve_dtype("float16", torch.device("cpu"))


def test_a_prepared_thread_has_no_denormals_and_leaves_others_alone() -> None:
    def smallest() -> float:
        return float((torch.full((8,), 1e-30) * 1e-10).max())

    def prepared() -> float:
        prepare_thread()
        return smallest()

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(prepared).result() == 0
    assert smallest() > 0


def test_on_one_core_bounds_the_calling_thread_alone() -> None:
    def threads() -> tuple[int, int, int]:
        with on_one_core():
            inside = torch.get_num_threads()
            with ThreadPoolExecutor(1) as pool:
                other = pool.submit(torch.get_num_threads).result()
        return inside, other, torch.get_num_threads()

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(threads).result() == (1, 2, 2)
    finally:
        torch.set_num_threads(before)
