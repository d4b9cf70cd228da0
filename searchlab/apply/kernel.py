"""The part of a compiled program that takes most of its time: a GPU's kernels, or an innermost loop on a CPU."""

from __future__ import annotations

import re

LABEL = re.compile(r"([.\w$]+):")
JUMP = re.compile(r"\t[a-z][\w.]*\t(?:.*[\s,])?(\.L\w+)")

MULTIPLICATION = re.compile(r"\t\w*(?:mul|mla|fma|madd|macc|vdp|dot)")
"""Instructions that multiply, and mostly also add, on x86, ARM and RISC-V."""

NO_INSTRUCTION = re.compile(r"\t\.|\.L(?:tmp|func)\w*:|\s*(?:[#;@]|//|$)")
"""Directives, debugging labels, comments and empty lines."""


def kernels_of(source: str) -> str:
    """Return the kernels in CUDA C++, without the preamble and the declarations before them."""
    lines = source.splitlines()
    starts = [number for number, line in enumerate(lines) if "__global__" in line and not line.rstrip().endswith(";")]
    return "\n".join(lines[min(starts, default=0) :]).rstrip()


def innermost_loop(assembly: str) -> str:
    """Return the loop with the most multiplications among those that contain no other, or all if none multiplies."""
    lines = [line for line in assembly.splitlines() if not NO_INSTRUCTION.match(line)]
    labels: dict[str, int] = {}
    starts: dict[int, int] = {}  # the first line of each loop, by its last: a jump back
    for number, line in enumerate(lines):
        if label := LABEL.match(line):
            labels[label[1]] = number
        elif (jump := JUMP.match(line)) and jump[1] in labels:
            starts[number] = labels[jump[1]]
    bodies = [
        lines[start : end + 1]
        for end, start in starts.items()
        if not any(start <= inner_start and inner_end < end for inner_end, inner_start in starts.items())
    ]
    most = max(bodies, key=_multiplications, default=lines)
    return "\n".join(most if _multiplications(most) else lines)


def _multiplications(lines: list[str]) -> int:
    return sum(bool(MULTIPLICATION.match(line)) for line in lines)
