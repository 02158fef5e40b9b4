"""Folders of transformers: embeddings, classifiers and rerankers of texts."""

import json
import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from uncork_workers.definition.adapters.text import Text
from uncork_workers.definition.models.loading import library, load
from uncork_workers.definition.outputs.responses import Rejected
from uncork_workers.definition.service import Service, api
from uncork_workers.definition.text_models import EXAMPLE, Pair, embeddings, rerank
from uncork_workers.wire.values import DefinitionError

log = logging.getLogger("uncork.worker")

_CLASSIFIER, _ENCODER = "ForSequenceClassification", "Model"
# Of text in a batch, which bounds the memory of the first batches; the goal usually ends a batch earlier.
MOST_BYTES = 64 * 2**10
_UNLIMITED = 2**31
_MOST_CONFIG_BYTES = 2**20
# With a description of each added token.
_MOST_TOKENIZER_BYTES = 2**26
# Whether the first token stands for the text, or the mean of all.
_POOLING = {"mean_tokens": False, "mean": False, "cls_token": True, "cls": True}
_MODE = "pooling_mode_"
_UNKNOWN = Rejected(400, "the text has token ids that this model does not have; send its own, or text")
_SENTENCE_MODULES = ("Transformer", "Pooling", "Normalize")


class Encoder:
    """A model with its tokenizer, on a GPU if there is one.

    Args:
        folder: the files of both.
        loader: the class of transformers that loads the model.
        safe: whether to load only safetensors; other weights are pickles.
        most_tokens: texts are cut to this length, and to that of the model.
    """

    def __init__(self, folder: Path, loader: str, *, safe: bool, most_tokens: float = math.inf) -> None:
        transformers, self._torch = library("transformers"), library("torch")
        transformers.utils.logging.disable_progress_bar()  # it would run through the log
        # Nothing is downloaded, and no code in the folder runs.
        local = {"local_files_only": True, "trust_remote_code": False}
        self.tokenizer = load(
            "transformers", lambda: transformers.AutoTokenizer.from_pretrained(folder, **local)
        )
        weights = {"use_safetensors": True} if safe else {}
        model = load(
            "transformers", lambda: getattr(transformers, loader).from_pretrained(folder, **local, **weights)
        )
        self._device = "cuda" if self._torch.cuda.is_available() else "cpu"
        self._model = model.eval().to(self._device)
        positions = getattr(model.config, "max_position_embeddings", None)
        most = min(most_tokens, _most_tokens(self.tokenizer.model_max_length, positions))
        self._cut = {"truncation": True, "max_length": int(most)} if most < math.inf else {}
        log.info("loaded %s on %s", folder.name, self._device)

    @property
    def vocabulary(self) -> int:
        """The number of token ids."""
        vocabulary: int = self._model.config.vocab_size
        return vocabulary

    @property
    def labels(self) -> list[str]:
        """The labels of a classifier."""
        labels = self._model.config.id2label
        return [labels[at] for at in range(len(labels))]

    def __call__(self, texts: Sequence[str | list[int] | tuple[str, str]]) -> tuple[Any, Any]:
        """Return the model's output for texts, lists of token ids or pairs, and the mask of their tokens."""
        if any(isinstance(one, list) for one in texts):
            ids = [
                one[: self._cut.get("max_length")]
                if isinstance(one, list)
                else self.tokenizer(one, **self._cut)["input_ids"]
                for one in texts
            ]
            tokens = self.tokenizer.pad({"input_ids": ids}, return_tensors="pt")
        else:
            tokens = self.tokenizer(list(texts), padding=True, return_tensors="pt", **self._cut)
        tokens = tokens.to(self._device)
        with self._torch.inference_mode():
            return self._model(**tokens), tokens["attention_mask"]


def _most_tokens(limit: float, positions: int | None) -> float:
    """Return the most tokens of a text, given the limit of its tokenizer and the positions of the model."""
    longest = positions if positions and positions > 0 else math.inf
    if limit < _UNLIMITED:
        return min(longest, float(limit))
    return longest - 2  # models like RoBERTa have two positions that no token takes


