"""`poslens check`: exit codes, table, JSON and page."""

import json
from pathlib import Path

import pytest

from poslens.cli.main import main

LLAMA = "transformers.models.llama.modeling_llama:LlamaRotaryEmbedding"


def run(*arguments: str) -> int:
    """The exit code."""
    try:
        main(["check", *arguments])
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "config.json"
    sizes = {"head_dim": 64, "hidden_size": 256, "num_attention_heads": 4}
    path.write_text(json.dumps({**sizes, "rope_theta": 500_000.0, "model_type": "llama"}))
    return str(path)


def test_right(capsys: pytest.CaptureFixture[str], config: str) -> None:
    assert run(LLAMA, "--config", config, "--expect", config) == 0
    text = capsys.readouterr().out
    assert text.startswith("right  transformers.models.llama")
    assert "no scaling, base 500,000" in " ".join(text.replace("│", " ").split())


def test_wrong(capsys: pytest.CaptureFixture[str], config: str) -> None:
    assert run(LLAMA, "--head-dim", "128", "--expect", config) == 1
    text = capsys.readouterr().out
    assert text.startswith("wrong")
    assert "expected: rotated width" in " ".join(text.replace("│", " ").split())


def test_json(capsys: pytest.CaptureFixture[str], config: str) -> None:
    assert run(LLAMA, "--config", config, "--json") == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["verdict"], made["kind"]) == ("right", "rotary")
    assert made["recovered"]["base"] == pytest.approx(500_000)
    assert {finding["verdict"] for finding in made["findings"]} == {"right"}
    assert made["curves"]["error"]["x"][-1] == 1_000_000


def test_html(tmp_path: Path, config: str) -> None:
    page = tmp_path / "page.html"
    assert run(LLAMA, "--config", config, "--html", str(page)) == 0
    assert "LlamaRotaryEmbedding" in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere:f"], "nowhere cannot be imported"),
        ([LLAMA, "--head-dim", "63"], "the head width must be even"),
        ([LLAMA, "--expect", "nowhere.json"], "nowhere.json is missing"),
        ([LLAMA, "--kind", "spiral"], "spiral"),
        ([], "target"),
    ],
)
def test_what_cannot_be_judged_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert run(*arguments) == 2
    line = capsys.readouterr().err
    assert line.startswith("poslens: ")
    assert line.count("\n") == 1
    assert words in line.lower()
