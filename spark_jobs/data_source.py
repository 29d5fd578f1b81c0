"""The Spark data source `twinlog`: `spark.read.format("twinlog").option("view", VIEW)...load()`.

Views: `log` (records of a WAL or a remote log; also as a stream), `frames` (its frames, and its damage), `runs` (the same, with
few rows), `rows` and `digests` (a snapshot at a barrier). What a view's options and columns are stands in its own module, which
is imported only when it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from spark_jobs.job import FORMAT
from twinlog.errors import InvalidInput

VIEWS = ("log", "frames", "runs", "rows", "digests")


class View(Protocol):
    """A view of the data source: LogView, RowsView or DigestsView. `options`: of the read, names in lower case."""

    def schema(self) -> StructType: ...

    def reader(self, schema: StructType, options: Mapping[str, str]) -> DataSourceReader: ...


@runtime_checkable
class StreamView(View, Protocol):
    def stream_reader(self, schema: StructType, options: Mapping[str, str]) -> DataSourceStreamReader: ...


def view_named(name: str) -> View:
    """Raises InvalidInput for a name that is no view."""
    if name == "log":
        from spark_jobs.logs.source import LogView

        return LogView()
    if name == "frames":
        from spark_jobs.logs.source import FramesView

        return FramesView()
    if name == "runs":
        from spark_jobs.logs.source import RunsView

        return RunsView()
    if name == "rows":
        from spark_jobs.snapshots.source import RowsView

        return RowsView()
    if name == "digests":
        from spark_jobs.snapshots.source import DigestsView

        return DigestsView()
    raise InvalidInput(f"the option view is {name!r}: this source knows {', '.join(VIEWS)}")


class TwinlogSource(DataSource):
    """Registered by session.py."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def _view(self) -> View:
        return view_named(self.options.get("view", VIEWS[0]))

    def schema(self) -> StructType:
        return self._view().schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        return self._view().reader(schema, self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        view = self._view()
        if not isinstance(view, StreamView):
            raise InvalidInput("only the view log can be read as a stream: a snapshot does not grow")
        return view.stream_reader(schema, self.options)
