"""Tables: recorded spaces that stand in for the machine; building them, describing them, and comparing cost models."""
