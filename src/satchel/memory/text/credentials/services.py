"""Credentials of services, found by detect-secrets, which is maintained and knows their forms."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Final

from satchel.memory.text.credentials.secret import PLACEHOLDER, Secret, is_hash, is_random
from satchel.memory.text.credentials.suspicion import may_hold_secrets

if TYPE_CHECKING:
    from detect_secrets.plugins.base import RegexBasedDetector

__all__ = ["find_of_services"]

_AZURE: Final = re.compile(r"account_?key|azure", re.IGNORECASE)

_LINE_CHARS: Final = 4_000
_OVERLAP_CHARS: Final = 400
"""The library's expressions are made for lines of code: longer ones are read in pieces that overlap."""


# What the library's expressions cannot do without: only a text that has it is worth loading them for.
_OF_SERVICES: Final = (
    *(
        "akc",
        "artif",
        "jfrog",
        "buildkit",
        "aws",
        "a3t",
        "akia",
        "asia",
        "abia",
        "acca",
        "accountkey",
        "account_key",
    ),
    *(
        "azure",
        "cloudant",
        "ibm",
        "cos_",
        "bluemix",
        "iam",
        "ghp_",
        "gho_",
        "ghu_",
        "ghs_",
        "ghr_",
        "eyj",
        "npm",
    ),
    *("_authtoken", "sg.", "xox", "hooks.slack", "softlayer", "sl_", "sl-", "sq0csp", "_live_", "secret_key"),
    *("secret-key", "secretkey", "access_key", "access-key", "accesskey"),
)
_OF_OTHERS: Final = (
    re.compile(r"\.[\w-]{6}\.[\w-]{27}"),
    re.compile(r"-us\d"),
    re.compile(r"AC[a-z0-9]{32}"),
    re.compile(r"SK[a-z0-9]{32}"),
)


def find_of_services(text: str) -> Iterator[Secret]:
    """The credentials that the library finds in a text."""
    lowered = text.lower()
    if not any(word in lowered for word in _OF_SERVICES) and not any(p.search(text) for p in _OF_OTHERS):
        return
    detectors = _detectors()
    at = 0
    for line in text.splitlines(keepends=True):
        for start in range(0, max(1, len(line)), _LINE_CHARS - _OVERLAP_CHARS):
            piece = line[start : start + _LINE_CHARS]
            if may_hold_secrets(piece):
                for kind, detector in detectors:
                    if kind == "azure-key" and not _AZURE.search(piece):
                        continue
                    for value in set(detector.analyze_string(piece)):
                        yield from _places(piece, value, kind, at + start)
        at += len(line)


def _places(piece: str, value: str, kind: str, offset: int) -> Iterator[Secret]:
    """Where a value that the library found stands; hashes and words that fit one of its looser forms do not
    count.
    """
    value = value.strip(" \t\r\n\"'=:")
    if len(value) < 8 or not is_random(value) or PLACEHOLDER.match(value) or is_hash(value):
        return
    start = piece.find(value)
    while start >= 0:
        yield Secret(kind=kind, start=offset + start, end=offset + start + len(value))
        start = piece.find(value, start + len(value))


@cache
def _detectors() -> tuple[tuple[str, RegexBasedDetector], ...]:
    """The library's detectors for services, by our names. Its guesses by entropy and by keyword are left out:
    they are
    made for code and take hashes and prose for secrets.
    """
    # It loads an HTTP client for checks that are never made here: only a text that may hold a secret needs
    # it.
    from detect_secrets.plugins.artifactory import ArtifactoryDetector  # noqa: PLC0415
    from detect_secrets.plugins.aws import AWSKeyDetector  # noqa: PLC0415
    from detect_secrets.plugins.azure_storage_key import AzureStorageKeyDetector  # noqa: PLC0415
    from detect_secrets.plugins.cloudant import CloudantDetector  # noqa: PLC0415
    from detect_secrets.plugins.discord import DiscordBotTokenDetector  # noqa: PLC0415
    from detect_secrets.plugins.github_token import GitHubTokenDetector  # noqa: PLC0415
    from detect_secrets.plugins.ibm_cloud_iam import IbmCloudIamDetector  # noqa: PLC0415
    from detect_secrets.plugins.ibm_cos_hmac import IbmCosHmacDetector  # noqa: PLC0415
    from detect_secrets.plugins.jwt import JwtTokenDetector  # noqa: PLC0415
    from detect_secrets.plugins.mailchimp import MailchimpDetector  # noqa: PLC0415
    from detect_secrets.plugins.npm import NpmDetector  # noqa: PLC0415
    from detect_secrets.plugins.sendgrid import SendGridDetector  # noqa: PLC0415
    from detect_secrets.plugins.slack import SlackDetector  # noqa: PLC0415
    from detect_secrets.plugins.softlayer import SoftlayerDetector  # noqa: PLC0415
    from detect_secrets.plugins.square_oauth import SquareOAuthDetector  # noqa: PLC0415
    from detect_secrets.plugins.stripe import StripeDetector  # noqa: PLC0415
    from detect_secrets.plugins.twilio import TwilioKeyDetector  # noqa: PLC0415

    return (
        ("artifactory-token", ArtifactoryDetector()),
        ("aws-key", AWSKeyDetector()),
        # By itself it takes every SHA-512 in base64; the library asks for these words around it too.
        ("azure-key", AzureStorageKeyDetector()),
        ("cloudant-key", CloudantDetector()),
        ("discord-token", DiscordBotTokenDetector()),
        ("github-token", GitHubTokenDetector()),
        ("ibm-key", IbmCloudIamDetector()),
        ("ibm-key", IbmCosHmacDetector()),
        ("json-web-token", JwtTokenDetector()),
        ("mailchimp-key", MailchimpDetector()),
        ("npm-token", NpmDetector()),
        ("sendgrid-key", SendGridDetector()),
        ("slack-token", SlackDetector()),
        ("softlayer-key", SoftlayerDetector()),
        ("square-secret", SquareOAuthDetector()),
        ("stripe-key", StripeDetector()),
        ("twilio-key", TwilioKeyDetector()),
    )
