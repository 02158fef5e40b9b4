"""Bodies and messages that arrive in pieces."""

from collections import deque

_SMALL_BYTES = 1024
_CHUNK_BYTES = 16 * 1024


class Pieces:
    """The received part of a body. It joins small pieces, because each object takes 50 bytes of overhead."""

    __slots__ = ("_chunks", "_tail", "size")

    def __init__(self) -> None:
        self.size = 0
        self._chunks: deque[bytes] = deque()
        self._tail = bytearray()
        """The small pieces after the chunks."""

    def add(self, piece: bytes) -> None:
        self.size += len(piece)
        if len(piece) >= _SMALL_BYTES:
            self._end_tail()
            self._chunks.append(piece)
        else:
            self._tail += piece
            if len(self._tail) >= _CHUNK_BYTES:
                self._end_tail()

    def put_back(self, piece: bytes) -> None:
        """Add a piece before all others."""
        self.size += len(piece)
        self._chunks.appendleft(piece)

    def take_first(self) -> bytes:
        """Remove and return some bytes from the beginning."""
        if not self._chunks:
            self._end_tail()
        piece = self._chunks.popleft()
        self.size -= len(piece)
        return piece

    def take(self) -> bytes:
        """Remove and return all bytes."""
        self._end_tail()
        whole = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self.clear()
        return whole

    def clear(self) -> None:
        self.size = 0
        self._chunks.clear()
        self._tail = bytearray()

    def _end_tail(self) -> None:
        if self._tail:
            self._chunks.append(bytes(self._tail))
            self._tail = bytearray()
