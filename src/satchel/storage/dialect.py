"""How PostgreSQL is told what the rooms above say in SQLAlchemy for SQLite, so that they say it once.

It is imported only where a database is on a server, because SQLAlchemy's own part takes 60 ms of CPU.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BindParameter, MetaData, literal
from sqlalchemy.dialects.postgresql.base import PGTypeCompiler
from sqlalchemy.dialects.postgresql.psycopg import PGCompiler_psycopg, PGDialect_psycopg
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlalchemy.sql import operators
from sqlalchemy.types import NullType


class _Compiler(PGCompiler_psycopg):
    """Statements. Names and arguments of the methods are SQLAlchemy's."""

    _element: Any = None
    """The type of the values that a list is compared with."""

    def visit_in_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        return self._in(binary, operator, "IN", **kw)

    def visit_not_in_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        return f"({self._in(binary, operator, 'NOT IN', **kw)})"

    def _in(self, binary: Any, _operator: Any, word: str, **kw: Any) -> str:
        outer, self._element = self._element, binary.left.type
        try:
            return str(self._generate_generic_binary(binary, f" {word} ", **kw))
        finally:
            self._element = outer

    def visit_json_each_func(self, function: Any, **kw: Any) -> str:
        """A list in one parameter: its values have the type of what they are compared with, so that an index serves."""
        (values,) = function.clauses
        # A list within a list would find the type of the outer one.
        kind, self._element = self._element, None
        try:
            elements = f"jsonb_array_elements_text(CAST({self.process(values, **kw)} AS JSONB))"
        finally:
            self._element = kind
        if kind is None or isinstance(kind, NullType):
            return elements
        kind_text = self.dialect.type_compiler_instance.process(kind).removesuffix(' COLLATE "C"')
        return f"(SELECT CAST(value AS {kind_text}) AS value FROM {elements} OFFSET 0)"  # noqa: S608 - a type's name, and a bound value

    def visit_group_concat_func(self, function: Any, **kw: Any) -> str:
        text, mark = function.clauses
        return f"string_agg({self.process(text, **kw)}, {self.process(mark, **kw)})"

    def visit_instr_func(self, function: Any, **kw: Any) -> str:
        return f"strpos({self.process(function.clauses, **kw)})"

    def visit_max_func(self, function: Any, **kw: Any) -> str:
        return self._extreme(function, "max", "greatest", **kw)

    def visit_min_func(self, function: Any, **kw: Any) -> str:
        return self._extreme(function, "min", "least", **kw)

    def _extreme(self, function: Any, of_rows: str, of_values: str, **kw: Any) -> str:
        name = of_rows if len(function.clauses) == 1 else of_values
        return f"{name}({self.process(function.clauses, **kw)})"

    def visit_like_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        """SQLite's LIKE takes "A" for "a"; of text that sorts by its numbers, PostgreSQL folds the same letters."""
        return str(self.visit_ilike_op_binary(binary, operator, **kw))  # type: ignore[no-untyped-call]

    def visit_not_like_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        return str(self.visit_not_ilike_op_binary(binary, operator, **kw))  # type: ignore[no-untyped-call]

    def order_by_clause(self, select: Any, **kw: Any) -> str:
        """SQLite sorts NULL before everything else, PostgreSQL after it."""
        clauses = [self.process(each, **kw) + _nulls(each) for each in select._order_by_clauses]
        return f" ORDER BY {', '.join(clauses)}" if clauses else ""

    def visit_custom_op_binary(self, element: Any, operator: Any, **kw: Any) -> str:
        left = element.left
        if operator.opstring == "GLOB":
            # Only "*[…]*" is used, whose characters are the same in a regular expression, but for the backslash.
            assert isinstance(element.right, BindParameter)
            pattern = str(element.right.value).strip("*").replace("\\", "\\\\")
            return f"{self.process(left, **kw)} ~ {self.process(literal(pattern), **kw)}"
        if operator.opstring == ">>":  # PostgreSQL shifts only by what is an INTEGER.
            return f"({self.process(left, **kw)} >> CAST({self.process(element.right, **kw)} AS INTEGER))"
        return str(super().visit_custom_op_binary(element, operator, **kw))  # type: ignore[no-untyped-call]

    def _on_conflict_target(self, clause: Any, **kw: Any) -> str:
        # The rooms use SQLite's INSERT … ON CONFLICT, which names columns and never a constraint.
        clause.constraint_target = None
        return str(super()._on_conflict_target(clause, **kw))  # type: ignore[no-untyped-call]


