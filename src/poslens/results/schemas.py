"""The schemas of all result tables: what each column holds, in which unit."""

from dataclasses import dataclass

import polars as pl

Schema = dict[str, type[pl.DataType]]

# One row: what the run is and how it ended.
SUMMARY: Schema = {
    "accuracy": pl.Float64,  # held-out, at the end
    "loss": pl.Float64,  # held-out cross-entropy, nats
    "sequences": pl.Int64,  # training sequences seen
    "budget": pl.Int64,  # training sequences allowed
    "solved": pl.Boolean,  # stopped before the budget because the task was solved
    "evaluated": pl.Int64,  # held-out sequences behind accuracy and loss
    "chance": pl.Float64,
    "baseline": pl.Float64,  # length-only (distance), chance (count)
    "ceiling": pl.Float64,
    "ceiling_error": pl.Float64,  # standard error of the ceiling
    "layers": pl.Int64,
    "heads": pl.Int64,
    "width": pl.Int64,
    "parameters": pl.Int64,  # trainable numbers
    "learning_rate": pl.Float64,
    "label_unit": pl.String,
    "first_label": pl.Int64,
}
# One row per evaluation during training.
CURVE: Schema = {
    "sequences": pl.Int64,
    "accuracy": pl.Float64,  # held-out
    "loss": pl.Float64,  # held-out
    "training_loss": pl.Float64,  # mean since the last evaluation
}
# One row per label: held-out accuracy by class.
LABELS: Schema = {"label": pl.Int64, "count": pl.Int64, "correct": pl.Int64}
# One row per head, edit and metric; head -1 is the whole layer, layer -1 the whole model at once.
EFFECTS: Schema = {
    "layer": pl.Int64,
    "head": pl.Int64,
    "target": pl.String,  # "head": its output is replaced; "position": it loses its position
    "method": pl.String,  # zero, mean, resample; none, mean, resample; "published ..." (docs)
    "metric": pl.String,  # accuracy, loss or margin
    "intact": pl.Float64,
    "effect": pl.Float64,  # fall in accuracy or margin, or rise in loss: positive is harm
    "low": pl.Float64,  # 95 % interval
    "high": pl.Float64,
    "p": pl.Float64,  # two-sided, of no effect
    "holm_low": pl.Float64,  # interval at the level Holm's procedure gives this head
    "holm_high": pl.Float64,
    "sequences": pl.Int64,
}
# One row per layer, edit and metric.
CONCENTRATION: Schema = {
    "layer": pl.Int64,
    "target": pl.String,
    "method": pl.String,
    "metric": pl.String,
    "heads": pl.Int64,
    "counted": pl.Int64,  # heads whose Holm interval excludes 0 on the harmful side
    "top_head": pl.Int64,
    "top_share": pl.Float64,
    "top_share_low": pl.Float64,
    "top_share_high": pl.Float64,
    "effective_heads": pl.Float64,
    "effective_heads_low": pl.Float64,
    "effective_heads_high": pl.Float64,
    "deposit_index": pl.Float64,
    "null_p": pl.Float64,  # share of head permutations with a top share as large
    "lost": pl.Float64,  # what can be lost: of the layer (head), of the model (position)
    "largest": pl.Float64,
    "largest_low": pl.Float64,
    "second": pl.Float64,
    "second_high": pl.Float64,
    "verdict": pl.String,  # of accuracy and loss together; "undefined" where the edit is
}
# One row per step of a greedy search for heads without which a model has lost all it can lose.
NECESSITY: Schema = {
    "target": pl.String,
    "method": pl.String,
    "step": pl.Int64,  # heads edited so far; 0 is the model intact
    "layer": pl.Int64,  # of the head that this step added; -1 at step 0
    "head": pl.Int64,
    "accuracy": pl.Float64,  # with these heads edited
    "floor": pl.Float64,  # accuracy with every head edited; the same in all rows
    "count": pl.Float64,  # heads needed to reach the floor, infinite if not reached; same in all
    "count_low": pl.Float64,  # 95 % interval
    "count_high": pl.Float64,
    "sequences": pl.Int64,
}
# One row per layer and k: accuracy when its k most effective heads stay and the others are edited.
SUFFICIENCY: Schema = {
    "layer": pl.Int64,
    "target": pl.String,
    "method": pl.String,
    "kept": pl.Int64,  # k, from 0 to all
    "head": pl.Int64,  # the k-th most effective head; -1 at k = 0
    "accuracy": pl.Float64,
    "low": pl.Float64,  # 95 % interval
    "high": pl.Float64,
    "sequences": pl.Int64,
}
# One row per pair of the most effective heads.
INTERACTIONS: Schema = {
    "target": pl.String,
    "method": pl.String,
    "layer": pl.Int64,
    "head": pl.Int64,
    "other_layer": pl.Int64,
    "other_head": pl.Int64,
    "together": pl.Float64,  # fall in accuracy with both edited
    "excess": pl.Float64,  # beyond the sum of what each costs alone; above 0: they stand in
    "low": pl.Float64,  # 95 % interval of the excess
    "high": pl.Float64,
    "sequences": pl.Int64,
}
# One row per length: held-out accuracy on sequences with more words than in training.
LENGTHS: Schema = {
    "factor": pl.Int64,  # longest sequence over the longest in training
    "longest": pl.Int64,  # words
    "accuracy": pl.Float64,  # NaN where the model cannot read sequences of this length
    "loss": pl.Float64,
    "sequences": pl.Int64,
    "reason": pl.String,  # why it cannot, or empty
}
# One row per head: where its logits come from, on independent tokens (`poslens.toeplitz`).
DECOMPOSITION: Schema = {
    "layer": pl.Int64,
    "head": pl.Int64,
    "split": pl.String,  # "mean" or "embedding"
    "sequences": pl.Int64,
    "length": pl.Int64,  # words
    "error": pl.Float64,  # max |sum of terms - logits| / max sum of |terms|
    "variance": pl.Float64,  # of the logits, nats squared
    "within_rows": pl.Float64,  # the same about the mean of each row
    "algebra": pl.String,  # additive, multiplicative, mixed, undefined
    "explained": pl.Float64,  # share of position's effect that is the same for all sequences
    "reason": pl.String,  # why the algebra is undefined, or empty
    "tau": pl.Float64,  # Toeplitz share, one symbol for all sequences
    "tau_adjusted": pl.Float64,
    "tau_each": pl.Float64,  # mean over sequences of the share with a symbol each
    "tau_each_adjusted": pl.Float64,
    "tau_row": pl.Float64,  # the same four, row-aware
    "tau_row_adjusted": pl.Float64,
    "tau_row_each": pl.Float64,
    "tau_row_each_adjusted": pl.Float64,
}
# One row per head and ordered pair of terms; the shares of all pairs of a head add up to 1.
COVARIANCES: Schema = {
    "layer": pl.Int64,
    "head": pl.Int64,
    "term": pl.String,
    "other": pl.String,  # the term itself: its variance
    "covariance": pl.Float64,  # nats squared
    "within_rows": pl.Float64,  # the same about the mean of each row
    "share": pl.Float64,  # over the variance of the logits
    "share_within_rows": pl.Float64,
}
# One row per head and offset.
SYMBOLS: Schema = {
    "layer": pl.Int64,
    "head": pl.Int64,
    "offset": pl.Int64,  # query position - key position, words
    "value": pl.Float64,  # mean logit, nats
    "entries": pl.Int64,  # behind that mean
}
# One row per head with a rotary kernel: norms of its logits with over without the kernel.
SPECTRA: Schema = {
    "layer": pl.Int64,
    "head": pl.Int64,
    "sequences": pl.Int64,
    "operator": pl.Float64,  # ratio of the largest singular values, mean over sequences
    "operator_contracted": pl.Float64,  # share of sequences in which it is below 1
    "nuclear": pl.Float64,  # ratio of their sums
    "nuclear_contracted": pl.Float64,
    "none_grew": pl.Float64,  # share of sequences in which no unitarily invariant norm grew
}
# One row per state of the residual stream, target and score: how well position is read from it.
PROBES: Schema = {
    "state": pl.Int64,  # layers passed: 0 is what enters the first layer
    "probe": pl.String,  # "ridge" regression, or "classes", a linear discriminant of positions
    "target": pl.String,  # "true" positions, or the control: "shuffled" within each sequence
    "score": pl.String,  # ridge: "r2", "error" (mean absolute, words); classes: "accuracy"
    "value": pl.Float64,  # on sequences not fitted on
    "low": pl.Float64,  # 95 % interval over sequences
    "high": pl.Float64,
    "chance": pl.Float64,  # of the best constant answer
    "positions": pl.Int64,
    "fitted": pl.Int64,  # sequences fitted on
    "sequences": pl.Int64,  # sequences scored
}
# One row per state: the mean by position p_t, and its subspace beside that of the input.
SUBSPACES: Schema = {
    "state": pl.Int64,
    "positions": pl.Int64,
    "width": pl.Int64,  # of the residual stream
    "share": pl.Float64,  # of the stream's variance that p_t explains, on other sequences
    "share_low": pl.Float64,  # 95 % interval over sequences
    "share_high": pl.Float64,
    "fitted": pl.Int64,  # sequences that this share's p_t is fitted on
    "above_noise": pl.Int64,  # components of p_t with more variance than noise has
    "dimensions": pl.Int64,  # of the position subspace, fixed at the input; 0 without a table
    "mean_cos2": pl.Float64,  # of principal angles with the input's subspace; NaN without a table
    "low": pl.Float64,  # 95 % jackknife interval over blocks of sequences
    "high": pl.Float64,
    "null": pl.Float64,  # its mean for a random subspace: dimensions / width
    "reason": pl.String,  # why there is no subspace to compare with, or empty
    "sequences": pl.Int64,  # behind components and angles
}
# One row per head, target and gain: accuracy, and attention from needed words to the others.
MECHANISM: Schema = {
    "layer": pl.Int64,
    "head": pl.Int64,
    "target": pl.String,  # "head": its output is scaled; "position": its positional gain is lowered
    "gain": pl.Float64,  # 1: as trained; 0: taken away
    "accuracy": pl.Float64,
    "own_mass": pl.Float64,  # of the head: weight on other needed words, a share
    "above_mass": pl.Float64,  # mean over heads of the layers above; NaN in the top layer
    "sequences": pl.Int64,
}
# One row per head and target: whether accuracy or attention mass has lost half first.
FALLS: Schema = {
    "layer": pl.Int64,
    "head": pl.Int64,
    "target": pl.String,
    "mass": pl.String,  # "own" or "above": which is compared
    "accuracy_half": pl.Float64,  # gain at which half of its fall has happened; NaN: no fall
    "mass_half": pl.Float64,
    "difference": pl.Float64,  # mass_half - accuracy_half: above 0 where the mass falls first
    "low": pl.Float64,  # 95 % interval
    "high": pl.Float64,
    # mass, accuracy, not told apart, only mass, only accuracy, neither, no mass
    "verdict": pl.String,
}
# One row per step, initialisation and head: its gradient seeds (`poslens.theory`). A head without
# position in its logits has NaN for all but its size, which is 0.
SEEDS: Schema = {
    "step": pl.Int64,  # of training; 0 is the model as initialised
    "trained": pl.Int64,  # steps of the finished run
    "initialisation": pl.Int64,  # 0 is the run's own; others are of step 0 alone
    "layer": pl.Int64,
    "head": pl.Int64,
    "examples": pl.Int64,
    "mu": pl.Float64,  # mean seed, nats per unit of gain; above 0: more position lowers the loss
    "mu_low": pl.Float64,  # 95 % interval
    "mu_high": pl.Float64,
    "sigma": pl.Float64,  # deviation of the seeds
    "ratio": pl.Float64,  # mu / sigma
    "ratio_low": pl.Float64,  # 95 % for all heads of the model at once
    "ratio_high": pl.Float64,
    "rms": pl.Float64,  # of the positional part of the logits within rows, nats
    "scaled": pl.Float64,  # mu / rms
    "loss": pl.Float64,  # mean cross-entropy of these examples, nats
}
# One row per step, head and batch size, for the run's own initialisation.
SEED_BATCHES: Schema = {
    "step": pl.Int64,
    "layer": pl.Int64,
    "head": pl.Int64,
    "batch": pl.Int64,  # examples in one batch
    "batches": pl.Int64,  # disjoint ones
    "mean_abs": pl.Float64,  # mean over batches of |mean seed of the batch|
    "low": pl.Float64,  # 95 % interval
    "high": pl.Float64,
    "predicted": pl.Float64,  # max(|mu|, sigma sqrt(2 / (pi batch)))
    "folded": pl.Float64,  # mean of the folded normal
}
# One row per step, initialisation and layer.
MARGINS: Schema = {
    "step": pl.Int64,
    "initialisation": pl.Int64,
    "layer": pl.Int64,
    "examples": pl.Int64,
    "leader": pl.Int64,  # head that leads on the first half of the examples; -1 for none
    "margin": pl.Float64,  # largest less second |mu|, measured on the second half
    "low": pl.Float64,  # 95 % interval
    "high": pl.Float64,
    "lead": pl.Float64,  # margin over the layer's sum of |mu|
    "lead_low": pl.Float64,
    "lead_high": pl.Float64,
    "gamma": pl.Float64,  # margin over that of the layer above; NaN in the last layer
    "gamma_low": pl.Float64,  # 95 % interval on its logarithm; may reach 0 or infinity
    "gamma_high": pl.Float64,
    "reason": pl.String,  # why margin or gamma is undefined, or empty
}

