"""The reference of the Python client: which names have an entry. mkdocstrings reads their signatures and docstrings.

What always holds: the page has every name of `twinlog.__all__` but the errors, which have a page of their own.
"""

from __future__ import annotations

import inspect

import twinlog

_INTRODUCTION = """# Python client

The wheel `twinlog` ([install](../install.md#wheels)) has the client and the command. [The tutorial for app
developers](../tutorial-apps.md) uses most of what stands here, [Data API](../api.md#from-python) has the types of columns, and
[errors](errors.md) lists what a call may raise. This page is made from the docstrings of the package.
"""
_OPTIONS = "    options: {members: false, inherited_members: false}\n"  # its members are those of Client


def page() -> str:
    """Returns the page, in the words of mkdocstrings: `::: name` stands for the entry of a name."""
    entries = [_INTRODUCTION]
    for name in sorted(twinlog.__all__, key=lambda one: (one != "Client", one != "AsyncClient")):
        found = getattr(twinlog, name)
        if inspect.isclass(found):
            options = _OPTIONS if name == "AsyncClient" else ""
            entries.append(f"## {name}\n\n::: {found.__module__}.{found.__qualname__}\n{options}")
    entries.append("## Tls\n\n::: twinlog.wire.tls.Tls\n")
    return "\n".join(entries)
