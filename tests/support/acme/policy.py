"""A policy with a cost model, a helper module and a base class in another file."""

from .base import Base
from .constants import LIMIT


class Ordered(Base, takes_cost_model=True):
    def __init__(self, space, *, seed, cost_model, n_startup: int = 4, pool: int = 24, flip: bool = False):
        super().__init__(space, seed=seed)
        self.cost_model = cost_model
        self.n_startup = n_startup
        self.pool = pool
        self.flip = flip

    def propose(self, n, rng):
        from . import late

        configs = self.order([self.space.sample(rng) for _ in range(self.pool)])
        if len(self.trials) >= self.n_startup:
            self.cost_model.fit(self.trials)
            scores = self.cost_model.predict(configs)
            configs = [configs[i] for i in sorted(range(len(configs)), key=lambda i: -scores[i])]
        if self.flip:
            configs = configs[::-1]
        return late.choose(configs, n + LIMIT)