def _nulls(clause: Any) -> str:
    """Where NULL goes, of a column that may have it; for others an index must be able to serve."""
    is_down = getattr(clause, "modifier", None) is operators.desc_op
    column = clause.element if is_down else clause
    if not getattr(column, "nullable", False):
        return ""
    return " NULLS LAST" if is_down else " NULLS FIRST"


class _Types(PGTypeCompiler):
    def visit_TEXT(self, type_: Any, **kw: Any) -> str:  # noqa: N802 - SQLAlchemy's name
        """Text sorts by its characters' numbers, as in SQLite, whatever language the database has."""
        return f'{super().visit_TEXT(type_, **kw)} COLLATE "C"'


def translate(dialect: Any) -> None:
    """Let an engine's dialect write statements for PostgreSQL."""
    dialect.statement_compiler = _Compiler
    dialect.type_compiler_instance = _Types(dialect)


def dialect() -> PGDialect_psycopg:
    """PostgreSQL's dialect, which needs no driver to write statements."""
    found = PGDialect_psycopg()  # type: ignore[no-untyped-call]
    translate(found)
    return found


def create_statements(metadata: MetaData) -> list[str]:
    """The statements that make the tables and indexes, with nothing of what was said in the planner's statistics."""
    found: list[str] = []
    writes = dialect()
    for table in metadata.sorted_tables:
        found.append(str(CreateTable(table).compile(dialect=writes)).strip())
        for index in sorted(table.indexes, key=lambda each: str(each.name)):
            index.dialect_options["postgresql"]["where"] = index.dialect_options["sqlite"]["where"]
            found.append(str(CreateIndex(index).compile(dialect=writes)).strip())
        words = [column.name for column in table.columns if column.type.python_type in (str, bytes)]
        if words:
            without = ", ".join(f'ALTER COLUMN "{name}" SET STATISTICS 0' for name in words)
            found.append(f"ALTER TABLE {table.name} {without}")
    return ["\n".join(line.rstrip() for line in each.splitlines()) for each in found]


def policy_statements(metadata: MetaData) -> list[str]:
    """The statements that show a transaction only the rows of the user whom the setting `satchel.user` names; all rows
    without that setting. A user's rows are those with the `user_id`, and those that refer to one of them.
    """
    found: list[str] = []
    of_users: set[str] = set()
    owned: set[str] = set()
    for table in metadata.sorted_tables:
        rules = []
        if "user_id" in table.columns:
            of_users.add(table.name)
            rules = ["user_id = current_setting('satchel.user', true)"]
        for key in sorted(table.foreign_key_constraints, key=lambda each: str(each.name)):
            owner = key.referred_table.name
            pairs = [(one.parent.name, one.column.name) for one in key.elements]
            if owner in of_users:
                # They are few, and read once for a statement.
                ((own, theirs),) = pairs
                rules.append(f"{own} = ANY (ARRAY(SELECT {theirs} FROM {owner}))")  # noqa: S608 - names of the schema
            elif owner in owned:
                same = " AND ".join(f"owner.{theirs} = {table.name}.{own}" for own, theirs in pairs)
                rules.append(f"EXISTS (SELECT FROM {owner} owner WHERE {same})")
        if rules:
            owned.add(table.name)
            # Within SELECT, the setting is looked up once for a statement, and not for each row.
            everyone = "(SELECT coalesce(current_setting('satchel.user', true), '') = '')"
            found += [
                f"ALTER TABLE {table.name} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
                f"CREATE POLICY of_user ON {table.name} USING ({everyone} OR {' AND '.join(rules)})",
            ]
    return found
