"""Probes and subspaces of a finished run, written into its folder."""

from pathlib import Path

from threadpoolctl import threadpool_limits

from poslens.encodings.base import doors
from poslens.errors import InputError
from poslens.model import TransformerSites
from poslens.model.sites import Sites
from poslens.probing.probes import probe
from poslens.probing.streams import filler_sequences, residual_streams
from poslens.probing.subspaces import BLOCKS, PositionParts, angles, dimensions, explained
from poslens.results import write_table
from poslens.tasks import Batch
from poslens.training import RunFolder, load_model
from poslens.training.folder import make_folder

SEQUENCES = 1024  # probes are fitted on the first half of them and scored on the second
NO_TABLE = "no table: position is not added to the residual stream"

Row = dict[str, object]


def probe_run(folder: Path, sequences: int = SEQUENCES, device: str = "cpu") -> None:
    """Write where position can be read into a finished run: tables PROBES and SUBSPACES.

    On `sequences` sequences of independent fillers as long as the task's longest, the same for all
    runs of a task. Raises InputError as `prepare` does.
    """
    sites, batch = prepare(folder, sequences, device)
    table = "table" in doors(sites.model.encoding)
    # torch's own threads are the caller's to set; those of numpy's and scipy's libraries are not.
    with threadpool_limits(1, user_api="blas"):
        probes, subspaces = measure(sites, batch, table)
    write_table(folder, "probes", probes)
    write_table(folder, "subspaces", subspaces)


def prepare(
    folder: Path, sequences: int = SEQUENCES, device: str = "cpu"
) -> tuple[TransformerSites, Batch]:
    """All that can be refused before anything is computed or written.

    Raises InputError for too few sequences, and where the folder holds no trained model or a
    damaged one, cannot be written to, or is of a task without fillers or of one position alone.
    """
    if sequences < BLOCKS:
        raise InputError(
            f"{sequences} sequences are too few to fit a probe on one half and score it on the "
            f"other; use {BLOCKS} or more"
        )
    model, _, task = load_model(folder, device)
    if not RunFolder(folder).finished:
        raise InputError(f"{folder} holds no finished run; run its training again to the end")
    make_folder(folder)
    if task.max_length < 2:
        raise InputError(f"{folder}: its sequences have one position, so there is none to read")
    return TransformerSites(model), filler_sequences(task, sequences).to(device)


def measure(sites: Sites, batch: Batch, table: bool) -> tuple[list[Row], list[Row]]:
    """Rows of PROBES and of SUBSPACES for every state of a model.

    `table` says whether the model adds a table of positions to its input: without one there is no
    position subspace at the input to compare with.
    """
    probes: list[Row] = []
    subspaces: list[Row] = []
    length = batch.tokens_BL.shape[1]
    fitted = len(batch) // 2
    start, components = None, 0
    for state, x_BLE in enumerate(residual_streams(sites, batch)):
        size = {"state": state, "positions": length, "fitted": fitted}
        scored = {"sequences": len(batch) - fitted}
        probes += [{**size, **scored, **vars(score)} for score in probe(x_BLE, state)]
        share, parts = explained(x_BLE), PositionParts(x_BLE)
        if start is None:
            start, components = parts, dimensions(parts.position_LE) if table else 0
        row: Row = {**size, "sequences": len(batch), "width": x_BLE.shape[-1]}
        row |= {"share": share.share, "share_low": share.low, "share_high": share.high}
        row |= {"above_noise": parts.above_noise, "dimensions": components}
        if table:
            row |= vars(angles(parts, start, components))
            row |= {"null": components / x_BLE.shape[-1], "reason": ""}
        else:
            row |= dict.fromkeys(("mean_cos2", "low", "high", "null"), float("nan"))
            row |= {"reason": NO_TABLE}
        subspaces.append(row)
    return probes, subspaces
