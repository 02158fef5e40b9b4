"""The learned rate of arrivals."""

import math

import pytest

from uncork_dispatcher.learning.arrivals import ApiTraffic, ArrivalRate, Traffic


@pytest.mark.parametrize("start", [0.0, 1000.0, -1000.0])
@pytest.mark.parametrize("seconds", [0.25, 1.0, 5.0])
@pytest.mark.parametrize("rows", [1, 7])
def test_steady_arrivals_give_their_rate(start: float, seconds: float, rows: int) -> None:
    """100 requests per second, already after a quarter of a second, wherever the clock starts."""
    rate = ArrivalRate()
    for i in range(round(100 * seconds)):
        rate.arrived(rows, now=start + i / 100)

    assert rate.per_second(now=start + seconds) == pytest.approx(100 * rows, rel=0.05)


def test_the_rate_decays_when_arrivals_stall() -> None:
    """To 1/e in half a second, to nothing in ten."""
    rate = ArrivalRate()
    for i in range(1000):
        rate.arrived(1, now=i / 100)
    before = rate.per_second(now=10.0)

    assert rate.per_second(now=10.5) == pytest.approx(before / math.e, rel=0.01)
    assert rate.per_second(now=20.0) < 1e-5
    assert rate.per_second(now=1e9) == 0.0


def test_the_mean_of_requests_follows_about_the_last_hundred() -> None:
    """Of 2 and 6 rows in turn it is about 4; after 100 requests of 10, most of the way to 10 is done."""
    traffic = Traffic()
    for i in range(1000):
        traffic.count(6 if i % 2 else 2, i / 10)
    before = traffic.mean_rows
    for i in range(100):
        traffic.count(10, 100 + i / 10)

    assert before == pytest.approx(4, abs=0.05)
    assert traffic.mean_rows == pytest.approx(10 - 6 / math.e, abs=0.1)


def traffic_of(*shares: int, seconds: float = 10.0) -> ApiTraffic:
    """Return the traffic of keys that bring so many rows per second, each request from a new client."""
    traffic = ApiTraffic()
    arrivals = [
        (number / rows, key) for key, rows in enumerate(shares) for number in range(int(rows * seconds))
    ]
    for at, key in sorted(arrivals):
        traffic.arrived(key, (key, at), 1, at)
    return traffic


def test_the_traffic_of_one_key_is_all_traffic() -> None:
    traffic = traffic_of(50)
    assert traffic.of(0, 10.0) is traffic.all
    assert traffic.all.load_rate(10.0) == pytest.approx(50, rel=0.1)


def test_a_key_with_most_arrivals_has_its_own_rates() -> None:
    traffic = traffic_of(60, 20)
    main, rare = traffic.of(0, 10.0), traffic.of(1, 10.0)
    assert main.load_rate(10.0) == pytest.approx(60, rel=0.1)
    assert main.new_clients.per_second(now=10.0) == pytest.approx(60, rel=0.1)
    assert traffic.all.load_rate(10.0) == pytest.approx(80, rel=0.1)
    assert (rare.load_rate(10.0), rare.new_clients.per_second(now=10.0), rare.mean_rows) == (0.0, 0.0, 0.0)


def test_clients_are_expected_back_with_their_key() -> None:
    """They may come with another key, which is a new client there."""
    traffic = ApiTraffic()
    for key in (1, 2):
        traffic.arrived(key, "client", 1, 0.0)
    traffic.answered(1, [("client", 1)], now=0.1)
    traffic.answered("unknown", [("client", 1)], now=0.1)
    traffic.arrived(2, "client", 1, 0.2)
    before = traffic.of(2, 0.2).new_clients.per_second(now=0.2)
    traffic.arrived(1, "client", 1, 0.2)
    traffic.arrived(1, "client", 1, 0.2)
    assert before > 0
    assert traffic.of(1, 0.2).returns.away_rows(now=0.2) == 0


def test_a_key_with_half_of_the_arrivals_is_remembered_among_any_number() -> None:
    traffic = ApiTraffic()
    for number in range(2000):
        traffic.arrived(number, None, 1, number / 1000)
        traffic.arrived("main", None, 1, number / 1000)
    assert traffic.of("main", 2.0).load_rate(2.0) > 0
    assert traffic.of(0, 2.0).load_rate(2.0) == 0
    assert len(traffic._keys) == 32
