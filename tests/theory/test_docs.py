"""The example in docs/theory.md runs."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "theory.md").read_text()


def test_the_example_runs() -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    exec(compile(example, "docs/theory.md", "exec"), {})
