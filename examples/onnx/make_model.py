"""Train a network on scikit-learn's bundled digits and write it as an ONNX file, model/digits.onnx."""

import os
from pathlib import Path

import onnx
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

MODEL = Path(__file__).parent / "model" / "digits.onnx"


def train() -> MLPClassifier:
    """Train on three quarters of the images, with pixels from 0 to 1, and print the accuracy on the rest."""
    images, labels = load_digits(return_X_y=True)
    train_images, test_images, train_labels, test_labels = train_test_split(
        images / 16, labels, test_size=0.25, random_state=0
    )
    network = MLPClassifier(hidden_layer_sizes=(512, 512), tol=0.01, random_state=0)
    network.fit(train_images, train_labels)
    accuracy = network.score(test_images, test_labels)
    print(f"Trained a network of 3 layers. Accuracy on the test images: {accuracy:.1%}.")
    return network


def as_onnx(network: MLPClassifier) -> onnx.ModelProto:
    """Return the network as a graph that maps images of shape (batch, 8, 8) to ten probabilities each."""
    nodes = [helper.make_node("Flatten", ["images"], ["values0"])]
    constants = []
    layers = list(zip(network.coefs_, network.intercepts_, strict=True))
    for n, (weights, bias) in enumerate(layers, 1):
        constants.append(numpy_helper.from_array(weights.astype("float32"), f"weights{n}"))
        constants.append(numpy_helper.from_array(bias.astype("float32"), f"bias{n}"))
        nodes.append(helper.make_node("Gemm", [f"values{n - 1}", f"weights{n}", f"bias{n}"], [f"sums{n}"]))
        if n < len(layers):
            nodes.append(helper.make_node("Relu", [f"sums{n}"], [f"values{n}"]))
        else:
            nodes.append(helper.make_node("Softmax", [f"sums{n}"], ["probabilities"], axis=1))
    # A name instead of a number as the first length lets the batch have any size.
    images = helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 8, 8])
    probabilities = helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", 10])
    graph = helper.make_graph(nodes, "digits", [images], [probabilities], constants)
    # Old versions of the format, which every ONNX Runtime that the service supports can load.
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return model


if __name__ == "__main__":
    MODEL.parent.mkdir(exist_ok=True)
    # Rename the complete file, so that an interrupted run leaves no partial model at this path.
    unfinished = MODEL.with_suffix(f".{os.getpid()}")
    onnx.save(as_onnx(train()), unfinished)
    unfinished.replace(MODEL)
