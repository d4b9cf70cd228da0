"""The built-in cost models, one a module; each is imported only when it is named."""
