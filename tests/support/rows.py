"""The rows of a closed store, for tests that change them below refold."""

from pathlib import Path

import lmdb


class Rows:
    """The rows of a closed store, changed below refold."""

    def __init__(self, store: Path) -> None:
        self._environment = lmdb.open(str(store), max_dbs=16)

    def all(self, table: str) -> list[tuple[bytes, bytes]]:
        database = self._environment.open_db(table.encode())
        with self._environment.begin(db=database) as transaction:
            return list(transaction.cursor())

    def get(self, table: str, key: bytes) -> bytes:
        return dict(self.all(table))[key]

    def put(self, table: str, key: bytes, value: bytes | None) -> None:
        database = self._environment.open_db(table.encode())
        with self._environment.begin(write=True, db=database) as transaction:
            if value is None:
                transaction.delete(key)
            else:
                transaction.put(key, value)

    def close(self) -> None:
        self._environment.close()
