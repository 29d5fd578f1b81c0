"""The reference of the command `twinlog`: each verb with its arguments and options, made from the command line itself.

What always holds: the page has what `--help` shows, as the manual pages have (tools/packaging/man_pages.py), and no other text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tools.packaging.man_pages import forms_of, has_value, notes, shown_value, without_markup
from twinlog.cli.main import all_verbs, command_of
from twinlog.cli.verbs import SERVER, VERBS
from twinlog.terminal import EXIT_CODES

_INTRODUCTION = f"""# Commands

Every verb of `twinlog`, made from the command line itself. `twinlog VERB --help` shows the same on a terminal, and `make man`
writes it as manual pages. A verb that is marked with * comes with the distribution `{SERVER}`.

{EXIT_CODES}
"""


def page() -> str:
    """Returns the page."""
    panels: dict[str, list[str]] = {}
    for name, verb in all_verbs().items():
        panels.setdefault(verb.panel, []).extend(_verb(name, command_of(name, verb), "" if name in VERBS else " *"))
    return "\n".join([_INTRODUCTION, *(line for panel, lines in panels.items() for line in (f"## {panel}\n", *lines))])


def _verb(name: str, command: Any, mark: str) -> Iterator[str]:
    yield f"### twinlog {name}{mark} {{ #{name} }}\n"
    yield f"{_text(command.help)}\n"
    forms = forms_of(command)
    if forms.pop("", None) is not None:
        yield from _called(name, command)
    for below, one in forms.items():
        yield f"#### twinlog {name} {below} {{ #{name}-{below} }}\n"
        yield f"{_text(one.help)}\n"
        yield from _called(f"{name} {below}", one)


def _called(name: str, command: Any) -> Iterator[str]:
    options = [param for param in command.params if param.param_type_name == "option"]
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    words = [shown_value(param) if param.required else f"[{shown_value(param)}]" for param in arguments]
    words += [f"{param.opts[0]} {shown_value(param)}" for param in options if param.required]
    yield f"```text\ntwinlog {' '.join([name, *(['[OPTIONS]'] if options else []), *words])}\n```\n"
    if command.params:
        yield "| option | what |\n|---|---|"
        for param in [*arguments, *options]:
            names = ", ".join(f"`{one}`" for one in [*param.opts, *param.secondary_opts])
            value = f" {_text(shown_value(param))}" if has_value(param) else ""
            shown = f"{names}{value}" if param in options else _text(shown_value(param))
            yield f"| {shown} | {_text(' '.join([param.help or '', *notes(param)]))} |"
        yield ""
    if command.epilog:
        yield f"{_text(command.epilog)}\n"


def _text(text: str) -> str:
    paragraphs = re.split(r"\n\s*\n", without_markup(text).strip())
    plain = "\n\n".join(" ".join(one.split()) for one in paragraphs)
    return plain.replace("|", r"\|").replace("<", "&lt;").replace("[", r"\[").replace("*", r"\*")
