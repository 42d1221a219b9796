"""Images of terms on their way into a page: read, cut to what a page can hold, packed.

Shapes: S sequences, L query positions, M key positions.
"""

import base64
import json
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from poslens.errors import InputError

FILE = "terms.safetensors"
# Bytes of all images of a page: at most 7.4 MB as text, less where they can be compressed.
MOST = 5_500_000


@dataclass(frozen=True)
class Images:
    """A run's images by "layer/head/term", int8 (S or 1, L, M); times its scale each is in nats."""

    steps: dict[str, NDArray[np.int8]]
    scales: dict[str, float]
    causal: bool

    def cut(self, sequences: int, positions: int) -> "Images":
        """The first sequences, and of them the first positions."""
        cut = {key: it[:sequences, :positions, :positions] for key, it in self.steps.items()}
        return replace(self, steps=cut)

    def json(self) -> dict[str, Any]:
        """For the page's script: where each image lies in one compressed string of bytes."""
        places, at = [], 0
        for key, steps in self.steps.items():
            layer, head, term = key.split("/", 2)
            scale = float(f"{self.scales[key]:.6g}")
            places.append([int(layer), int(head), term, len(steps), scale, at])
            at += steps.size
        content = b"".join(np.ascontiguousarray(it).tobytes() for it in self.steps.values())
        return {
            "causal": self.causal,
            "shown": max(it.shape[1] for it in self.steps.values()),
            "sequences": max(len(it) for it in self.steps.values()),
            "places": places,
            "bytes": base64.b64encode(zlib.compress(content, 9)).decode(),
        }


def read_images(run: Path) -> Images:
    """A run's images. Raises InputError where the file is missing or damaged."""
    path = run / FILE
    if not path.exists():
        raise InputError(f"{path} is missing; run `poslens decompose {run}` again")
    try:
        with safe_open(path, framework="numpy") as stored:
            notes = json.loads(stored.metadata()["notes"])
            steps = {key: stored.get_tensor(key) for key in notes["scales"]}
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} is damaged ({error}); run `poslens decompose {run}` again"
        ) from error
    return Images(steps, notes["scales"], notes["causal"])


def packed(runs: list[Images], most: int = MOST) -> list[Images]:
    """The runs' images cut to `most` bytes: first to fewer sequences, then to fewer positions."""
    every = [steps for images in runs for steps in images.steps.values()]
    longest = max(steps.shape[1] for steps in every)
    for sequences in range(max(map(len, every)), 0, -1):
        size = sum(steps[:sequences].size for steps in every)
        if size <= most:
            return [images.cut(sequences, longest) for images in runs]
    return [images.cut(1, max(2, int((most / len(every)) ** 0.5))) for images in runs]
