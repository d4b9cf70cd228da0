"""Samplers of Optuna as policies."""
