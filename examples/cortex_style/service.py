"""Whole requests, as Cortex's server-side batching hands them over: payloads, queries, headers."""

from typing import Any

from uncork import Service, api
from uncork.adapters import Request, RequestBatch, Requests
from uncork.outputs import Rejected, Response


class Sentiment(Service):
    """Counts good and bad words; an adapter in two lines would do for this, but not for what you have."""

    def setup(self) -> None:
        """Know the words."""
        self.good, self.bad = {"good", "fine", "great"}, {"bad", "poor", "awful"}

    @api(input=Requests(), mb_max_batch_size=64, warmup=Request(body=b'{"text": "good wine"}'))
    def handle_post(self, requests: RequestBatch) -> list[Any]:
        """One result for each request: JSON, text, bytes, or a response with a status of its own."""
        answers: list[Any] = []
        for payload, query in zip(requests.payloads, requests.queries, strict=True):
            if not isinstance(payload, dict) or "text" not in payload:
                answers.append(Rejected(422, 'send JSON with a text, as {"text": "good wine"}'))
                continue
            words = str(payload["text"]).split()
            score = sum((word in self.good) - (word in self.bad) for word in words)
            if query.get("as") == "text":
                answers.append(f"{score:+d}\n")
            else:
                answers.append(Response({"score": score}, headers={"x-words": str(len(words))}))
        return answers
