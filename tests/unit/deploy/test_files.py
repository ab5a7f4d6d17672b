"""What deployment files promise: hardened services, no secrets, metrics and settings that exist, headings that alerts point to."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from streams.cli.app import _COMMANDS, cli
from streams.metrics import new_registry
from streams.settings import known

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DASHBOARD = json.loads((DEPLOY / "grafana" / "dashboards" / "banyan.json").read_text(encoding="utf-8"))
METRIC = re.compile(r"\bbanyan_[a-z_]+")
VARIABLE = re.compile(r"\bBANYAN_[A-Z_]+[A-Z]")
NOT_SETTINGS = {"BANYAN_CONFIG", "BANYAN_DEBUG", "BANYAN_STORE", "BANYAN_TEST_KAFKA", "BANYAN_TEST_REDIS"}


def documented() -> set[str]:
    """Names of metrics, and of what a histogram or counter makes of them."""
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    names = set(re.findall(r"^\| `(banyan_[a-z_]+)` \|", page, re.MULTILINE))
    return names | {f"{name}_bucket" for name in names} | {f"{name}_count" for name in names} | {f"{name}_sum" for name in names}


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_is_hardened_and_limited(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert int(service["user"].split(":")[0]) > 0
    limits = service["deploy"]["resources"]["limits"]
    assert set(limits) == {"cpus", "memory", "pids"}
    assert service["restart"] in ("unless-stopped", "on-failure", "no")
    assert service["logging"]["options"]["max-size"]
    assert "privileged" not in service


@pytest.mark.parametrize("name", [name for name in SERVICES if name not in ("topics", "tools")])
def test_what_goes_on_running_has_a_health_check(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"][0] == "CMD"


def test_ports_are_this_machine_s_only() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_images_are_pinned() -> None:
    for service in SERVICES.values():
        assert re.search(r":[a-z0-9][\w.-]*$", service["image"])
        assert not service["image"].endswith(":latest")


def test_no_secret_is_in_a_file() -> None:
    for service in SERVICES.values():
        for name, value in service.get("environment", {}).items():
            if re.search(r"PASSWORD|KEY$|SECRET|TOKEN", name):
                assert re.fullmatch(r"\$\{[A-Z_]+:-\}", value), name
        if service["image"].startswith("banyan:"):
            assert service["env_file"] == [{"path": ".env", "required": False}]
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    assert "/.env" in ignored
    for path in [ROOT / "docker-compose.yml", *DEPLOY.rglob("*.y*ml"), *DEPLOY.rglob("*.json"), DEPLOY / "Dockerfile"]:
        assert not re.search(r"sk-[A-Za-z0-9]{8}|://[^/\s$]+:[^/\s$]+@", path.read_text(encoding="utf-8")), path


def test_every_volume_and_network_is_declared_and_every_mounted_file_is_there() -> None:
    for service in SERVICES.values():
        assert set(service["networks"]) <= set(COMPOSE["networks"])
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("./"):
                assert (ROOT / source).exists(), source
                assert volume.endswith(":ro")
            else:
                assert source in COMPOSE["volumes"]


def test_two_workers_of_each_kind_with_names_of_their_own() -> None:
    workers = {name: service for name, service in SERVICES.items() if service.get("command", [""])[0] == "worker"}
    assert sorted(service["command"][1] for service in workers.values()) == ["ingest", "ingest", "summaries", "summaries"]
    assert {service["environment"]["BANYAN_KAFKA_INSTANCE"] for service in workers.values()} == set(workers)
    targets = scraped()[0]["static_configs"][0]["targets"]
    assert set(targets) == {f"{name}:{service['environment']['BANYAN_METRICS_PORT']}" for name, service in workers.items()}


def test_views_leave_room_in_a_container() -> None:
    for name, service in SERVICES.items():
        if service["image"].startswith("banyan:") and name != "topics":
            limit = _bytes(service["deploy"]["resources"]["limits"]["memory"])
            views = int(service["environment"]["BANYAN_RETRIEVAL_VIEW_BYTES_MAX"])
            assert views <= 0.45 * limit, f"{name}: beside models, what is read ahead and the process itself"


def _bytes(text: str) -> int:
    number, unit = re.fullmatch(r"(\d+)([mg])", text).groups()  # type: ignore[union-attr]
    return int(number) * {"m": 2**20, "g": 2**30}[unit]


def test_what_the_dashboard_shows_is_scraped() -> None:
    jobs = {job["job_name"]: job["static_configs"][0]["targets"] for job in scraped()}
    assert jobs["banyan-serve"] == [f"serve:{SERVICES['serve']['environment']['BANYAN_METRICS_PORT']}"]
    for name in ("serve", *(target.split(":")[0] for target in jobs["banyan"])):
        assert SERVICES[name]["environment"]["BANYAN_METRICS_HOST"] == "0.0.0.0", "others are to reach it"
    named = {job for expression in expressions() for job in re.findall(r'job="([a-z-]+)"', expression)}
    assert named <= set(jobs)


def test_a_worker_that_ends_again_and_again_is_told_of() -> None:
    """It is up whenever somebody looks for a minute; what tells is when it was started."""
    (rule,) = (rule for rule in rules() if "process_start_time_seconds" in rule["expr"])
    assert "for" not in rule
    assert rule["labels"]["severity"] == "page"
    registry = new_registry()
    assert "process_start_time_seconds" in {metric.name for metric in registry.collect()}


def scraped() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["scrape_configs"]
    return found


def rules() -> Iterator[dict[str, Any]]:
    for group in yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]:
        yield from group["rules"]


def test_commands_exist() -> None:
    for service in SERVICES.values():
        if service["image"].startswith("banyan:") and service["command"] != ["--help"]:
            assert service["command"][0] in _COMMANDS


def test_settings_exist() -> None:
    variables = {setting.variable for setting in known().values()} | NOT_SETTINGS
    for path in (ROOT / "docker-compose.yml", DEPLOY / "runbook.md", DEPLOY / "README.md", DEPLOY / "Dockerfile"):
        assert set(VARIABLE.findall(path.read_text(encoding="utf-8"))) <= variables, path


def expressions() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"]
    for rule in rules():
        yield rule["expr"]


def test_metrics_exist() -> None:
    found = {name for expression in expressions() for name in METRIC.findall(expression)}
    assert len(found) > 20
    assert found <= documented()
    runbook = set(re.findall(r"`(banyan_[a-z_]+)", (DEPLOY / "runbook.md").read_text(encoding="utf-8")))
    assert runbook <= documented()


def test_every_panel_says_something_and_none_lies_on_another() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
        assert panel["type"] == "row" or panel["targets"]
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_every_alert_has_its_chapter_in_the_runbook() -> None:
    headings = re.findall(r"^## (.*)$", (DEPLOY / "runbook.md").read_text(encoding="utf-8"), re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    for rule in rules():
        assert rule["annotations"]["runbook"] in anchors, rule["alert"]


COMMANDS = {
    command
    for page in (DEPLOY / "runbook.md", DEPLOY / "README.md")
    for command in re.findall(r"`banyan ([^`]*)`", page.read_text(encoding="utf-8"))
}
STANDS_FOR = {"N": "8", "PLACE": "2:0", "…": "2h", "NAME": "my-app"}


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_commands_of_the_runbook_are_taken_as_they_stand(command: str) -> None:
    """With their options and arguments; nothing is done."""
    words = [STANDS_FOR.get(word, word) for word in shlex.split(command)]
    if len(words) == 1 and words[0] in ("export", "dead-letters"):
        return  # named, not given
    at: click.Command = cli
    while isinstance(at, click.Group):
        name, found, words = at.resolve_command(click.Context(at), words)
        assert found is not None, name
        at = found
    at.make_context(at.name, words)


def test_the_image_gets_what_the_build_copies() -> None:
    lines = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").splitlines()
    copied = [word for line in lines if line.startswith("COPY ") and "--from" not in line for word in line.split()[1:-1]]
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert set(copied) == allowed
    assert all((ROOT / name).exists() for name in copied)
    assert any(line.startswith("USER ") and not line.startswith("USER 0") for line in lines)
