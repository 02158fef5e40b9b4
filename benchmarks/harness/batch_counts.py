"""How many batches a gateway has made so far, from its metrics."""

import http.client

from prometheus_client.parser import text_string_to_metric_families

from uncork_loadtests.servers import HOST, Server


def batches(server: Server) -> tuple[float, float] | None:
    """How many batches and rows a gateway of ours has sent to workers; None if it is not one."""
    connection = http.client.HTTPConnection(HOST, server.admin_port or server.port, timeout=5.0)
    try:
        connection.request("GET", "/metrics")
        return read_batches(connection.getresponse().read().decode())
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def read_batches(metrics: str) -> tuple[float, float] | None:
    """Find the same in Prometheus' text format."""
    try:
        found = {
            sample.name: sample.value
            for family in text_string_to_metric_families(metrics)
            if family.name == "uncork_batch_rows"
            for sample in family.samples
        }
    except ValueError:  # a bare server answers with something else
        return None
    if "uncork_batch_rows_count" not in found:
        return None
    return found["uncork_batch_rows_count"], found["uncork_batch_rows_sum"]