class _Pooling(NamedTuple):
    """How the vectors of tokens become one vector, as sentence-transformers describes it in the folder."""

    first_token: bool = False
    most_tokens: float = math.inf


def service(path: Path, *, trust_pickle: bool) -> type[Service]:
    """Return the class that serves the model of a folder; ``setup`` loads it."""
    config = _read(path / "config.json")
    architectures = config.get("architectures")
    if not isinstance(architectures, list) or not all(isinstance(one, str) for one in architectures):
        architectures = []
    safe = _check_weights(path, trust_pickle=trust_pickle)
    [architecture] = architectures if len(architectures) == 1 else [""]
    if architecture.endswith(_CLASSIFIER):
        return _classifier(path, config, safe=safe)
    if architecture.endswith(_ENCODER):
        return _embedder(path, safe=safe)
    raise DefinitionError(
        f"the architectures in config.json must be one that ends in {_CLASSIFIER} or {_ENCODER}, got "
        f"{', '.join(architectures) or 'none'}; for other models, write a service class"
    )


def _embedder(path: Path, *, safe: bool) -> type[Service]:
    pooling = pooling_of(path)

    class Model(Service):
        def setup(self) -> None:
            self.encode = Encoder(path, "AutoModel", safe=safe, most_tokens=pooling.most_tokens)
            # On the left, padding would move the first token and the positions of all.
            self.encode.tokenizer.padding_side = "right"

        @embeddings(mb_max_batch_size=MOST_BYTES)
        def embed(self, inputs: list[str | list[int]]) -> tuple[Any, Any]:
            """Return a vector for each text, at the routes of OpenAI and text-embeddings-inference too."""
            unknown = [isinstance(one, list) and max(one) >= self.encode.vocabulary for one in inputs]
            output, mask = self.encode(
                [[0] if bad else one for one, bad in zip(inputs, unknown, strict=True)]
            )
            vectors = output.last_hidden_state.float()
            weights = mask.unsqueeze(-1)
            found = vectors[:, 0] if pooling.first_token else (vectors * weights).sum(1) / weights.sum(1)
            return [_UNKNOWN if bad else one for one, bad in zip(found, unknown, strict=True)], mask.sum(1)

    Model.__doc__ = f"Embeddings of texts by {path.name}."
    return Model


def _classifier(path: Path, config: dict[str, Any], *, safe: bool) -> type[Service]:
    several = config.get("problem_type") == "multi_label_classification"
    labels = config.get("id2label")
    if config.get("problem_type") == "regression":
        raise DefinitionError("it is a regression, not a classifier; write a service class for it")
    if isinstance(labels, dict) and len(labels) == 1:
        return _reranker(path, safe=safe)

    class Model(Service):
        has_several = several
        """Whether a text can have several labels."""

        def setup(self) -> None:
            self.encode = Encoder(path, "AutoModelForSequenceClassification", safe=safe)
            self.labels = self.encode.labels

        @api(input=Text(), cost="bytes", mb_max_batch_size=MOST_BYTES, warmup=EXAMPLE)
        def predict(self, texts: list[str]) -> list[Any]:
            """Return the most probable label of each text, or all above 50 % if a text can have several."""
            probabilities = self.probabilities(texts)
            if several:
                return [
                    [label for label, one in zip(self.labels, row, strict=True) if one > 0.5]
                    for row in probabilities
                ]
            return [self.labels[at] for at in probabilities.argmax(axis=1)]

        @api(input=Text(), cost="bytes", mb_max_batch_size=MOST_BYTES, warmup=EXAMPLE)
        def predict_proba(self, texts: list[str]) -> dict[str, Any]:
            """Return the probability of each label."""
            return dict(zip(self.labels, self.probabilities(texts).T, strict=True))

        def probabilities(self, texts: list[str]) -> np.ndarray[Any, Any]:
            logits = self.encode(texts)[0].logits.float()
            result: np.ndarray[Any, Any] = (logits.sigmoid() if several else logits.softmax(1)).cpu().numpy()
            return result

    Model.__doc__ = f"Labels of texts by {path.name}."
    return Model


