"""What pydantic says of a wrong value, in our words: the field, what it takes, what was given, what to do."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from data_contracts.errors import Problem

LONGEST_VALUE = 60
EXPECTED = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "dict_type": "fields below it",
    "finite_number": "a finite number",
    "float_parsing": "a number",
    "float_type": "a number",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "invalid_key": "a field name",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "literal_error": "{expected}",
    "model_type": "fields below it",
    "multiple_of": "a multiple of {multiple_of}",
    "string_pattern_mismatch": "text that matches {pattern}",
    "string_too_long": "at most {max_length} characters",
    "string_too_short": "at least {min_length} characters",
    "string_type": "text",
    "tuple_type": "a list",
}
"""What a value has to be, by the kind of pydantic's error; of others its own words are told."""
IN_QUOTES = "Put it in quotes."


def field_problem(model: object, subject: str, error: Mapping[str, Any]) -> Problem | str:
    """One of the errors of `ValidationError.errors()` about a value of `model`, a type."""
    where = tuple(error["loc"])
    field = f"{subject}: {'.'.join(map(str, where)) or '(whole)'}"
    about = _field_at(model, where)
    if error["type"] == "value_error":  # our own words, which name what to do
        return f"{field}: {error['msg'].removeprefix('Value error, ')}."
    if error["type"] == "extra_forbidden":
        return Problem(field, "a known field", "an unknown one", _spelling(model, where))
    described = about.description if about and about.description else ""
    if error["type"] == "missing":
        return Problem(field, "a value", "none", f"Add it. {described}".strip())
    expected = EXPECTED.get(error["type"], error["msg"]).format(**error.get("ctx", {}))
    return Problem(field, expected, _shown(error["input"]), _action(error, described))


def _action(error: Mapping[str, Any], described: str) -> str:
    quotable = error["type"] == "string_type" and isinstance(error["input"], int | float)
    return f"{IN_QUOTES if quotable else 'Correct it.'} {described}".strip()


def _shown(value: object) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}.."


def _spelling(model: object, where: Sequence[str | int]) -> str:
    """Which field may have been meant, or which there are."""
    level = _model_at(model, where[:-1])
    known = list(level.model_fields) if level else []
    alike = get_close_matches(str(where[-1]), known, n=1)
    if alike:
        return f"Did you mean {alike[0]!r}?"
    return f"Check its spelling or remove it; known here: {', '.join(known)}." if known else "Remove it."


def _field_at(model: object, where: Sequence[str | int]) -> FieldInfo | None:
    """The field that a path leads to; of an entry in a list or mapping, the field that holds them."""
    for length in range(len(where), 0, -1):
        level = _model_at(model, where[: length - 1])
        if level is not None and (field := level.model_fields.get(str(where[length - 1]))):
            return field
    return None


def _model_at(model: object, where: Sequence[str | int]) -> type[BaseModel] | None:
    """The model at a path below `model`; None where there is none."""
    level = model
    for part in where:
        level = _below(level, part)
    return _model_in(level)


def _below(annotation: object, part: str | int) -> object:
    """The type of one field of a model, or of the entries of a list or mapping."""
    model = _model_in(annotation)
    if model is not None:
        field = model.model_fields.get(str(part))
        return field.annotation if field else None
    entries = [one for one in _choices(annotation) if get_origin(one) in (dict, list, tuple)]
    return next((kind for kind in reversed(get_args(entries[0])) if kind is not ...), None) if entries else None


def _model_in(annotation: object) -> type[BaseModel] | None:
    found = (one for one in _choices(annotation) if isinstance(one, type) and get_origin(one) is None)
    return next((one for one in found if issubclass(one, BaseModel)), None)


def _choices(annotation: object) -> tuple[object, ...]:
    """What a type may be, without None in mind: `X | None` is X here."""
    if get_origin(annotation) is Annotated:
        return _choices(get_args(annotation)[0])
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
