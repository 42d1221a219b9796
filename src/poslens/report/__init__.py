"""The report: result tables in, one page and static figures out."""

from poslens.report.build import build

__all__ = ["build"]
