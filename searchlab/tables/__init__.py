"""Tables: recorded spaces that stand in for the machine; built, described, and used to compare cost models."""
