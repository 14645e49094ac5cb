"""The server of the live page over HTTP: who may ask, what it answers, and how runs are stopped; real processes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from kernel_agent.page.seen import see
from kernel_agent.run import lock, tree
from tests.support.page_runs import write
from tests.support.page_suites import write_suite
from tests.support.watching import printed_until, scripted_search, watching


class Asked:
    """The live page's server, asked with its token or another one."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self.base, self.token = f"{parts.scheme}://{parts.netloc}", parse_qs(parts.query)["token"][0]

    def get(self, path: str, **query: str) -> httpx2.Response:
        return httpx2.get(f"{self.base}{path}", params={"token": self.token, **query}, timeout=60)

    def events(self, **query: str) -> Iterator[tuple[str, Any]]:
        """Each event's name and value, as they come."""
        params, name = {"token": self.token, **query}, ""
        with httpx2.stream("GET", f"{self.base}/events", params=params, timeout=60) as answer:
            for row in answer.iter_lines():
                if row.startswith("event: "):
                    name = row.removeprefix("event: ")
                elif row.startswith("data: "):
                    yield name, json.loads(row.removeprefix("data: "))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs in a folder, one of them finished, a suite, and a directory that holds none."""
    folder = tmp_path_factory.mktemp("live") / "runs"
    write(folder / "done", 20)
    write(folder / "deeper" / "left", 8, finished=False)
    write_suite(folder / "many", 5, ended=False)
    (folder / "empty").mkdir()
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Asked]:
    with watching(folder) as address:
        assert address.startswith("http://127.0.0.1:")
        yield Asked(address)


@pytest.mark.parametrize("path", ["/", "/facts", "/texts", "/events"])
@pytest.mark.parametrize("token", ["", "wrong", "é"])
def test_nothing_is_told_without_the_token(server: Asked, path: str, token: str) -> None:
    answer = httpx2.get(f"{server.base}{path}", params={"token": token, "run": "done"})
    assert answer.status_code == 403
    assert "whole address" in answer.text


def test_a_name_that_a_foreign_page_could_have_is_refused(server: Asked) -> None:
    answer = httpx2.get(f"{server.base}/", params={"token": server.token}, headers={"Host": "evil.example"})
    assert answer.status_code == 400


def test_the_page_may_be_kept_framed_and_referred_to_by_nobody(server: Asked) -> None:
    headers = server.get("/").headers
    assert (headers["cache-control"], headers["referrer-policy"], headers["x-frame-options"]) == (
        "no-store",
        "no-referrer",
        "DENY",
    )
    assert "default-src 'none'" in headers["content-security-policy"]


def test_the_list_has_the_runs_of_a_folder_and_its_suites_with_theirs(server: Asked) -> None:
    name, found = next(server.events())
    assert name == "list"
    assert {row["run"]: row["state"] for row in found["runs"]} == {"done": "finished", "deeper/left": "stopped"}
    assert all(row["progress"]["judged"] > 0 and row["headline"]["speedup"] for row in found["runs"])
    [suite] = found["suites"]
    assert (suite["suite"], suite["state"], suite["progress"]["ended"]) == ("many", "stopped", 3)
    assert [run["run"] for run in suite["runs"]] == ["many/problems/level2/4_GELU_Bias"]
    assert "rows" not in suite


def test_a_suite_s_facts_lead_to_its_runs_and_these_back_to_it(server: Asked) -> None:
    name, facts = next(server.events(suite="many"))
    assert name == "suite" and facts == server.get("/facts", suite="many").json()
    run = facts["rows"][0]["run"]
    assert server.get("/facts", run=run).json()["suite"] == "many"
    assert server.get("/facts", run="done").json()["suite"] is None
    assert facts["rows"][1]["run"] is None, "a failed problem has no run"


@pytest.mark.parametrize("suite", ["nowhere", "done", "many/problems", "../runs", ""])
def test_a_suite_that_is_not_shown_cannot_be_asked_for(server: Asked, suite: str) -> None:
    for path in ("/facts", "/events"):
        answer = server.get(path, suite=suite)
        assert (answer.status_code, answer.text.startswith("There is no suite")) == (404, True)


def test_a_run_s_facts_come_as_an_event_and_for_scripts(server: Asked, folder: Path) -> None:
    name, facts = next(server.events(run="done"))
    assert name == "facts" and facts == server.get("/facts", run="done").json()
    assert [row["id"] for row in facts["trials"]] == list(see(folder / "done").run.trials)


def test_the_texts_of_a_trial_are_asked_for_one_by_one(server: Asked, folder: Path) -> None:
    run = see(folder / "done").run
    trial = tree.winner(run)
    assert server.get("/texts", run="done", trial=trial.id).json()["sources"][trial.source_id] == trial.source
    unknown = server.get("/texts", run="done", trial="none")
    assert (unknown.status_code, "no trial none" in unknown.text) == (404, True)


@pytest.mark.parametrize("run", ["nowhere", "../live", "/etc", "empty", ""])
def test_a_run_that_is_not_shown_cannot_be_asked_for(server: Asked, run: str) -> None:
    for path in ("/facts", "/texts", "/events"):
        answer = server.get(path, run=run)
        assert (answer.status_code, answer.text.startswith("There is no run")) == (404, True)


def test_a_stop_wants_a_post_the_token_twice_and_a_run_that_goes_on(server: Asked) -> None:
    address = f"{server.base}/stop?token={server.token}&run=done"
    assert httpx2.get(address).status_code == 405
    assert httpx2.post(address).status_code == 403
    assert httpx2.post(address, headers={"X-Token": "wrong"}).status_code == 403
    answer = httpx2.post(address, headers={"X-Token": server.token})
    assert (answer.status_code, answer.text.startswith("No run goes on")) == (404, True)


def test_a_run_that_cannot_be_read_is_in_the_list_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "runs" / "broken").mkdir(parents=True)
    (tmp_path / "runs" / "broken" / "journal.sqlite").write_bytes(b"no journal" * 100)
    (tmp_path / "runs" / "bad").mkdir()
    (tmp_path / "runs" / "bad" / "suite.sqlite").write_bytes(b"no suite" * 100)
    with watching(tmp_path / "runs") as address:
        _, found = next(Asked(address).events())
    assert "damaged" in found["runs"][0]["fault"] and "keeps no suite" in found["suites"][0]["fault"]


@pytest.mark.long
def test_a_run_that_goes_on_is_followed_stopped_and_can_be_resumed(tmp_path: Path) -> None:
    with scripted_search(tmp_path) as run:
        printed_until(run, "passed")
        with watching(tmp_path / "kept") as address:
            assert address.endswith("run=.")
            asked = Asked(address)
            events = asked.events(run=".")
            first, second = (next(events)[1] for _ in range(2))
            assert first["state"] == second["state"] == "running"
            assert second["progress"]["judged"] >= first["progress"]["judged"]
            assert lock.holder(tmp_path / "kept") == run.pid
            answer = httpx2.post(f"{asked.base}/stop?token={asked.token}&run=.", headers={"X-Token": asked.token})
            assert (answer.status_code, run.wait(60)) == (200, 130)
            last = next(facts for _, facts in events if facts["state"] != "running")
            assert (last["state"], last["progress"]["left_s"]) == ("stopped", None)
        assert run.stdout and "resume kept" in run.stdout.read()
