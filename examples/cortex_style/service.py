"""Whole requests with payload, query and headers, as in Cortex's server-side batching."""

from typing import Any

from uncork import Service, api
from uncork.adapters import Request, RequestBatch, Requests
from uncork.outputs import Rejected, Response


class Sentiment(Service):
    """Score texts by counting good and bad words."""

    def setup(self) -> None:
        """Define the words to count."""
        self.good, self.bad = {"good", "fine", "great"}, {"bad", "poor", "awful"}

    @api(input=Requests(), mb_max_batch_size=64, warmup=Request(body=b'{"text": "good wine"}'))
    def handle_post(self, requests: RequestBatch) -> list[Any]:
        """Return one result per request: JSON, plain text with `?as=text`, or 422."""
        answers: list[Any] = []
        for payload, query in zip(requests.payloads, requests.queries, strict=True):
            if not isinstance(payload, dict) or "text" not in payload:
                answers.append(Rejected(422, 'the body must be JSON like {"text": "good wine"}'))
                continue
            words = str(payload["text"]).split()
            score = sum((word in self.good) - (word in self.bad) for word in words)
            if query.get("as") == "text":
                answers.append(f"{score:+d}\n")
            else:
                answers.append(Response({"score": score}, headers={"x-words": str(len(words))}))
        return answers
