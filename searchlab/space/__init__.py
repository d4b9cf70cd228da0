"""Search spaces: knobs, configs, the contract, and spaces whose knobs are independent."""

from .config import Config
from .contract import SPACES, Choose, Space
from .encoding import Column, Encoding, coordinates, number_choices, represent_config
from .knob import Kind, Knob, Value
from .plugin_kind import PARAMETERS
from .product import ProductSpace

__all__ = [
    "PARAMETERS",
    "SPACES",
    "Choose",
    "Column",
    "Config",
    "Encoding",
    "Kind",
    "Knob",
    "ProductSpace",
    "Space",
    "Value",
    "coordinates",
    "number_choices",
    "represent_config",
]
