"""The built-in search policies. A module is imported only when one of its policies is requested."""
