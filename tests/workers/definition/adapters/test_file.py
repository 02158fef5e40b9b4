"""The File adapter: complete bodies and parts of forms."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workers.definition.adapters.raw_stage import Sent, form, merge, raw
from uncork_workers.definition.adapters import File, InvalidInput, UploadedFile

NAMES = st.text(alphabet=st.characters(categories=["L", "N"], include_characters=" ._-"), min_size=1)


def files(data: bytes = b"data", filename: str = "name.bin") -> dict[str, tuple[str, bytes, str]]:
    return {"any name": (filename, data, "application/x-thing")}


PAIR = File(parts=("image", "mask"))
WHOLE = form(files())
BOUNDARY = WHOLE.meta.content_type
NAMELESS = b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\nx\r\n--b--\r\n'


@pytest.mark.parametrize(
    ("sent", "data", "filename", "content_type"),
    [
        (raw(b"\0\xff", "image/png; a=b"), b"\0\xff", "", "image/png; a=b"),
        (WHOLE, b"data", "name.bin", "application/x-thing"),
        (raw(NAMELESS, 'multipart/form-data; boundary="b"'), b"x", "", "text/plain"),
    ],
    ids=["body", "form", "part without a type, as RFC 7578 specifies"],
)
def test_a_file_is_the_whole_body_or_the_only_part_of_a_form(
    sent: Sent, data: bytes, filename: str, content_type: str
) -> None:
    assert merge(File(), sent) == [UploadedFile(data=data, filename=filename, content_type=content_type)]


@given(contents=st.lists(st.tuples(st.binary(), NAMES, st.booleans()), max_size=5))
def test_merging_is_the_same_as_reading_each_alone(contents: list[tuple[bytes, str, bool]]) -> None:
    requests = [form(files(data, name)) if as_form else raw(data) for data, name, as_form in contents]

    merged = merge(File(), *requests)

    assert merged == [file for request in requests for file in merge(File(), request)]
    assert [file.data for file in merged] == [data for data, _, _ in contents]
    assert [file.filename for file in merged] == [name if as_form else "" for _, name, as_form in contents]


@given(pairs=st.lists(st.tuples(st.binary(), st.binary()), max_size=4))
def test_named_parts_are_dicts(pairs: list[tuple[bytes, bytes]]) -> None:
    requests = [form({"mask": second, "image": first}) for first, second in pairs]

    merged = merge(PAIR, *requests)

    assert merged == [one for request in requests for one in merge(PAIR, request)]
    assert [(one["image"].data, one["mask"].data) for one in merged] == pairs
    assert all(set(one) == {"image", "mask"} for one in merged)


@given(body=st.binary(max_size=40), boundary=st.sampled_from(["b", '"a b"', "", "\xff", "b; boundary=c"]))
def test_any_bytes_are_read_or_refused(body: bytes, boundary: str) -> None:
    for text in (body, b"--b\r\n" + body + b"\r\n--b--"):
        try:
            merged = merge(File(), raw(text, f"multipart/form-data; boundary={boundary}"))
        except InvalidInput:
            continue
        assert len(merged) == 1


def test_a_form_of_endless_parts_is_refused() -> None:
    many = b"".join(b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n\r\n' for _ in range(1001))

    with pytest.raises(InvalidInput, match="segment count"):
        merge(File(), raw(many + b"--b--\r\n", "multipart/form-data; boundary=b"))


def test_large_files_are_refused() -> None:
    limited = File(max_bytes=3)
    pair = File(parts=["image", "mask"], max_bytes=3)

    assert merge(limited, raw(b"123"))[0].data == b"123"
    assert len(merge(pair, form({"image": b"123", "mask": b"123"}))[0]) == 2
    with pytest.raises(InvalidInput, match=r"^the file has 4 bytes; the limit is 3$"):
        merge(limited, raw(b"1234"))
    with pytest.raises(InvalidInput, match=r"^the file has 4 bytes; the limit is 3$"):
        merge(limited, form(files(b"1234")))
    with pytest.raises(InvalidInput, match=r"^the part 'mask' has 4 bytes; the limit is 3$"):
        merge(pair, form({"image": b"1", "mask": b"1234"}))


def test_the_schema_names_the_parts() -> None:
    schema = PAIR.schema()

    assert list(schema["properties"]) == schema["required"] == ["image", "mask"]
    assert File().schema()["type"] == "string"
