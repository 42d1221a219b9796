"""How the pairs turn: from where, in which direction, by what frequencies, the same on both sides.

Shapes: P positions, F channel pairs, K steps of the ladder.
"""

import numpy as np

from poslens.certificate.evidence import Evidence
from poslens.certificate.finding import Finding
from poslens.certificate.probe import SINGLE
from poslens.certificate.recovery import LADDER, Frequencies, climb

# How far apart query and key positions are looked for.
_SHIFTS = (1, -1, 2, -2, 3, -3, 4, -4)


def turning(evidence: Evidence) -> list[Finding]:
    """Findings on origin, direction and R'(a) R'(b) = R'(a + b); sets `origin_F`, `frequencies`."""
    q_origin, k_origin = (
        np.exp(1j * np.angle(side.alpha_PF[0])) for side in (evidence.q, evidence.k)
    )
    evidence.origin_F = q_origin
    q_climb, k_climb = climb_both(evidence)
    evidence.frequencies = q_climb
    findings = [_same_speed(evidence, q_climb.theta_F, k_climb.theta_F)]
    if findings[0].verdict != "wrong":
        findings.append(_origin(evidence, q_origin, k_origin))
        findings.append(_group(evidence))
    return findings


def climb_both(evidence: Evidence) -> tuple[Frequencies, Frequencies]:
    """Frequencies of queries and keys from powers of two within the regime of short lengths."""
    ladder = [position for position in LADDER if position <= evidence.limit]
    q, k = evidence.probe.factors(evidence.q_pairs, evidence.k_pairs, [0, *ladder])
    noise = SINGLE + evidence.low
    q_climb, k_climb = (
        climb(np.exp(1j * np.angle(side.alpha_PF[1:] * side.alpha_PF[0].conj())), noise)
        for side in (q, k)
    )
    return q_climb, k_climb


def _same_speed(evidence: Evidence, q_theta: np.ndarray, k_theta: np.ndarray) -> Finding:
    reach = evidence.positions[-1]
    allowed = 2 * float(evidence.tolerance(reach)) / reach
    if np.abs(q_theta - k_theta).max() <= allowed:
        signs = np.sign(q_theta)
        if (signs == signs[0]).all():
            way = "first channel towards second" if signs[0] > 0 else "second channel towards first"
            return Finding(
                "rotary", "direction", "right" if signs[0] > 0 else "unusual",
                f"queries and keys turn the same way: {way}",
                "" if signs[0] > 0 else "Harmless in itself; weights of a model that turns the "
                "other way do not fit.",
                numbers={"sign": float(signs[0])},
            )  # fmt: skip
        return Finding(
            "rotary", "direction", "unusual",
            f"{int((signs > 0).sum())} pairs turn one way and {int((signs < 0).sum())} the other",
            "Relative all the same; no published model does this.",
        )  # fmt: skip
    meaning = "Logits depend on the sum of the positions, or on each, instead of their difference."
    if np.abs(q_theta + k_theta).max() <= allowed:
        return Finding(
            "rotary", "direction", "wrong", "keys are turned the other way than queries", meaning,
            "Turn both by the same sign of the angle; the product conjugates one of them.",
        )  # fmt: skip
    return Finding(
        "rotary", "direction", "wrong", "queries and keys turn at different frequencies", meaning,
        "Give both the same frequencies.",
        numbers={"queries": q_theta.tolist(), "keys": k_theta.tolist()},
    )  # fmt: skip


def _origin(evidence: Evidence, q_F: np.ndarray, k_F: np.ndarray) -> Finding:
    """What position 0 does: nothing, or the same turn to queries and keys."""
    theta_F, allowed = evidence.theta_F, 2 * SINGLE + evidence.low
    apart_F = np.angle(k_F * q_F.conj())
    if np.abs(apart_F).max() > allowed:
        shift = _shift(apart_F, theta_F, allowed)
        if shift is not None:
            way = "ahead of" if shift > 0 else "behind"
            what = f"key positions run {abs(shift)} {way} the queries'"
        else:
            what = "queries and keys at position 0 are turned by different angles"
        return Finding(
            "rotary", "position zero", "wrong", what,
            "Every offset is taken for another one; a query does not match its own position.",
            "Count query and key positions from the same token.",
            {"angle": float(np.abs(apart_F).max()), "shift": shift},
        )  # fmt: skip
    angle_F = np.angle(q_F)
    if np.abs(angle_F).max() <= allowed:
        return Finding("rotary", "position zero", "right", "position 0 leaves content as it is")
    if np.abs(np.abs(angle_F) - np.pi / 2).max() <= allowed:
        return Finding(
            "rotary", "position zero", "wrong",
            "position 0 turns every pair by a quarter: sine and cosine are exchanged",
            "Pairs start a quarter turn off and turn backwards: weights trained with the right "
            "order do not fit, and channels that do not turn are out of step.",
            "Multiply the content by the cosine, and the rotated content by the sine.",
        )  # fmt: skip
    shift = _shift(angle_F, theta_F, allowed)
    if shift is not None:
        return Finding(
            "rotary", "position zero", "unusual", f"the first position counts as {shift}",
            "Harmless, since queries and keys agree: only differences matter.",
            numbers={"shift": shift},
        )  # fmt: skip
    return Finding(
        "rotary", "position zero", "wrong",
        f"position 0 turns pairs, by up to {np.abs(angle_F).max():.3g} radians",
        "R(0) should be the identity up to a factor and the order of channels.",
        "Start angles at 0.", {"angles": angle_F.tolist()},
    )  # fmt: skip


def _shift(angle_F: np.ndarray, theta_F: np.ndarray, allowed: float) -> int | None:
    """The whole number of positions that turns every pair by these angles."""
    for shift in _SHIFTS:
        if np.abs(np.angle(np.exp(1j * (angle_F - shift * theta_F)))).max() <= 2 * allowed:
            return shift
    return None


def _group(evidence: Evidence) -> Finding:
    """R'(a) R'(b) = R'(a + b), on all sums within the small positions."""
    positions = evidence.positions
    sides = []
    for factors in (evidence.q, evidence.k):
        unit_PF = factors.alpha_PF / np.abs(factors.alpha_PF) / evidence.origin_F
        sides.append(dict(zip(positions, unit_PF, strict=True)))
    worst, at = 0.0, 0
    for of_side in sides:
        for a in positions:
            for b in positions:
                if a + b in of_side:
                    off = float(np.abs(of_side[a] * of_side[b] - of_side[a + b]).max())
                    worst, at = max((worst, at), (off, a + b))
    # Two of the three matrices are multiplied, and each is off by the tolerance of its position.
    allowed = 3 * float(evidence.tolerance(positions[-1]))
    numbers = {"difference": worst}
    if worst <= allowed:
        return Finding(
            "rotary", "group", "right", "turning by a and then by b turns by a + b", numbers=numbers
        )
    return Finding(
        "rotary", "group", "wrong",
        f"turning by a and then by b is not turning by a + b: off by {worst:.2g} at {at}",
        "Angles are not proportional to positions, so equal offsets look different.",
        "Make every angle a frequency times the position.", numbers,
    )  # fmt: skip
