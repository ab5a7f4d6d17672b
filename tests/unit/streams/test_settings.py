"""Settings: where values come from, what is refused and how it is said, and that nothing secret is shown."""

from __future__ import annotations

import pickle
from datetime import timedelta
from pathlib import Path

import pytest

from memory.errors import SettingError
from streams.setting_values import Secret, show_value
from streams.settings import Settings, known, load


def test_defaults_come_from_the_dataclasses(tmp_path: Path) -> None:
    loaded = load({}, folder=tmp_path)
    assert loaded.settings == Settings()
    assert set(loaded.origins.values()) == {"default"}
    assert loaded.warnings == ()


def test_an_option_beats_a_variable_beats_the_file_beats_the_default(tmp_path: Path) -> None:
    (tmp_path / "banyan.toml").write_text('store = "sqlite:///file"\nsummarizer = "openai:m"\n[ingest]\nbatch_items = 8\n')
    environment = {"BANYAN_STORE": "sqlite:///variable", "BANYAN_INGEST_BATCH_ITEMS": "16"}
    loaded = load(environment, folder=tmp_path, options={"store": "sqlite:///option"})
    assert loaded.settings.store == "sqlite:///option"
    assert loaded.settings.memory.ingest.batch_items == 16
    assert loaded.settings.summarizer == "openai:m"
    assert loaded.origins["store"] == "option --store"
    assert loaded.origins["ingest_batch_items"] == "variable BANYAN_INGEST_BATCH_ITEMS"
    assert loaded.origins["summarizer"] == f"file {tmp_path / 'banyan.toml'}"
    assert loaded.origins["embedder"] == "default"


def test_the_file_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text("[theta]\nbase = 0.3\n")
    assert load({"BANYAN_CONFIG": str(tmp_path / "other.toml")}, folder=tmp_path).settings.tree.theta_base == 0.3
    assert load({}, file=tmp_path / "other.toml").settings.tree.theta_base == 0.3


def test_an_empty_variable_is_an_unset_one(tmp_path: Path) -> None:
    assert load({"BANYAN_STORE": " "}, folder=tmp_path).origins["store"] == "default"


def test_what_means_nothing_is_said_with_the_nearest_name(tmp_path: Path) -> None:
    (tmp_path / "banyan.toml").write_text("[ingest]\nbatch_item = 8\n")
    warnings = load({"BANYAN_SUMARIZER": "x", "BANYAN_CONFIG": "", "BANYAN_DEBUG": "1", "HOME": "/"}, folder=tmp_path).warnings
    assert len(warnings) == 2
    assert "ingest_batch_item; did you mean ingest_batch_items?" in warnings[0]
    assert "BANYAN_SUMARIZER means nothing; did you mean BANYAN_SUMMARIZER?" in warnings[1]


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("BANYAN_INGEST_BATCH_ITEMS", "many", "a whole number"),
        ("BANYAN_INGEST_BATCH_ITEMS", "0", "between 1 and 1,024"),
        ("BANYAN_THETA_BASE", "nan", "a finite number"),
        ("BANYAN_THETA_BASE", "1.5", "between 0.01 and 0.99"),
        ("BANYAN_SUMMARIES_TIME_LIMIT", "soon", "a duration such as"),
        ("BANYAN_SUMMARIES_TIME_LIMIT", "0s", "between 0.1"),
        ("BANYAN_LOG_LEVEL", "loud", "one of debug, info, warning, error"),
        ("BANYAN_STORE", "mysql://localhost:3306/0", "mysql:// is not known; there is sqlite:///PATH"),
        ("BANYAN_STORE", "/data/banyan", "sqlite:////data/banyan"),
        ("BANYAN_STORE", "sqlite:///", "names no folder"),
        ("BANYAN_STORE", "sqlite:///:memory:", "names no folder"),
        ("BANYAN_STORE", "sqlite://data", "names no folder"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_what_to_do(tmp_path: Path, variable: str, value: str, said: str) -> None:
    with pytest.raises(SettingError) as caught:
        load({variable: value}, folder=tmp_path)
    assert said in str(caught.value)
    assert variable.removeprefix("BANYAN_").lower() in str(caught.value).lower()


@pytest.mark.parametrize(
    ("text", "said"), [("store = ", "not TOML"), ("store = [1]", "must be a string"), (None, "cannot be read")]
)
def test_a_file_that_cannot_be_is_refused(tmp_path: Path, text: str | None, said: str) -> None:
    file = tmp_path / "x.toml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SettingError, match=said) as caught:
        load({}, file=file)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("10s", 10), ("10", 10), ("2m", 120), ("1h", 3600), ("1.5 s", 1.5), (".5s", 0.5)]
)
def test_durations(tmp_path: Path, text: str, seconds: float) -> None:
    settings = load({"BANYAN_SUMMARIES_BACKOFF": text}, folder=tmp_path).settings
    assert settings.memory.summaries.backoff == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("url", "path"),
    [("sqlite:///banyan.db", "banyan.db"), ("sqlite:////data/banyan", "/data/banyan"), ("sqlite:///a/b", "a/b")],
)
def test_the_store_is_a_path(url: str, path: str) -> None:
    assert Settings(store=url).store_path == Path(path)


def test_every_bound_belongs_to_a_number_and_holds_its_default(tmp_path: Path) -> None:
    for name, setting in known().items():
        if setting.default is None or isinstance(setting.default, (str, bool)):
            continue
        # The default given as a text is taken: so it is within its bounds, and is parsed as what it is.
        shown = show_value(setting.default)
        loaded = load({setting.variable: str(shown)}, folder=tmp_path)
        assert loaded.value(setting) == setting.default, name


class TestSecrets:
    """A key is nowhere but where it is asked for."""

    def test_it_is_masked(self, tmp_path: Path) -> None:
        loaded = load({"OPENAI_API_KEY": "sk-very-secret"}, folder=tmp_path)
        assert loaded.settings.openai.api_key == Secret("sk-very-secret")
        setting = known()["openai_api_key"]
        for shown in (repr(loaded), str(loaded.settings), f"{loaded.value(setting)}", str(show_value(loaded.value(setting)))):
            assert "very" not in shown
        with pytest.raises(TypeError):
            pickle.dumps(loaded.settings.openai.api_key)

    def test_a_password_in_an_address_is_masked(self) -> None:
        assert show_value("https://user:pass@host/v1") == "https://********@host/v1"

    def test_it_can_be_given_away(self) -> None:
        assert Secret("x").reveal() == "x"
