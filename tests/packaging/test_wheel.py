"""What the wheel does in an empty environment: without extras, and with each of them."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as triton
from PIL import Image

from tests.e2e.server import HTTP, ROOT, Server, eventually, running
from tests.markdown_pages import blocks
from tests.model_files import save_doubling

README = ROOT / "README.md"
SERVICES = Path(__file__).parent / "services"
LARGEST_MB = 160
# What venv puts into every environment.
NOT_OURS = ("pip", "setuptools", "pkg_resources", "_distutils_hack")

pytestmark = pytest.mark.skipif(
    "WHEEL_TO_TEST" not in os.environ, reason="scripts/test-wheel builds the wheel"
)


class Environment:
    """A virtual environment with the wheel and one of its extras.

    The test's services are in its folder.
    """

    def __init__(self, folder: Path, extra: str = "") -> None:
        self.folder = folder
        self.python = str(folder / "bin/python")
        wheel = os.environ["WHEEL_TO_TEST"] + (f"[{extra}]" if extra else "")
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        self.add(wheel)
        shutil.copytree(SERVICES, folder, dirs_exist_ok=True)

    def add(self, package: str) -> None:
        pip = (self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        subprocess.run([*pip, package], check=True)

    def serving(self, *arguments: str) -> AbstractContextManager[Server]:
        """Serve from the environment's folder until the block ends."""
        return running("serve", *arguments, python=self.python, folder=self.folder)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Environment]:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return lambda extra: Environment(tmp_path / "environment", extra)


def test_without_extras_it_is_small_and_serves_the_readme_as_pasted(
    install: Callable[[str], Environment],
) -> None:
    environment = install("")
    (packages,) = environment.folder.glob("lib/python*/site-packages")
    ours = (path for path in packages.iterdir() if not path.name.startswith(NOT_OURS))
    files = (file for path in ours for file in (path, *path.rglob("*")) if file.is_file())
    size_mb = sum(file.stat().st_size for file in files) / 1e6
    print(f"without extras: {size_mb:.0f} MB")
    assert size_mb < LARGEST_MB

    environment.add("scikit-learn")
    (service,) = (block.code for block in blocks(README, "python"))
    (environment.folder / "service.py").write_text(service)
    serve, curl = next(block.code for block in blocks(README, "bash") if "curl" in block.code).splitlines()
    reply = re.search(r"response is `(\S+)`", README.read_text())
    assert reply is not None

    with environment.serving(*serve.removeprefix("uncork serve ").split()) as server:
        command = curl.replace("http://127.0.0.1:3000", server.base) + " --silent --fail"
        answer = subprocess.run(command, shell=True, check=True, capture_output=True, text=True).stdout
        pages = [HTTP.get(f"{server.base}{path}").status_code for path in ("/docs", "/dashboard", "/status")]

    assert answer == reply[1]
    assert pages == [501, 501, 200]


def test_two_services_with_two_versions_of_scikit_learn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one gateway, which has none itself."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    versions = {"old": "1.5.2", "new": "1.8.0"}
    gateway = Environment(tmp_path / "gateway")
    settings = []
    for name, version in versions.items():
        environment = Environment(tmp_path / name)
        environment.add(f"scikit-learn=={version}")
        settings += [
            f"[services.{name}]",
            f"target = '{environment.folder}/iris.py:Iris'",
            f"python = '{environment.folder}'",
            "own_routes = false",
        ]
    config = gateway.folder / "uncork.toml"
    config.write_text("\n".join(settings))

    with gateway.serving("--config", str(config)) as server:
        answers = {
            name: HTTP.post(f"{server.base}/{name}/predict", json=[5.1, 3.5, 1.4, 0.2]).json()
            for name in versions
        }

    assert answers == {name: [version, "setosa"] for name, version in versions.items()}


def test_extra_pages(install: Callable[[str], Environment]) -> None:
    with install("pages").serving("echo.py:Echo") as server:
        for path in ("/dashboard", "/docs"):
            assert HTTP.get(f"{server.base}{path}").status_code == 200


def test_extra_dataframe(install: Callable[[str], Environment]) -> None:
    with install("dataframe").serving("table.py:Table") as server:
        csv = {"content-type": "text/csv"}
        assert HTTP.post(f"{server.base}/total", content="a,b\n1,2\n3,4\n", headers=csv).json() == [3, 7]


def test_extra_image(install: Callable[[str], Environment]) -> None:
    picture = io.BytesIO()
    Image.new("L", (7, 5)).save(picture, "PNG")

    with install("image").serving("pictures.py:Pictures") as server:
        png = {"content-type": "image/png"}
        assert HTTP.post(f"{server.base}/widths", content=picture.getvalue(), headers=png).json() == 7


def test_extra_loadtest(install: Callable[[str], Environment]) -> None:
    environment = install("loadtest")
    load = ["loadtest", "echo.py:Echo", "--shape", "2", "--clients", "4", "--seconds", "1", "--json", "-"]

    done = subprocess.run(
        [environment.python, "-m", "uncork", *load], cwd=environment.folder, capture_output=True, text=True
    )

    assert '"answered_per_s"' in done.stdout, done.stderr


def test_extra_models(install: Callable[[str], Environment]) -> None:
    environment = install("models")
    save_doubling(environment.folder / "doubling.onnx", ["batch", 1])

    with environment.serving("doubling.onnx") as server:
        assert HTTP.post(f"{server.base}/predict", json=[1]).json() == {"y": [2]}


def test_extra_reload(install: Callable[[str], Environment]) -> None:
    with install("reload").serving("echo.py:Echo", "--reload") as server:
        assert HTTP.post(f"{server.base}/echo", json=[1]).json() == [1]


def test_extra_grpc(install: Callable[[str], Environment]) -> None:
    with (
        install("grpc").serving("echo.py:Echo", "--grpc-port", "0") as server,
        triton.InferenceServerClient(server.grpc) as client,
    ):
        numbers = triton.InferInput("input-0", [1, 2], "FP64")
        numbers.set_data_from_numpy(np.array([[1.0, 2.0]]))
        assert client.infer("echo", [numbers]).as_numpy("output-0").tolist() == [[1, 2]]


def test_extra_gpu(install: Callable[[str], Environment]) -> None:
    """The worker finds NVIDIA's package, and reports GPUs or that there is no driver."""
    off = "metrics of GPUs are off: NVML Shared Library Not Found"
    with install("gpu").serving("echo.py:Echo", "--log-level", "debug") as server:
        eventually(lambda: off in server.output or bool(server.labels("uncork_gpu_memory_total_bytes")))


def test_extra_otel(install: Callable[[str], Environment], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")

    with install("otel").serving("echo.py:Echo", "--traces") as server:
        assert HTTP.post(f"{server.base}/echo", json=[1]).json() == [1]
        eventually(lambda: '"name": "POST /echo"' in server.output)
