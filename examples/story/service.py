"""A streamed response: a story, sent word by word as it is generated."""

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from typing import Annotated

import msgspec

from uncork import Service, api
from uncork.adapters import Json
from uncork.outputs import Response

READ = """
Once there was a king who had a daughter . The daughter had a golden ball , and the ball fell into a well .
Once there was a frog who lived in a well , and the frog had seen the ball . The king had a cook who made a
golden soup . The frog said to the daughter : the cook has seen the ball . The daughter said to the king :
the soup was a frog . The king said to the cook : there was a ball in the soup . The cook lived in a golden
well , and the king was a frog .
"""


class StoryOptions(msgspec.Struct):
    """The body of a request: number of words, seed of the story, and seconds per word."""

    words: Annotated[int, msgspec.Meta(ge=1)] = 30
    seed: int = 0
    pause_s: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.05


class Story(Service):
    """Generate stories with a Markov chain, in place of a language model."""

    def setup(self) -> None:
        """Record which words follow each word."""
        self.follows: dict[str, list[str]] = defaultdict(list)
        words = READ.split()
        for word, after in zip(words, words[1:] + words[:1], strict=True):
            self.follows[word].append(after)

    @api(input=Json(type=StoryOptions), policy="none", timeout=600)
    def tell(self, rows: list[StoryOptions]) -> Iterator[str]:
        """Stream plain text. A stream serves one request, so there is one row."""
        [options] = rows
        for word in self.generate_words(options):
            time.sleep(options.pause_s)
            yield f"{word} "

    @api(input=Json(type=StoryOptions), policy="none", timeout=600)
    async def events(self, rows: list[StoryOptions]) -> AsyncIterator[Response | str]:
        """Stream the same story as Server-Sent Events."""
        [options] = rows
        yield Response("", content_type="text/event-stream", headers={"cache-control": "no-cache"})
        for word in self.generate_words(options):
            await asyncio.sleep(options.pause_s)
            yield f"data: {word}\n\n"

    def generate_words(self, options: StoryOptions) -> Iterator[str]:
        """Generate the words of the story."""
        chance, word = random.Random(options.seed), "Once"
        for _ in range(options.words):
            yield word
            word = chance.choice(self.follows[word])
