"""Rankings: which memories answer a query best, as signals and weights over columns of memories.

Pure. A ``Ranking`` is data, ``Columns`` hold what is compared, ``score`` compares, and ``best`` takes the first.
"""

from refold.rank.columns import Columns
from refold.rank.ranking import RANKINGS, SIGNALS, Ranking, ranking_of
from refold.rank.scoring import Query, best, score

__all__ = ["RANKINGS", "SIGNALS", "Columns", "Query", "Ranking", "best", "ranking_of", "score"]
