"""`prompts`: commands that show the templates in use, check a folder of templates, and read it again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent.cli import tables
from agent.cli.app import app
from agent.errors import UsageError

if TYPE_CHECKING:
    from agent.cli.config_and_output import CliState
    from agent.prompts.loader import TemplateLoader
    from agent.prompts.revision import TemplateRevision

prompts = typer.Typer(
    help="Templates of the texts that go to models and people: show, check, reload.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(prompts, name="prompts")


def _loader(state: CliState, *, stores: bool = False) -> TemplateLoader:
    from agent.prompts.loader import TemplateLoader

    return TemplateLoader(state.settings if stores else state.settings_to_inspect, stores=stores)


def _folder_of(state: CliState) -> None:
    """Raise UsageError if neither prompts.folder nor prompts.url is set."""
    if not state.settings_to_inspect.prompts.is_set:
        raise UsageError("neither prompts.folder nor prompts.url is set: only the program's own templates are in use")


def _revisions(loader: TemplateLoader) -> dict[str, TemplateRevision]:
    from agent import prompts as program

    loader.refresh()
    replaced = loader.current.revisions if loader.current is not None else {}
    return {name: loader.load(name) for name in sorted({*program.program_templates(), *replaced})}


def _revision_json(loader: TemplateLoader, one: TemplateRevision) -> dict[str, Any]:
    is_own = loader.current is None or one.name not in loader.current.revisions
    return {
        "name": one.name,
        "origin": "program" if is_own else loader.source,
        "version": one.version,
        "sha256": one.sha256,
        "schema_ref": one.schema_ref,
        "ttl_seconds": one.ttl_seconds,
        "variables": dict(one.variables),
        "loaded_at": one.loaded_at,
    }


@prompts.command("list")
def list_templates(context: typer.Context) -> int:
    """List every template with its version and origin, as the next task would use them."""
    state: CliState = context.obj
    loader = _loader(state)
    rows = [_revision_json(loader, one) for one in _revisions(loader).values()]
    state.print_json({"source": loader.source, "error": loader.error, "templates": rows})
    tables.show(
        state, ("template", "version", "origin"), [(one["name"], one["version"], one["origin"]) for one in rows]
    )
    if loader.error:
        state.print_line()
        state.print_line(f"The newest state of the folder is not in use: {loader.error}")
    return 0


@prompts.command()
def show(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of a template, as `prompts list` shows it.")],
    packaged: Annotated[
        bool, typer.Option("--packaged", help="The program's own template, also where it is replaced.")
    ] = False,
) -> int:
    """Print a template, so that a person can copy it into the folder and change it there."""
    from agent.prompts.loader import packaged as own

    state: CliState = context.obj
    loader = _loader(state)
    one = own(name) if packaged else loader.load(name)
    state.print_json(_revision_json(loader, one) | {"template": one.template})
    for line in one.template.splitlines():
        if not state.print_line(line):
            break
    return 0


@prompts.command()
def check(context: typer.Context) -> int:
    """Check the templates of the folder, or the downloaded ones, as the program does before it uses them; the check
    changes nothing."""
    from agent.prompts.revision import TemplateRefused
    from agent.prompts.template_files import others

    state: CliState = context.obj
    _folder_of(state)
    loader = _loader(state)
    loader.refresh(force=True)
    if loader.error:
        raise TemplateRefused(loader.error)
    assert loader.current is not None, "there is no error"
    ignored = others(loader.folder) if loader.folder is not None else []
    names = sorted(loader.current.revisions)
    found = {"ok": True, "sha256": loader.current.sha256, "templates": names, "not_read": ignored}
    state.print_json(found)
    state.print_line(f"{len(names)} template(s) are good: {', '.join(names)}" if names else "no template to check")
    if ignored:
        state.print_line(f"not read, since the name is not that of a template: {', '.join(ignored)}")
    return 0


@prompts.command()
def reload(context: typer.Context) -> int:
    """Read the templates again now, from the folder or the address; a running daemon and the next task use the
    result."""
    from agent.prompts.revision import TemplateRefused

    state: CliState = context.obj
    _folder_of(state)
    loader = _loader(state, stores=True)
    loader.download()
    loader.refresh(force=True)
    if loader.error:
        raise TemplateRefused(f"{loader.error}; what was in use stays in use")
    assert loader.current is not None, "there is no error"
    names = sorted(loader.current.revisions)
    state.print_json({"ok": True, "sha256": loader.current.sha256, "templates": names})
    state.print_line(f"{len(names)} template(s) are in use: {', '.join(names) or 'none'}")
    return 0
