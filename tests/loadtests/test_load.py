"""What a run is asked to do, and how its findings are summed up."""

import pytest

from uncork_loadtests.load import Load, batch_sizes, percentiles


def test_percentiles_are_times_that_were_seen() -> None:
    """Nearest rank over a hundred latencies, in any order."""
    latency = percentiles([i / 100 for i in range(100, 0, -1)])

    assert latency is not None
    assert (latency.p50, latency.p90, latency.p99, latency.max) == (0.5, 0.9, 0.99, 1.0)


def test_no_latencies_have_no_percentiles() -> None:
    """Not zero: nothing was seen."""
    assert percentiles([]) is None


def test_batches_count_once_however_many_answers_tell_of_them() -> None:
    """A batch of 9 and a batch of 1: 10 answers, 2 batches, mean 5; an answer sees 8.2."""
    assert batch_sizes({9: 9, 1: 1}) == (8.2, 5.0)
    assert batch_sizes({}) == (None, None)


def test_a_request_is_whole_http() -> None:
    """Path and query are kept, the length is that of the body in bytes."""
    load = Load(url="http://127.0.0.1:8080/a/b?c=d", bodies=[b"[1]", b""])

    assert load.address == ("127.0.0.1", 8080)
    assert load.requests()[0] == (
        b"POST /a/b?c=d HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n"
        b"Content-Type: application/json\r\nContent-Length: 3\r\n\r\n[1]"
    )
    assert load.requests()[1].endswith(b"Content-Length: 0\r\n\r\n")


def test_expected_answers_may_be_computed() -> None:
    """A function is asked once for each body."""
    load = Load(url="http://h/", bodies=[b"a", b"b"], expected=bytes.upper)

    assert load.answers() == (b"A", b"B")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"url": "https://h/"}, "url"),
        ({"bodies": []}, "bodies"),
        ({"connections": 0}, "connections"),
        ({"seconds": 0.0}, "seconds"),
        ({"limit": 0}, "limit"),
        ({"expected": [b"a", b"b"]}, "1 bodies but 2 expected"),
    ],
)
def test_wrong_values_are_named(changed: dict[str, object], message: str) -> None:
    """A load that makes no sense is refused when it is made."""
    values: dict[str, object] = {"url": "http://h/", "bodies": [b"a"]}

    with pytest.raises(ValueError, match=message):
        Load(**(values | changed))  # type: ignore[arg-type]
