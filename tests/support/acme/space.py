"""A space whose programs come from a helper module and from a function that is passed as an option."""

from searchlab.conformance.toys import Small

from .schedules import schedule_gemm


class Tiles(Small):
    def __init__(self, workload, target, *, split: str = "acme.schedules:split_by", depth: int = 1):
        super().__init__(workload, target)
        self.depth = depth

    def schedule(self, config):
        self.knobs(config)
        return schedule_gemm(self.workload, config, self.depth)
