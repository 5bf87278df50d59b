"""bfloat16, float16, int8 and int4 on the CPU: flambeau, PyTorch and flambeau's own float32, in turns.

    PYTHONPATH=.:benchmarks python benchmarks/low_precision.py [--rounds 15] [--threads 1] [--processor-time]

--processor-time counts what the calling thread used, for one thread on a machine that others use, too.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from harness import duration, interleave

import flambeau


def half_cases(t: Any, dtype: Any) -> dict[str, Callable[[], Any]]:
    t.manual_seed(0)
    f = t.nn.functional
    of = lambda *shape: t.randn(*shape).to(dtype)
    x, one, w = of(128, 512), of(1, 512), of(1376, 512)
    a, b, gate, up = of(8, 128, 64), of(8, 64, 128), of(128, 1376), of(128, 1376)
    q, k, v = (of(1, 8, 128, 64) for _ in range(3))
    hidden, scale = of(1, 128, 512), of(512)
    image, kernel = of(4, 16, 32, 32), of(32, 16, 3, 3)
    leaves = [y.clone().requires_grad_() for y in (x, w)]

    def rotary() -> Any:
        return q * v[0, 0] + t.cat((-q[..., 32:], q[..., :32]), -1) * v[0, 0]

    def gradients() -> Any:
        return t.autograd.grad(f.linear(*leaves), leaves, gate)

    def block() -> Any:
        """The parts of a layer of a Llama, 512 wide, 8 heads, 128 positions."""
        n = f.rms_norm(hidden, (512,), scale, 1e-6)
        heads = [f.linear(n, m).view(1, 128, 8, 64).transpose(1, 2) for m in projections[:3]]
        mixed = f.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).reshape(1, 128, 512)
        h = hidden + f.linear(mixed, projections[3])
        n = f.rms_norm(h, (512,), scale, 1e-6)
        return h + f.linear(f.silu(f.linear(n, w)) * f.linear(n, w), down)

    projections, down = [of(512, 512) for _ in range(4)], of(512, 1376)
    return {"linear 128x512 @ 512x1376": lambda: f.linear(x, w), "linear 1x512 (decoding)": lambda: f.linear(one, w),
            "linear, gradients": gradients, "bmm 8x128x64": lambda: t.bmm(a, b),
            "attention 8 heads, 128, 64": lambda: f.scaled_dot_product_attention(q, k, v),
            "rms_norm 128x512": lambda: f.rms_norm(hidden, (512,), scale, 1e-6),
            "layer_norm 128x512": lambda: f.layer_norm(hidden, (512,), scale, scale),
            "softmax 128x1376": lambda: gate.softmax(-1),
            "silu * mul 128x1376": lambda: f.silu(gate) * up, "add 128x1376": lambda: gate + up, "rotary": rotary,
            "conv2d 4x16x32x32, 32 3x3": lambda: f.conv2d(image, kernel, padding=1), "a Llama layer": block}


def integer_cases(t: Any) -> dict[str, Callable[[], Any]]:
    t.manual_seed(0)
    layer = t.ao.quantization.quantize_dynamic(t.nn.Sequential(t.nn.Linear(512, 1376)))
    x, one = t.randn(128, 512), t.randn(1, 512)
    eight, scales = t.randint(-128, 127, (1376, 512), dtype=t.int8), t.rand(1376)
    four = t._convert_weight_to_int4pack_for_cpu(t.randint(0, 16, (1376, 512), dtype=t.int32), 1)
    pairs, half = t.rand(16, 1376, 2), (one.bfloat16(), scales.bfloat16())
    return {"quantize_dynamic, 128 rows": lambda: layer(x), "quantize_dynamic, 1 row": lambda: layer(one),
            "int8 weight, 1 row": lambda: t._weight_int8pack_mm(one, eight, scales),
            "int8 weight, 1 row, bfloat16": lambda: t._weight_int8pack_mm(half[0], eight, half[1]),
            "int4 weight, 1 row": lambda: t._weight_int4pack_mm_for_cpu(one, four, 32, pairs)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--processor-time", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.processor_time:
        time.perf_counter = time.thread_time
    if options.threads:
        torch.set_num_threads(options.threads)
        flambeau.set_num_threads(options.threads)
    single = half_cases(flambeau, flambeau.float32)
    for name in ("bfloat16", "float16"):
        print(f"\n| {name} | torch | flambeau | its float32 | / torch | / float32 |\n| --- | --- | --- | --- | --- | --- |")
        theirs, ours = half_cases(torch, getattr(torch, name)), half_cases(flambeau, getattr(flambeau, name))
        for what in ours:
            sides = dict(ours=ours[what], torch=theirs[what], single=single[what])
            found = interleave(sides, 3 if name == "float16" else options.rounds)  # PyTorch's float16 takes up to 100 ms
            print(f"| {what} | {duration(found['torch'])} | {duration(found['ours'])} | {duration(found['single'])} | "
                  f"{found['ours'] / found['torch']:.2f} | {found['ours'] / found['single']:.2f} |", flush=True)
    print("\n| integers | torch | flambeau | / torch |\n| --- | --- | --- | --- |")
    with torch.no_grad(), flambeau.no_grad():
        theirs, ours = integer_cases(torch), integer_cases(flambeau)
        for what in ours:
            found = interleave(dict(ours=ours[what], torch=theirs[what]), options.rounds)
            print(f"| {what} | {duration(found['torch'])} | {duration(found['ours'])} | {found['ours'] / found['torch']:.2f} |",
                  flush=True)


if __name__ == "__main__":
    main()
