"""kustomize, built by Go from its module, once, into the cache. `python -m tests.deploy.kustomize` builds it."""

from __future__ import annotations

import sys

from chaos.servers.golang import GoProgram

VERSION = "5.7.1"
PROGRAM = GoProgram(
    "kustomize", f"sigs.k8s.io/kustomize/kustomize/v5@v{VERSION}", "kustomize", f"kustomize-{VERSION}",
    "python -m tests.deploy.kustomize",
)

if __name__ == "__main__":
    sys.stdout.write(f"kustomize: {PROGRAM.fetch()}\n")
