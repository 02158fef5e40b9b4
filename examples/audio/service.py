"""Recordings to text with ONNX Runtime. Run make_model.py first, or set AUDIO_MODEL to another folder."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime
from features import MELS, RATE, log_mel, read_wav, write_wav

from uncork import Service, api
from uncork.adapters import InvalidInput, Request, RequestAdapter, UploadedFile

MODEL = Path(os.environ.get("AUDIO_MODEL", Path(__file__).parent / "model"))
# The model gets recordings of similar length together, padded to the longest of them.
TOGETHER = 16
# Padding to a multiple of 0.5 s lets ONNX Runtime reuse its memory plans, which depend on the shapes.
FRAMES_STEP = 50


class Wav(RequestAdapter):
    """Accepts a WAV file as the body, or as the part ``file`` of a form, as OpenAI's clients send it."""

    accepts = ("audio/wav", "audio/x-wav", "audio/wave", "multipart/form-data")

    def handle_batch_request(self, requests: Sequence[Request]) -> list[np.ndarray]:
        """Return the samples of each request."""
        return [read_wav(wav_of(request.payload)) for request in requests]


def wav_of(payload: bytes | dict[str, str | UploadedFile]) -> bytes:
    """Return the WAV file in a request."""
    if isinstance(payload, bytes):
        return payload
    if (form := payload.get("response_format", "json")) != "json":
        raise InvalidInput(f"response_format must be 'json', got {form!r}")
    file = payload.get("file")
    if not isinstance(file, UploadedFile):
        raise InvalidInput("the form must have a part 'file' with a file name")
    return file.data


class Transcriber(Service):
    """Turn recordings into text."""

    def setup(self) -> None:
        """Load the model, once per worker."""
        path = MODEL / "model.onnx"
        if not path.is_file():
            raise FileNotFoundError(f"no model at {path}: run make_model.py, or set AUDIO_MODEL to a folder")
        options = onnxruntime.SessionOptions()
        # Uncork sets OMP_NUM_THREADS to the worker's share of the cores; ONNX Runtime does not read it.
        options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
        # Idle threads sleep instead of taking cores from the gateway and the other workers.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.tokens = (MODEL / "tokens.txt").read_text().splitlines()

    # Execution time depends on the length of the recordings, hence on their bytes if all have one format. A
    # batch is limited to 4 MB: 125 s at 16 kHz with 16 bits.
    @api(
        input=Wav(),
        route="/v1/audio/transcriptions",
        errors="openai",
        cost="bytes",
        mb_max_batch_size=4_000_000,
        mb_max_latency=1000,
        warmup=write_wav(np.zeros(2 * RATE)),
    )
    def transcribe(self, recordings: Sequence[np.ndarray]) -> list[dict[str, str]]:
        """Return the text of each recording."""
        mels = [log_mel(samples) for samples in recordings]
        by_length = sorted(range(len(mels)), key=lambda at: len(mels[at]))
        texts: dict[int, str] = {}
        for first in range(0, len(mels), TOGETHER):
            group = by_length[first : first + TOGETHER]
            texts |= zip(group, self.decode([mels[at] for at in group]), strict=True)
        return [{"text": texts[at]} for at in range(len(mels))]

    def decode(self, mels: Sequence[np.ndarray]) -> list[str]:
        """Return the texts of spectrograms, which the model gets as one batch."""
        frames = np.array(list(map(len, mels)), dtype=np.int32)
        longest = -(-frames.max() // FRAMES_STEP) * FRAMES_STEP
        batch = np.zeros((len(mels), MELS, longest), dtype=np.float32)
        for row, mel in zip(batch, mels, strict=True):
            row[:, : len(mel)] = mel.T
        [logits] = self.session.run(["logits"], {"mel": batch, "frames": frames})
        steps = frames * logits.shape[1] // longest  # the model may join frames
        return [self.to_text(row[:end].argmax(axis=1)) for row, end in zip(logits, steps, strict=True)]

    def to_text(self, best: np.ndarray) -> str:
        """Return the text of the best token of each step: repeats and blanks (token 0) are dropped (CTC)."""
        new = np.diff(best, prepend=0) != 0
        return "".join(self.tokens[token] for token in best[new & (best != 0)])
