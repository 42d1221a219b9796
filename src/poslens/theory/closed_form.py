"""The seed of the smallest model with RoPE, worked out by hand: what the code is held against.

Shapes: L tokens, E = 2 model width, C classes.

The model has one layer, one head of one complex channel, no norm and no feed-forward, and reads
its scores linearly from the mean over tokens. With q_i = W_q x_i and so on, head width 2:

    S_ij(lambda) = S0_ij + lambda D_ij          logits under the gain
    S0_ij = s q_i . k_j                          without position, s = 1 / sqrt(2)
    D_ij  = s q_i . (R((j - i) theta) k_j) - S0_ij
    A_ij  = softmax_j S_ij                       weights
    u     = 1/L sum_i (x_i + W_o sum_j A_ij v_j) read by scores z = W_c u + b
    Loss  = -log softmax(z)_y

R(a) turns the plane by a. In polar form, q_i = |q_i| (cos f_i, sin f_i), k_j likewise with g_j:

    D_ij = s |q_i| |k_j| [cos(f_i - g_j + (i - j) theta) - cos(f_i - g_j)]

By the chain rule, with the error of the answer e_c = softmax(z)_c - [c = y],

    dA_ij / dlambda = A_ij (D_ij - sum_m A_im D_im)
    dLoss / dlambda = 1/L sum_i sum_j (dA_ij / dlambda) e . W_c W_o v_j

At lambda = 1, and with h_j = -e . W_c W_o v_j, what attending to token j helps,

    g = -dLoss / dlambda = 1/L sum_i cov_i(D_i., h)

where cov_i is the covariance under the weights A_i. of query i: a head's seed is positive on an
example if, within what its queries attend to, position adds attention where it helps.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def rope_seed(
    x_LE: Floats,
    maps: dict[str, Floats],
    theta: float,
    label: int,
) -> float:
    """g of one sequence of any length, in plain loops; `maps` are W_q, W_k, W_v, W_o, W_c and b.

    Keys of `maps`: "query", "key", "value", "output" (2, 2), "classes" (C, 2), "constant" (C).
    """
    length = len(x_LE)
    q_LE, k_LE, v_LE = (x_LE @ maps[name].T for name in ("query", "key", "value"))
    scale = 1 / np.sqrt(2)
    weights_LM, delta_LM = np.zeros((length, length)), np.zeros((length, length))
    for i in range(length):
        for j in range(length):
            size = scale * np.hypot(*q_LE[i]) * np.hypot(*k_LE[j])
            angle = np.arctan2(*q_LE[i][::-1]) - np.arctan2(*k_LE[j][::-1])
            delta_LM[i, j] = size * (np.cos(angle + (i - j) * theta) - np.cos(angle))
            weights_LM[i, j] = np.exp(size * np.cos(angle + (i - j) * theta))
        weights_LM[i] /= weights_LM[i].sum()
    read_E = (x_LE + weights_LM @ v_LE @ maps["output"].T).mean(0)
    scores_C = maps["classes"] @ read_E + maps["constant"]
    error_C = np.exp(scores_C - scores_C.max())
    error_C /= error_C.sum()
    error_C[label] -= 1
    help_L = -(v_LE @ maps["output"].T @ maps["classes"].T @ error_C)
    covariances = [
        weights_L @ (delta_L * help_L) - (weights_L @ delta_L) * (weights_L @ help_L)
        for weights_L, delta_L in zip(weights_LM, delta_LM, strict=True)
    ]
    return float(np.mean(covariances))
