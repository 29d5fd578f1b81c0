"""The addresses of a pair, and what is said of a file that has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from twinlog.addresses import resolve_address, resolve_tls
from twinlog.errors import ConfigError, InvalidInput

OPERATOR = 'pair = "p"\n[sites.a]\nurl = "http://x:1/"\n[sites.b]\nurl = "https://x:2"\n[monitor]\ninterval_s = 1\n'
URLS = {"a": "http://x:1", "b": "https://x:2"}


def test_each_form_of_an_address(tmp_path: Path) -> None:
    (tmp_path / "demo.json").write_text('{"sites": {"a": {"url": "http://x:1"}, "b": {"url": "https://x:2"}}}')
    (tmp_path / "operator.toml").write_text(OPERATOR)
    logical = "twinlog://p?a=http://x:1&b=https://x:2"
    for address in (str(tmp_path / "demo.json"), str(tmp_path / "operator.toml"), logical, URLS):
        assert resolve_address(address) == URLS


def test_the_environment_goes_over_an_operators_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "operator.toml").write_text(OPERATOR)
    monkeypatch.setenv("TWINLOG_SITES__B__URL", "http://y:3")
    assert resolve_address(str(tmp_path / "operator.toml")) == {"a": "http://x:1", "b": "http://y:3"}


@pytest.mark.parametrize(("text", "faults"), [
    ('pair = "a"\n', {"sites.a.url": "is missing", "sites.b.url": "is missing"}),
    ('[sites.a]\nurl = "x:1"\n[sites.b]\nurl = 7\n', {
        "sites.a.url": "is 'x:1', not an http address", "sites.b.url": "is 7, not an http address"
    }),
    ("sites = 1\n", {"sites.a.url": "is missing", "sites.b.url": "is missing"}),
])
def test_every_fault_of_an_operators_file_is_named(tmp_path: Path, text: str, faults: dict[str, str]) -> None:
    path = tmp_path / "operator.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=str(path)) as caught:
        resolve_address(str(path))
    named = caught.value.fields["faults"]
    assert isinstance(named, list)
    assert {fault["key"]: fault["problem"] for fault in named} == faults


@pytest.mark.parametrize("text", ["no toml", None])
def test_a_file_that_cannot_be_read(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "operator.toml").write_text(text)
    with pytest.raises(ConfigError, match=r"operator\.toml"):
        resolve_address(str(tmp_path / "operator.toml"))


@pytest.mark.parametrize(("address", "said"), [
    ("", "which pair"), ("twinlog://p", "no logical address"), ("twinlog://p?a=x:1", "no logical address"),
])
def test_what_is_no_address(address: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        resolve_address(address)


def test_two_addresses_are_the_sites_in_their_order() -> None:
    assert resolve_address("http://h:1/,https://i:2") == {"a": "http://h:1", "b": "https://i:2"}
    for wrong in ("http://h:1", "http://h:1,i:2", "http://h:1,http://i:2,http://j:3"):
        with pytest.raises(InvalidInput, match=r"does not name both sites: write http://HOST:PORT,http://HOST:PORT"):
            resolve_address(wrong)


def test_a_site_s_file_where_an_operator_s_is_wanted_is_named_as_that(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('pair = "p"\nsite = "a"\n')
    with pytest.raises(ConfigError, match=r"is the configuration of site a, .* here the pair is wanted"):
        resolve_address(str(tmp_path / "a.toml"))


@pytest.mark.parametrize(("text", "key", "belongs"), [
    (OPERATOR.replace("[monitor]", 'ca = "ca.pem"\n[monitor]'), "sites.b.ca", "above the first section, as ca"),
    (OPERATOR.replace('[sites.b]', 'ca = "ca.pem"\n[sites.b]'), "sites.a.ca", "above the first section, as ca"),
    (OPERATOR + 'key = "k"\n', "monitor.key", "above the first section, as key"),
    (OPERATOR.replace("[monitor]", 'token = "hush"\n[monitor]'), "sites.b.token", "above the first section, as token"),
    ('[sites]\ncertificate = "x"\n' + OPERATOR.removeprefix('pair = "p"\n'), "sites.certificate", "as certificate"),
    (OPERATOR.replace("[sites.a]", "[a]"), "a.url", "in the section [sites.a], as sites.a.url"),
    ('url = "http://x:1"\n' + OPERATOR, "url", "in the section [sites.a], as sites.a.url"),
])
def test_a_key_at_a_wrong_place_is_named_with_its_place(tmp_path: Path, text: str, key: str, belongs: str) -> None:
    path = tmp_path / "operator.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="keys of it stand at a wrong place") as caught:
        resolve_address(str(path))
    faults = {fault["key"]: fault for fault in caught.value.fields["faults"]}  # type: ignore[attr-defined]
    assert belongs in faults[key]["problem"]
    assert list(faults) == [key], "what is misplaced is not missing, too"
    section, _, name = belongs.rpartition("as ")[2].rpartition(".")
    assert faults[key]["allowed"] == (
        f"[{section}], and below it: {name} = ..." if section else f"above the first line that begins with `[`: {name} = ..."
    )
    assert "hush" not in str(faults)


def test_files_of_tls_that_are_no_paths_are_named_as_that(tmp_path: Path) -> None:
    path = tmp_path / "operator.toml"
    path.write_text("ca = 7\n" + OPERATOR)
    with pytest.raises(ConfigError, match="it names no files for TLS"):
        resolve_tls(str(path))
