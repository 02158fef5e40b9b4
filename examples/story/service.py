"""Makes up a story word by word, and sends each word when it has come to mind."""

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


class Wish(msgspec.Struct):
    """What a client may say: how many words, which story, and how long a word takes in seconds."""

    words: Annotated[int, msgspec.Meta(ge=1)] = 30
    seed: int = 0
    pause_s: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.05


class Story(Service):
    """Knows which word may come after which; a language model would stand in its place."""

    def setup(self) -> None:
        """Read."""
        self.follows: dict[str, list[str]] = defaultdict(list)
        words = READ.split()
        for word, after in zip(words, words[1:] + words[:1], strict=True):
            self.follows[word].append(after)

    @api(input=Json(type=Wish), policy="none", timeout=600)
    def tell(self, wishes: list[Wish]) -> Iterator[str]:
        """Send plain text; there is always one wish."""
        [wish] = wishes
        for word in self.think(wish):
            time.sleep(wish.pause_s)
            yield f"{word} "

    @api(input=Json(type=Wish), policy="none", timeout=600)
    async def events(self, wishes: list[Wish]) -> AsyncIterator[Response | str]:
        """Send the same as Server-Sent Events, which browsers read with a few lines of script."""
        [wish] = wishes
        yield Response("", content_type="text/event-stream", headers={"cache-control": "no-cache"})
        for word in self.think(wish):
            await asyncio.sleep(wish.pause_s)
            yield f"data: {word}\n\n"

    def think(self, wish: Wish) -> Iterator[str]:
        """One word after the other."""
        chance, word = random.Random(wish.seed), "Once"
        for _ in range(wish.words):
            yield word
            word = chance.choice(self.follows[word])
