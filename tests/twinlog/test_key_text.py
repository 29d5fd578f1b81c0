"""The text form of a key: whatever a client or proxy does to a path, a key stays the key that it was."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from twinlog.errors import InvalidInput
from twinlog.key_text import check_not_folded, part_from_path, part_to_path

TRICKY = ("", ".", "..", "...", "/", "//", "/a", "a/", "a/b", "a/../b", "a/./b", "\\", "..\\..", "%2e", "%2e%2e", "%", "=",
          "=Li4", ",", "a,b", "\0", "\n", "\x7f", " ", "+", "~", ";", "?", "#", ":check", "a:check", "ä", "\U0001f600")
TEXTS = st.one_of(
    st.sampled_from(TRICKY), st.text(max_size=20), st.text("./\\%2eE=,:\0", max_size=12),
)


def folded(path: str) -> str:
    """The path as the most zealous proxy makes it: decoded until nothing changes, slashes merged, dot segments taken away."""
    while (decoded := unquote(path)) != path:
        path = decoded
    parts: list[str] = []
    for part in re.split(r"[/\\]+", path):
        if part == "..":
            parts = parts[:-1]
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


@given(text=TEXTS)
def test_a_part_comes_back(text: str) -> None:
    written = part_to_path(text)
    assert part_from_path(written) == text
    assert not {",", "/"} & set(written), "one part of one segment"


@given(texts=st.lists(TEXTS, min_size=1, max_size=3))
@example(texts=[".."])
@example(texts=["a/../.."])
@example(texts=["%2e%2e"])
def test_nobody_folds_a_key_away(texts: list[str]) -> None:
    path = "/v1/tables/t/rows/" + ",".join(map(part_to_path, texts))
    shown = folded(path)
    assert shown.startswith("/v1/tables/t/rows/")
    assert len(shown.split("/")) == len(re.split(r"[/\\]", unquote(path))), "no segment went"
    assert httpx.URL("http://h" + path).raw_path.decode() == path, "httpx sends it as it is"


@given(text=TEXTS)
def test_a_key_that_is_only_percent_encoded_reads_too(text: str) -> None:
    assert part_from_path(quote(text, safe="")) == text


@pytest.mark.parametrize("written", ["=Li4=", "=Li", "=!", "=_w", "=TGk0C"])
def test_a_bare_mark_without_a_text_behind_it_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="%3D"):
        part_from_path(written)


def test_what_is_no_unicode_is_no_key() -> None:
    with pytest.raises(InvalidInput, match="no valid Unicode"):
        part_to_path("\ud800")


@pytest.mark.parametrize("path", [".", "..", "%2e", "%2E%2e", ".%2E"])
def test_a_bare_dot_segment_is_refused_with_the_way_to_write_it(path: str) -> None:
    with pytest.raises(InvalidInput, match=r"=L"):
        check_not_folded(path)


@pytest.mark.parametrize("path", ["a/../b", "../a", "a/%2e%2E", "./a", "a//b", "/a", "a/", "/", "//", "a\\..\\b", "x/../..,b"])
def test_a_step_between_the_slashes_of_a_key_is_refused_with_a_way_that_passes(path: str) -> None:
    """A proxy would make another row's key of it, and nobody would notice."""
    with pytest.raises(InvalidInput, match=r"=") as refused:
        check_not_folded(path)
    written = refused.value.fields["write"]
    check_not_folded(written)
    assert ",".join(map(part_from_path, written.split(","))) == unquote(path)


@pytest.mark.parametrize("path", ["...", ".a", "%2ea", "a", "", "=Li4", "%2C", ".,.", "a/b", "a/..."])
def test_other_keys_pass(path: str) -> None:
    check_not_folded(path)
