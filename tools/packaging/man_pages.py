"""`make man`: the manual pages of the command, twinlog.1 and one for each verb, made from the command line itself.

What always holds: a page is made of what `--help` shows, so it has every option, argument and exit code, and no other text;
the same command line and date give the same bytes. Source: man-pages(7) for the sections, groff_man(7) for the macros.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from twinlog.cli.main import all_verbs, command_of, make_app
from twinlog.cli.verbs import SERVER, VERBS

_MARKUP = re.compile(r"\[/?(?:bold|dim|italic)?\]")  # Rich's, in the help of the command itself
_CODE = re.compile(r"`([^`]+)`")
_WITHOUT_VALUE = ("boolean", "bool")
_SHOWN_TYPES = {"integer": "N", "int": "N", "float": "X", "path": "PATH"}


def page_of(name: str, date: str) -> str:
    """Returns the page of one verb; of a group, with a section for each of its commands. `date` is one such as 2026-11-24."""
    verb = all_verbs()[name]
    command = command_of(name, verb)
    lines = [_head(f"twinlog-{name}", date), *_named(f"twinlog-{name}", verb.help)]
    forms = forms_of(command)
    lines += [".SH SYNOPSIS"]
    for below, one in forms.items():
        lines += [*_synopsis(f"{name} {below}".strip(), one), ".br"]
    lines[-1:] = [".SH DESCRIPTION", *_paragraphs(command.help or verb.help)]
    if forms.pop("", None) is not None:
        lines += _params(command.params, ".SH ARGUMENTS", ".SH OPTIONS")
        if command.epilog:
            lines += [".SH EXIT STATUS", _text(command.epilog)]
    if forms:
        lines.append(".SH COMMANDS")
        for below, one in forms.items():
            lines += [f".SS twinlog {_text(name)} {_text(below)}", *_paragraphs(one.help), *_params(one.params)]
            lines += [".PP", _text(one.epilog or "")]
    return "\n".join([*lines, ".SH SEE ALSO", ".BR twinlog (1)"]) + "\n"


def forms_of(command: Any) -> dict[str, Any]:
    """Returns the ways to call a verb: its commands by their names, and as "" the verb itself where it works without one."""
    commands: dict[str, Any] = getattr(command, "commands", {})
    alone = {"": command} if not commands or command.invoke_without_command else {}
    return {**alone, **commands}


def root_page(date: str) -> str:
    """Returns twinlog.1: every verb of both distributions, by headings as `twinlog --help` has them."""
    app: Any = _click(make_app())
    summary, _, rest = (app.help or "").partition("\n\n")
    lines = [_head("twinlog", date), *_named("twinlog", summary)]
    lines += [".SH SYNOPSIS", ".B twinlog", r"\fIVERB\fR [\fIOPTIONS\fR] ..."]
    lines += [".SH DESCRIPTION", *_paragraphs(summary), ".PP", _text(rest)]
    lines += [".PP", f"A verb that is marked with * comes with the distribution {_text(SERVER)}."]
    lines.append(".SH VERBS")
    panels: dict[str, list[str]] = {}
    for name, verb in all_verbs().items():
        mark = "(1)" if name in VERBS else '"(1) *"'
        panels.setdefault(verb.panel, []).extend([".TP", rf".BR twinlog\-{_text(name)} {mark}", _text(verb.help)])
    for panel, entries in panels.items():
        lines += [f".SS {_text(panel)}", *entries]
    lines += [*_params(app.params, "", ".SH OPTIONS"), ".SH EXIT STATUS", _text(app.epilog or "")]
    return "\n".join(lines) + "\n"


def pages(date: str) -> dict[str, str]:
    """Returns file name -> page, for every verb that is installed, and for the command itself."""
    return {"twinlog.1": root_page(date), **{f"twinlog-{name}.1": page_of(name, date) for name in all_verbs()}}


def _click(app: Any) -> Any:
    import typer

    return typer.main.get_command(app)


def _head(name: str, date: str) -> str:
    return f'.TH "{name.upper()}" "1" "{date}" "twinlog" "Manual of twinlog"'.replace("-", r"\-", name.count("-"))


def _named(name: str, summary: str) -> list[str]:
    """Returns the section from which whatis(1) and apropos(1) take their line: one sentence, without its full stop."""
    first = re.split(r"(?<=[a-z])[.:](?:\s|$)", summary, maxsplit=1)[0].rstrip(".")
    return [".SH NAME", rf"{_text(name)} \- {_text(first)}"]


def _synopsis(called: str, command: Any) -> Iterator[str]:
    yield rf".B twinlog {_text(called)}"
    parts = [r"[\fIOPTIONS\fR]"] if any(param.param_type_name == "option" for param in command.params) else []
    for param in command.params:
        if param.param_type_name == "argument":
            shown = rf"\fI{_text(shown_value(param))}\fR"
            parts.append(shown if param.required else f"[{shown}]")
        elif param.required:
            parts.append(rf"\fB{_text(param.opts[0])}\fR \fI{_text(shown_value(param))}\fR")
    if parts:
        yield " ".join(parts)


def _params(params: list[Any], arguments: str = "", options: str = "") -> Iterator[str]:
    """Yields an entry for each parameter, arguments first, below these headings where there are any."""
    for kind, heading in (("argument", arguments), ("option", options)):
        of_kind = [param for param in params if param.param_type_name == kind]
        if of_kind and heading:
            yield heading
        for param in of_kind:
            yield ".TP"
            yield ", ".join(rf"\fB{_text(opt)}\fR" for opt in [*param.opts, *param.secondary_opts]) + (
                rf" \fI{_text(shown_value(param))}\fR" if has_value(param) else ""
            ) if kind == "option" else rf"\fI{_text(shown_value(param))}\fR"
            yield _text(" ".join([param.help or "", *notes(param)]).strip()) or r"\&"


def notes(param: Any) -> Iterator[str]:
    """Yields what a page adds to the help of a parameter: its choices, its default, its variable of the environment."""
    if param.required:
        yield "Required."
    if getattr(param, "multiple", False) and "repeated" not in (param.help or ""):
        yield "May be given several times."
    choices = getattr(param.type, "choices", None)
    if choices:
        yield f"One of {', '.join(str(getattr(one, 'value', one)) for one in choices)}."
    if param.show_default and has_value(param) and param.default not in (None, "", False) and not param.required:
        yield f"Default: {param.default}."
    if param.envvar:
        yield f"Environment: {param.envvar}."


def has_value(param: Any) -> bool:
    """Returns whether a value stands behind the option."""
    return not (getattr(param, "is_flag", False) or param.type.name in _WITHOUT_VALUE)


def shown_value(param: Any) -> str:
    """Returns the word that stands for the value of a parameter."""
    if param.metavar:
        return str(param.metavar)
    if param.param_type_name == "argument":
        return str(param.name).upper() + ("..." if param.nargs == -1 else "")
    return _SHOWN_TYPES.get(param.type.name.removesuffix(" range"), "TEXT")


def _paragraphs(text: str) -> Iterator[str]:
    for number, paragraph in enumerate(re.split(r"\n\s*\n", text.strip())):
        if number:
            yield ".PP"
        yield _text(paragraph)


def _text(text: str) -> str:
    """Returns text in which roff sees nothing of its own, with what stands in backticks set bold."""
    plain = " ".join(without_markup(text).split())
    escaped = plain.replace("\\", r"\e").replace("-", r"\-").replace("'", r"\(aq").replace("^", r"\(ha").replace("~", r"\(ti")
    escaped = _CODE.sub(r"\\fB\1\\fR", escaped)
    return rf"\&{escaped}" if escaped.startswith(".") else escaped


def without_markup(text: str) -> str:
    """Returns a help text without what is for Rich alone: its tags, and the backslash before a bracket that is none."""
    return _MARKUP.sub("", text).replace(r"\[", "[")


def write(folder: Path, date: str, names: set[str] | None = None) -> None:
    """Writes the pages into `folder`, which is made: all, or those of these verbs; twinlog.1 belongs to the verb ''."""
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in pages(date).items():
        if names is None or file.removesuffix(".1").removeprefix("twinlog").removeprefix("-") in names:
            (folder / file).write_text(text, encoding="utf-8")


def main(given: list[str]) -> int:
    """`python -m tools.packaging.man_pages FOLDER DATE`"""
    if len(given) != 2:
        sys.stderr.write("usage: python -m tools.packaging.man_pages FOLDER DATE\n")
        return 2
    write(Path(given[0]), given[1])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
