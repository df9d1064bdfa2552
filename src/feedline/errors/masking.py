"""Addresses and other texts without the passwords, keys and signatures in them: the one place that removes these.

Takes: a text to be shown: a message, a description, an address that the user gave. Gives: the same with *** in the
place of secrets.
Promises: nothing is shown at the places where secrets are: between user and host of a URL (also with @, : or / in it,
which should be %40, %3A, %2F), after names such as `password`, `sig` or `X-Amz-Signature` in its query, in libpq's
`host=… password=…` (also with commas and quotes in it), in `AWS_SECRET_ACCESS_KEY=…`, in headers. It may remove too
much; a secret at an unknown place stays.
Not its job: a driver that repeats a password without such a name (sql.database knows the password, and removes it).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

MASK = "***"

_NAME = (
    r"(?:[\w.-]{0,60}(?:password|passwd|passphrase|secret|credential|access[_-]?key|account[_-]?key|api[_-]?key"
    r"|private[_-]?key|(?:access|session|security|auth|api|refresh|bearer|hf|sas)[_-]?token)[\w.-]{0,60})"
)
"""Names of options or variables. Not every "token" is a secret: texts have `pad_token` and `max_tokens`."""
_QUERY_NAME = rf"(?:{_NAME}|[\w.-]{{0,60}}(?:token|signature)|sig|sas|key|pwd|awsaccesskeyid)"
_OTHER = r"[,;&]\s?['\"]?[\w.-]{1,60}['\"]?\s?[=:]"
_VALUE = (
    # Including what follows a closing quote directly: the quote may be part of a password that was not escaped. A value
    # without quotes ends at a space; it includes commas and quotes, unless another name follows, but not at its end.
    rf"""(?:'(?:[^'\\]|\\.)*'?[^\s,;&)}}\]'"]*'?|"(?:[^"\\]|\\.)*"?[^\s,;&)}}\]'"]*"?"""
    rf"""|(?:(?!{_OTHER})\S)*[^\s,;&)}}\]'"])"""
)
_QUOTE = r"['\"](?=\w)"
"""A quote inside a word, not around it."""

# Each name, and the part before a host, has a maximum length: otherwise a long text could take quadratic time.
_PATTERNS = [
    # Between user and host, to the last @ of the word. A port and a path with @ look the same, and are removed, too.
    (re.compile(rf"(\w://[^\s/?#:@'\"<>]{{0,300}}):(?:[^\s'\"<>]|{_QUOTE}){{0,300}}@"), rf"\1:{MASK}@"),
    (re.compile(r"(\bhttps?://)[^\s/?#:'\"<>]{1,300}@", re.IGNORECASE), rf"\1{MASK}@"),
    (re.compile(rf"([?&;]{_QUERY_NAME}=)[^&;#\s'\"<>]*", re.IGNORECASE), rf"\1{MASK}"),
    (re.compile(rf"((?<![\w.-])\w{{0,60}}password\s*=\s*){_VALUE}", re.IGNORECASE), rf"\1{MASK}"),
    (re.compile(rf"((?<![\w.-]){_NAME}=){_VALUE}", re.IGNORECASE), rf"\1{MASK}"),
    (re.compile(rf"((?<![\w.-])[A-Z0-9_]{{0,60}}_TOKEN=){_VALUE}"), rf"\1{MASK}"),
    (re.compile(rf"((?<!\w)(?P<q>['\"]){_NAME}(?P=q)\s*:\s*){_VALUE}", re.IGNORECASE), rf"\1{MASK}"),
    (re.compile(r"(\b(?:password|secret|key_id|identified by)\s+)(['\"])[^'\"]*\2", re.IGNORECASE), rf"\1\2{MASK}\2"),
    (re.compile(r"(\b(?:x-amz-[\w-]{0,60}token|x-api-key)['\"]?\s*[:=]\s*['\"]?)[^\s'\",}]+", re.I), rf"\1{MASK}"),
    (re.compile(r"(\bauthorization['\"]?\s*[:=]\s*['\"]?(?:(?:bearer|basic)\s+)?)[^\s'\",}]+", re.I), rf"\1{MASK}"),
]
_WHOLE = re.compile(r"^([a-z][\w+.-]*://[^/?#:@]*):(.*)@", re.IGNORECASE | re.DOTALL)


_HINTS = (
    *("://", "password", "passwd", "passphrase", "secret", "credential", "key", "token", "signature", "sig=", "sas="),
    *("pwd=", "identified by", "authorization"),
)
"""Each pattern needs one of these. Most texts have none, and the patterns take 0.2 ms for a traceback."""


def masked(text: str) -> str:
    """Any text, without secrets.

    >>> masked("could not connect to postgresql://ann:p@ss@host/shop (AWS_SECRET_ACCESS_KEY=abc/def)")
    'could not connect to postgresql://ann:***@host/shop (AWS_SECRET_ACCESS_KEY=***)'
    >>> masked("host=db password='a \\\\'b\\\\'' dbname=shop"), masked("https://h/a.tar?sv=1&sig=a%2Fb")
    ('host=db password=*** dbname=shop', 'https://h/a.tar?sv=1&sig=***')
    """
    if text.isascii():  # other letters may be equal to one of a hint if case is ignored, such as K (Kelvin) and k
        small = text.lower()
        if not any(hint in small for hint in _HINTS):
            return text
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    return text


def address(where: object) -> str:
    """A text that is only an address: here a password may also have spaces and quotes.

    >>> address("postgresql://ann:my 'own@host/shop"), address("s3://bucket/prefix")
    ('postgresql://ann:***@host/shop', 's3://bucket/prefix')
    """
    return masked(_WHOLE.sub(rf"\1:{MASK}@", str(where)))


def file_name(where: str) -> str:
    """The name of a file: a URL without secrets, a path unchanged.

    >>> file_name("https://host/a.tar?sig=abc"), file_name("/data/token=7/secret=8/a.tar")
    ('https://host/a.tar?sig=***', '/data/token=7/secret=8/a.tar')
    """
    return address(where) if "://" in where else where


def without(text: str, options: Mapping[str, object]) -> str:
    """A driver's message about its options, without the values that are secret by their name.

    >>> without("'hush!' is no key", {"secret_access_key": "hush!", "region": "no"})
    "'***' is no key"
    """
    for name, value in options.items():
        if value and masked(f"{name}=x") != f"{name}=x":
            text = text.replace(str(value), MASK)
    return text
