"""APIs of text models: decorators that convert between the requests of their clients and rows."""

import base64
import math
from collections.abc import Callable, Mapping, Sequence, Sized
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import numpy as np
from msgspec import Meta

from uncork_workers.definition.adapters import Json
from uncork_workers.definition.outputs.arrays import as_numpy
from uncork_workers.definition.outputs.host import as_host_array, on_host
from uncork_workers.definition.outputs.responses import Rejected, WrongResult, no_results
from uncork_workers.definition.service import Convert, api, set_task
from uncork_workers.plural import plural
from uncork_workers.wire.schema import Task
from uncork_workers.wire.tensors import BFLOAT16, widened

H = TypeVar("H", bound=Callable[..., Any])

Text = Annotated[str, Meta(min_length=1)]
TokenIds = Annotated[list[Annotated[int, Meta(ge=0)]], Meta(min_length=1)]

EXAMPLE = "The ferry leaves the harbor at noon and reaches the island before the sun goes down."
_DEFAULTS = {"cost": "bytes", "mb_max_batch_size": 16_384}
_FIXED = ("output", "errors")


class Pair(msgspec.Struct):
    """A query and a text to be scored by its relevance to the query."""

    query: str
    text: str


class _Asked(msgspec.Struct):
    """The request parameters of embeddings."""

    dimensions: Annotated[int, Meta(ge=1)] | None = None
    normalize: bool = True
    encoding_format: Literal["float", "base64"] = "float"


def embeddings(**settings: Any) -> Callable[[H], H]:
    """Serve a method that turns texts into vectors, at ``/v1/embeddings`` and ``/embed``.

    The method, plain or ``async``, gets a list whose items are texts or lists of token ids. It returns two
    lists or arrays: the vectors of the texts, not necessarily of length 1, and the number of tokens of each.
    In place of a vector it may return a ``Rejected``. Normalization, ``dimensions`` and base64 are done
    here. ``uncork.context().parameters`` has ``truncate`` for the texts of clients that ask for it.

    At its own route and in other protocols, a row is a text or a list of token ids, and its result an object
    with ``embedding`` and ``tokens``.

    Args:
        settings: arguments of :func:`uncork.api`, except ``output`` and ``errors``. By default, the cost of
            a text is its bytes, and a batch holds at most 16 384 of them; ``input=Text()`` accepts texts
            only, no lists of token ids.

    Raises:
        DefinitionError: as :func:`uncork.api`.
        TypeError: for an argument that it does not have.
    """
    defaults = {"input": Json(type=Text | TokenIds), "warmup": EXAMPLE}
    return _serve("embeddings", ("/v1/embeddings", "/embed"), defaults | settings, _as_embeddings)


def rerank(**settings: Any) -> Callable[[H], H]:
    """Serve a method that scores how relevant texts are to queries.

    Its routes are ``/v1/rerank``, ``/v2/rerank`` and ``/rerank``. The method, plain or ``async``, gets a list
    of :class:`Pair`, and returns a list or an array with a finite number for each, larger for the more
    relevant, and by convention from 0 to 1. In place of a number it may return a ``Rejected``.

    At its own route and in other protocols, a row is an object with ``query`` and ``text``, and its result
    the number.

    Args:
        settings: as for :func:`embeddings`.

    Raises:
        DefinitionError: as :func:`uncork.api`.
        TypeError: for an argument that it does not have.
    """
    example = {"query": "When does the ferry leave?", "text": EXAMPLE}
    defaults = {"input": Json(type=Pair), "warmup": example}
    return _serve("rerank", ("/v1/rerank", "/v2/rerank", "/rerank"), defaults | settings, _as_scores)


def _serve(
    task: Task, aliases: tuple[str, ...], settings: dict[str, Any], convert: Convert
) -> Callable[[H], H]:
    for name in _FIXED:
        if name in settings:
            raise TypeError(f"{task}() sets {name} itself; remove the argument")
    define = api(errors="openai", **{**_DEFAULTS, **settings})
    return lambda handler: set_task(define(handler), task, aliases, convert)


