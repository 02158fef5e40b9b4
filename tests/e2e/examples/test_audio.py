"""The audio example: telephone tones, made here, are read alone and in batches."""

from __future__ import annotations

import io
import runpy
import subprocess
import sys
import wave
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest

from tests.e2e.server import HTTP, ROOT, Server, serving

# The script needs up to half a minute for the model.
pytestmark = pytest.mark.slow

EXAMPLE = ROOT / "examples/audio"
PATH = "/v1/audio/transcriptions"
WAV = {"content-type": "audio/wav"}
ROWS, COLUMNS = (697, 770, 852, 941), (1209, 1336, 1477, 1633)
KEYS = ("123A", "456B", "789C", "*0#D")


def recording(
    keys: str, *, rate: int = 16_000, channels: int = 1, width: int = 2, tone_s: float = 0.1
) -> bytes:
    """Return a WAV file in which the keys sound, with pauses between them."""
    time = np.arange(int(tone_s * rate)) / rate
    pause = np.zeros(rate // 10)
    sounds = [pause]
    for key in keys:
        [(row, column)] = [(at, line.index(key)) for at, line in enumerate(KEYS) if key in line]
        waves = [np.sin(2 * np.pi * frequency * time) for frequency in (ROWS[row], COLUMNS[column])]
        sounds += [0.2 * (waves[0] + waves[1]), pause]
    samples = np.concatenate(sounds) * 2 ** (8 * width - 1)
    if width == 1:
        samples += 128
    octets = samples.astype("<i4").view(np.uint8).reshape(-1, 4)[:, :width]
    content = io.BytesIO()
    with wave.open(content, "wb") as file:
        file.setparams((channels, width, rate, 0, "NONE", ""))
        file.writeframes(np.repeat(octets[:, None], channels, axis=1).tobytes())
    return content.getvalue()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Serve the example with a new model."""
    model = tmp_path_factory.mktemp("audio") / "model"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUDIO_MODEL", str(model))
        subprocess.run([sys.executable, EXAMPLE / "make_model.py"], check=True, capture_output=True)
        with serving(f"{EXAMPLE / 'service.py'}:Transcriber", "--mb-max-latency", "60000") as server:
            yield server


def post(server: Server, content: bytes, **headers: str) -> httpx.Response:
    return HTTP.post(server.base + PATH, content=content, headers=WAV | headers)


@pytest.mark.long_run
@pytest.mark.parametrize(
    ("rate", "channels", "width"),
    [(8000, 1, 1), (8000, 2, 2), (11_025, 1, 4), (16_000, 1, 2), (44_100, 2, 3), (48_000, 1, 3)],
)
def test_formats(server: Server, rate: int, channels: int, width: int) -> None:
    reply = post(server, recording("5552368", rate=rate, channels=channels, width=width))

    assert reply.json() == {"text": "5552368"}


def test_texts_are_the_same_alone_and_together(server: Server) -> None:
    """Recordings of 0.1 to 25 s share batches with invalid ones."""
    keys = ["", "1", "555", "0123456789ABCD*#", "5", "77" * 10, "42", "0"]
    valid = [recording(text, tone_s=0.07 + at / 20) for at, text in enumerate(keys)]
    valid[-1] = recording("0", tone_s=25)
    bodies = [*valid, b"RIFF", valid[3][:30]]
    alone = [post(server, body) for body in bodies]
    with ThreadPoolExecutor(4 * len(bodies)) as pool:
        together = list(pool.map(lambda body: post(server, body), 4 * bodies))

    assert [reply.json()["text"] for reply in alone[: len(keys)]] == keys
    assert [reply.status_code for reply in alone] == [200] * len(keys) + [400] * 2
    assert [reply.json() for reply in together] == 4 * [reply.json() for reply in alone]
    assert max(int(reply.headers.get("x-batch-size", 0)) for reply in together) > 1


def test_the_client_of_openai(server: Server) -> None:
    import openai  # takes a second

    client = openai.OpenAI(base_url=f"{server.base}/v1", api_key="none", max_retries=0)
    with client:
        reply = client.audio.transcriptions.create(model="tones", file=("call.wav", recording("911")))
        with pytest.raises(openai.BadRequestError) as refused:
            client.audio.transcriptions.create(
                model="tones", file=("call.wav", recording("911")), response_format="srt"
            )

    assert reply.text == "911"
    assert "response_format must be 'json', got 'srt'" in refused.value.message


def with_format(tag: int, *, rate: int = 16_000) -> bytes:
    """Return a WAV file with that format tag and rate in its header."""
    content = bytearray(recording("1"))
    content[20:22] = tag.to_bytes(2, "little")
    content[24:28] = rate.to_bytes(4, "little")
    return bytes(content)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(b"\0" * 1000, "does not start with RIFF", id="not WAV"),
        pytest.param(b"", "ends in the header", id="no bytes"),
        pytest.param(with_format(3), "unknown format: 3", id="floats"),
        pytest.param(with_format(1, rate=0), "at 0 Hz", id="no rate"),
        pytest.param(recording("")[:44], "has no samples", id="no samples"),
        pytest.param(recording("1", tone_s=30), "30.2 s long, the limit is 30 s", id="too long"),
    ],
)
def test_what_is_wrong_is_said(server: Server, content: bytes, reason: str) -> None:
    reply = post(server, content)

    assert reply.status_code == 400
    assert reason in reply.json()["error"]["message"]


def test_forms_and_types(server: Server) -> None:
    url, file = server.base + PATH, recording("2")
    form = HTTP.post(url, files={"file": ("a.wav", file)}, data={"language": "en"})
    other = HTTP.post(url, files={"audio": ("a.wav", file)})
    text = HTTP.post(url, json={"file": "a.wav"})

    assert form.json() == {"text": "2"}
    assert other.status_code == 400
    assert "must have a part 'file'" in other.json()["error"]["message"]
    assert text.status_code == 415


# Means over 50 frames and 20 bands of transformers.WhisperFeatureExtractor (5.23.0), with 80 bands.
REFERENCE = [
    [-0.1105, -0.0837, -0.5309, -0.5485],
    [-0.5529, -0.4949, -0.1316, -0.5529],
    [-0.5529, -0.5529, -0.4201, -0.3566],
    [-0.5501, -0.5498, -0.5487, -0.2754],
]


def test_spectrogram() -> None:
    """A chirp from 100 Hz to 6.1 kHz has the same log-mel spectrogram as in Whisper."""
    time = np.arange(32_000) / 16_000
    chirp = 0.5 * np.sin(2 * np.pi * (100 + 1500 * time) * time)
    log_mel = runpy.run_path(str(EXAMPLE / "features.py"))["log_mel"]

    found = log_mel(chirp.astype("float32"))

    means = found.reshape(4, 50, 4, 20).mean(axis=(1, 3))
    np.testing.assert_allclose(means, REFERENCE, atol=1e-4)
