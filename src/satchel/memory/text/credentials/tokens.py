"""Keys and tokens of services by their documented forms, headers, and addresses that hold a secret."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from functools import cache
from typing import Final

from satchel.memory.text.credentials.secret import Secret, is_hash, is_placeholder, is_random, spans

# The end of a word before, or an escape of a URL or of JSON, such as %3D or \n.
_START: Final = r"(?:(?<![A-Za-z0-9_])|(?<=%[0-9A-Fa-f]{2})|(?<=\\[nrt]))"
_BASE58: Final = "1-9A-HJ-NP-Za-km-z"

# Every token has a long word with a digit, or with large and small letters; nearly no text has one.
_LONG: Final = re.compile(r"(?<![\w-])(?=[\w-]{0,40}?(?:\d|[a-z][A-Z]))[\w-]{15}")
# Each by the form that the service documents; the whole is what is replaced.
_TOKENS: Final = (
    ("anthropic-key", r"sk-ant-[A-Za-z0-9_-]{20,}"),
    ("openai-key", r"sk-(?:(?:proj|svcacct|admin|or-v1)-[A-Za-z0-9_-]{20,}|[A-Za-z0-9]{32,})"),
    ("google-key", r"AIza[0-9A-Za-z_-]{35}|GOCSPX-[0-9A-Za-z_-]{28}|(?:ya29\.|1//0)[0-9A-Za-z_-]{30,}"),
    ("github-token", r"github_pat_[A-Za-z0-9_]{22,}|gh[pousr]_[A-Za-z0-9]{36,}"),
    ("gitlab-token", r"gl(?:pat|dt|rt|cbt|ptt|ft|soat|agent|imt)-[A-Za-z0-9_-]{20,}"),
    ("aws-key", r"(?:A3T[0-9A-Z]|AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}"),
    ("huggingface-token", r"hf_[A-Za-z0-9]{30,}"),
    ("pypi-token", r"pypi-AgEI[A-Za-z0-9_-]{50,}"),
    ("npm-token", r"npm_[A-Za-z0-9]{36}"),
    ("docker-token", r"dckr_(?:pat|oat)_[A-Za-z0-9_-]{20,}"),
    ("telegram-token", r"\d{8,10}:AA[A-Za-z0-9_-]{33}"),
    ("discord-token", r"[MNO][A-Za-z\d_-]{23,25}\.[A-Za-z\d_-]{6}\.[A-Za-z\d_-]{27}"),
    ("slack-token", r"xapp-\d-[A-Z0-9]+-\d+-[a-z0-9]+|xox[abeoprs]-[A-Za-z0-9-]{10,}"),
    ("stripe-key", r"(?:sk|rk)_(?:live|test)_[0-9A-Za-z]{16,}|whsec_[0-9A-Za-z]{24,}"),
    ("twilio-key", r"(?:AC|SK)[a-z0-9]{32}"),
    ("sendgrid-key", r"SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}"),
    ("mailchimp-key", r"[0-9a-z]{32}-us\d{1,2}"),
    ("artifactory-token", r"AKC[A-Za-z0-9]{10,200}"),
    ("service-token", r"(?:gsk_|xai-|pplx-|r8_|nvapi-|fw_|tvly-|sbp_|nfp_|rdme_|pat-)[A-Za-z0-9_-]{32,}"),
    ("service-token", r"(?:csk-|e2b_|figd_|lsv2_(?:pt|sk)_|jina_|fo1_|vercel_blob_rw_)[A-Za-z0-9_-]{28,}"),
    ("service-token", r"BSA[A-Za-z0-9_-]{26,}|fc-[a-f0-9]{32}|sk_[a-f0-9]{48}"),
    ("service-token", r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}|do[opr]_v1_[a-f0-9]{64}|dapi[a-f0-9]{32}"),
    ("service-token", r"ntn_[A-Za-z0-9]{40,}|lin_api_[A-Za-z0-9]{40}|ATATT3[A-Za-z0-9_=-]{50,}"),
    (
        "service-token",
        r"tskey-[a-z]+-[A-Za-z0-9-]{20,}|hv[sb]\.[A-Za-z0-9_-]{24,}|sntrys_[A-Za-z0-9_=+/-]{40,}",
    ),
    ("service-token", r"NRA[KL]-[A-Z0-9]{27}|PMAK-[a-f0-9]{24}-[a-f0-9]{34}|gl(?:sa|c)_[A-Za-z0-9_+/=]{32,}"),
    ("service-token", r"dp\.(?:st|pt|ct|sa|scim|audit)\.(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40,44}"),
    (
        "service-token",
        r"[ps]k\.eyJ[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{20,}|[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,}",
    ),
    (
        "service-token",
        r"pat[A-Za-z0-9]{14}\.[a-f0-9]{64}|key-[a-f0-9]{32}|xkeysib-[a-f0-9]{64}-[A-Za-z0-9]{16}",
    ),
    ("service-token", r"rubygems_[a-f0-9]{48}|fm[12][ar]?_[A-Za-z0-9+/=_-]{60,}|secret_[A-Za-z0-9]{43}"),
    (
        "service-token",
        r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.=-]{32,}|HRKU-[A-Za-z0-9_-]{58,}|EAA[A-Za-z0-9]{80,}",
    ),
    ("service-token", r"sq0(?:atp|csp)-[A-Za-z0-9_-]{22,}|sl\.[A-Za-z0-9_-]{100,}|ops_eyJ[A-Za-z0-9_-]{60,}"),
    ("service-token", r"access-(?:sandbox|production)-[a-f0-9]{8}(?:-[a-f0-9]{4}){3}-[a-f0-9]{12}"),
    # Whatever service, it names itself and the environment: mk_live_…
    ("service-token", r"[a-z]{2,10}_(?:live|prod|test|sandbox)_(?=[A-Za-z]*\d)[0-9A-Za-z]{16,}"),
    ("private-key", r"AGE-SECRET-KEY-1[0-9A-Z]{50,}"),
    # bech32, whose readable part says that it is secret: nostr.
    ("private-key", r"n(?:crypt)?sec1[02-9ac-hj-np-z]{40,}"),
    ("private-key", rf"[xyztuv]prv[{_BASE58}]{{100,112}}|[5KL][{_BASE58}]{{50,51}}"),
)
"""The kind and the form, without groups of its own."""


@cache
def _token() -> re.Pattern[str]:
    """Each form is a group of one pattern, compiled when a text has a long word: a text is read once, not 38 times."""
    forms = "|".join(f"({form})" for _, form in _TOKENS)
    return re.compile(rf"{_START}(?:{forms})(?![A-Za-z0-9])")


# What is a secret only in certain company, with a word of it in small letters; the secret is the group.
_BESIDE: Final = (
    (
        "json-web-token",
        "eyj",
        rf"{_START}(eyJ[A-Za-z0-9_-]{{8,}}={{0,2}}\.[A-Za-z0-9_=-]{{2,}}(?:\.[A-Za-z0-9_.+/=-]*)?)",
    ),
    (
        "aws-secret",
        "aws",
        r"(?i:aws.{0,20}?(?:key|pwd|pw|pass(?:word)?|token)).{0,20}?\b([0-9a-zA-Z/+]{40})(?![0-9a-zA-Z/+=])",
    ),
    # The secret that goes with a key of AWS has no form of its own; it is the next 40 characters of base64 beside it.
    (
        "aws-secret",
        "",
        r"(?<![A-Za-z0-9_])(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}(?![A-Za-z0-9])[^\0]{1,120}?"
        r"(?<![A-Za-z0-9+/=])([A-Za-z0-9+/]{40})(?![A-Za-z0-9+/=])",
    ),
    ("azure-key", "a", r"(?i:azure|account_?key)[^\n]{0,400}?(?<![A-Za-z0-9+/])([A-Za-z0-9+/]{86,88}==)"),
    (
        "artifactory-token",
        "ap",
        r"(?i:artif|jfrog|buildkit)[^\0]{0,200}?[\s=:\"](AP[\dABCDEF][A-Za-z0-9]{20,200})(?=\s|\"|$)",
    ),
)

_compiled: Final = cache(re.compile)

_KEY_BEGIN: Final = re.compile(
    r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----|PuTTY-User-Key-File-\d:"
)
_KEY_END: Final = re.compile(
    r"-----END (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----|Private-MAC: ?[0-9a-f]+"
)
_KEY_BODY: Final = re.compile(r"[\sA-Za-z0-9+/=\\:,.-]*")
_MOST_KEY_CHARS: Final = 20_000
# "-----BEGIN" in base64, as in a kubeconfig: a certificate begins like that too.
_KEY_DATA: Final = re.compile(r"(?<![A-Za-z0-9+/])LS0tLS1CRUdJTi[A-Za-z0-9+/]{16,}={0,2}")
# "://name:password@": the password alone, also where an @ stands in it.
_URL: Final = re.compile(r"://[^\s/:@'\"<>]{0,200}:([^\s/'\"<>]{2,200})@[\w\[]")
_THIN: Final = re.compile(
    r"(?:jdbc:oracle:\w+:|\bsqlplus\s+(?:-\w+\s+)*)[^\s/@]{1,100}/\"?([^\s@\"]{2,200})\"?@", re.IGNORECASE
)
_PARAMETER: Final = re.compile(
    r"[?&;](?:sig|signature|x-amz-signature|x-amz-security-token|x-goog-signature|access_?token|refresh_?token|id_token|token"
    r"|key|api_?key|apikey|secret|client_secret|auth|pass|password|pwd)=([^\s&;#\"'<>]{4,2000})",
    re.IGNORECASE,
)
_HOOK: Final = re.compile(
    r"discord(?:app)?\.com/api/webhooks/\d{17,20}/([\w-]{60,})"
    r"|hooks\.slack\.com/services/(T\w+/B\w+/\w+)|webhook\.office\.com/webhookb2/([\w@/-]{60,})|hooks\.zapier\.com/hooks/catch/([\w/]{8,})"
)

_HEADER: Final = re.compile(
    r"\bauthorization[\"']?\s*[:=]\s*[\"']?(?:(?:bearer|basic|token|apikey|digest|negotiate)\s+)?([^\s\"',;]{8,})",
    re.IGNORECASE,
)
_BEARER: Final = re.compile(r"\bbearer\s+([A-Za-z0-9._~+/=-]{16,})", re.IGNORECASE)
_COOKIE: Final = re.compile(
    r"\b(?:session(?:[_-]?(?:id|token|key))?|sid|jsessionid|phpsessid|connect\.sid|csrftoken|remember_token)=([A-Za-z0-9%._~+/-]{16,})",
    re.IGNORECASE,
)


def find_tokens(text: str) -> Iterator[Secret]:
    """The keys and tokens in a text that say by their form, or by what is around them, what they are."""
    lowered = text.lower()
    if "private" in lowered or "putty" in lowered or "LS0tLS1CRUdJTi" in text:
        yield from _key_blocks(text)
    if _LONG.search(text):
        at = 0
        while (match := _token().search(text, at)) is not None:
            at = match.start() + 1  # another may begin in it: two keys that are joined by a dash
            if is_random(match[0]):
                kind, _ = _TOKENS[(match.lastindex or 0) - 1]
                yield from spans(kind, [match])
    if "://" in text:
        yield from spans("password", (m for m in _URL.finditer(text) if not _is_left_open(m[1])), 1)
    if "oracle" in lowered or "sqlplus" in lowered:
        yield from spans("password", (m for m in _THIN.finditer(text) if not is_placeholder(m[1])), 1)
    if "=" in text:
        found = (m for m in _PARAMETER.finditer(text) if is_random(m[1]) and not is_placeholder(m[1]))
        yield from spans("token", found, 1)
        yield from spans("token", (m for m in _COOKIE.finditer(text) if is_random(m[1])), 1)
    if "hook" in lowered:
        for match in _HOOK.finditer(text):
            yield Secret(kind="token", start=match.start(match.lastindex or 0), end=match.end())
    if "authorization" in lowered:
        yield from spans("token", (m for m in _HEADER.finditer(text) if not is_placeholder(m[1])), 1)
    if "bearer" in lowered:
        yield from spans("token", (m for m in _BEARER.finditer(text) if is_random(m[1])), 1)
    for kind, hint, form in _BESIDE if _LONG.search(text) else ():
        if hint in lowered:
            found = (m for m in _compiled(form).finditer(text) if is_random(m[1]) and not is_hash(m[1]))
            yield from spans(kind, found, 1)


def _key_blocks(text: str) -> Iterator[Secret]:
    """Private keys, from their first line to their last, or, where that is missing, as far as a key's text goes."""
    at = 0
    while (begin := _KEY_BEGIN.search(text, at)) is not None:
        end = _KEY_END.search(text, begin.end(), begin.end() + _MOST_KEY_CHARS)
        body = _KEY_BODY.match(text, begin.end(), begin.end() + _MOST_KEY_CHARS)
        at = end.end() if end is not None else body.end() if body is not None else begin.end()
        yield Secret(kind="private-key", start=begin.start(), end=at)
    yield from spans("private-key", (m for m in _KEY_DATA.finditer(text) if _is_private(m[0])))


def _is_private(data: str) -> bool:
    head = data[:80]
    try:
        return b"PRIVATE KEY" in base64.b64decode(head[: len(head) // 4 * 4])
    except binascii.Error:
        return False


def _is_left_open(password: str) -> bool:
    """Whether the password of an address stands for one; a short one, such as "pw", does not."""
    return len(password) > 2 and is_placeholder(password)
