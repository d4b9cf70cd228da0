"""Statistics of searches, as pure functions of arrays that do not depend on logs or reports."""
