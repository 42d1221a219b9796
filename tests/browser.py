"""A page in headless Chromium, with what it asks for and what it complains of."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = Path(os.environ.get("CHROMIUM", "/usr/bin/chromium"))
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]

needs_browser = pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no Chromium at {CHROMIUM}")


@dataclass
class Visit:
    """An open page. `others` are the addresses asked for besides its own and what it holds."""

    address: str
    tab: Any
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    @property
    def others(self) -> list[str]:
        held = ("data:", "blob:")
        return [it for it in self.requests if it != self.address and not it.startswith(held)]


@contextmanager
def visit(file: Path, width: int) -> Iterator[Visit]:
    """The page in a window so many pixels wide."""
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        tab = browser.new_page(viewport={"width": width, "height": 900})
        tab.set_default_timeout(120_000)  # the machine may be busy
        visited = Visit(file.as_uri(), tab)
        tab.on("request", lambda it: visited.requests.append(it.url))
        tab.on("console", lambda it: visited.complaints.append(it.text))
        tab.on("pageerror", lambda it: visited.complaints.append(str(it)))
        tab.goto(visited.address)
        yield visited
        browser.close()
