"""Addresses and other texts without the passwords, keys and signatures in them: the one place that takes these out.

Takes: a text that may be shown: a message, a description, an address that the user gave. Gives: the same with *** where
something secret was.
Promises: what stands where secrets stand is not shown: between user and host of a URL (also with @, : or / in it, which
should be %40, %3A, %2F), behind names such as `password`, `sig` or `X-Amz-Signature` in its query, in libpq's
`host=… password=…` (also with commas and quotes in it), in `AWS_SECRET_ACCESS_KEY=…`, in headers. It may take out too
much; what it does not know stays.
Not its job: where a driver repeats a password without such a name (sql.database knows it, and takes it out).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

MASK = "***"

_NAME = (
    r"(?:[\w.-]{0,60}(?:password|passwd|passphrase|secret|credential|access[_-]?key|account[_-]?key|api[_-]?key"
    r"|private[_-]?key|(?:access|session|security|auth|api|refresh|bearer|hf|sas)[_-]?token)[\w.-]{0,60})"
)
"""Of an option or a variable. Not every token is one: a text has `pad_token` and `max_tokens`."""
_QUERY_NAME = rf"(?:{_NAME}|[\w.-]{{0,60}}(?:token|signature)|sig|sas|key|pwd|awsaccesskeyid)"
_OTHER = r"[,;&]\s?['\"]?[\w.-]{1,60}['\"]?\s?[=:]"
_VALUE = (
    # With what is glued to its end: a quote inside a password that nobody has escaped. A bare one has whatever is no
    # space: commas and quotes, too, unless another name comes after them; at its very end they belong to the text.
    rf"""(?:'(?:[^'\\]|\\.)*'?[^\s,;&)}}\]'"]*'?|"(?:[^"\\]|\\.)*"?[^\s,;&)}}\]'"]*"?"""
    rf"""|(?:(?!{_OTHER})\S)*[^\s,;&)}}\]'"])"""
)
_QUOTE = r"['\"](?=\w)"
"""Inside a word, not around one."""

# Each name and what is before a host have a greatest length: or a long text could take the square of its time.
_PATTERNS = [
    # Between user and host, to the last @ of the word. A port and a path with @ look the same, and are taken out, too.
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


def masked(text: str) -> str:
    """Any text that is shown.

    >>> masked("could not connect to postgresql://ann:p@ss@host/shop (AWS_SECRET_ACCESS_KEY=abc/def)")
    'could not connect to postgresql://ann:***@host/shop (AWS_SECRET_ACCESS_KEY=***)'
    >>> masked("host=db password='a \\\\'b\\\\'' dbname=shop"), masked("https://h/a.tar?sv=1&sig=a%2Fb")
    ('host=db password=*** dbname=shop', 'https://h/a.tar?sv=1&sig=***')
    """
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    return text


def address(where: object) -> str:
    """A text that is an address and nothing else: here a password may also have spaces and quotes.

    >>> address("postgresql://ann:my 'own@host/shop"), address("s3://bucket/prefix")
    ('postgresql://ann:***@host/shop', 's3://bucket/prefix')
    """
    return masked(_WHOLE.sub(rf"\1:{MASK}@", str(where)))


def file_name(where: str) -> str:
    """What a file is called: a URL without what is secret, a path as it is.

    >>> file_name("https://host/a.tar?sig=abc"), file_name("/data/token=7/secret=8/a.tar")
    ('https://host/a.tar?sig=***', '/data/token=7/secret=8/a.tar')
    """
    return address(where) if "://" in where else where


def without(text: str, options: Mapping[str, object]) -> str:
    """What a driver says of the options that it was given, without those that are secret by their name.

    >>> without("'hush!' is no key", {"secret_access_key": "hush!", "region": "no"})
    "'***' is no key"
    """
    for name, value in options.items():
        if value and masked(f"{name}=x") != f"{name}=x":
            text = text.replace(str(value), MASK)
    return text
