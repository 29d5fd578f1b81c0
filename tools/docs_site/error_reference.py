"""The reference of errors: each class of twinlog/errors.py with its code, its status of HTTP and the fate of the write.

What always holds: the page is a function of the error tree and of the tables in gateway/api/problems.py, so it has every error.
"""

from __future__ import annotations

import inspect

from gateway.api.problems import HTTP_PROBLEMS, PROBLEMS
from twinlog import errors
from twinlog.problem_documents import TYPE_PREFIX

_INTRODUCTION = f"""# Errors

The client raises a class of `twinlog.errors`. A site answers with a problem of RFC 9457, whose `type` is `{TYPE_PREFIX}`
and the code; the client makes the class from it. `outcome` is that of a write which failed with the error: `not_applied` means
that nothing was logged; `unknown` means that the write may appear. What an operator does about each code is in
[operations](../operations.md#errors-and-what-to-do). This page is made from the code.

## All classes

```
{{tree}}
```

## Codes

| code | class | status | title | outcome of a write | fields |
|---|---|---|---|---|---|
"""


def page() -> str:
    """Returns the page."""
    tree = inspect.cleandoc(errors.__doc__ or "").split("\n\n")[1]
    lines = [_INTRODUCTION.format(tree=inspect.cleandoc("\n" + tree))]
    for kind, row in PROBLEMS.items():
        own = " ".join((kind.__doc__ or "").split()) if kind is not errors.TwinlogError else ""
        lines.append(f"| `{kind.code}` | `{kind.__name__}` | {row.status} | {row.title} | `{row.outcome}` | {own} |\n")
    lines.append("\n## Before a path is reached\n\n| code | status | what to do |\n|---|---|---|\n")
    lines += [f"| `{code}` | {status} | {what} |\n" for status, (code, what) in HTTP_PROBLEMS.items()]
    return "".join(lines)
