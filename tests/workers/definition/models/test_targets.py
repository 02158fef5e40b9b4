"""Which targets are models, and the names of their classes."""

from pathlib import Path

import pytest

from uncork_workers.definition.models.targets import class_name, is_model


def test_models_are_known_by_their_suffix_or_their_config(project: Path) -> None:
    Path("bert").mkdir()
    Path("bert/config.json").touch()
    Path("empty").mkdir()

    for target in ("a.onnx", "no/such.joblib", "a:b.txt", "bert", "bert/", "./bert"):
        assert is_model(target)
    for target in ("a.onnx:A", "a.py:A", "a.py", "module:A", "empty", "", "a", "x" * 5000, "a\0b"):
        assert not is_model(target)


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("iris.onnx", "Iris"),
        ("/some/where/my-iris_v2.joblib", "MyIrisV2"),
        ("bge-small-en-v1.5", "BgeSmallEnV15"),
        ("models/bert/", "Bert"),
        ("7.txt", "Model7"),
        ("é.onnx", "Model"),
        ("none.onnx", "ModelNone"),
        ("MODEL.onnx", "ModelMODEL"),
        ('it"s.json', "ItS"),
    ],
)
def test_a_class_has_the_name_of_its_file(target: str, name: str) -> None:
    assert class_name(target) == name
