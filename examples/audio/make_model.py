"""Make the model of the audio example, model/: a recurrent network that reads the keys in telephone tones."""

import argparse
import os
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from features import HOP, MELS, RATE, log_mel, resample, write_wav
from onnx import TensorProto, helper, numpy_helper
from service import MODEL, Transcriber

KEYS = "123A456B789C*0#D"
# Two tones per key, in Hz (ITU-T Q.23).
TONES = dict(zip(KEYS, product((697, 770, 852, 941), (1209, 1336, 1477, 1633)), strict=True))
JOINED = 2  # frames per step, 20 ms
UNITS = 512  # per direction of the recurrent layer
RECORDINGS, SECONDS = 400, 2


def dial(keys: Sequence[str], chance: np.random.Generator, rate: int = RATE) -> tuple[np.ndarray, np.ndarray]:
    """Return a recording of the keys with pauses and noise, and for each sample its key (from 1) or 0."""
    sounds, labels = [], []
    for key in [*keys, ""]:
        pause, tone = (int(rate * seconds) for seconds in chance.uniform(0.06, 0.2, 2))
        time = np.arange(tone if key else 0) / rate
        waves = [np.sin(2 * np.pi * frequency * time) for frequency in TONES.get(key, ())]
        sounds += [np.zeros(pause), sum(waves, np.zeros(len(time)))]
        labels += [np.zeros(pause, int), np.full(len(time), KEYS.index(key) + 1)]
    sound = np.concatenate(sounds) * 10 ** chance.uniform(-1.5, -0.4)
    noise = chance.normal(size=len(sound)) * chance.choice([0, 10 ** chance.uniform(-4, -2)])
    return sound + noise, np.concatenate(labels)


def random_call(chance: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return the spectrogram of random keys, recorded for 2 s by a telephone or a computer, and its labels.

    The label of a step is the key that sounds from its start to its end, or else 0.
    """
    rate = int(chance.choice([8000, RATE]))
    both = dial(chance.choice(list(KEYS), chance.integers(0, 10)), chance, rate)
    sound, labels = (np.pad(values, (0, SECONDS * rate))[: SECONDS * rate] for values in both)
    mel = log_mel(resample(sound, rate).astype(np.float32))
    edges = np.arange(len(mel) // JOINED + 1) * JOINED * HOP * rate // RATE
    at_edges = np.append(labels, 0)[edges]
    return mel.T, np.where(at_edges[:-1] == at_edges[1:], at_edges[1:], 0)


def recurrent_layer(chance: np.random.Generator) -> dict[str, np.ndarray]:
    """Return random weights of an LSTM with two directions."""
    width = JOINED * MELS
    return {
        "W": chance.normal(0, 2 / np.sqrt(width), (2, 4 * UNITS, width)),
        "R": chance.normal(0, 1 / np.sqrt(UNITS), (2, 4 * UNITS, UNITS)),
        "B": np.zeros((2, 8 * UNITS)),
    }


def as_onnx(weights: dict[str, np.ndarray], output: str) -> onnx.ModelProto:
    """Return the graph up to an output: ``states`` or ``logits``, both of shape (batch, steps, …)."""
    shapes = {"join": [0, -1, JOINED * MELS], "flat": [0, 0, 2 * UNITS], "joined": [JOINED]}
    nodes = [
        helper.make_node("Transpose", ["mel"], ["by_frame"], perm=(0, 2, 1)),
        helper.make_node("Reshape", ["by_frame", "join"], ["by_step"]),
        helper.make_node("Transpose", ["by_step"], ["steps_first"], perm=(1, 0, 2)),
        helper.make_node("Div", ["frames", "joined"], ["steps"]),
        helper.make_node(
            "LSTM",
            ["steps_first", "W", "R", "B", "steps"],
            ["directions"],
            hidden_size=UNITS,
            direction="bidirectional",
        ),
        helper.make_node("Transpose", ["directions"], ["batch_first"], perm=(2, 0, 1, 3)),
        helper.make_node("Reshape", ["batch_first", "flat"], ["states"]),
    ]
    if output == "logits":
        nodes.append(helper.make_node("MatMul", ["states", "readout"], ["sums"]))
        nodes.append(helper.make_node("Add", ["sums", "bias"], ["logits"]))
    constants = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()]
    constants += [
        numpy_helper.from_array(np.array(shape, np.int32 if name == "joined" else np.int64), name)
        for name, shape in shapes.items()
    ]
    inputs = [
        helper.make_tensor_value_info("mel", TensorProto.FLOAT, ["batch", MELS, "frames"]),
        helper.make_tensor_value_info("frames", TensorProto.INT32, ["batch"]),
    ]
    outputs = [helper.make_tensor_value_info(output, TensorProto.FLOAT, ["batch", "steps", None])]
    graph = helper.make_graph(nodes, "tones", inputs, outputs, constants)
    # Old versions of the format, which every ONNX Runtime that the service supports can load.
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return model


def train(chance: np.random.Generator) -> onnx.ModelProto:
    """Return the model: a random recurrent layer and a linear layer fitted by least squares on its states."""
    weights = recurrent_layer(chance)
    session = onnxruntime.InferenceSession(
        as_onnx(weights, "states").SerializeToString(), providers=["CPUExecutionProvider"]
    )
    mels, labels = map(np.stack, zip(*(random_call(chance) for _ in range(RECORDINGS)), strict=True))
    frames = np.full(RECORDINGS, mels.shape[2], np.int32)
    [states] = session.run(None, {"mel": mels, "frames": frames})
    states = states.reshape(-1, states.shape[2])
    wanted = np.eye(len(KEYS) + 1, dtype=np.float32)[labels.ravel()]
    states = np.column_stack([states, np.ones(len(states), np.float32)])
    squares = (states.T @ states).astype(float) + np.eye(states.shape[1])
    fitted = np.linalg.solve(squares, states.T @ wanted)
    return as_onnx(weights | {"readout": fitted[:-1], "bias": fitted[-1]}, "logits")


def save(model: onnx.ModelProto, folder: Path) -> None:
    """Write the folder of the model."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokens.txt").write_text("\n".join(["<blank>", *KEYS]) + "\n")
    # Rename the complete file, so that an interrupted run leaves no partial model at this path.
    unfinished = folder / f"model.{os.getpid()}"
    onnx.save(model, unfinished)
    unfinished.replace(folder / "model.onnx")


def report_accuracy(chance: np.random.Generator) -> None:
    """Print how many new recordings the service reads without a mistake."""
    keys = ["".join(chance.choice(list(KEYS), chance.integers(1, 12))) for _ in range(100)]
    service = Transcriber()
    service.setup()
    replies = service.transcribe([dial(text, chance)[0].astype(np.float32) for text in keys])
    right = sum(reply["text"] == text for reply, text in zip(replies, keys, strict=True))
    print(f"Made {MODEL}. It reads {right} of 100 new recordings without a mistake.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dial", nargs=2, metavar=("KEYS", "FILE"), help="write a recording of KEYS to FILE")
    options = parser.parse_args()
    chance = np.random.default_rng(0)
    if options.dial:
        keys, path = options.dial
        if unknown := set(keys) - set(KEYS):
            parser.error(f"KEYS must be of {KEYS}, got {min(unknown)!r}")
        Path(path).write_bytes(write_wav(dial(keys, chance)[0]))
    elif not (MODEL / "model.onnx").exists():
        save(train(chance), MODEL)
        report_accuracy(chance)
