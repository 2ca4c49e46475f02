"""Reads Parquet tables with readers that are not ours; tests/support/table.rs runs it.

read_table.py ANSWER_FILE offsets duckdb|pyarrow TABLE_FOLDER   partition,offset of every row, sorted, repeats kept
read_table.py ANSWER_FILE query SQL                             DuckDB's answer as CSV without a header
"""

import sys
from pathlib import Path


def quoted(text):
    return "'" + str(text).replace("'", "''") + "'"


def copy(sql, answer):
    import duckdb

    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"COPY ({sql}) TO {quoted(answer)} (FORMAT csv, HEADER false, NULLSTR 'NULL')")


def offsets_by_duckdb(table, answer):
    import duckdb

    pattern = quoted(Path(table) / "**" / "*.parquet")
    # DuckDB calls a glob without a match an error; a table before its first batch is just empty.
    if duckdb.sql(f"SELECT count(*) FROM glob({pattern})").fetchone()[0] == 0:
        Path(answer).write_text("")
    else:
        copy(f'SELECT "partition", "offset" FROM read_parquet({pattern}) ORDER BY ALL', answer)


def offsets_by_pyarrow(table, answer):
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet

    names = ["partition", "offset"]
    # Each file by itself: a dataset would pass over files that it takes for hidden, and no glob of a user does.
    files = sorted(Path(table).glob("**/*.parquet"))
    parts = [pyarrow.parquet.ParquetFile(file).read(columns=names).select(names) for file in files]
    if parts:
        rows = pyarrow.concat_tables(parts).sort_by([(name, "ascending") for name in names])
        pyarrow.csv.write_csv(rows, answer, pyarrow.csv.WriteOptions(include_header=False))
    else:
        Path(answer).write_text("")


def main(answer, command, *arguments):
    if command == "offsets":
        reader, table = arguments
        {"duckdb": offsets_by_duckdb, "pyarrow": offsets_by_pyarrow}[reader](table, answer)
    elif command == "query":
        copy(arguments[0], answer)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
