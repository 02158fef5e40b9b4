from typing import Any

from uncork import Service, api
from uncork.adapters import Image


class Pictures(Service):
    @api(input=Image(mode="L"))
    def widths(self, images: list[Any]) -> list[int]:
        return [image.width for image in images]
