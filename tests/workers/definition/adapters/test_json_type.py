"""The Json adapter with a type."""

import datetime
import enum
import subprocess
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workers.run_batch import run_batch
from uncork_workers.definition.adapters import InvalidInput, Json
from uncork_workers.definition.service import Service, api
from uncork_workers.wire.forms import ColumnsForm, Form, ListForm, TensorForm, ValueForm
from uncork_workers.wire.messages import RowPath
from uncork_workers.wire.tensors import join_columns


class Struct(msgspec.Struct):
    name: str
    age: Annotated[int, msgspec.Meta(ge=0)] = 0
    tags: list[str] = []


@dataclass
class Data:
    name: str
    age: Annotated[int, msgspec.Meta(ge=0)] = 0
    tags: list[str] | None = None


class Typed(TypedDict):
    name: str
    age: Annotated[int, msgspec.Meta(ge=0)]


class Model(pydantic.BaseModel):
    name: str
    age: Annotated[int, pydantic.Field(ge=0)] = 0
    tags: list[str] = []


@pydantic.dataclasses.dataclass
class ModelData:
    name: str
    age: Annotated[int, pydantic.Field(ge=0)] = 0


TYPES = [Struct, Data, Typed, Model, ModelData]
PEOPLE = st.fixed_dictionaries(
    {"name": st.text(alphabet=st.characters(exclude_categories=["Cs"])), "age": st.integers(0, 2**62)}
)


def name_of(person: Any) -> Any:
    return person["name"] if isinstance(person, dict) else person.name


@pytest.mark.parametrize("kind", TYPES)
@settings(max_examples=40)
@given(people=st.lists(PEOPLE, max_size=5))
def test_merging_is_the_same_as_parsing_each_alone(kind: type, people: list[dict[str, Any]]) -> None:
    adapter = Json(type=kind)
    bodies = list(map(msgspec.json.encode, people))

    merged = adapter.merge(bodies)

    assert merged == [one for body in bodies for one in adapter.merge([body])]
    assert [name_of(one) for one in merged] == [person["name"] for person in people]
    assert all(type(one) is (dict if kind is Typed else kind) for one in merged)


def test_a_neighbor_that_is_not_finite_changes_no_digits() -> None:
    class Price(msgspec.Struct):
        amount: Decimal
        change: float = 0

    bodies = [b'{"amount":19.90}', b'{"amount":1,"change":NaN}', b'{"amount":0.1234567890123456789}']

    merged = Json(type=Price).merge(bodies)

    assert [str(price.amount) for price in merged] == ["19.90", "1", "0.1234567890123456789"]


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"name":"Ann","age":"old"}', r"`\$\[0\]\.age`"),
        (b'{"name":"Ann","age":-1}', r"`\$\[0\]\.age`"),
        (b'{"age":1}', r"`name` - at `\$\[0\]`|`\$\[0\]\.name`"),
        (b'{"name":null,"age":1}', r"`\$\[0\]\.name`"),
        (b"5", "object|dictionary"),
        (b"[]", "object|dictionary"),
        (b'{"name":', ""),
        (b'"\xff"', ""),
        (b"[" * 100_000, ""),
    ],
)
def test_what_is_not_of_the_type_is_refused(kind: type, body: bytes, reason: str) -> None:
    with pytest.raises(InvalidInput, match=f"^not valid.*({reason})"):
        Json(type=kind).merge([body])


@pytest.mark.parametrize("kind", [Struct, Model])
def test_of_several_rows_the_message_says_which(kind: type) -> None:
    """Clients of other protocols send several rows per request."""
    with pytest.raises(InvalidInput, match=r" - at `\$\[1\]\.tags\[1\]`$"):
        Json(type=kind).merge([b'{"name":"Ann"},{"name":"Bob","tags":["a",1]}'])


def test_the_first_faults_are_told() -> None:
    body = msgspec.json.encode({"name": "Ann", "tags": [1] * 8})

    with pytest.raises(InvalidInput, match=r"`\$\[0\]\.tags\[4\]`; and 3 more$"):
        Json(type=Model).merge([body])


class Numbers(pydantic.BaseModel):
    xs: list[int]


def test_of_very_many_faults_only_the_number_is_told() -> None:
    """Each would take a dict of its own."""
    bodies = [b'{"xs":[%b]}' % b",".join([b"null"] * count) for count in (20_000, 20_001)]

    with pytest.raises(InvalidInput, match=r"`\$\[0\]\.xs\[4\]`; and 19995 more$"):
        Json(type=Numbers).merge(bodies[:1])
    with pytest.raises(InvalidInput, match=r"^not valid: 20001 errors$"):
        Json(type=Numbers).merge(bodies[1:])


