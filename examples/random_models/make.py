"""Write a folder with model.onnx and tokenizer.json: a model like BERT, with random weights.

Its batches take as long as those of a trained model of its size, so it serves for tests and measurements.
"""

import argparse
import math
import string
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from traffic import WORDS

POSITIONS = 512
HEAD_WIDTH = 32
INPUTS = IDS, MASK, TYPES = "input_ids", "attention_mask", "token_type_ids"


class Graph:
    """A graph under construction. The results of nodes are strings, weights and constants are arrays."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._chance = np.random.default_rng(0)

    def add(self, kind: str, *inputs: object, **attributes: object) -> str:
        """Add a node, and return the name of its result."""
        result = f"{kind}_{len(self.nodes)}"
        names = [one if isinstance(one, str) else self._constant(one) for one in inputs]
        self.nodes.append(helper.make_node(kind, names, [result], name=result, **attributes))
        return result

    def random(self, *shape: int, scale: float = 1.0) -> np.ndarray:
        """Return random weights."""
        return (scale * self._chance.standard_normal(shape)).astype(np.float32)

    def dense(self, rows: str, inputs: int, outputs: int) -> str:
        """Add a linear layer."""
        product = self.add("MatMul", rows, self.random(inputs, outputs, scale=1 / math.sqrt(inputs)))
        return self.add("Add", product, np.zeros(outputs, np.float32))

    def normalized(self, rows: str, width: int) -> str:
        """Add a layer normalization."""
        scale, bias = np.ones(width, np.float32), np.zeros(width, np.float32)
        return self.add("LayerNormalization", rows, scale, bias, axis=-1)

    def _constant(self, value: object) -> str:
        name = f"weight_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name


def make_tokenizer() -> Tokenizer:
    """Return a tokenizer like BERT's, with the words of the traffic as its vocabulary."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=1000,
        special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
        initial_alphabet=list(string.ascii_lowercase + string.digits + string.punctuation),
        show_progress=False,
    )
    tokenizer.train_from_iterator(WORDS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", tokenizer.token_to_id("[CLS]")), ("[SEP]", tokenizer.token_to_id("[SEP]"))],
    )
    return tokenizer


def add_encoder(graph: Graph, *, vocabulary: int, layers: int, width: int) -> str:
    """Add embeddings and the layers of the encoder, and return their result: a row for each token."""
    length = graph.add("Slice", graph.add("Shape", IDS), [1], [2])
    positions = graph.add("Slice", graph.random(POSITIONS, width, scale=0.1), [0], length, [0])
    words = graph.add("Gather", graph.random(vocabulary, width), IDS)
    types = graph.add("Gather", graph.random(2, width, scale=0.1), TYPES)
    rows = graph.normalized(graph.add("Add", graph.add("Add", words, types), positions), width)
    # Added to the scores: 0 for tokens, a large negative number for padding.
    padding = graph.add("Sub", np.float32(1), graph.add("Cast", MASK, to=TensorProto.FLOAT))
    bias = graph.add("Unsqueeze", graph.add("Mul", padding, np.float32(-1e9)), [1, 2])
    for _ in range(layers):
        rows = graph.normalized(graph.add("Add", rows, add_attention(graph, rows, bias, width=width)), width)
        inner = graph.add("Gelu", graph.dense(rows, width, 4 * width))
        rows = graph.normalized(graph.add("Add", rows, graph.dense(inner, 4 * width, width)), width)
    return rows


def add_attention(graph: Graph, rows: str, bias: str, *, width: int) -> str:
    """Add the self-attention of one layer."""
    heads = width // HEAD_WIDTH

    def split(order: tuple[int, ...]) -> str:
        by_head = graph.add("Reshape", graph.dense(rows, width, width), [0, 0, heads, HEAD_WIDTH])
        return graph.add("Transpose", by_head, perm=order)

    queries, keys, values = split((0, 2, 1, 3)), split((0, 2, 3, 1)), split((0, 2, 1, 3))
    scores = graph.add("Mul", graph.add("MatMul", queries, keys), np.float32(1 / math.sqrt(HEAD_WIDTH)))
    shares = graph.add("Softmax", graph.add("Add", scores, bias), axis=-1)
    mixed = graph.add("Transpose", graph.add("MatMul", shares, values), perm=(0, 2, 1, 3))
    return graph.dense(graph.add("Reshape", mixed, [0, 0, width]), width, width)


def make_model(kind: str, *, vocabulary: int, layers: int, width: int) -> onnx.ModelProto:
    """Return a model whose output is a row for each token or, for a reranker, one number for each text."""
    graph = Graph()
    last = add_encoder(graph, vocabulary=vocabulary, layers=layers, width=width)
    name, shape = "last_hidden_state", ["batch", "tokens", width]
    if kind == "reranker":
        first_token = graph.add("Gather", last, 0, axis=1)
        last, name, shape = graph.dense(first_token, width, 1), "logits", ["batch", 1]
    graph.nodes.append(helper.make_node("Identity", [last], [name]))
    inputs = [helper.make_tensor_value_info(each, TensorProto.INT64, ["batch", "tokens"]) for each in INPUTS]
    output = helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    made = helper.make_graph(graph.nodes, kind, inputs, [output], graph.weights)
    # The IR version of that opset; the default is the newest, which ONNX Runtime may not support yet.
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.checker.check_model(model)
    return model


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["embedder", "reranker"])
    parser.add_argument("folder", type=Path, help="for model.onnx and tokenizer.json")
    parser.add_argument("--layers", type=int, default=2, help="6 in all-MiniLM-L6-v2 (default: 2)")
    parser.add_argument("--width", type=int, default=64, help="384 in all-MiniLM-L6-v2 (default: 64)")
    options = parser.parse_args()
    tokenizer = make_tokenizer()
    model = make_model(
        options.kind, vocabulary=tokenizer.get_vocab_size(), layers=options.layers, width=options.width
    )
    options.folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(options.folder / "tokenizer.json"))
    onnx.save(model, options.folder / "model.onnx")


if __name__ == "__main__":
    main()
