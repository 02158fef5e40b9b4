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


def test_one_arrival_is_not_taken_for_a_flood() -> None:
    """The first request of all says at most 20 rows per second; nothing is known before it."""
    rate = ArrivalRate()
    assert rate.per_second(now=2.0) == 0.0
    rate.arrived(1, now=3.0)

    assert rate.per_second(now=3.0) == pytest.approx(20)


def test_bursts_and_stalls_average_right() -> None:
    """40 clients that come back together every 100 ms are 400 rows per second, over each cycle."""
    rate = ArrivalRate()
    seen = []
    for cycle in range(30):
        for i in range(40):
            rate.arrived(1, now=cycle * 0.1 + i * 1e-4)
        if cycle >= 20:
            seen += [rate.per_second(now=cycle * 0.1 + 0.004 + step * 0.01) for step in range(9)]

    assert sum(seen) / len(seen) == pytest.approx(400, rel=0.05)
    assert max(seen) < 1.25 * 400
    assert min(seen) > 0.75 * 400


def test_the_rate_decays_when_arrivals_stall() -> None:
    """To 1/e in half a second, to nothing in ten."""
    rate = ArrivalRate()
    for i in range(1000):
        rate.arrived(1, now=i / 100)
    before = rate.per_second(now=10.0)

    assert rate.per_second(now=10.5) == pytest.approx(before / math.e, rel=0.01)
    assert rate.per_second(now=20.0) < 1e-5
    assert rate.per_second(now=1e9) == 0.0


@pytest.mark.parametrize("rows", [1, 0.1, 7.3])
def test_the_mean_of_equal_requests_is_exact(rows: float) -> None:
    traffic = Traffic()
    for i in range(300):
        traffic.arrived(None, rows, i / 10)

    assert traffic.mean_rows == rows


def test_the_mean_of_requests_follows_about_the_last_hundred() -> None:
    """Of 2 and 6 rows in turn it is about 4; after 100 requests of 10, most of the way to 10 is done."""
    traffic = Traffic()
    for i in range(1000):
        traffic.arrived(None, 6 if i % 2 else 2, i / 10)
    before = traffic.mean_rows
    for i in range(100):
        traffic.arrived(None, 10, 100 + i / 10)

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


def test_no_key_has_most_arrivals() -> None:
    traffic = traffic_of(30, 30, 30)
    assert [traffic.of(key, 10.0).load_rate(10.0) for key in range(3)] == [0.0] * 3


def test_totals_continue_with_a_second_key() -> None:
    """The sum of rows, and the rate over both."""
    traffic = traffic_of(50)
    traffic.arrived("other", None, 2, 10.0)
    assert traffic.arrived_rows == 502
    assert traffic.all.load_rate(10.0) == pytest.approx(50, rel=0.2)
    assert traffic.all.mean_rows == pytest.approx(1.01)


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
    assert traffic.of(1, 0.2).returns.forecast(now=0.2).away_rows() == 0


def test_a_key_with_half_of_the_arrivals_is_remembered_among_any_number() -> None:
    traffic = ApiTraffic()
    for number in range(2000):
        traffic.arrived(number, None, 1, number / 1000)
        traffic.arrived("main", None, 1, number / 1000)
    assert traffic.of("main", 2.0).load_rate(2.0) > 0
    assert traffic.of(0, 2.0).load_rate(2.0) == 0
    assert len(traffic._keys) == 32
