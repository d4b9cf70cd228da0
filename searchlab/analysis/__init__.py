"""What logs say: convergence curves, a summary, a verdict, tables and pictures. Nothing here needs TVM."""

from .report import report
from .summary import Summary, summarize
from .tables import summary_table

__all__ = ["Summary", "report", "summarize", "summary_table"]
