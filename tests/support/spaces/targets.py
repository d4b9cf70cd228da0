"""Targets on which programs are compiled quickly."""

UNOPTIMIZED: dict[str, str | int] = {"kind": "native", "opt-level": 0}
"""This machine. LLVM optimises nothing, which takes a quarter of the time; what is tested are schedules."""
