"""The benchmarks by name, for `scripts/bench`."""

from __future__ import annotations

import importlib
import sys

import typer

BENCHMARKS = {
    "gateway": ("gateway", "a forest with and without batching"),
    "fastapi": ("fastapi", "a FastAPI application alone, with `@batched` and with `mount`"),
    "peers": ("peers.bench", "the gateway against servers of other projects"),
    "encoder": ("models.encoder", "a transformer encoder in torch and ONNX Runtime"),
    "policies": ("policies", "the policies in declared sets of cells, simulated"),
    "ablation": ("ablation", "the value of each mechanism of cork, simulated"),
    "classes": ("classes", "bulk beside requests with a goal, simulated"),
    "classes-live": ("classes_live", "classes and groups on a real gateway"),
    "stages": ("stages", "a worker that prepares batches while its model runs, and two workers"),
    "padding": ("padding.bench", "batches chosen by the lengths of their rows, simulated"),
    "interop proxy": ("interop.bench", "the proxy in front of MLServer and KServe"),
    "core": ("core_cost", "the cost of a request in the dispatcher's core, and for a lone client"),
}
"""The module of each, which has ``main``, and what it measures."""


def main() -> None:
    """Run the benchmark that the first argument names."""
    name, *arguments = sys.argv[1:] or [""]
    if name not in BENCHMARKS:
        listed = "\n".join(f"  {known:14}{measures}" for known, (_, measures) in BENCHMARKS.items())
        wrong = f"there is no benchmark {name!r}\n\n" if name and name != "--help" else ""
        sys.stdout.write(f"{wrong}scripts/bench NAME [options]\n\n{listed}\n")
        raise SystemExit(2 if wrong else 0)
    sys.argv = [f"scripts/bench {name}", *arguments]
    module, _ = BENCHMARKS[name]
    app = typer.Typer(add_completion=False)
    app.command()(importlib.import_module(f"benchmarks.{module}").main)
    app(prog_name=sys.argv[0])


if __name__ == "__main__":
    main()
