"""The base class of the policy."""

from searchlab.policy import NeverTwice


class Base(NeverTwice):
    """Orders what it samples."""

    direction = 1

    def order(self, configs):
        """Sort configs by their smallest factors."""
        ranked = sorted(configs, key=lambda config: self.rank(config))
        return ranked[:: self.direction]

    def rank(self, config):
        return config["tile"][0] - config["unroll"] * 0.001
