"""The manifests in deploy/kubernetes/, and what their containers run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer
import yaml

from uncork.cli.app import app

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"


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
    parsed: dict[str, Any] = group.commands[command].make_context(command, rest).params
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
