"""What is read from configurations of KServe and MLServer, and what is refused."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from tests.examples import at_most
from tests.expected import check_texts
from uncork.cli.proxy.imported_settings import (
    Imported,
    read_environment,
    read_inference_service,
    read_model_settings,
)
from uncork.config.errors import WrongUsage

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


BATCHER = {"maxBatchSize": 16, "maxLatency": 50, "timeout": 7}
PREDICTORS: list[Any] = [
    # The timeout inside comes first; what is left out is left open.
    {"batcher": BATCHER, "timeout": 9},
    {"batcher": {"maxBatchSize": "16", "maxLatency": "50"}, "timeout": "9"},
    {"batcher": {"maxBatchSize": None, "timeout": None}, "timeout": None},
    {"batcher": {}},
    {"batcher": {"maxLatency": 0}},
    {"batcher": {"maxBatchSize": 0}},
    {"batcher": {"maxBatchSize": 2.5}},
    {"batcher": {"maxBatchSize": "many"}},
    {"batcher": {"maxBatchSize": True}},
    {"batcher": {"maxBatchSize": 10**400}},
    {"batcher": {"maxLatency": -1}},
    {"batcher": {"maxLatency": math.nan}},
    {"batcher": {"timeout": 0}},
    {"batcher": {}, "timeout": []},
    {"batcher": [32]},
    {"model": {}},
]
CONTENTS = [
    b"kind: [",
    b"\xff\xfe\x00",
    b"at: 2001-99-99",
    b"!!int ''",
    b"[" * 500,
    b"",
    b"kind: Deployment",
    b"kind: InferenceService",
]
MODEL_SETTINGS: list[tuple[Any, dict[str, str]]] = [
    ({"max_batch_size": "32", "max_batch_time": "0.5"}, {}),
    ({"max_batch_size": 32.0, "max_batch_time": 0.5}, {}),
    # A model that is not batched stays so, unless the policy is given.
    ({}, {}),
    ({"max_batch_size": 0, "max_batch_time": 0}, {}),
    ({"max_batch_size": 1, "max_batch_time": 0.5}, {}),
    ({"max_batch_size": -1, "max_batch_time": 0.5}, {}),
    ({"max_batch_size": 32}, {}),
    ({"max_batch_size": 32, "max_batch_time": 0.0}, {}),
    ({"max_batch_size": 32, "max_batch_time": -0.5}, {}),
    # The file comes before the environment.
    ({}, {SIZE: "7", TIME: "0.25"}),
    ({"max_batch_size": 9}, {SIZE: "7", TIME: "0.25"}),
    ({"max_batch_size": 0}, {SIZE: "7", TIME: "0.25"}),
    ({"max_batch_size": 2.5}, {}),
    ({"max_batch_size": None}, {}),
    ({"max_batch_time": "soon"}, {}),
    ({"max_batch_time": math.inf}, {}),
    ({}, {SIZE: ""}),
    ({"max_batch_size": 4}, {TIME: "x"}),
    ([1], {}),
]
NO_JSON = [b"", b"{", b"\xff", b"[" * 100_000, b'{"max_batch_size": ' + b"1" * 5000]


def test_what_is_read_and_refused(file: Path) -> None:
    """Settings where no option says otherwise; or the field, what it has, and what is accepted."""

    def said(given: object, read: Callable[[], Imported]) -> str:
        try:
            told = str(read().excluding({}))
        except WrongUsage as error:
            told = re.sub("(is not (YAML|JSON)): .*", r"\1", str(error).replace(str(file), "FILE"))
        return f"{str(given)[:100]}\n    {told}\n"

    texts = [
        said(part, partial(from_service, file, inference_service(predictor=part))) for part in PREDICTORS
    ]
    for held, environment in MODEL_SETTINGS:
        read = partial(from_settings, file, held, environment)
        texts.append(said(f"{held} {environment}", read))
    for content in CONTENTS:
        file.write_bytes(content)
        texts.append(said(content, partial(read_inference_service, file)))
    for content in NO_JSON:
        file.write_bytes(content)
        texts.append(said(content, partial(read_model_settings, file, {})))
    check_texts(Path(__file__).parent / "imported_settings.txt", "".join(texts))


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


def test_giving_what_is_missing_turns_batching_on(file: Path) -> None:
    """All of it: a size is not enough where the time is missing as well."""
    sized = from_settings(file, {"max_batch_time": 0.5}, {})
    nothing = from_settings(file, {}, {})

    assert sized.excluding({"max_batch_rows": 8}) == {"max_hold_s": 0.5}
    assert nothing.excluding({"max_batch_rows": 8}) == {"policy": "none"}
    assert nothing.excluding({"max_batch_rows": 8, "max_hold_s": 0.0}) == {}
    assert nothing.excluding({"policy": "cork"}) == {}
    assert sized.excluding({"policy": "cork"}) == {"max_hold_s": 0.5}


def test_the_environment_alone_counts() -> None:
    """If it says nothing, nothing is imported: the proxy has its own defaults."""
    imported = read_environment({SIZE: "7", TIME: "0.25", "PATH": "/bin"})

    assert imported == Imported(source="the environment", max_batch_rows=7, max_hold_s=0.25)
    assert read_environment({"PATH": "/bin"}) is None


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


def sense_or_refusal(read: Callable[[], Imported]) -> None:
    """No other error leaves a reader."""
    with contextlib.suppress(WrongUsage):
        makes_sense(read())


@at_most(40)  # YAML is slow
@given(part=FIELDS, batcher=FIELDS | VALUES, other=VALUES)
def test_any_document_is_read_or_refused(file: Path, part: Any, batcher: Any, other: Any) -> None:
    service = inference_service(predictor={**part, "batcher": batcher}, transformer=other)

    sense_or_refusal(lambda: from_service(file, other, service))
    sense_or_refusal(lambda: from_service(file, {"kind": "InferenceService", "spec": other}))


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

    sense_or_refusal(lambda: read_inference_service(file))
    sense_or_refusal(lambda: read_model_settings(file, {}))


@given(said=FIELDS | VALUES, size=st.none() | st.text(max_size=4), time_s=st.none() | st.floats().map(str))
def test_any_model_settings_are_read_or_refused(
    file: Path, said: Any, size: str | None, time_s: str | None
) -> None:
    environment = {name: value for name, value in ((SIZE, size), (TIME, time_s)) if value is not None}
    file.write_text(json.dumps(as_json(said)))

    sense_or_refusal(lambda: read_model_settings(file, environment))
    if environment:
        sense_or_refusal(lambda: alone(environment))


def as_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): as_json(one) for name, one in value.items()}
    return [as_json(one) for one in value] if isinstance(value, list) else value


def alone(environment: Mapping[str, str]) -> Imported:
    """What an environment says that says something."""
    imported = read_environment(environment)
    assert imported is not None
    return imported
