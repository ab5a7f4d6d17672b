"""Settings of Redis: the adapter gets them all, its defaults are ours, and a password of its own becomes a part of the address."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from pathlib import Path

import pytest
from redis.asyncio.connection import parse_url

from memory.adapters.redis import RedisSettings
from memory.errors import SettingError
from streams.redis_options import redis_settings
from streams.setting_tables import RedisOptions
from streams.setting_values import show_value
from streams.settings import Settings, known, load

PASSWORD = "p@ss/w:rd#1"


def given(store: str = "redis://host:6379/2", **variables: str) -> Settings:
    environment = {"BANYAN_STORE": store} | {f"BANYAN_REDIS_{name}": value for name, value in variables.items()}
    return load(environment, folder=Path("/nowhere")).settings


def test_defaults_are_the_adapter_s() -> None:
    assert redis_settings(given()) == RedisSettings(url="redis://host:6379/2")


def test_every_setting_of_the_adapter_can_be_set() -> None:
    assert {each.name for each in fields(RedisSettings)} - {"url"} == {each.name for each in fields(RedisOptions)} - {
        "user",
        "password",
    }


def test_what_is_set_reaches_the_adapter() -> None:
    found = redis_settings(given(PREFIX="acme", WAIT_REPLICAS="1", WAIT="2s", PATIENCE="0", LEASES_BIND="no"))
    assert (found.prefix, found.wait_replicas, found.wait, found.patience) == ("acme", 1, timedelta(seconds=2), timedelta(0))
    assert found.leases_bind is False


@pytest.mark.parametrize("store", ["redis://host:6379/2", "rediss://host:6379/2", "unix:///run/redis.sock"])
def test_a_password_of_its_own_is_the_address_s(store: str) -> None:
    parsed = parse_url(redis_settings(given(store, USER="ana", PASSWORD=PASSWORD)).url)
    assert (parsed["username"], parsed["password"]) == ("ana", PASSWORD)
    assert parsed.get("path") == ("/run/redis.sock" if store.startswith("unix") else None)


def test_a_password_without_a_user_is_the_default_user_s() -> None:
    parsed = parse_url(redis_settings(given(PASSWORD=PASSWORD)).url)
    assert (parsed.get("username"), parsed["password"]) == (None, PASSWORD)


def test_a_user_or_password_that_is_there_twice_is_refused() -> None:
    with pytest.raises(SettingError, match="leave one out") as caught:
        redis_settings(given("redis://bob:other@host", PASSWORD=PASSWORD))
    assert PASSWORD not in str(caught.value)
    assert "other" not in str(caught.value)


def test_a_user_without_a_password_is_refused() -> None:
    with pytest.raises(SettingError, match="without BANYAN_REDIS_PASSWORD"):
        redis_settings(given(USER="ana"))


def test_a_prefix_that_cannot_be_is_refused() -> None:
    with pytest.raises(SettingError, match="prefix"):
        redis_settings(given(PREFIX="a:b"))


def test_no_password_is_shown(tmp_path: Path) -> None:
    loaded = load({"BANYAN_STORE": "redis://u:hidden1@host", "BANYAN_REDIS_PASSWORD": "hidden2"}, folder=tmp_path)
    shown = [str(show_value(loaded.value(setting))) for setting in known().values()]
    assert not [each for each in shown if "hidden" in each]
