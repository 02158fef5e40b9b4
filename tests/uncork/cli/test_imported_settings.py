"""What is read from configurations of KServe and MLServer, and what is refused."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from tests.examples import at_most
from uncork.cli.proxy.imported_settings import (
    Imported,
    WrongSettings,
    read_environment,
    read_inference_service,
    read_model_settings,
)

SIZE, TIME = "MLSERVER_MODEL_MAX_BATCH_SIZE", "MLSERVER_MODEL_MAX_BATCH_TIME"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file for all examples: it is written anew by each."""
    return tmp_path_factory.mktemp("settings") / "file"


def inference_service(**parts: Any) -> dict[str, Any]:
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": "iris"},
        "spec": parts,
    }


def from_service(file: Path, *documents: Any) -> Imported:
    file.write_text(yaml.safe_dump_all(documents))
    return read_inference_service(file)


def from_settings(file: Path, held: Any, environment: Mapping[str, str]) -> Imported:
    file.write_text(json.dumps(held))
    return read_model_settings(file, environment)


def wrong(read: Callable[..., object], *arguments: Any) -> str:
    with pytest.raises(WrongSettings) as error:
        read(*arguments)
    assert len(str(error.value).splitlines()) == 1
    return str(error.value)


@pytest.mark.parametrize(
    ("part", "rows", "hold_s", "timeout_s"),
    [
        ({"batcher": {"maxBatchSize": 16, "maxLatency": 50, "timeout": 7}}, 16, 0.05, 7),
        ({"batcher": {"maxBatchSize": "16", "maxLatency": "50"}, "timeout": "9"}, 16, 0.05, 9),
        ({"batcher": {"timeout": 7}, "timeout": 9}, None, None, 7),
        ({"batcher": {"maxBatchSize": None, "timeout": None}, "timeout": None}, None, None, None),
        ({"batcher": {}}, None, None, None),
        ({"batcher": {"maxLatency": 0}}, None, 0, None),
    ],
)
def test_a_batcher_means_the_same(
    file: Path, part: Any, rows: int | None, hold_s: float | None, timeout_s: float | None
) -> None:
    """Latency is the longest hold; what is left out is left open; the timeout inside comes first."""
    expected = Imported(source=str(file), max_batch_rows=rows, max_hold_s=hold_s, timeout_s=timeout_s)

    assert from_service(file, inference_service(predictor=part)) == expected
    assert expected.excluding({}).get("policy") is None


def test_the_first_batcher_counts(file: Path) -> None:
    """Of all InferenceServices in the file and their parts; other documents do not matter."""
    imported = from_service(
        file,
        {"kind": "ConfigMap"},
        None,
        inference_service(predictor={"batcher": None}),
        inference_service(predictor={}, transformer={"batcher": {"maxBatchSize": 8}}),
        inference_service(predictor={"batcher": {"maxBatchSize": 9}}),
    )

    assert imported.max_batch_rows == 8


@pytest.mark.parametrize(
    ("part", "says"),
    [
        (
            {"batcher": {"maxBatchSize": 0}},
            "spec.predictor.batcher.maxBatchSize must be a whole number from 1",
        ),
        ({"batcher": {"maxBatchSize": 2.5}}, "got 2.5"),
        ({"batcher": {"maxBatchSize": "many"}}, "maxBatchSize must be a number, got 'many'"),
        ({"batcher": {"maxBatchSize": True}}, "maxBatchSize must be a number, got True"),
        ({"batcher": {"maxBatchSize": 10**400}}, "maxBatchSize must be a number, got 1000"),
        ({"batcher": {"maxLatency": -1}}, "batcher.maxLatency must be a whole number from 0, got -1"),
        ({"batcher": {"maxLatency": math.nan}}, "batcher.maxLatency must be a number, got nan"),
        ({"batcher": {"timeout": 0}}, "batcher.timeout must be a whole number from 1, got 0"),
        ({"batcher": {}, "timeout": []}, "spec.predictor.timeout must be a number, got []"),
        ({"batcher": [32]}, "spec.predictor.batcher must have maxBatchSize, maxLatency or timeout, got [32]"),
        ({"model": {}}, "has no batcher in spec.predictor, spec.transformer, spec.explainer"),
    ],
)
def test_a_batcher_that_makes_no_sense_is_refused(file: Path, part: Any, says: str) -> None:
    """The message says which file and field, what it has, and what is accepted."""
    message = wrong(from_service, file, inference_service(predictor=part))

    assert message.startswith(str(file))
    assert says in message


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"kind: [", "is not YAML: "),
        (b"\xff\xfe\x00", "is not YAML: "),
        (b"at: 2001-99-99", "is not YAML: month must be in 1..12"),
        (b"!!int ''", "is not YAML: "),
        (b"[" * 500, "is not YAML: "),
        (b"", "has no document of kind InferenceService"),
        (b"kind: Deployment", "has no document of kind InferenceService"),
        (b"kind: InferenceService", "has no batcher"),
    ],
)
def test_a_file_that_is_no_inference_service_is_refused(file: Path, content: bytes, says: str) -> None:
    file.write_bytes(content)

    assert says in wrong(read_inference_service, file)


