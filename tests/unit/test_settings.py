"""Settings are read once, checked at once, and never show a secret."""

import copy
import pickle

import msgspec
import pytest

from gateway.auth import is_loopback
from producer.secret import Secret
from producer.settings import ServerSettings, read_settings
from projector.settings import ProjectorSettings
from surfacelog.errors import ProtocolError


class RoomSettings(msgspec.Struct, frozen=True):
    room_size: int = 3
    room_names: tuple[str, ...] = ()
    room_open: bool = False


def refusal(environ: dict[str, str], kind: type[msgspec.Struct] = ServerSettings, **options: object) -> str:
    with pytest.raises(ProtocolError) as caught:
        read_settings(kind, environ, **options)  # type: ignore[arg-type]
    assert caught.value.code == "misconfigured"
    return caught.value.message


def test_an_empty_environment_gives_the_embedded_ledger() -> None:
    settings = read_settings(ServerSettings, {})
    assert settings.embedded
    assert settings.partition_count == 8
    assert settings.data_path.is_absolute()
    assert settings.data_path.name == ".surfacelog"


def test_kafka_makes_sixty_four_partitions_unless_told_otherwise() -> None:
    assert read_settings(ServerSettings, {"SURFACELOG_KAFKA": "one:9092"}).partition_count == 64
    assert read_settings(ServerSettings, {}, {"kafka": "one:9092", "partitions": 3}).partition_count == 3


def test_an_override_wins_over_the_environment_and_none_does_not() -> None:
    environ = {"SURFACELOG_KAFKA": "one:9092", "SURFACELOG_TOPIC": "here"}
    settings = read_settings(ServerSettings, environ, {"kafka": "two:9092", "topic": None})
    assert (settings.kafka, settings.topic) == ("two:9092", "here")


def test_an_empty_variable_counts_as_unset() -> None:
    assert read_settings(ServerSettings, {"SURFACELOG_KAFKA": ""}).kafka is None


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("SURFACELOG_PARTITIONS", "0"),
        ("SURFACELOG_PARTITIONS", "many"),
        ("SURFACELOG_TOPIC", "two words"),
        ("SURFACELOG_KAFKA_LINGER_MS", "-1"),
        ("SURFACELOG_KAFKA_COMPRESSION", "rar"),
        ("SURFACELOG_KAFKA_PROPERTIES", "ssl.ca.location=/x"),
        ("SURFACELOG_KAFKA_PROPERTIES", '{"ssl.ca.location":'),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_variable(variable: str, text: str) -> None:
    assert refusal({variable: text}).startswith(f"{variable}: ")


def test_a_property_that_would_weaken_durability_is_not_passed_on() -> None:
    assert "acks" in refusal({"SURFACELOG_KAFKA_PROPERTIES": '{"acks": "0"}'})
    assert "enable.idempotence" in refusal({"SURFACELOG_KAFKA_PROPERTIES": '{"enable.idempotence": "false"}'})


def test_a_misspelt_kafka_variable_is_refused_with_the_nearest_name() -> None:
    said = refusal({"SURFACELOG_KAFKA_COMPRESION": "lz4"})
    assert said == "SURFACELOG_KAFKA_COMPRESION is not a setting; did you mean SURFACELOG_KAFKA_COMPRESSION?"


def test_another_rooms_variable_is_left_to_it() -> None:
    environ = {"SURFACELOG_ROOM_SIZ": "4", "SURFACELOG_TEST_KAFKA": "one:9092"}
    assert read_settings(ServerSettings, environ).embedded
    assert read_settings(RoomSettings, environ).room_size == 3
    assert "SURFACELOG_ROOM_SIZ is not a setting" in refusal(environ, RoomSettings, owns=["ROOM_"])


@pytest.mark.parametrize("text", ["a, b", '["a", "b"]'])
def test_a_list_is_separated_by_commas_or_json(text: str) -> None:
    environ = {"SURFACELOG_ROOM_NAMES": text, "SURFACELOG_ROOM_OPEN": "true"}
    settings = read_settings(RoomSettings, environ)
    assert settings.room_names == ("a", "b")
    assert settings.room_open is True


def test_a_secret_never_shows_what_it_holds() -> None:
    environ = {
        "SURFACELOG_REDIS": "redis://:hunter2@host/0",
        "SURFACELOG_KAFKA_PROPERTIES": '{"sasl.password": "hunter2"}',
    }
    settings = read_settings(ServerSettings, environ)
    assert "hunter2" not in f"{settings!r} {settings} {settings.redis} {settings.redis!r}"
    assert repr(Secret("hunter2")) == str(Secret("hunter2")) == "***"
    assert settings.redis is not None
    assert settings.redis.reveal() == "redis://:hunter2@host/0"
    assert settings.kafka_properties["sasl.password"].reveal() == "hunter2"


def test_a_refusal_does_not_tell_a_secret() -> None:
    assert "hunter2" not in refusal({"SURFACELOG_KAFKA_PROPERTIES": '{"sasl.password": ["hunter2"]}'})


def test_a_secret_is_compared_by_its_text_and_neither_copied_nor_pickled() -> None:
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert len({Secret("a"), Secret("a")}) == 1
    with pytest.raises(TypeError):
        pickle.dumps(Secret("a"))
    with pytest.raises(TypeError):
        copy.deepcopy(Secret("a"))
    with pytest.raises(TypeError):
        msgspec.json.encode(Secret("a"))


def test_figures_that_ask_for_no_credential_stay_on_this_machine_unless_told_otherwise() -> None:
    assert is_loopback(read_settings(ProjectorSettings, {}).metrics_host)
    environ = {"SURFACELOG_METRICS_HOST": "0.0.0.0"}  # noqa: S104
    assert read_settings(ProjectorSettings, environ).metrics_host == "0.0.0.0"  # noqa: S104
