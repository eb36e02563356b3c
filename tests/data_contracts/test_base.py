from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from data_contracts.base import Name, canonical_json, sha256_of
from data_contracts.errors import BundleError, PasslineError, Problem, raise_if_any


def test_canonical_json_has_one_form():
    assert canonical_json({"b": 1, "a": ["é", None, 0.1]}) == '{"a":["é",null,0.1],"b":1}'.encode()
    assert canonical_json({"a": 1, "b": 2}) == canonical_json({"b": 2, "a": 1})


def test_canonical_json_refuses_what_json_cannot_say():
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical_json({"a": float("nan")})


def test_sha256_is_the_known_one():
    assert sha256_of(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@pytest.mark.parametrize("name", ["../up", "A", "", ".hidden", "a/b", "a" * 64, "a b"])
def test_names_that_are_no_file_names_are_refused(name):
    with pytest.raises(ValidationError):
        TypeAdapter(Name).validate_python(name)


def test_all_problems_are_raised_at_once():
    problems = [Problem("threads", "1 or more", "0", "Set it."), "second"]
    with pytest.raises(BundleError) as caught:
        raise_if_any(BundleError, problems)
    assert caught.value.problems == tuple(problems)
    assert str(caught.value) == "threads: expected 1 or more, got 0. Set it.\nsecond"
    assert isinstance(caught.value, PasslineError)


def test_no_problems_raise_nothing():
    raise_if_any(BundleError, [])
