"""Sources of bodies, and the comparison of answers."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import at_most
from uncork_loadtests.traffic.payloads import load_function, read_bodies, same_answer, sample_bodies, source
from uncork_loadtests.traffic.plan import Payload, Plan
from uncork_loadtests.traffic.random_rows import Numbers, RandomRows

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=10,
)


def plan(payload: Payload) -> Plan:
    return Plan(url="http://h:1/p", payload=payload, clients=1)


def test_bodies_are_sent_in_turn_with_their_answers() -> None:
    make = source(plan(Payload(bodies=(b"a", b""), expected=(b"A", b""))))

    assert make(0) == make(2)
    assert make(2)[0].endswith(b"\r\nContent-Length: 1\r\n\r\na")
    assert make(2)[1] == b"A"
    assert make(3)[0].endswith(b"\r\nContent-Length: 0\r\n\r\n")


def test_random_rows_make_bodies() -> None:
    rows = RandomRows(shape=(2,), numbers=Numbers(low=1, high=9, integers=True))
    make = source(plan(Payload(random=rows)))

    assert make(7)[0].endswith(b"\r\nContent-Length: 5\r\n\r\n" + rows.bodies(seed=1)[7])
    assert make(7)[1] is None


def test_a_function_makes_bodies(tmp_path: Path) -> None:
    """Alone, or with the expected response; a few are sampled."""
    file = tmp_path / "bodies.py"
    file.write_text(
        "def plain(number):\n    return b'%d' % number\n"
        "def checked(number):\n    return b'%d' % number, b'%d' % (2 * number)\n"
        "def unchecked(number):\n    return b'%d' % number, None\n"
    )
    for name, expected in (("plain", None), ("checked", b"24"), ("unchecked", None)):
        payload = Payload(function=f"{file}:{name}")
        request, answer = source(plan(payload))(12)
        assert (request[-6:], answer) == (b"\r\n\r\n12", expected)
        assert sample_bodies(payload, most=3) == (b"0", b"1", b"2")
    assert sample_bodies(Payload(bodies=(b"a", b"b")), most=1) == (b"a", b"b")


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("'text'", "must return bytes, or a tuple of bytes and the expected response, got str for request 3"),
        ("None, b'1'", "must return bytes, .*, got NoneType for request 3"),
        ("b'1', {}", "the expected response .* must be bytes or None, got dict for request 3"),
        ("{}[number]", "failed for request 3: KeyError: 3"),
        ("b'1', b'2', b'3'", "failed for request 3: ValueError: too many values"),
    ],
)
def test_a_function_that_makes_no_body_is_told(returned: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "bodies.py"
    file.write_text(f"def body(number):\n    return b'1' if number < 3 else ({returned})\n")
    payload = Payload(function=f"{file}:body")
    make = source(plan(payload))

    assert make(2)[0].endswith(b"1")
    with pytest.raises(ValueError, match=message):
        make(3)
    with pytest.raises(ValueError, match=message):
        sample_bodies(payload)


def test_a_shuffled_payload_keeps_answers_with_their_bodies() -> None:
    bodies = tuple(b"%d" % number for number in range(50))
    answers = tuple(b"-%d" % number for number in range(50))
    found = Payload(bodies=bodies, expected=answers).shuffled("1")

    assert found.bodies != bodies
    assert sorted(found.bodies) == sorted(bodies)
    assert found.expected == tuple(b"-" + body for body in found.bodies)
    assert found == Payload(bodies=bodies, expected=answers).shuffled("1")
    assert found.bodies != Payload(bodies=bodies).shuffled("2").bodies
    assert Payload(function="m:f").shuffled("1") == Payload(function="m:f")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("nothing", "not of the form MODULE:FUNCTION or FILE.py:FUNCTION"),
        ("a_module_that_is_not_there:f", "cannot be imported: ModuleNotFoundError"),
        ("nowhere.py:f", "nowhere.py cannot be imported"),
        ("json:nothing", "json has no function 'nothing'"),
    ],
)
def test_a_function_that_is_not_there_is_told(target: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_function(target)


def test_a_file_is_one_body_or_one_a_line(tmp_path: Path) -> None:
    file = tmp_path / "bodies"
    file.write_bytes(b"a\n\nb\r\n")

    assert read_bodies(file, lines=False) == (b"a\n\nb\r\n",)
    assert read_bodies(file, lines=True) == (b"a", b"", b"b\r")


@at_most(30)
@given(JSON)
def test_json_is_the_same_however_it_is_written(value: object) -> None:
    compact = json.dumps(value, separators=(",", ":")).encode()
    spread_out = json.dumps(value, indent=2, sort_keys=True).encode() + b"\n"

    assert same_answer(compact, spread_out)
    assert same_answer(b"\xff", b"\xff"), "bytes that are no JSON"


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        (b"1", b"2"),
        (b"[1]", b"1"),
        (b"true", b"1"),
        (b"[1,2]", b"[2,1]"),
        (b"abc", b"abc\n"),
        (b"", b"1"),
        (b"[" * 9999 + b"]" * 9999, b"1"),
    ],
)
def test_other_answers_are_wrong(got: bytes, expected: bytes) -> None:
    assert not same_answer(got, expected)
