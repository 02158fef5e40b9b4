"""The states of reading from a client, and the transitions between them.

::

               MESSAGE_BEGINS       HEAD_COMPLETE
      ┌─▶ IDLE ──────────────▶ HEAD ─────────────▶ BODY ─┐
      └───────────────── MESSAGE_COMPLETE ───────────────┘

    READING_STOPS  IDLE, HEAD, BODY           ──▶ STOPPED    the client broke the protocol or a limit
    CLIENT_ENDS    IDLE, HEAD, BODY, STOPPED  ──▶ ENDED      the client has closed its side
    HANG_UP        HEAD, BODY, STOPPED        ──▶ LINGERING  the last reply is sent; the client may still send
                   IDLE, ENDED                ──▶ CLOSED     the last reply is sent
    CLIENT_ENDS    LINGERING                  ──▶ CLOSED
    CLOSE          all                        ──▶ CLOSED

Writing needs no states: the current request writes its reply, and the others wait in the :class:`ReplyQueue`.
"""

from collections.abc import Mapping
from enum import IntEnum, auto


class State(IntEnum):
    """The input that a connection expects next. An IntEnum, whose hash is computed in C."""

    IDLE = auto()
    """The first byte of a request."""
    HEAD = auto()
    BODY = auto()
    STOPPED = auto()
    """Nothing of use: the client broke the protocol or a limit, or sends after its last request."""
    ENDED = auto()
    """Nothing at all: the client has closed its side."""
    LINGERING = auto()
    """The client's close; until then its input is discarded, because a reset would discard its reply."""
    CLOSED = auto()


Transitions = Mapping[State, State]
"""The next state after an event, by state; in a state that is missing the event cannot happen."""

# Enum members take 0.1 µs to find in Python 3.11.
IDLE, HEAD, BODY, STOPPED, ENDED, LINGERING, CLOSED = State

READING = frozenset((IDLE, HEAD, BODY))
"""The states in which input is parsed."""

# A head that offers another protocol is parsed again without the offer.
MESSAGE_BEGINS: Transitions = {IDLE: HEAD, HEAD: HEAD}
HEAD_COMPLETE: Transitions = {HEAD: BODY}
MESSAGE_COMPLETE: Transitions = {BODY: IDLE}
READING_STOPS: Transitions = dict.fromkeys(READING, STOPPED)
CLIENT_ENDS: Transitions = {
    **dict.fromkeys((IDLE, HEAD, BODY, STOPPED), ENDED),
    ENDED: ENDED,  # asyncio reports the end again when reading resumes
    LINGERING: CLOSED,
    CLOSED: CLOSED,
}
HANG_UP: Transitions = {
    **dict.fromkeys((HEAD, BODY, STOPPED, LINGERING), LINGERING),
    **dict.fromkeys((IDLE, ENDED, CLOSED), CLOSED),
}
CLOSE: Transitions = dict.fromkeys(State, CLOSED)
