from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import builders
from data_contracts.errors import EmptyImage, ImageTooLarge, InvalidInput
from serving.bodies import BadBody, Body, Sent, from_base64, pictures_of, read_body
from serving.frames import BadFrame, Frame
from serving.multipart import MAX_PARTS, BadForm, TooManyPictures

PICTURE = builders.encode(builders.plate())
DATA = bytes(range(256)) + b"\xfb\xef\xff"  # base64 of it has +, / and padding
PLAIN = base64.b64encode(DATA).decode()
FILE = 'name="image"; filename="a.jpg"'
MOST = 3


def taken(body: bytes, content_type: str = "", frame: str = "") -> list[Sent | InvalidInput]:
    return list(pictures_of(Body(body, content_type, frame), MOST).items)


def one(body: bytes, content_type: str = "", frame: str = "") -> Sent:
    """The one picture of a body that is no list."""
    found = pictures_of(Body(body, content_type, frame), MOST)
    assert not found.listed
    (item,) = found.items
    if isinstance(item, InvalidInput):
        raise item
    return item


def form(*parts: tuple[str, bytes], boundary: str = "edge", end: bool = True, more: str = "") -> bytes:
    body = b"".join(
        f"--{boundary}\r\nContent-Disposition: form-data; {disposition}\r\n{more}\r\n".encode() + content + b"\r\n"
        for disposition, content in parts
    )
    return body + (f"--{boundary}--\r\n".encode() if end else b"")


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        "data:image/jpeg;base64," + PLAIN,
        "DATA:;BASE64," + PLAIN,
        base64.encodebytes(DATA).decode(),
        base64.encodebytes(DATA).decode().replace("\n", "\r\n  "),
        base64.urlsafe_b64encode(DATA).decode(),
        PLAIN.rstrip("="),
        base64.urlsafe_b64encode(DATA).decode().rstrip("="),
        PLAIN + "==",
    ],
    ids=["plain", "URL", "odd URL", "wrapped", "CRLF", "URL-safe", "no padding", "URL-safe no padding", "more padding"],
)
def test_base64_in_all_its_forms(text: str) -> None:
    assert from_base64(text) == DATA
    assert one(json.dumps({"image": text}).encode()).data == DATA


@pytest.mark.parametrize(
    "text",
    ["!!!!", PLAIN[:-4] + "A", "data:image/png," + PLAIN, "data:image/png;base64", "äöü", "QUJD=QUJD"],
    ids=["no base64", "impossible length", "data URL without base64", "no comma", "no ASCII", "padding inside"],
)
def test_what_is_no_base64_is_refused(text: str) -> None:
    with pytest.raises(BadBody, match="base64"):
        from_base64(text)


# What a body is shows in its first bytes; what its sender calls it does not matter.
TYPES = [
    "", "image/jpeg", "image/jpg", "application/json", "application/json; charset=utf-8", "multipart/form-data",
    "multipart/form-data; boundary=other", "multipart/form-data; boundary=edge", "text/plain", "non sense;;;=",
    "application/x-www-form-urlencoded", "application/octet-stream",
]  # fmt: skip
BODIES = {
    "raw": PICTURE,
    "multipart": form((FILE, PICTURE)),
    "multipart after an empty line": b"\r\n" + form((FILE, PICTURE)),
    "multipart, odd boundary": form((FILE, PICTURE), boundary="----WebKitForm'()+_,./:=?x"),
    "JSON": json.dumps({"image": base64.b64encode(PICTURE).decode()}).encode(),
    "JSON with a byte order mark and spaces": b"\xef\xbb\xbf \r\n\t"
    + json.dumps({"image": "data:image/png;base64," + base64.b64encode(PICTURE).decode()}).encode(),
}


@pytest.mark.parametrize("content_type", TYPES)
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_the_content_decides_and_never_the_declared_type(body: bytes, content_type: str) -> None:
    assert one(body, content_type).data == PICTURE


@pytest.mark.parametrize("content_type", TYPES)
def test_what_is_nothing_we_know_is_left_to_the_decoder_or_refused(content_type: str) -> None:
    try:
        assert one(b"hello there", content_type).data == b"hello there"
    except (BadBody, BadForm):
        assert "json" in content_type or "multipart" in content_type


