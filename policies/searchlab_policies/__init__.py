"""The built-in search policies, one a module; each is imported only when it is named."""
