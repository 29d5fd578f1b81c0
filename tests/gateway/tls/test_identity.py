"""A certificate is that of a site by its URI alone."""

from __future__ import annotations

import pytest

from gateway.tls.identity import not_the_site


def shown(*names: tuple[str, str]) -> dict[str, object]:
    return {"subject": ((("commonName", "twinlog://shop/b"),),), "subjectAltName": names}


def test_the_site_is_known_by_its_uri_among_names_of_hosts() -> None:
    assert not_the_site(shown(("DNS", "x"), ("URI", "twinlog://shop/b"), ("IP Address", "127.0.0.1")), "shop", "b") == ""


@pytest.mark.parametrize(("certificate", "said"), [
    (None, "names no site"), ({}, "names no site"), (shown(), "names no site"), (shown(("DNS", "twinlog://shop/b")), "no site"),
    (shown(("URI", "twinlog://shop/a")), "is of twinlog://shop/a, and twinlog://shop/b is wanted"),
    (shown(("URI", "twinlog://shop2/b")), "twinlog://shop2/b"), (shown(("URI", "TWINLOG://shop/b")), "TWINLOG"),
    (shown(("URI", "twinlog://shop/b/")), "twinlog://shop/b/"), (shown(("URI", "twinlog://shop/b?x")), "wanted"),
    (shown(("URI", "twinlog://shop/b"), ("URI", "twinlog://shop/a")), "twinlog://shop/b, twinlog://shop/a"),
    (shown(("URI", "twinlog://shop/b" + "x" * 5000)), "wanted"),
])
def test_what_is_not_the_site_is_named_in_few_words(certificate: dict[str, object] | None, said: str) -> None:
    found = not_the_site(certificate, "shop", "b")
    assert said in found
    assert len(found) < 400
