"""The examples, as their pages say."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor

import httpx
import pandas as pd
from PIL import Image
from sklearn.datasets import load_wine

from tests.e2e.server import HTTP, ROOT, Server, serving

EXAMPLES = ROOT / "examples"
CSV = {"content-type": "text/csv"}


def post(server: Server, path: str, body: bytes, **headers: str) -> httpx.Response:
    """Send a body."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return HTTP.post(server.base + path, content=body, headers=named, timeout=30)


def test_wine_reads_tables_and_writes_tables() -> None:
    """Many clients, columns in any order, CSV or JSON back; a table with other columns is refused alone.

    So is one with text among its numbers; those that are missing or infinite are taken for the mean.
    """
    data = load_wine(as_frame=True)
    wines = data.data.rename(columns=lambda name: name.replace("/", "_per_"))

    def ask(at: int) -> httpx.Response:
        columns = list(wines.columns)[:: 1 if at % 2 else -1]
        table = wines.iloc[[at]][columns].drop(columns=["hue"] if at == 7 else [])
        return post(server, "/grower", table.to_csv(index=False).encode(), content_type="text/csv")

    with serving(f"{EXAMPLES / 'wine/service.py'}:Wine", "--mb-max-latency", "10000") as server:
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

    with serving(f"{EXAMPLES / 'thumbnails/service.py'}:Thumbnails") as server:
        raw = post(server, "/square", file.getvalue(), content_type="image/png", accept="image/jpeg")
        form = HTTP.post(f"{server.base}/square", files={"image": ("a.png", file.getvalue(), "image/png")})
        wrong = post(server, "/square", file.getvalue()[:50], content_type="image/png")

    for reply, kind in ((raw, "JPEG"), (form, "PNG")):
        with Image.open(io.BytesIO(reply.content)) as image:
            assert (image.format, image.size) == (kind, (64, 64))
            pixel = image.convert("RGB").getpixel((32, 32))
            assert isinstance(pixel, tuple)
            assert pixel[0] > 250
    assert wrong.status_code == 400


def test_whole_requests_are_answered_each_in_its_form() -> None:
    json_type = "application/json"
    with serving(f"{EXAMPLES / 'cortex_style/service.py'}:Sentiment") as server:
        good = post(server, "/handle_post", b'{"text": "a good wine"}', content_type=json_type)
        bad = post(server, "/handle_post?as=text", b'{"text": "poor and awful"}', content_type=json_type)
        refused = post(server, "/handle_post", b"{}", content_type=json_type)

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
            with httpx.stream("POST", server.base + path, json=endless, timeout=30) as reply:
                heard = "".join(piece for piece, _ in zip(reply.iter_text(), range(3), strict=False))
                assert "Once" in heard
        with httpx.stream("POST", f"{server.base}/events", json=options, timeout=30) as reply:
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
