"""What the OpenAPI document says about the bodies and the problems of the inspection routes."""

from __future__ import annotations

from typing import Any

from data_contracts.inspection import JsonPicture, JsonPictures, ProblemDetails
from serving.frames import FRAME_FORM, FRAME_HEADER
from serving.problems import PROBLEM_TYPE

_BINARY = {"type": "string", "format": "binary"}
_FORM = {"type": "object", "required": ["image"], "properties": {"image": _BINARY}}
_FORMS = {"type": "object", "properties": {"image": {"type": "array", "items": _BINARY}}}
_ONE = "One JPEG, PNG, BMP, WebP or TIFF picture: as it is, as a file of a form, or in base64 in JSON. The content "
_TOLD = "decides, not the content type. "
_FRAME = f"Or the uint8 samples of a frame, with the header `{FRAME_HEADER}: {FRAME_FORM}`. "


def _body(description: str, form: dict[str, Any], json: dict[str, Any]) -> dict[str, Any]:
    types = {"image/*": _BINARY, "application/octet-stream": _BINARY, "multipart/form-data": form}
    content = {name: {"schema": schema} for name, schema in {**types, "application/json": json}.items()}
    return {"required": True, "description": description, "content": content}


def _schema(model: type[JsonPicture] | type[JsonPictures]) -> dict[str, Any]:
    return _inlined(model.model_json_schema())


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with its one definition in place: a body's schema has no room for definitions of its own."""
    definitions = schema.pop("$defs", {})

    def walk(node: Any) -> Any:
        if isinstance(node, dict):
            name = str(node.get("$ref", "")).rpartition("/")[2]
            return definitions[name] if name in definitions else {key: walk(value) for key, value in node.items()}
        return [walk(item) for item in node] if isinstance(node, list) else node

    inlined: dict[str, Any] = walk(schema)
    return inlined


ONE_PICTURE = _body(_ONE + _TOLD + _FRAME, _FORM, _schema(JsonPicture))
"""Request body of the route that draws."""

PICTURES = _body(
    _ONE + _TOLD + _FRAME + "A form with several files and JSON with `images` are answered by a list.",
    _FORMS,
    {"oneOf": [_schema(JsonPicture), _schema(JsonPictures)]},
)
"""Request body of the route that inspects."""

FRAME_PARAMETER = {
    "name": FRAME_HEADER,
    "in": "header",
    "required": False,
    "schema": {"type": "string"},
    "description": "The body is raw uint8 samples: rows from the top, channels of a pixel together, no padding.",
    "example": "shape=480,640,3; order=bgr",
}

_REASONS = {
    400: "No picture, or malformed JSON, base64, form or frame.",
    408: "The body did not arrive in time.",
    413: "Body, picture or number of pictures over the limit.",
    415: "Not a picture that can be read.",
    422: "A damaged picture, or one too small to show anything.",
    429: "More requests at once than can be answered; `Retry-After` says when to come back.",
    500: "The service failed; its log names the reason under the request id.",
    503: "Not ready, or the answer would come too late; `Retry-After` says when to come back.",
    504: "The deadline passed.",
}
_PROBLEM_SCHEMA = {PROBLEM_TYPE: {"schema": ProblemDetails.model_json_schema()}}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"description": reason, "content": _PROBLEM_SCHEMA} for status, reason in _REASONS.items()
}
