"""Arguments of ``@api`` from file, environment and command line."""

from __future__ import annotations

import inspect
import itertools
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import uncork
from tests.uncork.config.asking import options_of
from uncork.cli.configurable import CONFIGURABLE
from uncork.config.environment import read_environment
from uncork.config.names import OF_CODE
from uncork_workers.wire.overrides import ARGUMENTS, Override, apply_overrides, check_reserved
from uncork_workers.wire.schema import ApiDescription, ApiSettings, ServiceDescription
from uncork_workers.wire.values import DefinitionError

SAMPLES: dict[str, Any] = {
    "route": "/elsewhere",
    "mb_max_latency": 12.5,
    "mb_max_batch_size": 7,
    "mb_max_batch_bytes": 70,
    "policy": "fixed:5:3",
    "timeout": 3,
    "idempotent": False,
    "cost": "tokens",
    "allowed_batch_sizes": [1, 2, 4],
    "allowed_lengths": [16, 64.5],
    "workers": 2,
}


def service(*apis: ApiDescription) -> ServiceDescription:
    """A service; its apis are predict and explain if nothing is said."""
    return ServiceDescription(name="Digits", apis=list(apis) or [described("predict"), described("explain")])


def described(name: str, **more: Any) -> ApiDescription:
    return ApiDescription(name=name, route=f"/{name}", input={"kind": "json"}, **more)


def value_of(api: ApiDescription, argument: str) -> Any:
    value = api.route if argument == "route" else getattr(api.settings, argument)
    return list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize("argument", ARGUMENTS)
def test_every_argument_can_stand_in_file_and_environment(argument: str, tmp_path: Path) -> None:
    """For one api; the other keeps its own."""
    value = SAMPLES[argument]
    file = tmp_path / "uncork.toml"
    file.write_text(f"[api.predict]\n{argument.replace('_', '-')} = {msgspec.json.encode(value).decode()}")
    variable = f"UNCORK_API_PREDICT_{argument.upper()}"
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()

    for options in (
        options_of("serve", "--config", file),
        options_of("serve", environment={variable: text}),
    ):
        # As workers receive them.
        told = msgspec.json.decode(msgspec.json.encode(options.overrides), type=list[Override])
        for overrides in (options.overrides, told):
            # Lengths require a cost.
            coded = service(described("predict", settings=ApiSettings(cost=2)), described("explain"))
            predict, explain = apply_overrides(coded, overrides).apis
            assert value_of(predict, argument) == value
            assert explain == described("explain")


def test_arguments_of_apis_have_samples() -> None:
    assert (*SAMPLES,) == ARGUMENTS == ("route", *ApiSettings.__struct_fields__)


def test_other_arguments_are_known_to_be_of_code() -> None:
    assert {*ARGUMENTS, *OF_CODE} == {*inspect.signature(uncork.api).parameters}


PLACES = ("file, all", "file, api", "environment, all", "environment, api", "command line")


def test_the_order_of_the_places(tmp_path: Path) -> None:
    """Code, file, environment, command line; in each, what is said of one api counts more."""
    argument = "mb_max_latency"
    file, capitals = tmp_path / "uncork.toml", argument.upper()
    for present in itertools.product([False, True], repeat=len(PLACES)):
        lines = {0: f"{argument} = 1", 1: f"[api.predict]\n{argument} = 2"}
        file.write_text("\n".join(line for place, line in lines.items() if present[place]))
        variables = {2: (f"UNCORK_{capitals}", "3"), 3: (f"UNCORK_API_PREDICT_{capitals}", "4")}
        flag = [f"--{argument.replace('_', '-')}", 5] if present[4] else []
        options = options_of(
            "serve",
            *flag,
            environment={
                "UNCORK_CONFIG": str(file),
                **dict(said for place, said in variables.items() if present[place]),
            },
        )
        predict, explain = apply_overrides(service(), options.overrides).apis
        own = getattr(ApiSettings(), argument)
        assert value_of(predict, argument) == next((n + 1 for n in (4, 3, 2, 1, 0) if present[n]), own)
        assert value_of(explain, argument) == next((n + 1 for n in (4, 2, 0) if present[n]), own)


@given(
    st.one_of(
        st.floats(min_value=1e-3, max_value=1e6),
        st.integers(1, 10**9),
        st.from_regex(r"field_[a-z_]{1,9}", fullmatch=True),
    )
)
def test_a_variable_says_what_the_file_would(cost: float | str) -> None:
    texts = [cost, f'"{cost}"'] if isinstance(cost, str) else [repr(cost)]
    for text in texts:
        [(_, found)] = read_environment({"UNCORK_API_A_B_COST": text}, "serve", CONFIGURABLE).overrides
        assert (found.api, found.argument, found.value) == ("A_B", "cost", cost)


