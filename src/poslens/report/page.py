"""What all pages share: templates, files read from here, and writing in one step."""

import os
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from poslens.errors import InputError


def fill(template: str, **values: object) -> str:
    """A page's text from its template; a name the template lacks is an error."""
    environment = Environment(
        loader=PackageLoader("poslens.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**values)


def source(*names: str) -> str:
    """Style sheets or scripts that lie beside this module, one after the other."""
    return "".join((files("poslens.report") / name).read_text("utf-8") for name in names)


def write(path: Path, text: str) -> None:
    """Write a page in one step: a reader sees the old one or the new."""
    unfinished = path.with_name(path.name + ".tmp")
    unfinished.write_text(text, "utf-8")
    unfinished.replace(path)


def refuse_without_permission(folder: Path) -> None:
    """Raises InputError where nothing can be written to `folder`."""
    if not os.access(folder, os.W_OK):
        raise InputError(f"no permission to write to {folder}; copy it to a folder of yours")
