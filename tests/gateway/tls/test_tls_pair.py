"""A pair of real processes on TLS: its clients, its two listeners, and what strangers do to them."""

from __future__ import annotations

import asyncio
import itertools
import json
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path

import pytest

from bench.pair import Pair
from gateway.tls.issuing import Issuer
from spark_jobs.audit.gateways import Gateways
from spark_jobs.audit.sites import load_pair
from tests.processes import wait_for
from twinlog import AsyncClient, Client, Patience
from twinlog.sites import Sites

pytestmark = pytest.mark.pair
TABLE = {"name": "t", "columns": [{"name": "k", "type": "int64"}, {"name": "v", "type": "string"}], "primary_key": ["k"]}
UNFINISHED = 10_000
AT_A_TIME = 2_000
HELLO_BEGINS = b"\x16\x03\x01\x02\x00\x01\x00"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with Pair(tmp_path_factory.mktemp("tls") / "pair", ("--tls",)) as made:
        made.create_table("t", {name: value for name, value in TABLE.items() if name != "name"})
        yield made


def config(pair: Pair) -> str:
    return str(pair.folder / "operator.toml")


def twinlog(pair: Pair, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "twinlog", *words, "--config", config(pair)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_every_client_reaches_the_pair_by_the_operators_file(pair: Pair) -> None:
    """The blocking client, the asynchronous one, the command line, and events."""
    with Client(config(pair)) as client:
        assert client.put("t", 1, {"v": "x"}).mode == "sync"
        assert next(client.cluster_events())["pair"] == "demo"

    async def other() -> str:
        async with AsyncClient(str(pair.note)) as client:
            return str((await client.get("t", 1)).row["v"])

    assert asyncio.run(other()) == "x"
    done = twinlog(pair, "status", "--json")
    assert (done.returncode, json.loads(done.stdout)["blockers"], json.loads(done.stdout)["notices"]) == (0, [], [])
    checked = twinlog(pair, "validate", "--json")
    assert {check["id"]: check["status"] for check in json.loads(checked.stdout)["checks"]}["listeners.guarded"] == "ok"


def test_a_load_and_an_audits_calls_reach_the_pair_too(pair: Pair, tmp_path: Path) -> None:
    """An audit by the operator's file, by the demo's and by a site's own."""
    rows = tmp_path / "rows.csv"
    rows.write_text("k,v\n1,x\n2,y\n")
    done = twinlog(pair, "load", str(rows), "--table", "loaded", "--key", "k", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["rows"] == 2
    for file in (Path(config(pair)), pair.note, pair.folder / "a" / "site.toml"):
        with closing(Gateways(load_pair(file).sites)) as gateways:
            assert gateways.active() == "a"


def test_without_the_ca_the_command_line_says_what_is_missing(pair: Pair, tmp_path: Path) -> None:
    text = Path(config(pair)).read_text().replace('ca = "certs/ca.pem"\n', "")
    (tmp_path / "operator.toml").write_text(text)
    command = [sys.executable, "-m", "twinlog", "status", "--json", "--config", str(tmp_path / "operator.toml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 4
    assert "give that CA as `ca`" in done.stdout
    (tmp_path / "operator.toml").write_text(text.replace("https://", "http://"))
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert "this port speaks TLS, and plain HTTP came: write https:// in the address" in done.stdout


def _follows(pair: Pair, site: str) -> bool:
    with closing(Sites(config(pair))) as sites:
        return sites.metrics(site)["twinlog_follows"] == 1


def test_roles_change_over_mutual_tls(pair: Pair) -> None:
    for to in ("b", "a"):
        assert wait_for(partial(_follows, pair, to))  # a switchover ends before its old active follows
        done = twinlog(pair, "switchover", "--to", to, "--yes", "--json")
        assert done.returncode == 0, done.stdout + done.stderr
    with Client(config(pair), Patience(deadline_s=60.0)) as client:
        assert client.put("t", 2, {"v": "y"}).mode == "sync"


def test_ten_thousand_connections_that_never_finish_cost_no_client_its_answer(pair: Pair) -> None:
    """From the address of the client itself, half of them silent, half with the beginning of a handshake."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, AT_A_TIME + 1000)), hard))
    done, slowest_s = threading.Event(), 0.0
    strangers = threading.Thread(target=_strangers, args=(pair, done))
    strangers.start()
    with Client(config(pair), Patience(deadline_s=60.0)) as client:
        for number in itertools.count():
            if done.is_set() and number >= 20:
                break
            began_s = time.monotonic()
            client.put("t", number, {"v": "z"})
            slowest_s = max(slowest_s, time.monotonic() - began_s)
    strangers.join()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert slowest_s < 20.0
    with closing(Sites(config(pair))) as sites:
        assert sites.metrics("a")["twinlog_serves_writes"] == 1
        assert wait_for(lambda: sites.metrics("b")["twinlog_follows"] == 1)


def _strangers(pair: Pair, done: threading.Event) -> None:
    """They stay for a while, and the site has closed most of them by then."""
    for first in range(0, UNFINISHED, AT_A_TIME):
        with ExitStack() as stack:
            for number in range(first, first + AT_A_TIME):
                stranger = stack.enter_context(socket.create_connection((pair.host, pair.port), 60))
                if number % 2:
                    with suppress(OSError):
                        stranger.sendall(HELLO_BEGINS)
    done.set()


def test_a_site_whose_certificate_is_revoked_says_so_until_it_has_a_new_one(pair: Pair) -> None:
    """The last test: a's list of revoked certificates names that of b, and b cannot follow any more."""
    issuer = Issuer(pair.folder / "certs")
    issuer.revoke(pair.folder / "certs" / "site-b.pem")

    def said() -> bool:
        return "revoked" in twinlog(pair, "status", "--json").stdout

    assert wait_for(said, 120.0)
    with closing(Sites(config(pair))) as sites:
        metrics = sites.metrics("a")
    assert metrics["twinlog_tls_handshakes_failed_total"] >= 1
    issuer = Issuer(pair.folder / "certs", replace=True)
    issuer.make_site("demo", "b", ["127.0.0.1", "localhost"], 30)
    assert wait_for(lambda: twinlog(pair, "status", "--json").returncode == 0, 120.0), "a new certificate, and all is well"