RUN_TABLES: dict[str, Schema] = {
    "summary": SUMMARY,
    "curve": CURVE,
    "labels": LABELS,
    "effects": EFFECTS,
    "concentration": CONCENTRATION,
    "necessity": NECESSITY,
    "sufficiency": SUFFICIENCY,
    "interactions": INTERACTIONS,
    "lengths": LENGTHS,
    "decomposition": DECOMPOSITION,
    "covariances": COVARIANCES,
    "symbols": SYMBOLS,
    "spectra": SPECTRA,
    "probes": PROBES,
    "subspaces": SUBSPACES,
    "mechanism": MECHANISM,
    "falls": FALLS,
    "seeds": SEEDS,
    "seed_batches": SEED_BATCHES,
    "margins": MARGINS,
}
KEY: Schema = {"scheme": pl.String, "task": pl.String, "seed": pl.Int64}


@dataclass(frozen=True)
class Tables:
    """The stacked tables of all runs of a folder; empty frames where nothing was written yet."""

    summary: pl.DataFrame
    curve: pl.DataFrame
    labels: pl.DataFrame
    effects: pl.DataFrame
    concentration: pl.DataFrame
    necessity: pl.DataFrame
    sufficiency: pl.DataFrame
    interactions: pl.DataFrame
    lengths: pl.DataFrame
    decomposition: pl.DataFrame
    covariances: pl.DataFrame
    symbols: pl.DataFrame
    spectra: pl.DataFrame
    probes: pl.DataFrame
    subspaces: pl.DataFrame
    mechanism: pl.DataFrame
    falls: pl.DataFrame
    seeds: pl.DataFrame
    seed_batches: pl.DataFrame
    margins: pl.DataFrame
