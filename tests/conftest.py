"""What tests of several folders share."""

from collections.abc import Callable, Iterator

import pytest
import torch
from hypothesis import settings

from poslens.experiments import reproduce
from poslens.experiments.local import Cell, News

# The same examples every time, so that a change is judged by what it does; other examples are
# tried with --hypothesis-profile=default --hypothesis-seed=N.
settings.register_profile("same", derandomize=True)
settings.load_profile("same")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Sums do not depend on how many cores are busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Cells of a grid run in this process instead of workers; the names of those that were run."""
    done: list[str] = []

    def run_cells(
        cells: list[Cell], jobs: int, device: str, watch: Callable[[News], None] | None
    ) -> None:
        for cell in cells:
            cell.complete(device)
            done.append(cell.name)
            if watch is not None:
                watch(News(cell.name))

    monkeypatch.setattr(reproduce, "run_cells", run_cells)
    return done
