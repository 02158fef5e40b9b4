"""Output tensors of merged calls, split between requests, and joined from the parts of one request."""

from collections.abc import Sequence

from uncork_dispatcher.plural import plural
from uncork_gateway.protocols.tensors import Tensor, check_values, concatenate, split_rows
from uncork_gateway.protocols.wire import WrongReply


def split_outputs(outputs: Sequence[Tensor], rows: Sequence[int]) -> list[list[Tensor]]:
    """Split each output between requests with ``rows`` rows each; an output of one row goes to all of them.

    The pieces have the parameters of their output.

    Raises:
        Malformed: if the data of an output does not match its shape.
        WrongReply: if there are no outputs, or one has neither as many rows as the requests nor one.
    """
    if not outputs:
        raise WrongReply(f"expected outputs with {plural(sum(rows), 'row')}, got no outputs")
    shares = zip(*[_split(output, rows) for output in outputs], strict=True)
    return list(map(list, shares))


def join_outputs(parts: Sequence[Sequence[Tensor]], rows: Sequence[int]) -> list[Tensor]:
    """Join the outputs of the parts of a request, in order; parameters are those of the first part.

    Raises:
        Malformed: if the data of an output does not match its shape.
        WrongReply: if the outputs of the parts differ.
    """
    names = [output.name for output in parts[0]]
    for part in parts:
        got = [output.name for output in part]
        if got != names:
            raise WrongReply(
                f"the responses to the parts of a request have different outputs: {names} and {got}"
            )
    return [_join(pieces, rows) for pieces in zip(*parts, strict=True)]


def _split(output: Tensor, rows: Sequence[int]) -> list[Tensor]:
    check_values(output)
    total = sum(rows)
    match output.shape:
        case (length, *_) if length == total:
            return split_rows(output, rows)
        case (1, *_):
            return [output] * len(rows)
    raise WrongReply(
        f"output {output.name!r}: expected {plural(total, 'row')}, or 1 for all requests, "
        f"got shape {list(output.shape)}"
    )


def _join(pieces: Sequence[Tensor], rows: Sequence[int]) -> Tensor:
    first = pieces[0]
    for piece in pieces:
        check_values(piece)
    kinds = {(piece.datatype, piece.form, piece.shape[1:]) for piece in pieces}
    lengths = [piece.shape[0] if piece.shape else 0 for piece in pieces]
    if len(kinds) == 1 and lengths == list(rows):
        return concatenate(pieces)
    if len(kinds) == 1 and set(lengths) == {1}:
        return first
    raise WrongReply(
        f"output {first.name!r}: expected {list(rows)} rows, or 1 in each part, of one datatype and inner "
        f"shape, got {', '.join(f'{piece.datatype} {list(piece.shape)}' for piece in pieces)}"
    )
