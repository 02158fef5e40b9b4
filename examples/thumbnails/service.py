"""Thumbnails: images in, smaller images out."""

from collections.abc import Sequence

from PIL import Image as Pillow
from PIL import ImageOps

from uncork import Service, api
from uncork.adapters import Image
from uncork.outputs import Image as ImageFile

SIDE = 64


class Thumbnails(Service):
    """Make square thumbnails."""

    @api(input=Image(mode="RGB"), output=[ImageFile(format="png"), ImageFile(format="jpeg")])
    def square(self, images: Sequence[Pillow.Image]) -> list[Pillow.Image]:
        """Return the center of each image, scaled to 64 by 64 pixels."""
        return [ImageOps.fit(image, (SIDE, SIDE)) for image in images]
