"""The digest of what batch times depend on besides the code."""

import sys
from types import SimpleNamespace

import pytest

from uncork_workers.process.hosted_service import surroundings


def test_the_same_process_has_the_same_digest() -> None:
    assert surroundings() == surroundings()
    assert len(surroundings()) == 64


def test_versions_of_libraries_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xgboost", SimpleNamespace(__version__="1"))
    one = surroundings()
    monkeypatch.setitem(sys.modules, "xgboost", SimpleNamespace(__version__="2"))

    assert surroundings() != one


@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"])
def test_variables_that_choose_the_device_count(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "1")
    one = surroundings()
    monkeypatch.setenv(name, "2")

    assert surroundings() != one


def test_the_gpu_counts_only_if_it_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    def with_gpu(name: str, *, used: bool) -> str:
        cuda = SimpleNamespace(is_initialized=lambda: used, get_device_name=lambda: name)
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__version__="2", cuda=cuda))
        return surroundings()

    assert with_gpu("A", used=True) != with_gpu("B", used=True)
    assert with_gpu("A", used=False) == with_gpu("B", used=False)


def test_a_module_that_only_has_the_name_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    assert surroundings()
