# mypy: disable-error-code="import-not-found, import-untyped"
"""Call a service of ours with ovmsclient, a gRPC client for TensorFlow Serving. Runs in its environment.

    python ask_ovms.py 127.0.0.1:8001 digits

Prints each call and its result. The exit code is 1 if a result is wrong.
"""

import sys

import numpy as np
from ovmsclient import make_grpc_client
from ovmsclient.tfs_compat.base.errors import ModelNotFoundError

_ROWS = 2


def main(address: str, model: str) -> int:
    """Make every call of the client."""
    client = make_grpc_client(address)
    status = client.get_model_status(model)
    metadata = client.get_model_metadata(model)
    [(name, described)] = metadata["inputs"].items()
    shape = [_ROWS, *[max(1, length) for length in described["shape"][1:]]]
    answer = client.predict({name: np.zeros(shape, np.float32)}, model)
    results = [
        ("get_model_status", status, status[1]["state"] == "AVAILABLE"),
        ("get_model_metadata", metadata, metadata["model_version"] == 1),
        ("predict", np.asarray(answer).tolist(), len(answer) == _ROWS),
        ("predict, unknown model", *refusal(client)),
    ]
    for call, result, is_right in results:
        print(f"{call}: {result}{'' if is_right else '   WRONG'}")
    return 0 if all(is_right for _, _, is_right in results) else 1


def refusal(client: object) -> tuple[str, bool]:
    """Return the error for a model that does not exist, and whether it is the right one."""
    try:
        client.predict({"x": np.zeros(1, np.float32)}, "nothing")  # type: ignore[attr-defined]
    except ModelNotFoundError as error:
        return str(error), True
    return "no error", False


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
