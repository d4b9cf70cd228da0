"""The built-in cost models, one per module; a module is imported only when its model is requested."""
