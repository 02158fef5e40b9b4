"""The Grafana dashboard and the alerts, held against a real Prometheus that scrapes a real server."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.server import HTTP, PROBE, ROOT, Server, eventually, serving
from tests.e2e.workers.nvml import FakeGpus
from tests.loops import HANG_S
from uncork_loadtests.servers import reserved_port

DASHBOARD = json.loads((ROOT / "deploy/grafana/uncork.json").read_text())
RULES = ROOT / "deploy/prometheus/rules.yml"
ALERTS = Path(__file__).parent / "alerts.yml"
NAME = re.compile(r"\b(?:uncork|process)_[a-z_]+")
# What does not happen to this server.
MAY_BE_EMPTY = ("uncork_shed_total",)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("prometheus") is None or shutil.which("promtool") is None,
        reason="needs Debian's package prometheus",
    ),
]


def queries() -> list[str]:
    """What the panels of the dashboard ask."""
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]


def filled_in(query: str) -> str:
    """A query as Grafana sends it, with all its variables at All.

    The rate is over five minutes: on a busy machine seconds may pass between the requests and the query.
    """
    return re.sub(r"\$(job|instance|service|api)\b", ".*", query).replace("$__rate_interval", "5m")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Give a server that has answered some requests, and whose worker has GPUs."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        FakeGpus(tmp_path_factory.mktemp("gpus"), monkeypatch)
        with serving(PROBE) as server:
            ask(server)
            yield server


def ask(server: Server) -> None:
    """Send some requests at once, some of which the handler fails on."""
    with ThreadPoolExecutor(4) as threads, httpx.Client(timeout=HANG_S) as http:
        for path, status in (("sleep", 200), ("fail", 500)):
            replies = threads.map(lambda _, path=path: http.post(f"{server.base}/{path}", json=0), range(8))
            assert {reply.status_code for reply in replies} == {status}


class Prometheus:
    def __init__(self, http: httpx.Client) -> None:
        self.http = http

    def now(self, query: str) -> list[dict[str, Any]]:
        reply = self.http.get("/api/v1/query", params={"query": query})
        assert reply.status_code == 200, f"{query}: {reply.text}"
        result: list[dict[str, Any]] = reply.json()["data"]["result"]
        return result

    def is_up(self, query: str) -> bool:
        try:
            return bool(self.now(query))
        except (httpx.TransportError, AssertionError):
            return False

    def ask(self, query: str) -> list[dict[str, Any]]:
        """Give the series of a query once there are any.

        A scrape that is too slow on a busy machine takes every gauge away until the next one.
        """
        found: list[dict[str, Any]] = []

        def answered() -> bool:
            found[:] = self.now(query)
            return bool(found)

        eventually(answered)
        return found


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with reserved_port() as reserved:
        yield reserved


@pytest.fixture(scope="module")
def prometheus(server: Server, port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Give a Prometheus that has scraped the server a few times."""
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "prometheus.yml").write_text(
        json.dumps(
            {
                "global": {"scrape_interval": "250ms", "scrape_timeout": "250ms"},
                "rule_files": [str(RULES)],
                "scrape_configs": [
                    {
                        "job_name": "uncork",
                        "static_configs": [{"targets": [server.base.removeprefix("http://")]}],
                    }
                ],
            }
        )
    )
    command = [
        "prometheus",
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=HANG_S) as http:
            running = Prometheus(http)
            eventually(lambda: running.is_up("uncork_build_info"))
            ask(server)
            eventually(lambda: running.is_up('rate(uncork_requests_total{api="sleep"}[5m]) > 0'))
            eventually(lambda: running.is_up("uncork_gpu_worker_memory_bytes"))
            yield running
    finally:
        process.terminate()
        process.wait(HANG_S)


def test_every_query_of_the_dashboard_is_answered(prometheus: Prometheus) -> None:
    """With data, unless it is of what did not happen."""
    for query in queries():
        may_be_empty = any(word in query for word in MAY_BE_EMPTY)
        (prometheus.now if may_be_empty else prometheus.ask)(filled_in(query))


def test_the_dashboard_shows_errors_and_the_goal(prometheus: Prometheus) -> None:
    """The api that fails has only errors, the other none; both are compared with their goals."""
    panels = {panel["title"]: panel["targets"] for panel in DASHBOARD["panels"] if "targets" in panel}
    [errors], [goal] = panels["Errors"], panels["p99 against the goal"]
    shares = {
        one["metric"]["api"]: float(one["value"][1]) for one in prometheus.ask(filled_in(errors["expr"]))
    }

    assert shares["fail"] == 1
    assert shares.get("sleep", 0.0) == 0
    assert {one["metric"]["api"] for one in prometheus.ask(filled_in(goal["expr"]))} >= {"fail", "sleep"}


