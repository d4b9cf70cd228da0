"""Optuna's samplers as policies."""
