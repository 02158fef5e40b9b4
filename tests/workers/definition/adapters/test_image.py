"""The Image adapter."""

import gc
import io
import logging
import struct
import warnings
import weakref
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import PIL.Image
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workers.definition.adapters.raw_stage import Answered, Sent, form, merge, raw, run
from uncork_workers.definition.adapters import Image, InvalidInput

RED, BLUE = (255, 0, 0), (0, 0, 255)


def picture(width: int = 4, height: int = 2, mode: str = "RGB") -> PIL.Image.Image:
    """Return a gradient that differs in each pixel."""
    pixels = np.arange(width * height * 3, dtype=np.uint8).reshape(height, width, 3)
    return PIL.Image.fromarray(pixels).convert(mode)


def file_of(image: PIL.Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def png_that_says(width: int, height: int) -> bytes:
    """Return a small file whose header announces an image of this size."""
    header = b"IHDR" + struct.pack("!IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = b"IDAT" + zlib.compress(b"")
    chunks = (
        struct.pack("!I", len(one) - 4) + one + struct.pack("!I", zlib.crc32(one)) for one in (header, data)
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def decoded(adapter: Image, sent: Sent) -> PIL.Image.Image:
    (image,) = merge(adapter, sent)
    assert isinstance(image, PIL.Image.Image)
    return image


@pytest.mark.parametrize("kind", ["BMP", "GIF", "PNG", "TIFF"])
def test_the_handler_gets_images(kind: str) -> None:
    image = picture(mode="L")

    got = decoded(Image(mode="L"), raw(file_of(image, kind), "image/x-whatever"))

    assert got.mode == "L"
    assert np.array_equal(np.asarray(got), np.asarray(image))


@pytest.mark.parametrize("kind", ["JPEG", "WEBP"])
def test_formats_that_lose_a_little_are_taken_too(kind: str) -> None:
    got = decoded(Image(), raw(file_of(PIL.Image.new("RGB", (9, 5), RED), kind)))

    assert (got.mode, got.size) == ("RGB", (9, 5))
    assert np.abs(np.asarray(got, dtype=int) - RED).max() < 10


def test_an_image_may_be_the_part_of_a_form() -> None:
    got = decoded(Image(), form({"photo": ("me.png", file_of(picture()), "image/png")}))

    assert np.array_equal(np.asarray(got), np.asarray(picture()))
    with pytest.raises(InvalidInput, match="must have exactly one part, got 2"):
        merge(Image(), form({"a": file_of(picture()), "b": b""}))


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "F", "I"])
@pytest.mark.parametrize("sent", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
def test_images_are_converted_to_the_mode(sent: str, mode: str) -> None:
    image = PIL.Image.new(sent, (3, 2))

    got = decoded(Image(mode=mode), raw(file_of(image)))

    assert (got.mode, got.size) == (mode, (3, 2))


def test_of_16_bits_the_upper_8_are_kept() -> None:
    """Pillow alone would turn most values white."""
    values = np.array([[0, 256, 0x8000, 0xFFFF]], dtype=np.uint16)
    sent = raw(file_of(PIL.Image.fromarray(values)))

    assert np.asarray(decoded(Image(mode="L"), sent)).tolist() == [[0, 1, 128, 255]]
    assert np.asarray(decoded(Image(mode="RGB"), sent))[0, 2].tolist() == [128] * 3
    assert np.asarray(decoded(Image(mode="I"), sent)).tolist() == values.tolist()


def test_images_are_resized_so_that_they_fit_into_one_array() -> None:
    sent = [raw(file_of(picture(4, 2))), raw(file_of(picture(1, 9)))]

    assert np.stack(merge(Image(size=(6, 5)), *sent)).shape == (2, 5, 6, 3)
    assert [image.size for image in merge(Image(), *sent)] == [(4, 2), (1, 9)]


def test_images_are_turned_upright() -> None:
    image = PIL.Image.new("RGB", (2, 1), BLUE)
    image.putpixel((0, 0), RED)
    exif = PIL.Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter, clockwise

    got = decoded(Image(), raw(file_of(image, exif=exif)))

    assert got.size == (1, 2)
    assert [got.getpixel((0, y)) for y in (0, 1)] == [RED, BLUE]


@pytest.mark.usefixtures("few_pixels")
@pytest.mark.parametrize(
    ("width", "body"), [(9, b"9"), (150, b"the image has 150 x 1 pixels; the limit is 100")]
)
def test_warnings_of_pillow_are_ignored(width: int, body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are about broken metadata and large images. A filter for one batch would affect other threads."""
    seen, open_ = [], PIL.Image.open

    def watched(*arguments: Any, **options: Any) -> PIL.Image.Image:
        seen.append(warnings.filters)
        return open_(*arguments, **options)

    monkeypatch.setattr(PIL.Image, "open", watched)
    tag = struct.pack("<HHII", 0x010E, 2, 100, 10_000)  # a text past the end
    exif = b"Exif\0\0II*\0" + struct.pack("<IH", 8, 1) + tag + bytes(4)
    sent = [raw(file_of(picture(width, 1), "JPEG", exif=exif))] * 2

    _, answers = widths_by_call(Image(), sent)

    assert [answer.body for answer in answers] == [body] * 2
    assert len(seen) >= 2
    assert all(filters is warnings.filters for filters in seen)


PNG = file_of(picture(20, 20))


@pytest.mark.parametrize("kind", ["GIF", "JPEG", "PNG", "TIFF", "WEBP"])
def test_a_truncated_image_is_refused(kind: str) -> None:
    rng = np.random.default_rng(1)
    noise = PIL.Image.fromarray(rng.integers(0, 255, (40, 40, 3), dtype=np.uint8))
    data = file_of(noise, kind)
    for length in (0, 3, len(data) // 2, len(data) * 9 // 10):
        with pytest.raises(InvalidInput, match=r"^the (body|image) "):
            merge(Image(), raw(data[:length]))


@pytest.mark.parametrize(
    "data",
    [b"", b"no image", b"%PDF-1.7", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", b"<svg/>"],
)
def test_what_is_no_image_is_refused(data: bytes) -> None:
    """Also formats that Pillow reads with other programs."""
    with pytest.raises(InvalidInput, match=r"^the body is not a supported image; send BMP, GIF, JPEG, PNG,"):
        merge(Image(), raw(data, "image/png"))


@pytest.mark.parametrize("size", [(10_000, 10_000), (20_000, 20_000), (2**31 - 1, 2**31 - 1)])
def test_a_decompression_bomb_is_refused(size: tuple[int, int]) -> None:
    with pytest.raises(InvalidInput, match=r"^the image .*pixels"):
        merge(Image(), raw(png_that_says(*size)))


def test_an_api_may_take_fewer_pixels() -> None:
    assert len(merge(Image(max_pixels=400), raw(PNG))) == 1
    with pytest.raises(InvalidInput, match=r"^the image has 20 x 20 pixels; the limit is 399$"):
        merge(Image(max_pixels=399), raw(PNG))


def tiff_with_tiles(width: int, height: int) -> bytes:
    """Return a TIFF of 10 x 10 pixels whose only tile has this size."""
    data = zlib.compress(bytes(width * height))
    tags = {256: 10, 257: 10, 258: 8, 259: 8, 262: 1, 277: 1, 322: width, 323: height, 325: len(data)}
    tags[324] = 8 + 2 + 12 * 10 + 4
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, tags[tag]) for tag in sorted(tags))
    return b"II*\0" + struct.pack("<IH", 8, 10) + entries + bytes(4) + data


def test_tiles_count_as_pixels() -> None:
    """A decoder reads whole tiles, however small the image is."""
    assert decoded(Image(max_pixels=256), raw(tiff_with_tiles(16, 16))).size == (10, 10)
    with pytest.raises(InvalidInput, match=r"^the image has tiles of 16 x 32 pixels; the limit is 500$"):
        merge(Image(max_pixels=500), raw(tiff_with_tiles(16, 32)))


def tiff_with_strips(count: int, *, order: str = "<", big: bool = False) -> bytes:
    """Return a TIFF of 9 x 9 pixels that lists the place of its only strip so often."""
    lengths, head = ("HHQQ", struct.pack(order + "HHHQ", 43, 8, 0, 16)) if big else ("HHLL", b"")
    head = (b"II" if order == "<" else b"MM") + (head or struct.pack(order + "HL", 42, 8))
    tags = {256: 9, 257: 9, 258: 8, 259: 1, 262: 1, 273: 0, 277: 1, 278: 1}
    size = struct.calcsize(order + ("Q" if big else "H")) + len(tags) * struct.calcsize(order + lengths) + 8
    tags[273] = len(head) + size
    entries = [
        struct.pack(order + lengths, tag, 4, count if tag == 273 else 1, value) for tag, value in tags.items()
    ]
    ifd = struct.pack(order + ("Q" if big else "H"), len(tags)) + b"".join(entries) + bytes(8)
    return head + ifd + struct.pack(order + "L", 8) * count + bytes(200)


LAYOUTS: list[dict[str, Any]] = [{}, {"order": ">"}, {"big": True}]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_tiff_may_have_a_limited_number_of_strips(layout: dict[str, Any]) -> None:
    """Each takes two bytes, and Pillow makes several objects of it."""
    image = PIL.Image.open(io.BytesIO(tiff_with_strips(9, **layout)))
    assert len(image.tile) == 9
    assert decoded(Image(), raw(tiff_with_strips(9, **layout))).size == (9, 9)

    with pytest.raises(InvalidInput, match=r"^the tags of the image have 5000\d\d values; the limit is 4000"):
        merge(Image(), raw(tiff_with_strips(500_000, **layout)))


@pytest.mark.parametrize(
    ("kind", "start", "part"),
    [
        ("JPEG", 2, b"\xff\xe0\x00\x02"),
        ("PNG", 33, struct.pack("!I4sI", 0, b"teXt", zlib.crc32(b"teXt"))),
    ],
    ids=["JPEG", "PNG"],
)
def test_a_file_may_have_a_limited_number_of_parts(kind: str, start: int, part: bytes) -> None:
    """Segments of JPEG and chunks of PNG, which may be empty."""
    data = file_of(picture(), kind)

    def with_parts(count: int) -> bytes:
        return data[:start] + part * count + data[start:]

    assert decoded(Image(), raw(with_parts(1000))).size == (4, 2)
    with pytest.raises(InvalidInput, match=r"^the image cannot be read: it has too many parts$"):
        merge(Image(), raw(with_parts(60_000)))


def with_scans(data: bytes, count: int) -> bytes:
    """Repeat the last scan of the first image in a file until there are this many scans."""
    end = data.index(b"\xff\xd9")
    scan = data[data.rindex(b"\xff\xda", 0, end) : end]
    return data[:end] + scan * (count - data[:end].count(b"\xff\xda")) + data[end:]


@pytest.mark.parametrize("kind", ["JPEG", "MPO"])
def test_each_scan_takes_as_long_as_all_pixels_so_few_are_decoded(kind: str) -> None:
    several = {"save_all": True, "append_images": [picture()]} if kind == "MPO" else {}
    data = file_of(picture(9, 9, "L"), kind, progressive=True, **several)

    assert PIL.Image.open(io.BytesIO(data)).format == kind
    assert decoded(Image(), raw(with_scans(data, 100))).size == (9, 9)
    with pytest.raises(InvalidInput, match=r"^the image has more than 100 scans$"):
        merge(Image(), raw(with_scans(data, 101)))


@pytest.mark.parametrize("more", [b"\xff\xda" + bytes(4), file_of(picture(), "JPEG")], ids=["film", "images"])
def test_scans_of_what_follows_an_image_do_not_count(more: bytes) -> None:
    """Phones append films, in which any bytes may occur; and other images."""
    assert decoded(Image(), raw(file_of(picture(), "JPEG") + 200 * more)).size == (4, 2)


def test_a_jpeg_may_have_few_segments_of_exif_data() -> None:
    """Pillow copies all of it for each."""
    data, segment = file_of(picture(), "JPEG"), b"\xff\xe1\x00\x0aExif\0\0\0\0"
    few, many = [data[:2] + segment * count + data[2:] for count in (2, 101)]

    assert decoded(Image(), raw(few)).size == (4, 2)
    with pytest.raises(InvalidInput, match=r"^the image has more than 100 segments of EXIF data$"):
        merge(Image(), raw(many))


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_large_exif_data_are_not_written_again_to_rotate_an_image(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pillow would read and write each of their numbers; the orientation counts anyway."""
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    exif[0x927C] = bytes(70_000)
    data = file_of(picture(), kind, exif=exif)
    monkeypatch.delattr(PIL.Image.Exif, "tobytes")

    assert decoded(Image(), raw(data)).size == (2, 4)


def test_nested_tags_count() -> None:
    """Pillow also reads the tags of EXIF and GPS data."""
    nested = struct.pack("<H", 1) + struct.pack("<HHLL", 36864, 5, 10**6, 8) + bytes(4)
    tags = {256: 9, 257: 9, 258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 278: 9, 34665: 0}
    ends = 8 + 2 + 12 * len(tags) + 4
    tags[34665] = ends
    entries = b"".join([struct.pack("<HHLL", tag, 4, 1, value) for tag, value in tags.items()])
    data = struct.pack("<2sHL", b"II", 42, 8) + struct.pack("<H", len(tags)) + entries + bytes(4) + nested

    with pytest.raises(InvalidInput, match=r"^the tags of the image have 10000\d\d values"):
        merge(Image(), raw(data + bytes(8 * 10**6)))


def test_a_bmp_may_have_a_run_for_each_pixel() -> None:
    """Pillow reads each in two parts."""
    width, height = 400, 300
    runs = (b"\x01\x07" * width + b"\x00\x00") * height + b"\x00\x01"
    header = struct.pack("<LllHHLLllLL", 40, width, height, 1, 8, 1, len(runs), 0, 0, 256, 0)
    palette = bytes([value for number in range(256) for value in (number, number, number, 0)])
    start = 14 + len(header) + len(palette)
    file = struct.pack("<2sLHHL", b"BM", start + len(runs), 0, 0, start) + header + palette + runs

    assert decoded(Image(mode="L"), raw(file)).getextrema() == (7, 7)


@pytest.fixture
def few_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Pillow accept no image of more than 100 pixels."""
    monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", 100)


def widths_by_call(adapter: Image, requests: Sequence[Sent]) -> tuple[list[list[int]], list[Answered]]:
    calls: list[list[int]] = []

    def widths(images: Sequence[PIL.Image.Image]) -> list[int]:
        calls.append([image.width for image in images])
        return calls[-1]

    return calls, run(adapter, widths, requests)


@pytest.mark.parametrize(
    ("widths", "portions"),
    [
        ([100], [[100]]),
        ([60, 40], [[60, 40]]),
        ([60, 41], [[60], [41]]),
        ([100, 1, 99, 1], [[100], [1, 99], [1]]),
        ([10] * 25, [[10] * 10, [10] * 10, [10] * 5]),
    ],
)
@pytest.mark.usefixtures("few_pixels")
def test_the_images_of_one_call_have_limited_pixels(widths: list[int], portions: list[list[int]]) -> None:
    calls, answers = widths_by_call(Image(), [raw(file_of(picture(width, 1))) for width in widths])

    assert calls == portions
    assert [(answer.status, int(answer.body)) for answer in answers] == [(200, width) for width in widths]


@pytest.mark.parametrize("kind", ["BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP"])
@pytest.mark.usefixtures("few_pixels")
def test_every_format_counts_its_pixels(kind: str) -> None:
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    turned = file_of(picture(1, 60), kind, **({} if kind in ("BMP", "GIF") else {"exif": exif}))
    sent = [raw(turned), form({"photo": ("a.gif", file_of(picture(60, 1)), "image/png")}), raw(turned)]

    calls, answers = widths_by_call(Image(mode="L"), sent)

    assert [len(call) for call in calls] == [1, 1, 1]
    assert [answer.status for answer in answers] == [200] * 3


@pytest.mark.usefixtures("few_pixels")
def test_an_animation_counts_the_pixels_of_one_frame() -> None:
    frames = [PIL.Image.new("P", (50, 1), color) for color in range(5)]
    animation = file_of(frames[0], "GIF", save_all=True, append_images=frames[1:])

    calls, _ = widths_by_call(Image(), [raw(animation)] * 4)

    assert calls == [[50, 50], [50, 50]]


@pytest.mark.usefixtures("few_pixels")
def test_tiles_count_for_the_portion() -> None:
    adapter = Image()
    sent = [raw(tiff_with_tiles(4, 16))] * 2

    assert adapter.portions([one.body for one in sent], [one.meta for one in sent]) == [1, 1]


@pytest.mark.usefixtures("few_pixels")
def test_images_that_are_resized_share_a_call() -> None:
    """They are decoded one at a time, so the images as sent take no memory together."""
    calls, _ = widths_by_call(Image(size=(3, 3)), [raw(file_of(picture(60, 1)))] * 4)

    assert calls == [[3, 3, 3, 3]]


@pytest.mark.usefixtures("few_pixels")
def test_invalid_images_leave_other_portions_alone() -> None:
    widths = [60, 60, 101, 60, 60]
    requests = [raw(file_of(picture(width, 1))) for width in widths]
    requests[1] = raw(b"no image")

    calls, answers = widths_by_call(Image(), requests)

    assert [answer.status for answer in answers] == [200, 400, 400, 200, 200]
    assert calls == [[60], [60], [60]]


@pytest.mark.usefixtures("few_pixels")
def test_a_portion_that_fails_leaves_others_alone() -> None:
    calls: list[list[int]] = []

    def widths(images: Sequence[PIL.Image.Image]) -> list[int]:
        calls.append([image.width for image in images])
        if 7 in calls[-1]:
            raise ValueError("seven")
        return calls[-1]

    answers = run(Image(), widths, [raw(file_of(picture(width, 1))) for width in (95, 7, 60, 80)])

    assert [answer.status for answer in answers] == [200, 500, 200, 200]
    assert calls == [[95], [7, 60], [7], [60], [80]]


@pytest.mark.usefixtures("few_pixels")
@pytest.mark.parametrize("fails", [False, True])
def test_a_portion_is_gone_before_the_next_is_decoded(fails: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "uncork.worker")  # pytest keeps log records, with their tracebacks
    seen: list[weakref.ref[PIL.Image.Image]] = []

    def answer(images: Sequence[PIL.Image.Image]) -> Sequence[PIL.Image.Image]:
        assert [one for one in seen if one() is not None] == []
        seen.extend(map(weakref.ref, images))
        if fails:
            raise ValueError("always")
        return images

    gc.disable()
    try:
        answers = run(Image(), answer, [raw(file_of(picture(width, 1))) for width in (90, 80, 70)])
    finally:
        gc.enable()

    assert len(seen) == 3
    assert [answer.status for answer in answers] == [500 if fails else 200] * 3


@given(
    at=st.integers(0, len(PNG) - 1),
    bytes_=st.binary(max_size=4),
    kind=st.sampled_from(["PNG", "GIF", "TIFF"]),
)
def test_a_damaged_image_is_decoded_or_refused(at: int, bytes_: bytes, kind: str) -> None:
    data = file_of(picture(5, 5), kind)
    try:
        merged = merge(Image(), raw(data[:at] + bytes_ + data[at + len(bytes_) :]))
    except InvalidInput:
        return
    assert len(merged) == 1