def test_the_dashboard_shows_each_gpu_of_each_worker(prometheus: Prometheus) -> None:
    panels = {panel["title"]: panel["targets"][0] for panel in DASHBOARD["panels"] if "GPU" in panel["title"]}
    shown = {
        title: {
            (one["metric"]["worker"], one["metric"]["gpu"]): float(one["value"][1])
            for one in prometheus.ask(filled_in(target["expr"]))
        }
        for title, target in panels.items()
    }

    assert shown == {
        "GPU utilization": {("0", "0"): 0.87, ("0", "1"): 0},
        "GPU memory": {("0", "0"): 0.1, ("0", "1"): 0},
        "GPU memory of workers": {("0", "0"): 5e9},
    }
    legends = {target["legendFormat"] for target in panels.values()}
    assert legends == {"{{instance}} {{service}} worker {{worker}} GPU {{gpu}}"}


def test_the_dashboard_finds_what_there_is_to_choose(prometheus: Prometheus) -> None:
    variables = [one for one in DASHBOARD["templating"]["list"] if one["type"] == "query"]
    assert [one["name"] for one in variables] == ["job", "instance", "service", "api"]
    for variable in variables:
        found = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["definition"])
        assert found is not None
        assert all(found[2] in series["metric"] for series in prometheus.ask(filled_in(found[1])))


def test_dashboard_and_alerts_name_only_metrics_that_there_are(server: Server) -> None:
    """Each as it is exposed, or would be if what it counts had happened."""
    exposed: set[str] = set()
    for family in text_string_to_metric_families(HTTP.get(f"{server.base}/metrics").text):
        suffixes = {"histogram": ("_bucket", "_count", "_sum"), "counter": ("_total",), "info": ("_info",)}
        exposed |= {family.name + suffix for suffix in suffixes.get(family.type, ("",))}
    asked = " ".join([*queries(), *RULES.read_text().splitlines()])
    named = set(NAME.findall(re.sub(r'"[^"]*"', "", asked)))

    assert len(named) > 15
    assert named - exposed == set()


def test_alerts_are_evaluated(prometheus: Prometheus) -> None:
    reply = prometheus.http.get("/api/v1/rules").json()
    rules = [rule for group in reply["data"]["groups"] for rule in group["rules"]]

    assert len(rules) == 5
    assert {rule.get("lastError", "") for rule in rules} == {""}
    for rule in rules:
        prometheus.now(rule["query"])


def run_promtool(file: Path) -> None:
    done = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_alert_fires_when_it_should() -> None:
    run_promtool(ALERTS)


@pytest.mark.parametrize(
    ("panel", "legend", "value"),
    [
        ("Latency against the goal", "p99", {"fast": 0.0199, "slow": 1.99}),
        ("Latency against the goal", "goal", {"fast": 0.3, "slow": 1.5}),
        ("p99 against the goal", "", {"fast": 0.0663, "slow": 1.3267}),
        ("Errors", "", {"slow": 0.5}),
    ],
)
def test_the_dashboard_keeps_services_with_an_api_of_one_name_apart(
    panel: str, legend: str, value: dict[str, float], tmp_path: Path
) -> None:
    """Their latencies and goals differ by far, and only one of them fails, in the file about alerts."""
    [query] = [
        target["expr"]
        for one in DASHBOARD["panels"]
        if one["title"] == panel
        for target in one["targets"]
        if target["legendFormat"].replace(" {{class}}", "")
        == f"{{{{job}}}} {{{{service}}}} {{{{api}}}} {legend}".strip()
    ]
    # Rounded, because a quantile is interpolated in floating point.
    asked = f"round({filled_in(query)}, 0.0001)"
    samples = [
        {"labels": f'{{api="predict", job="j", service="{service}"}}', "value": number}
        for service, number in value.items()
    ]
    expected = {"expr": asked, "eval_time": "30m", "exp_samples": samples}
    [services] = [
        one for one in yaml.safe_load(ALERTS.read_text())["tests"] if "API of one name" in one["name"]
    ]
    test = {**services, "alert_rule_test": [], "promql_expr_test": [expected]}
    file = tmp_path / "test.yml"
    file.write_text(json.dumps({"rule_files": [str(RULES)], "tests": [test]}))
    run_promtool(file)


def test_promtool_finds_nothing_wrong(server: Server) -> None:
    exposed = HTTP.get(f"{server.base}/metrics").content
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=exposed, capture_output=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, b"")
    subprocess.run(["promtool", "check", "rules", str(RULES)], check=True, capture_output=True)
