"""The examples in docs/toeplitz.md run."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "toeplitz.md").read_text()


def test_examples_run() -> None:
    names: dict[str, object] = {}
    examples = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert len(examples) == 2
    for example in examples:
        exec(compile(example, "docs/toeplitz.md", "exec"), names)