@pytest.mark.parametrize(
    ("body", "where"),
    [
        (b"{", "JSON body"),
        (b"[]", "JSON body"),
        (b'{"image": 3}', "image"),
        (b'{"picture": "QUJD"}', "'picture'"),
        (b'{"image": "QUJD", "threshold": 1}', "threshold"),
        (b'{"image": "QUJD", "images": ["QUJD"]}', "images"),
        (b"{}", "none"),
        (b'{"images": "QUJD"}', "images"),
        (b'{"images": []}', "images"),
        (b"\xff\xfe", "JSON body"),
        (b"[" * 100_000, "JSON body"),
        (b'{"images": [' + b"[]," * 1000 + b"[]]}", "very many values"),
        (b'{"image": {"shape": [1, 1, 3], "order": "rgba", "data": ""}}', "order"),
        (b'{"image": {"shape": [1], "order": "rgb", "data": "QUJD"}}', "shape"),
    ],
    ids=[
        "torn", "list", "number", "other name", "unknown field", "both", "nothing", "no list", "empty list",
        "no UTF-8", "deep", "flood", "frame: order", "frame: shape",
    ],
)  # fmt: skip
def test_malformed_json_names_the_field(body: bytes, where: str) -> None:
    with pytest.raises(BadBody, match=where):
        one(body, "application/json")


@pytest.mark.parametrize(
    "body",
    [
        form(('name="note"', b"hello"), (FILE, DATA)),
        form(('name="x"; filename=""', DATA)),
        form(("name=\"x\"; FileName*=UTF-8''a%20b.jpg", DATA)),
        form((FILE, base64.encodebytes(DATA)), more="Content-Transfer-Encoding: base64\r\n"),
        b"preamble\r\n" + form((FILE, DATA)) + b"epilogue",
    ],
    ids=["other fields", "empty file name", "extended file name", "base64", "preamble and epilogue"],
)
def test_forms_of_many_clients(body: bytes) -> None:
    assert one(body, "multipart/form-data; boundary=edge").data == DATA


def test_a_picture_without_a_file_name_is_one_by_its_content() -> None:
    assert one(form(('name="note"', b"hello"), ('name="image"', PICTURE))).data == PICTURE


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (form(('name="image"', b"no file name")), "multipart/form-data; boundary=edge"),
        (form((FILE, DATA), end=False), "multipart/form-data; boundary=edge"),
        (form((FILE, DATA))[:-60], ""),
        (b"no boundary in here", "multipart/form-data; boundary=edge"),
        (form(*[('name="x"', b"1")] * (MAX_PARTS + 1), (FILE, DATA)), ""),
    ],
    ids=["no file", "not ended", "cut off", "no boundary", "too many parts"],
)
def test_malformed_multipart_is_refused(body: bytes, content_type: str) -> None:
    with pytest.raises(BadForm, match="multipart"):
        one(body, content_type)


@pytest.mark.parametrize(
    "body",
    [b"", form((FILE, b"")), b'{"image": ""}', b'{"image": "data:;base64,"}', b'{"image": " \\n"}'],
    ids=["raw", "empty part", "empty JSON", "empty data URL", "spaces"],
)
def test_no_picture_is_said_so(body: bytes) -> None:
    with pytest.raises(EmptyImage):
        one(body)


class TestSeveral:
    def test_a_form_with_several_files_is_a_list_in_their_order(self) -> None:
        found = pictures_of(Body(form((FILE, DATA), ('name="x"', b"1"), (FILE, b""), (FILE, PICTURE))), MOST)
        assert found.listed
        first, second, third = found.items
        assert isinstance(first, Sent)
        assert first.data == DATA
        assert isinstance(second, EmptyImage)
        assert isinstance(third, Sent)
        assert third.data == PICTURE

    def test_json_images_is_a_list_also_with_one_picture(self) -> None:
        found = pictures_of(Body(json.dumps({"images": [PLAIN]}).encode()), MOST)
        assert found.listed
        assert len(found.items) == 1

    @pytest.mark.parametrize("bad", ["***", "", None, 3, [], {"shape": [2, 2], "order": "rgb", "data": "QUJD"}])
    def test_one_bad_picture_stays_alone(self, bad: object) -> None:
        first, second = taken(json.dumps({"images": [bad, PLAIN]}).encode())
        assert isinstance(first, InvalidInput)
        assert isinstance(second, Sent)
        assert second.data == DATA

    @pytest.mark.parametrize(
        "body",
        [form(*[(FILE, DATA)] * (MOST + 1)), json.dumps({"images": [PLAIN] * (MOST + 1)}).encode()],
        ids=["form", "JSON"],
    )
    def test_the_limit_is_named(self, body: bytes) -> None:
        with pytest.raises(TooManyPictures, match=f"at most {MOST}"):
            pictures_of(Body(body), MOST)

    def test_the_limit_is_inclusive(self) -> None:
        assert len(taken(form(*[(FILE, DATA)] * MOST))) == MOST