def _reranker(path: Path, *, safe: bool) -> type[Service]:
    class Model(Service):
        def setup(self) -> None:
            self.encode = Encoder(path, "AutoModelForSequenceClassification", safe=safe)

        @rerank(mb_max_batch_size=MOST_BYTES)
        def rank(self, pairs: list[Pair]) -> Any:
            """Return how relevant each text is to its query, from 0 to 1."""
            logits = self.encode([(pair.query, pair.text) for pair in pairs])[0].logits
            return logits.float().sigmoid()[:, 0]

    Model.__doc__ = f"Relevance of texts to queries by {path.name}."
    return Model


def _check_weights(path: Path, *, trust_pickle: bool) -> bool:
    """Return whether the folder has safetensors."""
    if any(path.glob("*.safetensors")):
        return True
    if not any(path.glob("pytorch_model*.bin")):
        raise DefinitionError(
            "the folder has no model.safetensors; save the model there with save_pretrained, and its "
            "tokenizer"
        )
    if not trust_pickle:
        raise DefinitionError(
            "the weights are a pickle, which can run any code when it is loaded; give --trust-pickle if you "
            "trust its author, or save them as safetensors"
        )
    return False


def pooling_of(path: Path) -> _Pooling:
    if not (path / "modules.json").is_file():
        return _Pooling()
    modules = _read(path / "modules.json", list)
    kinds = [str(one.get("type", "")).rpartition(".")[2] for one in modules if isinstance(one, dict)]
    if unknown := [kind for kind in kinds if kind not in _SENTENCE_MODULES]:
        raise DefinitionError(
            f"modules.json has the module {unknown[0]}; only {', '.join(_SENTENCE_MODULES)} are served "
            "without code; write a service class"
        )
    pooling = _read(path / "1_Pooling/config.json") if "Pooling" in kinds else {"pooling_mode": "mean"}
    modes = [name for name, value in pooling.items() if name.startswith(_MODE) and value is True]
    mode = ", ".join(modes).removeprefix(_MODE) or str(pooling.get("pooling_mode"))
    if mode not in _POOLING:
        raise DefinitionError(
            f"1_Pooling/config.json says {mode}; only {', '.join(_POOLING)} are served without code; write a "
            "service class"
        )
    settings = path / "sentence_bert_config.json"
    most = _read(settings).get("max_seq_length") if settings.is_file() else None
    most_tokens = most if isinstance(most, int) and most > 0 else math.inf
    return _Pooling(_POOLING[mode], most_tokens)


def most_tokens_of(path: Path) -> float:
    """Return the most tokens of a text, as the configurations of a model and its tokenizer say."""
    settings = path / "tokenizer_config.json"
    own = _read(settings, most_bytes=_MOST_TOKENIZER_BYTES) if settings.is_file() else {}
    limit = own.get("model_max_length", own.get("max_len"))
    positions = _read(path / "config.json").get("max_position_embeddings")
    return _most_tokens(
        limit if isinstance(limit, int | float) else math.inf,
        positions if isinstance(positions, int) else None,
    )


def _read(file: Path, kind: type[Any] = dict, *, most_bytes: int = _MOST_CONFIG_BYTES) -> Any:
    try:
        if file.stat().st_size > most_bytes:
            raise ValueError(f"it has more than {most_bytes} bytes")
        found = json.loads(file.read_bytes())
        if not isinstance(found, kind):
            raise ValueError(f"expected a JSON {'object' if kind is dict else 'array'}")
    except (OSError, ValueError, RecursionError) as error:
        raise DefinitionError(f"{file.name} cannot be read: {error}; save the model again") from error
    return found
