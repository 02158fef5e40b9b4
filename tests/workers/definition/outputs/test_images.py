"""Results that are images or bytes."""

import io

import pytest
from PIL import Image

from uncork_workers.definition.outputs.encoding import CompleteResponse, encode, is_image
from uncork_workers.definition.outputs.responses import WrongResult

RED = Image.new("RGB", (3, 2), "red")


def opened(answer: CompleteResponse) -> Image.Image:
    assert answer.status == 200
    return Image.open(io.BytesIO(answer.body))


@pytest.mark.parametrize(
    ("accept", "media_type", "kind"),
    [
        ("", "image/png", "PNG"),
        ("application/json", "image/png", "PNG"),
        ("application/x-npy", "image/png", "PNG"),
        ("text/csv", "image/png", "PNG"),
        ("image/png", "image/png", "PNG"),
        ("image/jpeg", "image/jpeg", "JPEG"),
        ("image/webp", "image/webp", "WEBP"),
    ],
)
def test_images_are_files(accept: str, media_type: str, kind: str) -> None:
    encoded = encode([RED, Image.new("L", (1, 1))], expected=2, accept=accept)

    first, second = (encoded.responses[at] for at in (0, 1))
    assert (encoded.rows, encoded.content_type, encoded.has_rows) == ([b"", b""], "", False)
    assert first.content_type == second.content_type == media_type
    assert (opened(first).format, opened(first).size, opened(second).size) == (kind, (3, 2), (1, 1))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "I;16", "F"])
def test_images_of_any_mode_are_jpeg(mode: str) -> None:
    """JPEG has neither transparency nor palettes."""
    encoded = encode([Image.new(mode, (2, 2))], expected=1, accept="image/jpeg")

    assert opened(encoded.responses[0]).size == (2, 2)


def test_what_a_format_has_no_room_for_is_refused() -> None:
    for image in (Image.new("F", (2, 2)), Image.new("CMYK", (2, 2))):
        with pytest.raises(WrongResult, match=r"^an image cannot be written as PNG: cannot write mode "):
            encode([image], expected=1)
    for media_type in ("image/png", "image/jpeg"):
        with pytest.raises(WrongResult, match=r"^an image cannot be written as (PNG|JPEG): "):
            encode([Image.new("RGB", (0, 0))], expected=1, accept=media_type)


def test_an_image_is_known_by_its_class() -> None:
    """Opened images have subclasses; similar objects are not images."""
    file = io.BytesIO()
    RED.save(file, "GIF")

    assert is_image(Image.open(file))
    assert not any(map(is_image, (Image, Image.Image, b"", None, type("Image", (), {})())))
