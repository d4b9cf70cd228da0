"""The part of a compiled program that takes most of its time: a GPU's kernels, or an innermost loop on a CPU."""

from __future__ import annotations

import re

LABEL_PATTERN = re.compile(r"([.\w$]+):")
JUMP_PATTERN = re.compile(r"\t[a-z][\w.]*\t(?:.*[\s,])?(\.L\w+)")

MULTIPLICATION_PATTERN = re.compile(r"\t\w*(?:mul|mla|fma|madd|macc|vdp|dot)")
"""Instructions that multiply, and mostly also add, on x86, ARM and RISC-V."""

NO_INSTRUCTION_PATTERN = re.compile(r"\t\.|\.L(?:tmp|func)\w*:|\s*(?:[#;@]|//|$)")
"""Directives, debugging labels, comments and empty lines."""


def extract_kernels(cuda_source: str) -> str:
    """Return the kernels in CUDA C++, without the preamble and the declarations before them."""
    lines = cuda_source.splitlines()
    kernel_lines = (
        number for number, line in enumerate(lines) if "__global__" in line and not line.rstrip().endswith(";")
    )
    return "\n".join(lines[next(kernel_lines, 0) :]).rstrip()


def extract_innermost_loop(assembly: str) -> str:
    """Return the loop with the most multiplications among those that contain no other, or all if none multiplies."""
    lines = [line for line in assembly.splitlines() if not NO_INSTRUCTION_PATTERN.match(line)]
    line_numbers_by_label: dict[str, int] = {}
    loop_starts_by_end: dict[int, int] = {}  # the first line of each loop, by its last: a jump back
    for number, line in enumerate(lines):
        if label := LABEL_PATTERN.match(line):
            line_numbers_by_label[label[1]] = number
        elif (jump := JUMP_PATTERN.match(line)) and jump[1] in line_numbers_by_label:
            loop_starts_by_end[number] = line_numbers_by_label[jump[1]]
    bodies = [
        lines[start : end + 1]
        for end, start in loop_starts_by_end.items()
        if not any(start <= inner_start and inner_end < end for inner_end, inner_start in loop_starts_by_end.items())
    ]
    busiest_loop = max(bodies, key=_count_multiplications, default=lines)
    return "\n".join(busiest_loop if _count_multiplications(busiest_loop) else lines)


def _count_multiplications(lines: list[str]) -> int:
    return sum(bool(MULTIPLICATION_PATTERN.match(line)) for line in lines)