@pytest.mark.parametrize("size", [2, "32", 32.0])
@pytest.mark.parametrize("time_s", [0.5, "0.5"])
def test_model_settings_mean_the_same(file: Path, size: Any, time_s: Any) -> None:
    imported = from_settings(file, {"max_batch_size": size, "max_batch_time": time_s}, {})

    assert imported == Imported(source=str(file), max_batch_rows=int(size), max_hold_s=0.5)
    assert imported.excluding({}) == {"max_batch_rows": int(size), "max_hold_s": 0.5}


@pytest.mark.parametrize(
    ("held", "said"),
    [
        ({}, {}),
        ({"max_batch_size": 0, "max_batch_time": 0}, {}),
        ({"max_batch_size": 1, "max_batch_time": 0.5}, {"max_hold_s": 0.5}),
        ({"max_batch_size": -1, "max_batch_time": 0.5}, {"max_hold_s": 0.5}),
        ({"max_batch_size": 32}, {"max_batch_rows": 32}),
        ({"max_batch_size": 32, "max_batch_time": 0.0}, {"max_batch_rows": 32}),
        ({"max_batch_size": 32, "max_batch_time": -0.5}, {"max_batch_rows": 32}),
    ],
)
def test_a_model_that_is_not_batched_stays_so(file: Path, held: Any, said: Any) -> None:
    """Unless the policy is given; what said that it is off does not apply then."""
    imported = from_settings(file, held, {})

    assert imported.excluding({}) == {"policy": "none", **said}
    assert imported.excluding({"policy": "cork"}) == said


def test_giving_what_is_missing_turns_batching_on(file: Path) -> None:
    """All of it: a size is not enough where the time is missing as well."""
    sized = from_settings(file, {"max_batch_time": 0.5}, {})
    nothing = from_settings(file, {}, {})

    assert sized.excluding({"max_batch_rows": 8}) == {"max_hold_s": 0.5}
    assert nothing.excluding({"max_batch_rows": 8}) == {"policy": "none"}
    assert nothing.excluding({"max_batch_rows": 8, "max_hold_s": 0.0}) == {}


def test_the_file_comes_before_the_environment(file: Path) -> None:
    environment = {SIZE: "7", TIME: "0.25"}

    assert from_settings(file, {}, environment).excluding({}) == {"max_batch_rows": 7, "max_hold_s": 0.25}
    assert from_settings(file, {"max_batch_size": 9}, environment).max_batch_rows == 9
    assert from_settings(file, {"max_batch_size": 0}, environment).excluding({})["policy"] == "none"


def test_the_environment_alone_counts() -> None:
    """If it says nothing, nothing is imported: the proxy has its own defaults."""
    imported = read_environment({SIZE: "7", TIME: "0.25", "PATH": "/bin"})

    assert imported == Imported(source="the environment", max_batch_rows=7, max_hold_s=0.25)
    assert read_environment({"PATH": "/bin"}) is None


