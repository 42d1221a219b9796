"""From which length on the FFT beats the dense product with a Toeplitz matrix.

    python benchmarks/toeplitz_product.py [--threads 1]

Times one head's L x L Toeplitz matrix on one vector and on the 64 columns of a value matrix, in
float32: the dense product with the matrix at hand, the same with the matrix made from its symbol
first (what a bias known by offset costs), and `toeplitz_matvec`. The best of several repetitions.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from poslens.toeplitz import toeplitz, toeplitz_matvec

LENGTHS = [32, 64, 128, 256, 512, 1024, 2048, 4096]
COLUMNS = [1, 64]
SECONDS = 0.2  # at least, per measurement


def best(call: Callable[[], Tensor]) -> float:
    """Shortest time of one call in microseconds."""
    call()
    times: list[float] = []
    while sum(times) < SECONDS or len(times) < 5:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times) * 1e6


def build_and_multiply(symbol_O: Tensor, x_MC: Tensor) -> Tensor:
    return toeplitz(symbol_O, x_MC.shape[0]) @ x_MC


def crossover(rows: list[tuple[int, float, float]]) -> str:
    """The smallest length from which on the FFT (last) stays below the dense product."""
    slower = [length for length, dense, fft in rows if fft >= dense]
    faster = [length for length, _, _ in rows if not slower or length > max(slower)]
    return f"L = {faster[0]}" if faster else f"none up to L = {rows[-1][0]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--threads", type=int, default=1)
    torch.set_num_threads(parser.parse_args().threads)
    torch.manual_seed(0)
    print(f"microseconds, float32, {torch.get_num_threads()} thread(s)")
    for columns in COLUMNS:
        print(f"\n{columns} column(s)")
        print(f"{'L':>6} {'dense':>12} {'build+dense':>12} {'FFT':>12} {'dense/FFT':>10}")
        given: list[tuple[int, float, float]] = []
        built: list[tuple[int, float, float]] = []
        for length in LENGTHS:
            symbol_O, x_MC = torch.randn(2 * length - 1), torch.randn(length, columns)
            matrix = toeplitz(symbol_O, length).contiguous()
            x_CM = x_MC.mT.contiguous()
            torch.testing.assert_close(
                toeplitz_matvec(symbol_O, x_CM).mT, matrix @ x_MC, atol=1e-3, rtol=1e-3
            )
            dense = best(partial(torch.matmul, matrix, x_MC))
            build = best(partial(build_and_multiply, symbol_O, x_MC))
            fft = best(partial(toeplitz_matvec, symbol_O, x_CM))
            given.append((length, dense, fft))
            built.append((length, build, fft))
            print(f"{length:>6} {dense:>12.1f} {build:>12.1f} {fft:>12.1f} {dense / fft:>10.2f}")
        print(
            f"FFT faster from: matrix at hand {crossover(given)}; matrix built {crossover(built)}"
        )


if __name__ == "__main__":
    main()
