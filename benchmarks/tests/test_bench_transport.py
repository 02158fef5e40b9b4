"""Workers over each connection answer; the tables have a row for each."""

from benchmarks.harness.rounds import Round
from benchmarks.scale import bench_transport
from benchmarks.scale.bench_transport import TLS


def test_a_row_compares_with_the_unix_socket() -> None:
    unix = [Round(requests_per_second=100, p50=0.002, p99=0.004, front_cpu=0.5) for _ in range(5)]
    tls = [Round(requests_per_second=50, p50=0.003, p99=0.008, front_cpu=1.0) for _ in range(5)]

    name, rate, p50, slower, p99, cpu, more = bench_transport._row(TLS, tls, unix)

    assert (name, rate, p50, p99, cpu) == (TLS, "50", "3.00", "8.00", "1.000")
    assert slower.startswith("1.5")
    assert more.startswith("2.0")
