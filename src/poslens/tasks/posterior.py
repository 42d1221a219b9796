"""What a sequence with published fillers says about the distance, when the generator is known.

Shapes: B batch, L positions, I places of the first trigger word, J of the second, C classes.
"""

import torch
from torch import Tensor

from poslens.tasks.base import Batch


def distance_posterior(
    batch: Batch,
    *,
    triggers: tuple[int, int],
    between: int,
    aside: int,
    cut: int | None,
    words: int,
) -> Tensor:
    """Probability of each class given the whole sequence, (B, C), float64.

    Any place i of the first and j > i of the second trigger word may be the true pair. With l
    words before, m between and r after, the generator makes the sequence with probability
    proportional to 1 / ([V]_l [V]_m [V]_r), [V]_n = V (V-1) ... (V-n+1), since each segment is
    drawn without replacement from V words; 0 if a segment repeats a word or has an impossible
    length. Of a cut sequence only the start of the last segment is seen: its weight is that of
    the seen words, times the number of full lengths the segment may have had.

    A row that the generator cannot make gives NaN.
    """
    first_BI, is_first_BI = _occurrences(batch.tokens_BL, triggers[0])
    second_BJ, is_second_BJ = _occurrences(batch.tokens_BL, triggers[1])
    i_BIJ, j_BIJ = torch.broadcast_tensors(first_BI[:, :, None], second_BJ[:, None, :])
    lengths_B11 = batch.lengths_B[:, None, None]

    l_BIJ = i_BIJ
    m_BIJ = j_BIJ - i_BIJ - 1
    r_BIJ = lengths_B11 - j_BIJ - 1
    full_lengths_BIJ = ((r_BIJ >= 1) & (r_BIJ <= aside)).long()
    if cut is not None:
        at_least = r_BIJ.clamp(min=1)
        full_lengths_BIJ = torch.where(
            lengths_B11 == cut, (aside + 1 - at_least).clamp(min=0), full_lengths_BIJ
        )

    # A segment repeats a word if some position in it has its previous occurrence in it too.
    # What stands before a segment cannot have its previous occurrence inside, so the running
    # maximum from the start of the sequence answers for the segment alone.
    latest_BL = _latest_repeat(batch.tokens_BL)
    latest_before = _at(latest_BL, i_BIJ)
    latest_between = _at(latest_BL, j_BIJ)
    latest_after = _at(latest_BL, lengths_B11.expand_as(i_BIJ))
    possible_BIJ = (
        (is_first_BI[:, :, None] & is_second_BJ[:, None, :])
        & (l_BIJ >= 1)
        & (l_BIJ <= aside)
        & (m_BIJ >= 1)
        & (m_BIJ <= between)
        & (latest_before < 0)
        & (latest_between <= i_BIJ)
        & (latest_after <= j_BIJ)
    )

    log_ways = _log_falling_factorials(words, max(between, aside))
    longest = len(log_ways) - 1
    log_weight_BIJ = full_lengths_BIJ.double().log() - sum(
        log_ways[n.clamp(0, longest)] for n in (l_BIJ, m_BIJ, r_BIJ)
    )
    log_weight_BIJ = log_weight_BIJ.masked_fill(~possible_BIJ, -torch.inf)
    weight_BIJ = (log_weight_BIJ - log_weight_BIJ.amax(dim=(1, 2), keepdim=True)).exp()
    classes_BIJ = (m_BIJ - 1).clamp(0, between - 1)
    weight_BC = torch.zeros(len(batch), between, dtype=torch.float64)
    weight_BC.scatter_add_(1, classes_BIJ.flatten(1), weight_BIJ.flatten(1))
    return weight_BC / weight_BC.sum(dim=1, keepdim=True)


def _occurrences(tokens_BL: Tensor, word: int) -> tuple[Tensor, Tensor]:
    """Places of `word` in each row, and which of the columns are real ones."""
    hits_BL = (tokens_BL == word).long()
    found, places = hits_BL.topk(int(hits_BL.sum(dim=1).max()), dim=1)
    return places, found.bool()


def _latest_repeat(tokens_BL: Tensor) -> Tensor:
    """At x: the largest previous occurrence of any token before position x, -1 for none; (B, L+1).

    The previous occurrence of a token is the last position before it that holds the same token.
    """
    sorted_BL, order_BL = tokens_BL.sort(dim=1, stable=True)
    previous_BL = torch.full_like(tokens_BL, -1)
    same = sorted_BL[:, 1:] == sorted_BL[:, :-1]
    previous_BL.scatter_(1, order_BL[:, 1:], torch.where(same, order_BL[:, :-1], -1))
    return torch.nn.functional.pad(previous_BL.cummax(dim=1).values, (1, 0), value=-1)


def _at(values_BL: Tensor, places_BIJ: Tensor) -> Tensor:
    return values_BL.gather(1, places_BIJ.flatten(1)).view_as(places_BIJ)


def _log_falling_factorials(words: int, most: int) -> Tensor:
    """log [words]_n for n = 0..most."""
    factors = torch.arange(words, words - most, -1, dtype=torch.float64)
    return torch.nn.functional.pad(factors.log().cumsum(dim=0), (1, 0))
