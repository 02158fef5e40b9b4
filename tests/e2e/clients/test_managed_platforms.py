"""What managed platforms ask of a container, with the settings of docs/guides/managed-platforms.md."""

import re

import httpx
import pytest

from tests.e2e.server import ROOT, SERVICES, running
from tests.loops import HANG_S

PAGE = (ROOT / "docs/guides/managed-platforms.md").read_text()
MODELS = f"{SERVICES / 'models.py'}:Models"


def test_sagemaker_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """It starts the image with the argument serve."""
    for name, value in re.findall(r"(UNCORK_\w+)=(\S+)", PAGE):
        monkeypatch.setenv(name, MODELS if name == "UNCORK_TARGET" else value)
    monkeypatch.setenv("UNCORK_HOST", "127.0.0.1")
    with running("serve") as server, httpx.Client(base_url=server.base, timeout=HANG_S) as client:
        assert client.get("/ping").status_code == 200
        reply = client.post("/invocations", json=[[1, 2, 3]])
        assert (reply.status_code, reply.json()) == (200, [[2, 4, 6]])
        csv = client.post("/invocations", json=[[1, 2, 3]], headers={"accept": "text/csv"})
        assert csv.text.splitlines()[1] == "2.0,4.0,6.0"


def test_vertex_is_answered() -> None:
    """With parameters, which clients may send."""
    health, predict = re.findall(r"--container-(?:health|predict)-route (\S+)", PAGE)
    with (
        running("serve", f"digits={MODELS}") as server,
        httpx.Client(base_url=server.base, timeout=HANG_S) as client,
    ):
        assert client.get(health).status_code == 200
        for parameters in ({}, {"parameters": {"k": 1}}):
            reply = client.post(predict, json={"instances": [[1, 2, 3]], **parameters})
            assert (reply.status_code, reply.json()["predictions"]) == (200, [[2, 4, 6]])
