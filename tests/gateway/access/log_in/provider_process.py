"""The provider's twin as a process of its own, so that it can be killed: `python -m ... PORT KEY.pem [hold]`.

It says `ready` when it answers; with `hold` it says `held` when a code came, and never answers to that.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from tests.gateway.access.log_in import provider_twin


class _Held(threading.Event):
    def wait(self, timeout: float | None = None) -> bool:
        sys.stdout.write("held\n")
        sys.stdout.flush()
        return super().wait(timeout)


class ProviderProcess:
    """Keeps its address and its key over restarts, and forgets its codes, as a real one may."""

    def __init__(self, folder: Path, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._port, self._key = str(port), folder / "provider.pem"
        self._key.write_bytes(provider_twin.KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        self._process: subprocess.Popen[str] | None = None

    def start(self, *how: str) -> None:
        command = [sys.executable, "-m", __name__, self._port, str(self._key), *how]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
        self.await_word("ready")

    def await_word(self, word: str) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == word

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def main(port: str, key: str, how: str = "") -> None:
    loaded = load_pem_private_key(Path(key).read_bytes(), None)
    provider_twin.KEY = loaded  # type: ignore[assignment]
    with provider_twin.running_provider(int(port), hold=_Held() if how else None) as provider:
        provider.discovery = {"end_session_endpoint": f"{provider.url}/logout"}
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
