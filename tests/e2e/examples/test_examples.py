"""The examples, as their pages say."""

from __future__ import annotations

import io
import json
import runpy
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnxruntime
import pandas as pd
import pytest
from PIL import Image

from tests.e2e.examples.models import EXAMPLES, make_model
from tests.e2e.server import HTTP, Server, serving
from tests.loops import HANG_S
from uncork import Service
from uncork.testing import client


def post(server: Server, path: str, body: bytes, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return HTTP.post(server.base + path, content=body, headers=named)


def service_of(file: Path, name: str) -> Service:
    made: Service = runpy.run_path(str(file))[name]()
    return made


def test_wine_reads_tables_and_writes_tables() -> None:
    """Many clients, columns in any order, CSV or JSON back; a table with other columns is refused alone.

    So is one with text among its numbers; those that are missing or infinite are taken for the mean.
    """
    from sklearn.datasets import load_wine  # takes a second

    data = load_wine(as_frame=True)
    wines = data.data.rename(columns=lambda name: name.replace("/", "_per_"))

    def ask(at: int) -> httpx.Response:
        columns = list(wines.columns)[:: 1 if at % 2 else -1]
        table = wines.iloc[[at]][columns].drop(columns=["hue"] if at == 7 else [])
        return post(server, "/grower", table.to_csv(index=False).encode(), content_type="text/csv")

    with serving(f"{EXAMPLES / 'wine/service.py'}:Wine", "--mb-max-latency", "60000") as server:
        with ThreadPoolExecutor(20) as pool:
            replies = list(pool.map(ask, range(0, 178, 9)))
            wrong = ask(7)
        text = post(
            server,
            "/grower",
            wines.head(1).assign(hue="red").to_csv(index=False).encode(),
            content_type="text/csv",
        )
        missing = wines.head(2).assign(hue=[None, float("inf")])
        as_json = post(
            server,
            "/grower",
            missing.to_csv(index=False).encode(),
            content_type="text/csv",
            accept="application/json",
        )

    growers = [pd.read_csv(io.BytesIO(reply.content))["grower"].tolist() for reply in replies]
    assert growers == [[int(data.target[at])] for at in range(0, 178, 9)]
    assert wrong.status_code == 400
    assert "missing 'hue'" in wrong.json()["detail"]
    assert text.status_code == 400
    assert "'hue' must be float32" in text.json()["detail"]
    assert [row["grower"] for row in as_json.json()] == [0, 0]


def test_thumbnails_are_small_images() -> None:
    """Raw and as a form, in the format that is asked for; what is no image is refused."""
    file = io.BytesIO()
    Image.new("RGB", (300, 200), "red").save(file, "PNG")

    with client(runpy.run_path(str(EXAMPLES / "thumbnails/service.py"))["Thumbnails"]) as c:
        png = {"content-type": "image/png"}
        raw = c.post("/square", content=file.getvalue(), headers=png | {"accept": "image/jpeg"})
        form = c.post("/square", files={"image": ("a.png", file.getvalue(), "image/png")})
        wrong = c.post("/square", content=file.getvalue()[:50], headers=png)

    for reply, kind in ((raw, "JPEG"), (form, "PNG")):
        with Image.open(io.BytesIO(reply.content)) as image:
            assert (image.format, image.size) == (kind, (64, 64))
            pixel = image.convert("RGB").getpixel((32, 32))
            assert isinstance(pixel, tuple)
            assert pixel[0] > 250
    assert wrong.status_code == 400


def test_whole_requests_are_answered_each_in_its_form() -> None:
    with client(runpy.run_path(str(EXAMPLES / "cortex_style/service.py"))["Sentiment"]) as c:
        good = c.post("/handle_post", json={"text": "a good wine"})
        bad = c.post("/handle_post?as=text", json={"text": "poor and awful"})
        refused = c.post("/handle_post", json={})

    assert (good.json(), good.headers["x-words"]) == ({"score": 1}, "3")
    assert (bad.text, bad.headers["content-type"]) == ("-2\n", "text/plain; charset=utf-8")
    assert (refused.status_code, refused.json()["status"]) == (422, 422)


def test_a_story_is_told_word_by_word() -> None:
    """As text and as events. A client that has heard enough leaves, and the worker is free for the next."""
    options = {"words": 12, "seed": 5, "pause_s": 0}
    with serving(f"{EXAMPLES / 'story/service.py'}:Story") as server:
        text = HTTP.post(f"{server.base}/tell", json=options)
        for path in ("/tell", "/events"):
            # To its end, this would take longer than anybody waits.
            endless = {"words": 10**9, "pause_s": 0.01}
            with httpx.stream("POST", server.base + path, json=endless, timeout=HANG_S) as reply:
                heard = "".join(piece for piece, _ in zip(reply.iter_text(), range(3), strict=False))
                assert "Once" in heard
        with httpx.stream("POST", f"{server.base}/events", json=options, timeout=HANG_S) as reply:
            events = [line.removeprefix("data: ") for line in reply.iter_lines() if line]
        wrong = HTTP.post(f"{server.base}/events", json={"words": 0})
        left = server.metric("uncork_requests_total", status="499")
        assert f"POST {server.base}/tell   streams, one request at a time, for at most 600 s" in server.output

    assert text.headers["content-type"] == "text/plain; charset=utf-8"
    assert text.text.split() == events
    assert len(events) == 12
    assert reply.headers["content-type"] == "text/event-stream"
    assert reply.headers["cache-control"] == "no-cache"
    assert (wrong.status_code, wrong.json()["status"]) == (400, 400)
    assert left == 2


def png_of(digit: np.ndarray[Any, Any]) -> bytes:
    """An image of scikit-learn's digits, whose pixels are 0 to 16, as a file."""
    file = io.BytesIO()
    Image.fromarray((digit * 255 / 16).round().astype("uint8")).save(file, "PNG")
    return file.getvalue()


@pytest.mark.slow
def test_an_onnx_model_answers_as_its_session_does() -> None:
    """Alone and merged, with a body among them that is no image; most digits of the test images are right."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    make_model("onnx")
    digits, labels = load_digits(return_X_y=True)
    _, digits, _, labels = train_test_split(digits, labels, test_size=0.25, random_state=0)
    digits, labels = digits[:99].reshape(-1, 8, 8), labels[:99]
    session = onnxruntime.InferenceSession(EXAMPLES / "onnx/model/digits.onnx")
    [expected] = session.run(None, {"images": ((digits * 255 / 16).round() / 255).astype("float32")})
    bodies = [png_of(digit) for digit in digits]

    def ask(body: bytes) -> httpx.Response:
        return post(server, "/predict", body, content_type="image/png")

    with serving(f"{EXAMPLES / 'onnx/service.py'}:Digits", "--mb-max-latency", "60000") as server:
        alone = [ask(body) for body in bodies[:9]]
        with ThreadPoolExecutor(25) as pool:
            *together, cut = pool.map(ask, [*bodies, bodies[0][:50]])
        seven = ask((EXAMPLES / "onnx/seven.png").read_bytes())
        text = post(server, "/predict", b"[7]", content_type="application/json")
        assert "loaded digits.onnx with CPUExecutionProvider" in server.output

    for replies in (alone, together):
        chances = expected[: len(replies)]
        assert [reply.json()["digit"] for reply in replies] == chances.argmax(axis=1).tolist()
        found = [reply.json()["probability"] for reply in replies]
        np.testing.assert_allclose(found, chances.max(axis=1), rtol=1e-4)
    assert max(int(reply.headers["x-batch-size"]) for reply in together) > 1
    assert (expected.argmax(axis=1) == labels).mean() > 0.9
    assert seven.json()["digit"] == 7
    assert (cut.status_code, text.status_code) == (400, 415)


def test_an_onnx_model_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNX_MODEL", "/nowhere/model.onnx")
    with pytest.raises(FileNotFoundError, match=r"no model at /nowhere/model\.onnx: run make_model\.py"):
        service_of(EXAMPLES / "onnx/service.py", "Digits").setup()


@pytest.mark.slow
def test_a_booster_answers_as_it_does_in_process() -> None:
    """Alone and merged, as JSON and CSV, with values missing; rows of another form are refused alone.

    A category that is not in the training data counts as missing, whatever else is in the batch.
    """
    import lightgbm
    from sklearn.datasets import load_diabetes

    make_model("lightgbm")
    booster = lightgbm.Booster(model_file=EXAMPLES / "lightgbm/model/diabetes.txt")
    patients = load_diabetes(as_frame=True, scaled=False).data.head(60)
    patients.columns = booster.feature_name()
    patients["sex"] = patients["sex"].map({1: "1", 2: "2"})
    patients = patients.mask(np.random.default_rng(1).random(patients.shape) < 0.2)
    expected = booster.predict(patients.astype({"sex": pd.CategoricalDtype(["1", "2"])}))
    rows = [json.loads(line) for line in patients.to_json(orient="records", lines=True).splitlines()]
    of_each_sex = [rows[1] | {"sex": sex} for sex in ("3", None, "1", "2")]
    wrong = [rows[0] | {"bmi": "thin"}, {"bmi": 30.0}, rows[0] | {"sex": 1}]

    def ask(row: Any) -> httpx.Response:
        return HTTP.post(f"{server.base}/progression", json=row)

    with serving(f"{EXAMPLES / 'lightgbm/service.py'}:Diabetes", "--mb-max-latency", "60000") as server:
        alone = [ask(row) for row in rows[:9]]
        with ThreadPoolExecutor(20) as pool:
            replies = list(pool.map(ask, [*rows, *of_each_sex, *wrong]))
        csv = patients.to_csv(index=False).encode()
        table = post(server, "/progression", csv, content_type="text/csv", accept="text/csv")

    together, sexes, refused = replies[:60], replies[60:64], replies[64:]
    np.testing.assert_allclose([reply.json()["probability"] for reply in alone], expected[:9])
    np.testing.assert_allclose([reply.json()["probability"] for reply in together], expected)
    np.testing.assert_allclose(pd.read_csv(io.BytesIO(table.content))["probability"], expected)
    assert max(int(reply.headers["x-batch-size"]) for reply in together) > 1
    other, missing, *known = (reply.json()["probability"] for reply in sexes)
    assert other == missing
    assert len({missing, *known}) > 1
    assert [reply.status_code for reply in refused] == [400, 400, 400]
    details = [reply.json()["detail"] for reply in refused]
    assert "'bmi' must be float64" in details[0]
    assert "missing 'age'" in details[1]
    assert "'sex' must be str" in details[2]


@pytest.mark.slow
def test_a_booster_of_other_columns_is_refused_at_the_start(tmp_path: Path) -> None:
    """And a missing one."""
    import lightgbm

    service = service_of(Path(shutil.copy(EXAMPLES / "lightgbm/service.py", tmp_path)), "Diabetes")
    rows = np.arange(80.0).reshape(40, 2)
    booster = lightgbm.train({"verbosity": -1}, lightgbm.Dataset(rows, rows[:, 0] % 3), num_boost_round=1)

    with pytest.raises(FileNotFoundError, match=f"no model at {tmp_path}"):
        service.setup()
    (tmp_path / "model").mkdir()
    booster.save_model(tmp_path / "model/diabetes.txt")
    with pytest.raises(ValueError, match=r"has other columns: \['Column_0'"):
        service.setup()
