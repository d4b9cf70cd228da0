"""Tables: recorded spaces that replace the machine. They are built, described, and used to compare cost models."""
