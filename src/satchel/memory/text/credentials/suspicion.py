"""A first look at a text: whether it is worth searching for secrets at all. Nearly no text is."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["may_hold_secrets"]

# Cheap and too broad: a text without any of these has no secret, and the detectors need not be loaded for it. Words are
# looked for one by one: one expression for all of them takes ten times as long.
_WORDS: Final = (
    *("passw", "passp", "passc", "kennwort", "clave", "mot de passe", "mdp", "senha", "parola", "wachtwoord"),
    *(
        "adgangskode",
        "passord",
        "salasana",
        "heslo",
        "geheimzahl",
        "pwd",
        "secret",
        "token",
        "credential",
        "bearer",
    ),
    *(
        "authorization",
        "key",
        "putty",
        "cvv",
        "psk",
        "auth",
        "convertto",
        "2fa",
        "otp",
        "admin",
        "root",
        "digicode",
        "mfa",
        "versicherung",
    ),
    *(
        "svnr",
        "vsnr",
        "rvnr",
        "sv-n",
        "rv-n",
        "ahv",
        "avs",
        "pesel",
        "steuer",
        "nino",
        "oracle",
        "wifi:",
        "setx ",
        "session=",
        "/user:",
    ),
)
_FOREIGN: Final = (
    *("contraseñ", "hasło", "lösenord", "jelszó", "şifre", "пароль", "кодовое", "sécurité"),
    *("密码", "密碼", "口令", "パスワード", "暗証番号", "비밀번호", "암호"),
)
"""Words with letters beyond ASCII."""
_BESIDE: Final = (
    *(("code", word) for word in ("tür", "tor", "tresor", "entrée", "alarme", "allarme")),
    *(("codice", word) for word in ("porta", "allarme")),
    *(("código", word) for word in ("puerta", "alarma", "entrada")),
    *(("phrase", word) for word in ("seed", "recovery", "mnemonic", "backup", "wallet")),
    *(("combin", word) for word in ("safe", "lock", "vault", "gate", "door")),
    *(("combo", word) for word in ("safe", "lock", "vault", "gate", "door")),
    *(("pass", word) for word in ("user", "login", "account")),
    *(("words", word) for word in ("seed", "recovery", "mnemonic", "backup", "wallet")),
    *(
        ("code", word)
        for word in (
            "verif",
            "secur",
            "log",
            "sign",
            "confirm",
            "time",
            "door",
            "gate",
            "alarm",
            "entry",
            "pad",
            "garage",
            "porte",
            "portail",
            "coffre",
        )
    ),
    *(
        ("code", word)
        for word in ("unlock", "tan", "safe", "lock", "recover", "backup", "scratch", "rescue", "emergency")
    ),
    *(("code", word) for word in ("wiederherstellung", "ersatz", "fiscale", "acces")),
    *(
        ("codes", ""),
        ("login", "password"),
        ("social", "insurance"),
        ("social", "security"),
        ("insurance", "national"),
    ),
    *(
        ("number", "burgerservice"),
        ("personnummer", ""),
        ("tax", " id"),
        ("number", "ni "),
        ("sociale", "curit"),
        *(("open", word) for word in ("safe", "lock", "vault", "suitcase")),
        ("pass phrase", ""),
        ("answer", "secret"),
        ("sec1", ""),
    ),
)
"""Words that say something beside another one; the first is the rarer."""
_WHOLE_WORDS: Final = re.compile(
    r"\b(?:p(?:in|uk|w)|cvc|ssn|sin|ni[re]|bsn|dni|nif|tin)\b|_pass\b|pass ?[=:]"
)
# Programs that take a password as an argument; a text with one of them and no option has none.
_PROGRAMS: Final = (
    *(
        "curl",
        "wget",
        "aria2c",
        "http",
        "xh",
        "client",
        "cifs",
        "net ",
        "sshpass",
        "mysql",
        "mariadb",
        "redis-cli",
    ),
    *(
        "mongo",
        "ldap",
        "7z",
        "rar",
        "zip",
        "sqlcmd",
        "mosquitto",
        "ncftp",
        "lftp",
        "bcp",
        "openssl",
        "twine",
        "sqlplus",
        "isql",
        "tsql",
        "impacket",
    ),
    *("snmp", "--pass", "login"),
)
_PIPED_TO: Final = ("sudo", "chpasswd", "kinit", "su", "docker", "gpg", "passwd", "cryptsetup")
_LONG: Final = re.compile(r"(?<![\w-])[\w-]{20}")
_ADDRESS: Final = re.compile(r"://[^\s/]*@|[?&](?:sig|auth|pass)=", re.IGNORECASE)
_TWO_DIGITS: Final = re.compile(r"\d\d")
_NUMBERS: Final = re.compile(
    r"\d{4}[ -]?\d{4}[ -]?\d|\d{4}[ -]\d{6}|\d{3}-\d\d-\d{4}|\b756[. ]?\d{4}"
    # Numbers of persons in groups: a German, a British, a French and an Italian one.
    r"|\d\d ?\d{6} ?[A-Z]|[A-Z]{2} \d\d \d\d \d\d|\d \d\d \d\d \d\d \d{3}|[A-Z]{6}\d\d[A-Z]"
    # Bank accounts and Artifactory's tokens are in capitals, and nearly no text has such a word.
    r"|[A-Z]{2}\d{2} ?[A-Z0-9]{4} ?[A-Z0-9]{4}|AP[0-9A-F]\w{8}"
)
_COLONS: Final = re.compile(r"^\S+:(?:\d{4,5}|\*):[^\s:]+:[^\s:]+:\S+$", re.MULTILINE)


def may_hold_secrets(text: str) -> bool:
    """Whether it is worth looking; False is certain, and cheap."""
    folded = text.casefold()
    has = folded.__contains__
    return (
        any(map(has, _WORDS))
        or (not text.isascii() and any(map(has, _FOREIGN)))
        or any(rare in folded and other in folded for rare, other in _BESIDE)
        or (" -" in folded and any(map(has, _PROGRAMS)))
        or ("|" in folded and any(map(has, _PIPED_TO)))
        or _WHOLE_WORDS.search(folded) is not None
        or _LONG.search(text) is not None
        or (("://" in text or "=" in text) and _ADDRESS.search(text) is not None)
        or (_TWO_DIGITS.search(text) is not None and _NUMBERS.search(text) is not None)
        or (text.count(":") > 3 and _COLONS.search(text) is not None)
    )
