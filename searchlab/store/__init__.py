"""The store: a database of everything that a user has measured in any study."""

from .store import Store as Store
