"""Feeds the parser of frames whatever atheris makes up, in pieces: frames come out, or a FrameError."""

import sys

import atheris

with atheris.instrument_imports(include=["uncork_workers.wire.frames"]):
    from uncork_workers.wire.frames import FrameDecoder, FrameError, encode_frame, split_payload
    from uncork_workers.wire.messages import Batch, Hello, Reply


def feed(data: bytes) -> None:
    """One connection that sends ``data`` after a length that says how it is cut."""
    piece_bytes = data[0] + 1 if data else 1
    decoder, rest = FrameDecoder(), data[1:]
    try:
        for start in range(0, len(rest), piece_bytes):
            for message, payload in decoder.feed(rest[start : start + piece_bytes]):
                if isinstance(message, Batch | Reply):
                    split_payload(payload, message.lengths)
                if not isinstance(message, Hello):  # it has a Python value of any shape in it
                    assert next(FrameDecoder().feed(encode_frame(message, [payload]))) == (message, payload)
    except FrameError:
        pass


if __name__ == "__main__":
    atheris.Setup(sys.argv, feed)
    atheris.Fuzz()
