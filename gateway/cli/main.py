"""The verbs that run a site or a demo, and judge a configuration: serve, demo, config.

What always holds: every command has --help with an example of what it is for, ends with a documented exit code, and shows
errors without a traceback; heavy imports happen inside the command that needs them. Source: product.md section 4.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.markup import escape
from rich.table import Table

from gateway.config.loading import load_operator_config, load_site_config
from gateway.config.model import OperatorConfig, SiteConfig
from gateway.config.reading import effective
from remote_log.dfs.hdfs.jvm import end_process
from twinlog.cli import completion
from twinlog.terminal import EXIT_CODES, ConfigOption, JsonOption, endings, out, print_json, verb
from twinlog.wire.home_paths import expanded
from twinlog.wire.json_objects import toml_table

app = typer.Typer(rich_markup_mode="rich")
endings.append(end_process)  # a process in which Java runs ends at once when its work is done
config_app = typer.Typer(
    no_args_is_help=True, help="Check a configuration, show what it comes to, or have sites read theirs again."
)
_FileOption = Annotated[
    Path, typer.Option("--config", envvar="TWINLOG_CONFIG", metavar="FILE", help="A site's TOML, or an operator's.")
]

SiteOption = Annotated[str, typer.Option(
    "--site", metavar="SITE", help="This site alone: a or b.", autocompletion=completion.sites
)]


@app.command(epilog=EXIT_CODES)
@verb
def serve(
    config: Annotated[Path, typer.Option("--config", metavar="FILE", help="The site's TOML; see `twinlog config show`.")],
) -> None:
    """Run one site until SIGINT or SIGTERM. Logs go to standard error."""
    import uvloop

    from gateway.app import serve as serve_site
    from gateway.fail_stop import guarded

    loaded = load_site_config(config)
    uvloop.run(guarded(serve_site(loaded, file=expanded(config, "--config").resolve()), f"site {loaded.site}"))


@app.command(epilog=EXIT_CODES)
@verb
def demo(
    directory: Annotated[Path, typer.Option("--dir", metavar="DIR", help="Kept: the next start resumes.")] = Path("demo"),
    port_a: Annotated[int, typer.Option("--port-a", min=1, max=65535, help="Port of site a.")] = 8401,
    port_b: Annotated[int, typer.Option("--port-b", min=1, max=65535, help="Port of site b.")] = 8402,
    dfs: Annotated[str, typer.Option("--dfs", help="Where the remote logs lie: directory, hdfs.")] = "directory",
    dfs_sync: Annotated[str, typer.Option("--dfs-sync", help="Of hdfs: hsync (on the disks), hflush.")] = "hsync",
    engine: Annotated[str, typer.Option("--engine", help="What keeps the rows: rocksdb, postgresql, sqlite.")] = "rocksdb",
    tls: Annotated[bool, typer.Option("--tls", help="TLS everywhere, with a CA of its own in DIR/certs.")] = False,
    peer_a: Annotated[int, typer.Option("--peer-port-a", min=1, max=65535, help="With --tls: where site b calls a.")] = 9401,
    peer_b: Annotated[int, typer.Option("--peer-port-b", min=1, max=65535, help="With --tls: where site a calls b.")] = 9402,
    access: Annotated[bool, typer.Option("--access", help="The sites answer only who has the token, in DIR/token.")] = False,
    no_load: Annotated[bool, typer.Option("--no-load", help="Do not load the flights.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a whole pair on this machine: two sites, real logs, a real table. Ctrl-C stops both."""
    from gateway.demo.demo import DemoPlan, run_demo

    plan = DemoPlan(
        expanded(directory, "--dir").resolve(), {"a": port_a, "b": port_b}, dfs=dfs, dfs_sync=dfs_sync, engine=engine,
        load=not no_load, peer_ports={"a": peer_a, "b": peer_b} if tls else None, access=access,
    )
    raise typer.Exit(run_demo(plan, as_json=as_json))


@config_app.command("check", epilog=EXIT_CODES)
@verb
def config_check(config: _FileOption, as_json: JsonOption = False) -> None:
    """Read a configuration, environment included, and report every fault at once, and what it leaves open."""
    from gateway.config.security import config_warnings

    loaded = _load(config)
    warnings = config_warnings(loaded)
    if as_json:
        print_json({"file": str(config), "faults": [], "warnings": warnings})
    else:
        kind = "operator's" if isinstance(loaded, OperatorConfig) else "site's"
        out().print(f"{escape(str(config))} is a sound {kind} configuration.")
        for warning in warnings:
            out().print(f"  [yellow]![/] [bold]{warning['key']}[/] {escape(warning['problem'])}")


@config_app.command("show", epilog=EXIT_CODES)
@verb
def config_show(config: _FileOption, as_json: JsonOption = False) -> None:
    """Every effective value and where it comes from; secrets are masked."""
    rows = list(effective(_load(config)))
    if as_json:
        print_json({key: {"value": value, "source": source} for key, value, source in rows})
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("key", no_wrap=True)
    table.add_column("value", overflow="fold")
    table.add_column("from", overflow="fold", style="dim")
    for key, value, source in rows:
        shown = f"{value:_}" if isinstance(value, int) and value > 99_999 else str(value)
        shown = ", ".join(value) if isinstance(value, tuple) else shown
        shown = shown or "not set"
        where = "the file" if source == str(expanded(config, "--config").resolve()) else source.removeprefix("environment ")
        table.add_row(key, escape(shown), where)
    out().print(table)


@config_app.command("reload", epilog=EXIT_CODES)
@verb
def config_reload(
    context: typer.Context, config: ConfigOption = "", site: SiteOption = "", as_json: JsonOption = False
) -> None:
    """Have sites that run read their files again: what can change meanwhile does, and the rest is named. A file with a fault
    changes nothing. Needs the grant operator."""
    from gateway.cli.configuration import reload

    reload(context, config, site, as_json=as_json)


@app.command("log-level", epilog=EXIT_CODES)
@verb
def log_level(
    context: typer.Context,
    level: Annotated[Literal["debug", "info", "warning", "error"], typer.Argument(help="The least that is logged.")],
    config: ConfigOption = "", site: SiteOption = "", as_json: JsonOption = False,
) -> None:
    """Log more or less at sites that run, until their next reload or start. Needs the grant operator."""
    from gateway.cli.configuration import set_log_level

    set_log_level(context, config, site, level, as_json=as_json)


def _load(path: Path) -> SiteConfig | OperatorConfig:
    """A site's configuration, or an operator's, which has a [sites] section and no `site`."""
    try:
        table = toml_table(expanded(path, "--config").read_bytes())
    except (OSError, ValueError):
        table = {}
    return load_operator_config(path) if "sites" in table else load_site_config(path)
