"""Records that several machines share: changes at the same time, and a connection that is lost."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Any

import psycopg
import pytest

from satchel.errors import ConfigError, StorageUnreachable
from satchel.runtime.people import People
from satchel.storage.records import Records
from tests.postgresql import Server, server_of
from tests.requirements import requirement


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Server:
    return server_of(tmp_path_factory)


@requirement("people:machines")
def test_changes_that_are_made_at_once_all_count_and_each_machine_sees_them(
    server: Server, tmp_path: Path
) -> None:
    url = server.url(server.schema_for(tmp_path))
    machines = [Records(url, "shared") for _ in range(4)]
    assert machines[0].read() == (0, {})
    ready = Barrier(4)

    def count(number: int, step: int, content: dict[str, Any]) -> None:
        content.setdefault("all", {"sum": 0})["sum"] += 1
        content[f"{number}-{step}"] = {"from": number}

    def add(number: int) -> None:
        ready.wait(60)
        for step in range(5):
            machines[number].change(partial(count, number, step))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(4)))
    machines[0].change(lambda content: content.pop("1-1"))
    expected = {f"{number}-{step}": {"from": number} for number in range(4) for step in range(5)}
    del expected["1-1"]
    for each in (*machines, Records(url, "shared")):
        assert each.read()[1] == expected | {"all": {"sum": 20}}
    version, records = machines[3].read()
    assert machines[3].read() == (version, records)

    def refuse(content: dict[str, Any]) -> None:
        content.clear()
        raise ConfigError("No.")

    with pytest.raises(ConfigError):
        machines[1].change(refuse)
    assert machines[1].read() == (version, records)


@requirement("people:machines")
def test_a_connection_that_is_lost_is_made_anew_and_a_server_that_is_away_is_said(
    server: Server, tmp_path: Path
) -> None:
    url = server.url(server.schema_for(tmp_path))
    records = Records(f"{url}&application_name=records_{tmp_path.name}", "shared")
    records.change(lambda content: content.update(one=1))
    with psycopg.connect(url, autocommit=True) as administrator:
        ended = administrator.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s",
            (f"records_{tmp_path.name}",),
        ).fetchall()
    assert ended == [(True,)]
    assert records.read()[1] == {"one": 1}
    with pytest.raises(StorageUnreachable):
        Records(f"postgresql://nobody@/none?host={tmp_path}", "shared").read()
    with pytest.raises(ConfigError):
        Records("postgresql://here:port/none", "shared")


@requirement("people:machines")
def test_who_was_known_gets_in_for_a_minute_while_the_server_is_away(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.url(server.schema_for(tmp_path))
    People(tmp_path, url).add("ann", "a long password")
    people = People(tmp_path, url)
    token = people.make_token("ann")

    def away(_: Records) -> None:
        raise StorageUnreachable("It is away.")

    monkeypatch.setattr(Records, "read", away)
    people.refresh()
    assert people.with_token(token) == people.get("ann")
    monkeypatch.setattr("satchel.runtime.people._STALE_S", -1.0)
    with pytest.raises(StorageUnreachable):
        people.refresh()