@pytest.mark.parametrize(
    ("held", "environment", "says"),
    [
        ({"max_batch_size": 2.5}, {}, "max_batch_size must be a whole number, got 2.5"),
        ({"max_batch_size": None}, {}, "max_batch_size must be a number, got None"),
        ({"max_batch_time": "soon"}, {}, "max_batch_time must be a number, got 'soon'"),
        ({"max_batch_time": math.inf}, {}, "max_batch_time must be a number, got inf"),
        ({}, {SIZE: ""}, "MLSERVER_MODEL_MAX_BATCH_SIZE must be a number, got ''"),
        ({"max_batch_size": 4}, {TIME: "x"}, "MLSERVER_MODEL_MAX_BATCH_TIME must be a number, got 'x'"),
        ([1], {}, "must be a JSON object, got [1]"),
    ],
)
def test_model_settings_that_make_no_sense_are_refused(
    file: Path, held: Any, environment: Mapping[str, str], says: str
) -> None:
    message = wrong(from_settings, file, held, environment)

    assert says in message
    assert message.startswith((str(file), "MLSERVER_"))


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff", b"[" * 100_000, b'{"max_batch_size": ' + b"1" * 5000]
)
def test_a_file_that_is_not_json_is_refused(file: Path, content: bytes) -> None:
    file.write_bytes(content)

    assert " is not JSON: " in wrong(read_model_settings, file, {})


@pytest.mark.parametrize("read", [read_inference_service, lambda path: read_model_settings(path, {})])
def test_a_file_that_is_not_there_is_another_matter(tmp_path: Path, read: Callable[[Path], object]) -> None:
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "nowhere")
    with pytest.raises(IsADirectoryError):
        read(tmp_path)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SCALARS, inner, max_size=3)
)
NAMES = ["maxBatchSize", "maxLatency", "timeout", "max_batch_size", "max_batch_time", "batcher"]
FIELDS = st.dictionaries(st.sampled_from(NAMES), VALUES | st.integers(-1, 99).map(str), max_size=4)


def makes_sense(imported: Imported) -> None:
    assert imported.max_batch_rows is None or imported.max_batch_rows >= 1
    assert imported.max_hold_s is None or 0 <= imported.max_hold_s < math.inf
    assert imported.timeout_s is None or 0 < imported.timeout_s < math.inf


def sense_or_wrong_settings(read: Callable[[], Imported]) -> None:
    """No other error leaves a reader."""
    with contextlib.suppress(WrongSettings):
        makes_sense(read())


@at_most(40)  # YAML is slow
@given(part=FIELDS, batcher=FIELDS | VALUES, other=VALUES)
def test_any_document_is_read_or_refused(file: Path, part: Any, batcher: Any, other: Any) -> None:
    service = inference_service(predictor={**part, "batcher": batcher}, transformer=other)

    sense_or_wrong_settings(lambda: from_service(file, other, service))
    sense_or_wrong_settings(lambda: from_service(file, {"kind": "InferenceService", "spec": other}))


@given(
    content=st.binary(max_size=40)
    | st.text(alphabet="!&*:-[]{}?'\"<~=#%@|>0123456789_.eExbt \n").map(str.encode)
)
@example(content=b"a: &a [*a]")
@example(content=b"!!bool x")
@example(content=b"!!timestamp x")
@example(content=b"0x_")
def test_any_bytes_are_read_or_refused(file: Path, content: bytes) -> None:
    file.write_bytes(content)

    sense_or_wrong_settings(lambda: read_inference_service(file))
    sense_or_wrong_settings(lambda: read_model_settings(file, {}))


@given(said=FIELDS | VALUES, size=st.none() | st.text(max_size=4), time_s=st.none() | st.floats().map(str))
def test_any_model_settings_are_read_or_refused(
    file: Path, said: Any, size: str | None, time_s: str | None
) -> None:
    environment = {name: value for name, value in ((SIZE, size), (TIME, time_s)) if value is not None}
    file.write_text(json.dumps(as_json(said)))

    sense_or_wrong_settings(lambda: read_model_settings(file, environment))
    if environment:
        sense_or_wrong_settings(lambda: alone(environment))


def as_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): as_json(one) for name, one in value.items()}
    return [as_json(one) for one in value] if isinstance(value, list) else value


def alone(environment: Mapping[str, str]) -> Imported:
    """What an environment says that says something."""
    imported = read_environment(environment)
    assert imported is not None
    return imported
