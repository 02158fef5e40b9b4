"""APIs of text models, for clients of OpenAI, Cohere, Jina and text-embeddings-inference.

::

    from uncork import Service
    from uncork.openai import embeddings, rerank

    class Texts(Service):
        @embeddings(mb_max_latency=300)
        def embed(self, inputs):                # texts, or lists of token ids
            return vectors, token_counts

        @rerank(mb_max_latency=300)
        def rank(self, pairs):                  # each has a query and a text
            return scores

Each text is a row, so a batch has texts of many requests, from clients of all protocols.
"""

from uncork_workers.definition.text_models import Pair, embeddings, rerank

__all__ = ["Pair", "embeddings", "rerank"]
