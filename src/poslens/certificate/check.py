"""The one entry: a target in, a certificate out."""

from typing import Any

import torch

from poslens.certificate.bias import judge_bias
from poslens.certificate.bias_expected import expected_bias
from poslens.certificate.calls import CallError, refusal
from poslens.certificate.configs import expected_rotary, read_config
from poslens.certificate.expect import compare, settle
from poslens.certificate.finding import Certificate, Finding
from poslens.certificate.precision import DTYPES
from poslens.certificate.rotary import judge_rotary
from poslens.certificate.table import judge_table
from poslens.certificate.targets import Kind, Options, Target, resolve
from poslens.certificate.text import as_text

Judgement = tuple[list[Finding], dict[str, Any], dict[str, Any]]


def check(
    target: Any,
    *,
    kind: Kind | None = None,
    head_dim: int | None = None,
    heads: int | None = None,
    config: Any = None,
    expect: Any = None,
    length: int | None = None,
    causal: bool | None = None,
    layer_type: str | None = None,
    dtypes: tuple[torch.dtype, ...] = DTYPES,
    device: str = "cpu",
) -> Certificate:
    """Judges positional-encoding code by what it does.

    `target` is `package.module:name`, or an object: a rotary function (q, k, positions) -> (q, k),
    (x, positions) -> x or (q, k, v, positions) -> (q, k, v), q of shape (batch, heads, length, head
    width); a pair of a cos/sin maker and the function that applies it; a bias (query_len, key_len)
    -> (heads, L, M); a table (length, width); an attention module; or a ready-made module of
    `transformers`, `x-transformers` or `rotary-embedding-torch`. `kind`, `head_dim` and `heads` are
    found out where not given. `config` is what a class is built from; `expect` is a
    transformers-style configuration that the constants found are compared with, for `layer_type`
    where it differs between layers. `length` is the trained length, `causal` whether the model
    masks keys after the query, `dtypes` the precisions of queries to measure errors in.

    Raises InputError, with the reason in one line, where it cannot be judged at all.
    """
    options = Options(kind, head_dim, heads, config, layer_type, device)
    found = resolve(target, options)
    if found.kind == "bias":
        wanted = expected_bias(read_config(expect)) if expect is not None else None
        judged = judge_bias(found.subject, found.heads or heads, causal, wanted)
    elif found.kind == "table":
        judged = judge_table(found.subject, _expected_table(expect, length))
    elif callable(found.subject) and not hasattr(found.subject, "head_dim"):
        from poslens.certificate.attention import judge_outputs

        judged = judge_outputs(found.subject, found.name, head_dim, device)
        if expect is not None:
            judged[0].append(_not_comparable())
    else:
        judged = _rotary(found, expect, length, layer_type, dtypes)
    findings, recovered, curves = judged
    return Certificate(found.name, found.kind, tuple(findings), recovered, curves)


def certify(target: Any, **options: Any) -> Certificate:
    """`check` for test suites: the certificate, or an AssertionError with its findings as text.

    Right and right but unusual pass. Raises InputError where the target cannot be judged at all.
    """
    certificate = check(target, **options)
    if certificate.exit_code:
        raise AssertionError(as_text(certificate))
    return certificate


def _rotary(
    target: Target,
    expect: Any,
    length: int | None,
    layer_type: str | None,
    dtypes: tuple[torch.dtype, ...],
) -> Judgement:
    rotary = target.subject
    expected = None
    if expect is not None:
        expected = expected_rotary(expect, layer_type, rotary.head_dim)
    elif length is None and target.config is not None:
        length = getattr(target.config, "max_position_embeddings", None)
    if expected is not None and length is None:
        length = expected.length
    try:
        findings, recovered, curves = judge_rotary(rotary, length, dtypes)
    except CallError as error:  # at some positions or lengths, though not at the first ones
        raise refusal(target.name, str(error)) from error
    if expected is not None:
        compared = compare(recovered, expected)
        findings = settle(findings, compared) + compared
    return findings, recovered, curves


def _not_comparable() -> Finding:
    return Finding(
        "expected", "frequencies", "undecidable",
        "outputs alone do not tell the constants that the configuration asks for",
        "What a softmax passes on cannot be undone.",
        "Hand over the rotary function or bias alone.",
    )  # fmt: skip


def _expected_table(expect: Any, length: int | None) -> dict[str, Any]:
    """Length and width that a configuration says a table has."""
    values = read_config(expect) if expect is not None else {}
    names = {
        "length": ("max_position_embeddings", "n_positions", "max_source_positions"),
        "width": ("hidden_size", "d_model", "n_embd"),
    }
    found = {
        wanted: next((values[name] for name in given if values.get(name)), None)
        for wanted, given in names.items()
    }
    found["length"] = found["length"] or length
    return {name: value for name, value in found.items() if value}