def _as_embeddings(result: Any, parameters: Sequence[Mapping[str, Any]]) -> Any:
    """Return the rows for texts with these parameters."""
    # A tuple of tensors has become a list of arrays.
    if not isinstance(result, tuple | list) or len(result) != len(("vectors", "tokens")):
        raise WrongResult(
            f"an API for embeddings must return vectors and the number of tokens of each text, got "
            f"{type(result).__name__}; write return vectors, tokens"
        )
    vectors, tokens = [_listed(one, len(parameters)) for one in result]
    if not len(vectors) == len(tokens) == len(parameters):
        raise WrongResult(
            f"{plural(len(vectors), 'vector')} and {plural(len(tokens), 'number')} of tokens were returned "
            f"for {plural(len(parameters), 'text')}"
        )
    rows = list(map(_embedding, vectors, parameters))
    counts = [
        0 if isinstance(row, Rejected) else _whole(count) for row, count in zip(rows, tokens, strict=True)
    ]
    shapes = {row.shape if isinstance(row, np.ndarray) else None for row in rows}
    if len(shapes) == 1 and None not in shapes:
        # One array, which protocols with tensors send as it is.
        return {"embedding": rows, "tokens": np.array(counts)}
    return [
        row if isinstance(row, Rejected) else {"embedding": row, "tokens": count}
        for row, count in zip(rows, counts, strict=True)
    ]


def _embedding(vector: Any, parameters: Mapping[str, Any]) -> np.ndarray[Any, Any] | str | Rejected:
    if isinstance(vector, Rejected):
        return vector
    try:
        asked = msgspec.convert(parameters, _Asked)
    except msgspec.ValidationError as error:
        # From a client of another protocol: the API's own routes check bodies before.
        return Rejected(400, f"the request parameters are not valid: {error}")
    values = np.asarray(_numbers(vector), np.float32)
    if values.ndim != 1:
        raise WrongResult(f"a vector must have one axis, got an array of shape {values.shape}")
    if not np.isfinite(values).all():
        raise WrongResult("a vector has a value that is NaN or infinite")
    if asked.dimensions is not None and asked.dimensions > len(values):
        return Rejected(400, f"dimensions must be at most {len(values)}, got {asked.dimensions}")
    values = values[: asked.dimensions]
    if asked.normalize:
        values = values / (np.linalg.norm(values) or 1)
    if asked.encoding_format == "base64":
        return base64.b64encode(values.astype("<f4").tobytes()).decode()
    return values


def _as_scores(scores: Any, parameters: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return the rows for pairs with these parameters."""
    found = _listed(scores, len(parameters))
    if len(found) != len(parameters):
        raise WrongResult(
            f"{plural(len(found), 'score')} were returned for {plural(len(parameters), 'pair')}"
        )
    return [score if isinstance(score, Rejected) else _finite(score) for score in found]


def _listed(returned: Any, expected: int) -> Any:
    """Return an array or a list with NumPy arrays in it."""
    found = on_host(returned)
    if not isinstance(found, Sized) or getattr(found, "shape", None) == ():
        raise no_results(found, expected)
    return found


def _numbers(value: Any) -> Any:
    """Return an array of any library, or an element of one, as numbers that NumPy can convert."""
    array = as_host_array(value)
    array = as_numpy(value if array is None else array)
    is_short = isinstance(array, np.ndarray | np.generic) and array.dtype == BFLOAT16
    return widened(array["BF16"]) if is_short else array


def _finite(score: Any) -> float:
    number = float(_numbers(score))
    if not math.isfinite(number):
        raise WrongResult(f"a score must be finite, got {number}")
    return number


def _whole(count: Any) -> int:
    number = float(_numbers(count))
    if not number.is_integer():
        raise WrongResult(f"a number of tokens must be whole, got {number}")
    return int(number)
