"""What went wrong with a request, in helpful words.

Takes: obstore's exception and the requested URL. Gives: the exception to raise instead.
Promises: it names the URL and says what to check; it contains no secret part of a URL (user, password, query).
Not its job: retrying (obstore does it, as store configures it).
"""

from __future__ import annotations

import errno
import re

from feedline.errors import OptionError, SourceError
from feedline.errors.masking import masked

CREDENTIALS = {
    "s3": "access_key_id=, secret_access_key= and region= (or AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION)",
    "gs": "service_account= (or GOOGLE_SERVICE_ACCOUNT, a path to the account's JSON file)",
    "az": "account_name= and account_key= (or AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY)",
}
ASKING_THE_CLOUD = ("/latest/api/token", "/latest/meta-data", "/computeMetadata/", "/metadata/identity/")
"""Where credentials are searched last: those of the machine, if it runs in that cloud."""


def told(error: Exception, url: str) -> Exception:
    """The exception to raise instead of obstore's."""
    full = str(error)
    said = _short(full)
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, f"there is no such object{_in_brackets(said)}", url)
    if isinstance(error, ValueError):
        return OptionError(f"{url}: object storage cannot have this name ({said})")
    return SourceError(f"{url}: {_reason(type(error).__name__, full, said, url.partition('://')[0])}")


def _reason(kind: str, full: str, said: str, scheme: str) -> str:
    code = _status(full)
    where = CREDENTIALS.get(scheme, "client={'default_headers': {'authorization': …}}")
    if any(path in full for path in ASKING_THE_CLOUD):
        return f"there are no credentials; give {where}, or skip_signature=True if it is public"
    if kind in ("PermissionDeniedError", "UnauthenticatedError") or code in ("401", "403"):
        return f"access was refused{_in_brackets(said)}; look at the credentials, {where}, and at what they may read"
    if code == "404":
        return f"nothing with that name exists{_in_brackets(said)}; look at the URL and at endpoint="
    if code == "429" or code.startswith("5"):
        return (
            f"the server kept answering {code}{_in_brackets(said)} {_tries(full)}; a larger retry_for= waits longer, "
            "a smaller concurrency= sends fewer requests at once"
        )
    if "kind: Connect" in full:
        why = "its name is not known" if "dns error" in full else "the connection failed"
        return f"the server cannot be reached ({why}) {_tries(full)}; look at the URL, endpoint= and the network"
    if "kind: Timeout" in full or "TimedOut" in full:
        return f"the server was silent for longer than timeout= allows {_tries(full)}"
    if "body error" in full:
        return "the connection ended in the middle of the object, again and again"
    if "error sending request" in full:
        return f"the connection broke {_tries(full)}"
    return said


def interrupted(error: Exception) -> bool:
    """Did the object end too early, so that reading it again may help?"""
    return "response body error" in str(error)


def is_busy(error: Exception) -> bool:
    """Did the server answer that it cannot serve the request at the moment?"""
    code = _status(str(error))
    return code == "429" or code.startswith("5")


def _status(full: str) -> str:
    found = re.search(r"status code: (\d{3})", full)
    return found[1] if found else ""


def _tries(full: str) -> str:
    retries = re.search(r"after (\d+) retries", full)
    seconds = re.search(r" in ([\d.]+m?s)", full)
    return "" if not retries or not seconds else f"({int(retries[1]) + 1} times within {seconds[1]})"


def _in_brackets(said: str) -> str:
    """S3's own name for the error, if there is one."""
    code = re.search(r"<Code>(.*?)</Code>", said)
    message = re.search(r"<Message>(.*?)</Message>", said)
    return "" if not code else f" ({code[1]}: {message[1]})" if message else f" ({code[1]})"


def _short(text: str) -> str:
    """The text without Rust's structures and without possible secrets in URLs.

    >>> _short("failed: https://me:pw@host/x?sig=abc in 2 s\\n\\nDebug source: …")
    'failed: https://host/x in 2 s'
    """
    text = masked(text.partition("\n\nDebug source")[0].strip())
    return re.sub(r"(\w+://)(?:[^\s/@]*@)?([^\s?]*)(?:\?\S*)?", r"\1\2", text)
