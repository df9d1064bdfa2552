"""Passwords, keys and signatures are in nothing that is shown: messages, descriptions, reprs, reports, logs, states."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kinds import FORK

from feedline import DataLoader
from feedline.errors import add_note
from feedline.errors.masking import address, masked
from feedline.messages.outcome import Failure

SECRET = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=4, max_size=12).map("%{}".format)
ODD = st.sampled_from(["", "@", ":", "/", "@:", "/@", "@/x", "%40", "?", "#"])

PLACES = [
    "postgresql://me:{}@host/db",
    "cannot reach mysql+x://me:{}@host:3306/db?charset=utf8 (again)",
    "redis://:{}@host",
    "got 'https://me:{}@host/a.tar'",
]
NAMED = [
    "host=db port=5432 user=me password={} dbname=x",
    "password = {}",
    "password='{}' user=me",
    "sslpassword={}",
    "https://host/a.tar?X-Amz-Credential={}&X-Amz-Date=1",
    "https://host/a.tar?X-Amz-Date=1&X-Amz-Signature={}",
    "https://host/a.tar?sv=2024&sig={}&se=1",
    "https://host/a.tar?Expires=1&Signature={}",
    "https://host/a.tar?X-Goog-Signature={}",
    "https://host/v1?key={}",
    "https://host/v1?access_token={}#x",
    "postgresql://me@host/db?sslmode=require&password={}",
    "AWS_SECRET_ACCESS_KEY={} AWS_REGION=eu",
    "AWS_SESSION_TOKEN={}",
    "HF_TOKEN={}",
    "AZURE_STORAGE_ACCOUNT_KEY='{}'",
    "{{'sasl.password': '{}', 'group.id': 'x'}}",
    '{{"secret_access_key": "{}"}}',
    "ObjectStore(secret_access_key={}, region='x')",
    "CREATE SECRET (TYPE s3, KEY_ID 'x', SECRET '{}')",
    "authorization: Bearer {}",
    "DefaultEndpointsProtocol=https;AccountName=x;AccountKey={};EndpointSuffix=y",
]


@given(SECRET, ODD, st.sampled_from(PLACES))
def test_nothing_between_user_and_host_is_shown(word: str, odd: str, place: str) -> None:
    text = masked(place.format(word + odd + word))
    assert word not in text
    assert "host" in text
    assert masked(text) == text


@given(SECRET, st.sampled_from(NAMED))
def test_nothing_behind_a_secret_name_is_shown(word: str, place: str) -> None:
    text = masked(place.format(word))
    assert word not in text
    assert masked(text) == text


GLUED = [
    "host=db port=5432 user=me password={} dbname=x",
    "host=db password = {} dbname=x",
    "host=db password='{}' dbname=x",
    "PGPASSWORD={} psql",
    "{{'sasl.password': '{}', 'group.id': 'x'}}",
    "postgresql://me:{}@host/db",
]


@given(SECRET, st.sampled_from([",", "'", '"', ")", "]", "}", "&", ";", "@", "/", "\\"]), st.sampled_from(GLUED))
def test_a_secret_does_not_end_at_its_first_odd_character(word: str, odd: str, place: str) -> None:
    text = masked(place.format(word + odd + word[1:]))
    assert word[1:] not in text
    assert masked(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "https://hush@42@host/x",
        "token hf_token=hush42",
        "?sas_token='hush42'",
        "x-amz-security-token: hush42",
        "{'X-Api-Key': 'hush42'}",
        'connection failed: password "hush42" is wrong',
        "ALTER USER me IDENTIFIED BY 'hush42'",
    ],
)
def test_other_places_where_secrets_stand(text: str) -> None:
    assert "hush" not in masked(text)
    assert "42" not in masked(text)


def test_what_comes_after_a_secret_is_shown() -> None:
    assert masked("(password=a,b, user=me)") == "(password=***, user=me)"
    assert masked("AccountKey=a;b;EndpointSuffix=y") == "AccountKey=***;EndpointSuffix=y"
    assert masked("got 'password=a' and 'user=b'") == "got 'password=***' and 'user=b'"


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens=512, pad_token='<pad>', tokenizer=x, PWD=/home/me, key='id', monkey=1",
        "give access_key_id=, secret_access_key= and region= (or AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION)",
        "s3://bucket/a@b/c.tar, https://host:8080/x?page=2&design=3, http://host/@me",
        "the password has an @; a token: ten; secret santa",
        "a_keyboard=1 credit=2 C:/x@y",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert masked(text) == text


def test_long_texts_take_no_longer_for_it() -> None:
    """Each of these would be looked at again from each of its characters, if names had no bounds: for minutes."""
    for piece in ("a", "a.", "password", "https://", "x=", "'"):
        masked(piece * (100_000 // len(piece)))


ALONE = [
    *("ftp://me:hush@host", "Password = hush", "passwd=hush", "a_PassPhrase=hush", "'secret':'hush'", "SECRET 'hush'"),
    *("credential=hush", "access-key=hush", "?key=hush", "x-api-key: hush", "KEY_ID 'hush'", "?token=hush"),
    *("A_TOKEN=hush", "x-amz-security-token: hush", "?Signature=hush", "?sig=hush", "?SAS=hush", "?pwd=hush"),
    *("identified by 'hush'", "Authorization: hush", "?\u212aey=hush"),
]


@pytest.mark.parametrize("text", ALONE)
def test_each_name_alone_is_enough(text: str) -> None:
    assert "hush" not in masked(text)


class Reading:
    """A dataset of a user's, whose driver quotes what it was given."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        if index == 2:
            raise OSError("no route to postgresql://me:p@hush!42@host/db")
        return index

    def describe(self, index: int) -> str:
        return f"https://bucket/{index}.jpg?X-Amz-Signature=hush!42"


def test_what_is_written_down_of_bad_samples_shows_none(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with DataLoader(Reading(), 2, on_error="skip", error_log=tmp_path / "bad.jsonl", **FORK) as loader:
        with loader.report(tmp_path / "report.html"), loader.trace(tmp_path / "trace.json"):
            assert [batch.tolist() for batch in loader] == [[0, 1], [3]]
        shown = [repr(loader.errors()), json.dumps(loader.state_dict()), *capfd.readouterr()]
    shown += [path.read_text() for path in tmp_path.iterdir()]
    assert len(shown) == 7
    assert not any("hush!42" in text for text in shown)
    assert "me:***@host" in shown[0]


def test_the_traceback_of_a_worker_shows_none() -> None:
    """The exception is the user's own, and stays as it is; what is noted of it is ours."""
    error = OSError("postgresql://me:p@hush!42@host")
    add_note(error, "feedline: at the row with url = 'https://host/a?sig=hush!42'")
    raised = Failure.of(error, same_process=False).exception()
    assert str(raised) == str(error)
    assert "hush!42" not in str(raised.__cause__)
    assert raised.__notes__ == ["feedline: at the row with url = 'https://host/a?sig=***'"]


def test_addresses_may_have_anything_in_them() -> None:
    assert address("mysql://me:a b'c\"@d@host/x") == "mysql://me:***@host/x"
