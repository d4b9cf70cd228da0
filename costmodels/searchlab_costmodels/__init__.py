"""The built-in cost models, one in each module; a module is imported only when its model is named."""
