"""Request bodies for uncork compare and loadtest: English words in random order, the same for each number."""

import json
from random import Random

_WORDS = """
the a of in and with under over morning harbor bottle cork ship sailor engineer measures answers quickly
slowly requests together alone waiting river mountain winter yellow heavy light music letter station train
window garden question number market bread water neighbor history language science machine learns writes
ferry island noon sun
"""
WORDS = _WORDS.split()


def queries(number: int) -> bytes:
    """Return a request for the vector of a query of 2 to 8 words."""
    return _embedding(_text(Random(number), 2, 8))


def passages(number: int) -> bytes:
    """Return a request for the vector of a passage of 5 to 60 words."""
    return _embedding(_text(Random(number), 5, 60))


def rerank(number: int) -> bytes:
    """Return a request for the scores of 8 documents of 5 to 60 words."""
    chance = Random(number)
    query, documents = _text(chance, 3, 10), [_text(chance, 5, 60) for _ in range(8)]
    return json.dumps({"model": "random", "query": query, "documents": documents}).encode()


def _embedding(text: str) -> bytes:
    return json.dumps({"model": "random", "input": text}).encode()


def _text(chance: Random, least: int, most: int) -> str:
    return " ".join(chance.choices(WORDS, k=chance.randint(least, most)))