UNCHECKED = ValueForm()


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("forms", [(None,), (UNCHECKED,), (None, UNCHECKED, UNCHECKED) * 17])
def test_one_that_is_wrong_among_fifty_fails_alone(kind: type, forms: tuple[Form, ...]) -> None:
    """Whether or not the gateway has checked the syntax."""

    class People(Service):
        @api(input=Json(type=kind))
        def names(self, people: list[Any]) -> list[str]:
            return [name_of(person) for person in people]

    bodies = [msgspec.json.encode({"name": f"n{n}", "age": n}) for n in range(51)]
    bodies[20] = b'{"name":"Ann","age":"old"}'

    reply, answers = run_batch(People(), "names", *bodies, forms=forms)

    assert reply.statuses == [400 if n == 20 else 200 for n in range(51)]
    assert b"`$[0].age`" in answers[20]
    [*_, place] = reply.reasons[20]
    assert place == RowPath(0, ("age",))
    assert [answer for n, answer in enumerate(answers) if n != 20] == [
        b'"n%d"' % n for n in range(51) if n != 20
    ]


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("body", [b'{"name":', b"{},{}", b"", b'"\xff"', b"[" * 100_000])
def test_a_value_that_nobody_checked_may_be_no_json(kind: type, body: bytes) -> None:
    with pytest.raises(InvalidInput, match=r"^not valid( JSON)?: "):
        Json(type=kind).merge_values([b'{"name":"Ann","age":1}', body])


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [(list[int] | str, b'"a",[1,2]', b"[1.5]"), (Annotated[float, msgspec.Meta(lt=1)], b"0,0.5", b"1")],
)
def test_other_types_than_objects_will_do(kind: Any, good: bytes, bad: bytes) -> None:
    assert len(Json(type=kind).merge([good])) == 2
    with pytest.raises(InvalidInput, match=r"^not valid: "):
        Json(type=kind).merge([bad])


def pair_of(kind: Any) -> Any:
    body = bytes([1, 2, 3, 4])
    return Json(type=kind).merge_tensors([body[:2], body[2:]], TensorForm("UINT8", (2,)), [1, 1])


class Pair(pydantic.RootModel[tuple[int, int]]):
    pass


class Word(pydantic.RootModel[str]):
    pass


class Color(enum.Enum):
    RED = "red"


class Strict(pydantic.BaseModel, strict=True):
    color: Color
    day: datetime.date
    key: uuid.UUID
    values: tuple[float, ...]
    large: int


def test_a_strict_model_takes_the_same_values_of_tensors_as_of_json() -> None:
    fields = {
        "color": (ListForm("BYTES", ()), b'"red"'),
        "day": (ListForm("BYTES", ()), b'"2026-11-30"'),
        "key": (ListForm("BYTES", ()), b'"00000000-0000-0000-0000-000000000007"'),
        "values": (ListForm("FP64", (3,)), b"NaN,-Infinity,0.1"),
        "large": (ListForm("UINT64", ()), b"18446744073709551615"),
    }
    form = ColumnsForm(tuple([(name, of) for name, (of, _) in fields.items()]))
    tensors = join_columns([data for _, data in fields.values()])

    [row] = Json(type=Strict).merge_columns([tensors], form, [1])

    assert (row.color, row.day, row.key) == (Color.RED, datetime.date(2026, 11, 30), uuid.UUID(int=7))
    assert (str(row.values), row.large) == ("(nan, -inf, 0.1)", 2**64 - 1)


class Renamed(pydantic.BaseModel):
    name: str

    @pydantic.model_validator(mode="before")
    @classmethod
    def rename(cls, data: dict[str, Any]) -> dict[str, Any]:
        return {"name": data.pop("title")}


def test_validators_that_change_their_input_get_it_anew() -> None:
    """The value is validated a second time, as JSON, so the client gets the validation error."""
    form = ColumnsForm((("title", ListForm("FP64", ())),))

    with pytest.raises(InvalidInput, match=r"^not valid: Input should be a valid string"):
        Json(type=Renamed).merge_columns([join_columns([b"1.5"])], form, [1])


def test_names_of_tensors_are_keys_as_in_json() -> None:
    form = ColumnsForm((("1", ListForm("FP64", ())), ("2", ListForm("FP64", ()))))
    adapter = Json(type=dict[int, float])

    rows = adapter.merge_columns([join_columns([b"0.5", b"1.5"])], form, [1])

    assert rows == adapter.merge([b'{"1":0.5,"2":1.5}']) == [{1: 0.5, 2: 1.5}]


def test_rows_of_tensors_are_checked_too() -> None:
    assert pair_of(tuple[int, int]) == [(1, 2), (3, 4)]
    assert pair_of(Pair) == [Pair((1, 2)), Pair((3, 4))]
    with pytest.raises(InvalidInput, match=r"^not valid: Expected `str`, got `array`"):
        pair_of(str)
    with pytest.raises(InvalidInput, match=r"string - at `\$\[0\]`; .* - at `\$\[1\]`$"):
        pair_of(Word)


@pytest.mark.parametrize(
    ("kind", "find"),
    [
        (Struct, lambda schema: schema["$defs"]["Struct"]),
        (Data, lambda schema: schema["$defs"]["Data"]),
        (Typed, lambda schema: schema["$defs"]["Typed"]),
        (Model, lambda schema: schema),
        (ModelData, lambda schema: schema),
    ],
)
def test_the_schema_is_that_of_the_type(kind: type, find: Callable[[Any], Any]) -> None:
    schema = find(Json(type=kind).schema())

    assert schema["type"] == "object"
    assert {"name", "age"} <= schema["properties"].keys()
    assert schema["properties"]["age"]["minimum"] == 0
    assert "name" in schema["required"]


def test_without_a_type_anything_goes() -> None:
    assert Json().schema() == {}


def test_pydantic_is_not_imported_for_those_who_do_without() -> None:
    program = (
        "import sys, dataclasses, uncork.adapters as a\n"
        "a.Json(type=dataclasses.make_dataclass('D', [('x', int)])), a.Text(), a.File(), a.Requests()\n"
        "print([name for name in ('pydantic', 'PIL', 'pandas') if name in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"