@pytest.mark.parametrize("text", ["True", "False", "true", "false"])
def test_a_variable_may_have_truth_values_as_python_writes_them(text: str) -> None:
    [(_, found)] = read_environment({"UNCORK_API_A_IDEMPOTENT": text}, "serve", CONFIGURABLE).overrides

    assert found.value is (text.lower() == "true")


def test_what_is_streamed_stays_so() -> None:
    stream = described("predict", streams=True, settings=ApiSettings(policy="none"))
    overrides = [
        Override(argument="policy", value="cork"),
        Override(api="predict", argument="idempotent", value=True),
        Override(api="PREDICT", argument="timeout", value=5),
    ]

    [api] = apply_overrides(service(stream), overrides).apis
    assert (api.settings.policy, api.settings.idempotent, api.settings.timeout) == ("none", False, 5)


@pytest.mark.parametrize(("argument", "value"), [("cost", 2), ("allowed_batch_sizes", [1, 2])])
def test_what_is_streamed_is_neither_weighed_nor_padded(argument: str, value: Any) -> None:
    """Configuring it is an error, as it is in the code; it would have no effect."""
    stream = described("predict", streams=True, settings=ApiSettings(policy="none"))
    override = Override(api="predict", argument=argument, value=value, source="uncork.toml")

    with pytest.raises(DefinitionError, match=rf"{argument} does not apply to streaming.*uncork\.toml\)"):
        apply_overrides(service(stream), [override])


@pytest.mark.parametrize(("cost", "shown"), [("bytes", True), ("tokens", True), ("words", False)])
def test_an_example_without_the_cost_in_force_is_not_shown(cost: str, shown: bool) -> None:
    """A client that sent it would get 400."""
    example = b'{"tokens": 3}'
    api = described("predict", example=example, example_type="application/json")

    [found] = apply_overrides(service(api), [Override(argument="cost", value=cost)]).apis
    assert found.example == (example if shown else b"")


@pytest.mark.parametrize(
    ("override", "says"),
    [
        (
            Override(api="predit", argument="timeout", value=1, source="x.toml: api.predit.timeout"),
            "x.toml: api.predit.timeout: Digits has no API 'predit'; did you mean predict? available APIs: ",
        ),
        (
            Override(api="OTHER", argument="timeout", value=1, source="UNCORK_API_OTHER_TIMEOUT"),
            "UNCORK_API_OTHER_TIMEOUT: Digits has no API 'OTHER'; available APIs: predict, explain",
        ),
        (
            Override(api="predict", argument="route", value="/explain", source="x.toml: api.predict.route"),
            "APIs 'predict' and 'explain' have the same route '/explain' (set by x.toml: api.predict.route)",
        ),
        *(
            (
                Override(argument="mb_max_latency", value=-1.0, source=source),
                f"API 'predict': mb_max_latency must be a positive number of milliseconds, got -1.0{place}",
            )
            for source, place in (("--mb-max-latency", " (set by --mb-max-latency)"), ("", ""))
        ),
    ],
)
def test_what_the_service_does_not_bear_is_told_with_its_place(override: Override, says: str) -> None:
    fine = Override(api="predict", argument="timeout", value=5, source="UNCORK_API_PREDICT_TIMEOUT")
    with pytest.raises(DefinitionError) as caught:
        apply_overrides(service(), [fine, override])

    assert str(caught.value).startswith(says)
    assert fine.source not in str(caught.value)


@pytest.mark.parametrize(
    ("reserved", "workers", "message"),
    [
        ({"predict": 1}, 2, None),
        ({"predict": 1}, 0, None),
        ({}, 1, None),
        (
            {"predict": 2},
            2,
            "has --workers 2 and reserves 2 for predict.*none for explain; set --workers to 3",
        ),
        ({"predict": 1, "explain": 1}, 9, "every API of Digits reserves workers; remove workers from one"),
    ],
)
def test_reserved_workers_leave_one_for_the_other_apis(
    reserved: dict[str, int], workers: int, message: str | None
) -> None:
    """Without workers of its own, the server cannot know how many will join."""
    overrides = [Override(api=name, argument="workers", value=count) for name, count in reserved.items()]
    found = apply_overrides(service(), overrides)
    if message is None:
        check_reserved(found, workers)
        return
    with pytest.raises(DefinitionError, match=message):
        check_reserved(found, workers)


@pytest.mark.parametrize("value", [0, True, 1.5, "2"])
def test_a_number_of_reserved_workers_is_a_positive_integer(value: Any) -> None:
    override = Override(api="predict", argument="workers", value=value)
    with pytest.raises(DefinitionError, match="workers must be an integer number of workers, at least 1"):
        apply_overrides(service(), [override])
