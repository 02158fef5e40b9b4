"""A small text encoder with random weights, in a folder that every server loads, and texts for it.

The texts are as long as queries and documents of BEIR on average: each has the mean length of the queries or
documents of one of its public data sets (the package mteb 2.26.24, `descriptive_stats/Retrieval`).
"""

import json
import os
from collections.abc import Sequence
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from benchmarks.models.agreement import TOLERANCE

FOLDER = "PEER_FOLDER"
"""The environment variable with the folder of the model and its texts."""
VARIABLES = {
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"), "1"),
    "HF_HUB_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_CPU_KVCACHE_SPACE": "1",
}
"""Environment variables of every server: one thread runs the model, and nothing is downloaded or reported."""
_QUERIES = (33, 69, 22, 48, 92, 63, 1193, 43, 52, 34, 72, 50, 123, 90, 48)
_DOCUMENTS = (336, 1118, 1591, 493, 289, 767, 1030, 2096, 62, 310, 1204, 539, 539, 1499, 484)
"""Characters in MSMARCO, TRECCOVID, NFCorpus, NQ, HotpotQA, FiQA2018, ArguAna, Touche2020Retrieval.v3,
QuoraRetrieval, DBPedia, SCIDOCS, FEVER, ClimateFEVER, SciFact and CQADupstackEnglishRetrieval."""
_WORDS = 5000
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_SIZES = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024}
_MODULES = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
_TEXTS = 128
REQUESTS = {"one_text": 1, "many_texts": 64}
"""The functions that make requests, with the number of texts in each."""


class _Vector(msgspec.Struct):
    embedding: list[float]


class _Response(msgspec.Struct):
    data: list[_Vector]


class Vectors(bytes):
    """A response with embeddings. It equals others whose numbers differ by less than the tolerance."""

    @cached_property
    def array(self) -> NDArray[Any]:
        found = msgspec.json.decode(self, type=_Response)
        return np.array([vector.embedding for vector in found.data])

    def __eq__(self, other: Any) -> bool:
        try:
            theirs = Vectors(other).array
            return self.array.shape == theirs.shape and np.allclose(
                self.array, theirs, rtol=0, atol=TOLERANCE
            )
        except msgspec.MsgspecError:
            return False

    def __ne__(self, other: Any) -> bool:
        return not self == other

    __hash__ = bytes.__hash__


def write_texts(texts: Sequence[str]) -> bytes:
    """Write a request in OpenAI's protocol."""
    return msgspec.json.encode({"model": "encoder", "input": texts})


def make_encoder(folder: Path) -> None:
    """Save a BERT of 4 layers of width 256, the mean of whose tokens is a text's vector of length 1."""
    transformers, torch = map(import_module, ("transformers", "torch"))
    vocabulary = [*_SPECIAL, *_words()]
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    transformers.BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=512).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=len(vocabulary), **_SIZES)
    transformers.BertModel(config).save_pretrained(folder)
    modules = [
        {"idx": at, "name": str(at), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for at, (kind, path) in enumerate(_MODULES.items())
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": _SIZES["hidden_size"], "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling/config.json").write_text(json.dumps(pooling))


def make_requests(folder: Path) -> dict[str, tuple[list[list[str]], list[Vectors]]]:
    """Return the requests of each name with the model's answers, and save them for the load generator."""
    random, words = Random(2), _words()
    texts = [_text(random, words) for _ in range(_TEXTS)]
    vectors = _vectors(folder, texts)
    found = {}
    for name, count in REQUESTS.items():
        parts = [slice(at, at + count) for at in range(0, _TEXTS, count)]
        rows = [texts[part] for part in parts]
        answers = [Vectors(msgspec.json.encode(_Response(vectors[part]))) for part in parts]
        pairs = [(write_texts(row), bytes(answer)) for row, answer in zip(rows, answers, strict=True)]
        (folder / name).write_bytes(msgspec.msgpack.encode(pairs))
        found[name] = rows, answers
    return found


def one_text(number: int) -> tuple[bytes, Vectors]:
    """Return a request and its answer, in a process of the load generator."""
    return _saved("one_text")[number % _TEXTS]


def many_texts(number: int) -> tuple[bytes, Vectors]:
    return _saved("many_texts")[number % (_TEXTS // REQUESTS["many_texts"])]


@cache
def _saved(name: str) -> list[tuple[bytes, Vectors]]:
    saved = Path(os.environ[FOLDER], name).read_bytes()
    pairs = msgspec.msgpack.decode(saved, type=list[tuple[bytes, bytes]])
    return [(body, Vectors(answer)) for body, answer in pairs]


def _words() -> list[str]:
    random, letters = Random(1), "abcdefghijklmnopqrstuvwxyz"
    return sorted({"".join(random.choices(letters, k=random.randint(2, 8))) for _ in range(_WORDS)})


def _text(random: Random, words: Sequence[str]) -> str:
    length, chosen = random.choice((*_QUERIES, *_DOCUMENTS)), [random.choice(words)]
    while len(text := " ".join(chosen)) < length:
        chosen.append(random.choice(words))
    return text


def _vectors(folder: Path, texts: Sequence[str]) -> list[_Vector]:
    """Run the model on each text alone."""
    transformers, torch = map(import_module, ("transformers", "torch"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    with torch.inference_mode():
        means = [model(**tokenizer(text, return_tensors="pt")).last_hidden_state.mean(1)[0] for text in texts]
    return [_Vector((mean / mean.norm()).tolist()) for mean in means]