class TestFrames:
    SAMPLES = bytes(range(2 * 3 * 3))

    @pytest.mark.parametrize(
        ("line", "frame"),
        [
            ("shape=2,3,3; order=bgr", Frame((2, 3, 3), "bgr")),
            ("Shape = (2, 3, 3) ;ORDER=RGB", Frame((2, 3, 3), "rgb")),
            ("shape=6,3;order=gray", Frame((6, 3, 1), "gray")),
            ("shape=6,3,1; order=gray", Frame((6, 3, 1), "gray")),
        ],
    )
    def test_a_header_makes_the_body_a_frame(self, line: str, frame: Frame) -> None:
        sent = one(self.SAMPLES, "image/jpeg", line)
        assert (sent.data, sent.frame) == (self.SAMPLES, frame)

    @pytest.mark.parametrize(
        "line",
        [
            "640x480x3", "shape=2,3,3", "shape=2,3,3; order=rgba", "shape=2,3,4; order=rgb", "shape=2,3,1; order=bgr",
            "shape=2,3,3; order=gray", "shape=0,3,3; order=rgb", "shape=-2,3,3; order=rgb", "shape=2; order=gray",
            "shape=2,3,3,1; order=rgb", "shape=2,3,3; order=rgb; dtype=uint16", "shape=" + " " * 60_000, "\x00",
        ],
    )  # fmt: skip
    def test_a_malformed_header_is_refused(self, line: str) -> None:
        with pytest.raises(BadFrame, match="X-Passline-Frame"):
            one(self.SAMPLES, "", line)

    def test_a_form_may_hold_frames(self) -> None:
        first, second = taken(
            form(
                ('name="a"', self.SAMPLES),
                ('name="b"', self.SAMPLES),
                more="X-Passline-Frame: shape=2,3,3; order=bgr\r\n",
            )
        )
        assert isinstance(first, Sent)
        assert isinstance(second, Sent)
        assert first.frame == second.frame == Frame((2, 3, 3), "bgr")
        assert first.data == self.SAMPLES

    @pytest.mark.parametrize("shape", [[2, 3, 3], [6, 3], [6, 3, 1]])
    def test_json_may_hold_frames(self, shape: list[int]) -> None:
        order = "bgr" if shape[-1] == shape[1] == 3 and len(shape) == 3 else "gray"
        item = {"shape": shape, "order": order, "data": base64.b64encode(self.SAMPLES).decode()}
        sent = one(json.dumps({"image": item}).encode())
        assert sent.data == self.SAMPLES
        assert sent.frame == Frame.of(tuple(shape), "bgr" if order == "bgr" else "gray")


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300), st.sampled_from(TYPES), st.sampled_from(["", "shape=2,3,3; order=bgr"]))
def test_no_body_breaks_out_of_the_error_tree(body: bytes, content_type: str, frame: str) -> None:
    with suppress(InvalidInput):
        pictures_of(Body(body, content_type, frame), MOST)


@settings(max_examples=40, deadline=None)
@given(st.text(st.characters(max_codepoint=255), max_size=60))
def test_no_header_breaks_out_of_the_error_tree(text: str) -> None:
    for body in (Body(b"--e\r\n\r\n", text), Body(b"abc", "", text)):
        with suppress(InvalidInput):
            pictures_of(body, MOST)


class TestReading:
    @staticmethod
    def read(chunks: list[bytes], declared: int | None) -> tuple[bytes | Exception, int]:
        """The body, or the error, and how many chunks were taken."""
        taken = 0

        async def stream() -> AsyncIterator[bytes]:
            nonlocal taken
            for chunk in chunks:
                taken += 1
                yield chunk

        try:
            return asyncio.run(read_body(stream(), declared, 10)), taken
        except ImageTooLarge as error:
            return error, taken

    def test_within_the_limit(self) -> None:
        assert self.read([b"12345", b"67890"], 10) == (b"1234567890", 2)

    def test_an_announced_size_over_the_limit_is_refused_unread(self) -> None:
        error, taken = self.read([b"1"] * 11, 11)
        assert isinstance(error, ImageTooLarge)
        assert taken == 0

    def test_an_unannounced_one_is_refused_where_it_passes_the_limit(self) -> None:
        error, taken = self.read([b"12345"] * 100, None)
        assert isinstance(error, ImageTooLarge)
        assert taken == 3
