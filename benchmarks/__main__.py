"""The benchmarks by name, for `scripts/bench`."""

from __future__ import annotations

import importlib
import inspect
import sys
from typing import NamedTuple

import typer


class Benchmark(NamedTuple):
    """A benchmark: its module, which has ``main``, and what it measures."""

    module: str
    measures: str


BENCHMARKS = {
    "gateway": Benchmark("bench", "the gateway against no batching, and against bare uvicorn"),
    "peers": Benchmark("peers.bench", "the gateway against servers of other projects"),
    "live": Benchmark("live", "whether policies differ on a real gateway as they do in the simulator"),
    "policies": Benchmark("policies", "the policies in declared sets of cells, simulated"),
    "ablation": Benchmark("ablation", "the value of each mechanism of cork, simulated"),
    "decision": Benchmark("costs.decision_cost", "the cost of a decision, and of choosing a batch"),
    "core": Benchmark("costs.core_cost", "the cost of a request in the dispatcher's core"),
    "marshalling": Benchmark("costs.marshalling_cost", "merging requests, against Python's json"),
    "parse": Benchmark("costs.parse_cost", "one parse per batch against one per request"),
    "metrics": Benchmark("costs.metrics_cost", "the cost of metrics on the hot path"),
    "grpc-cost": Benchmark("costs.grpc_cost", "CPU time per gRPC call, against grpc.aio and HTTP/1.1"),
    "grpc": Benchmark("scale.bench_grpc", "gRPC calls against HTTP requests"),
    "padding": Benchmark("padding.bench", "batches chosen by the lengths of their rows, simulated"),
    "unequal-costs": Benchmark("unequal_costs", "cork where requests differ in cost, simulated"),
    "scaling": Benchmark("scale.bench_scaling", "the autoscaler against the least workers, simulated"),
    "autoscaling": Benchmark("scale.bench_autoscaling", "workers and latency while the rate changes"),
    "scale": Benchmark("scale.bench", "two workers against one, large bodies, connections"),
    "services": Benchmark("scale.bench_services", "what several services in one gateway cost each other"),
    "transport": Benchmark("scale.bench_transport", "workers over TCP and TLS against a Unix socket"),
    "ray": Benchmark("scale.bench_ray", "workers on Ray"),
    "faults": Benchmark("fault_costs.bench", "overload, faulty rows and replaced workers"),
    "dashboard": Benchmark("dashboard.bench", "the dashboard's size, drawing time and cost"),
    "sentences": Benchmark("models.sentences", "sentence embeddings with and without batching"),
    "encoder": Benchmark("models.encoder", "a transformer encoder in torch and ONNX Runtime"),
}


def main() -> None:
    """Run the benchmark that the first argument names."""
    name, *arguments = sys.argv[1:] or [""]
    if name not in BENCHMARKS:
        listed = "\n".join(f"  {known:14}{one.measures}" for known, one in BENCHMARKS.items())
        wrong = f"there is no benchmark {name!r}\n\n" if name and name != "--help" else ""
        sys.stdout.write(f"{wrong}scripts/bench NAME [options]\n\n{listed}\n")
        raise SystemExit(2 if wrong else 0)
    sys.argv = [f"scripts/bench {name}", *arguments]
    run = importlib.import_module(f"benchmarks.{BENCHMARKS[name].module}").main
    # Some read their arguments themselves.
    typer.run(run) if inspect.signature(run).parameters else run()


if __name__ == "__main__":
    main()
