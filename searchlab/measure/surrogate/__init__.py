"""Surrogate tables: models of recorded trials that answer for a space which no table can hold."""
