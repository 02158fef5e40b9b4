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
    "gateway": Benchmark("gateway", "a forest with and without batching"),
    "fastapi": Benchmark("fastapi", "a FastAPI application alone, with `@batched` and with `mount`"),
    "peers": Benchmark("peers.bench", "the gateway against servers of other projects"),
    "encoder": Benchmark("models.encoder", "a transformer encoder in torch and ONNX Runtime"),
    "policies": Benchmark("policies", "the policies in declared sets of cells, simulated"),
    "ablation": Benchmark("ablation", "the value of each mechanism of cork, simulated"),
    "classes": Benchmark("classes", "bulk beside requests with a goal, simulated"),
    "classes-live": Benchmark("classes_live", "classes and groups on a real gateway"),
    "stages": Benchmark("stages", "a worker that prepares batches while its model runs, and two workers"),
    "padding": Benchmark("padding.bench", "batches chosen by the lengths of their rows, simulated"),
    "interop proxy": Benchmark("interop.bench", "the proxy in front of MLServer and KServe"),
    "core": Benchmark("core_cost", "the cost of a request in the dispatcher's core, and for a lone client"),
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
    if not inspect.signature(run).parameters:  # it reads its arguments itself
        run()
        return
    app = typer.Typer(add_completion=False)
    app.command()(run)
    app(prog_name=sys.argv[0])


if __name__ == "__main__":
    main()
