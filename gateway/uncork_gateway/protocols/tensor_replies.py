"""Output tensors of merged calls: splits them between requests, and joins those of a request's parts."""

from collections.abc import Sequence

from uncork_dispatcher.wording import plural
from uncork_gateway.protocols.tensors import Tensor, check_values, concatenate, split_rows
from uncork_gateway.protocols.wire import WrongReply, is_certain

TOO_MANY = "the response has too many values to be split or joined"
"""The reason in the log; errors of limits speak of requests, and of options that the proxy lacks."""


def split_outputs(outputs: Sequence[Tensor], rows: Sequence[int]) -> list[list[Tensor]]:
    """Split each output between several requests with ``rows`` rows each.

    An output of one row goes to all requests if another output has a row for each of theirs; on its own, it
    may belong to the first row. The pieces keep the parameters of their output.

    Raises:
        Malformed: if the data of an output does not match its shape.
        WrongReply: if no output has as many rows as the requests, or an output has neither that many nor one.
    """
    total = sum(rows)
    shares = zip(*[_split(output, rows) for output in outputs], strict=True)
    if not any(_length(output) == total for output in outputs):
        got = ", ".join(f"{output.name!r} of 1 row" for output in outputs) or "no outputs"
        raise WrongReply(f"expected outputs with {plural(total, 'row')}, got {got}")
    return list(map(list, shares))


def join_outputs(parts: Sequence[Sequence[Tensor]], rows: Sequence[int]) -> tuple[list[Tensor], bool]:
    """Join the outputs of the parts of a request, in order, with the parameters of the first part.

    Outputs with a row for each row of their part are concatenated. All others must be equal in all parts.

    Returns:
        The outputs, and True if it is certain which of them have a row for each row.

    Raises:
        Malformed: if the data of an output does not match its shape.
        WrongReply: if the outputs of the parts do not fit together.
    """
    names = [output.name for output in parts[0]]
    for part in parts:
        got = [output.name for output in part]
        if got != names:
            raise WrongReply(
                f"the responses to the parts of a request have different outputs: {names} and {got}"
            )
    columns = list(zip(*parts, strict=True))
    by_rows = [_have_rows(pieces, rows) for pieces in columns]
    equal = [_are_equal(pieces) for pieces in columns]
    joined = [_join(pieces, rows, *kind) for pieces, *kind in zip(columns, by_rows, equal, strict=True)]
    return joined, is_certain(by_rows, equal)


def _split(output: Tensor, rows: Sequence[int]) -> list[Tensor]:
    check_values(output)
    total = sum(rows)
    if _length(output) == total:
        return split_rows(output, rows)
    if _length(output) == 1:
        return [output] * len(rows)
    raise WrongReply(
        f"output {output.name!r}: expected {plural(total, 'row')}, or 1 for all requests, "
        f"got shape {list(output.shape)}"
    )


def _join(pieces: Sequence[Tensor], rows: Sequence[int], by_rows: bool, equal: bool) -> Tensor:
    if by_rows:
        return concatenate(pieces)
    if equal:
        return pieces[0]
    raise WrongReply(
        f"output {pieces[0].name!r}: expected {list(rows)} rows of one datatype and inner shape, or the same "
        f"value in each part, got {', '.join(f'{piece.datatype} {list(piece.shape)}' for piece in pieces)}"
    )


def _have_rows(pieces: Sequence[Tensor], rows: Sequence[int]) -> bool:
    for piece in pieces:
        check_values(piece)
    kinds = {(piece.datatype, piece.form, piece.shape[1:]) for piece in pieces}
    return len(kinds) == 1 and list(map(_length, pieces)) == list(rows)


def _are_equal(pieces: Sequence[Tensor]) -> bool:
    first = pieces[0]
    return all(
        (piece.datatype, piece.form, piece.shape, piece.data)
        == (first.datatype, first.form, first.shape, first.data)
        for piece in pieces
    )


def _length(output: Tensor) -> int | None:
    return output.shape[0] if output.shape else None
