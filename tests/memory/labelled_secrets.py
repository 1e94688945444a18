"""Texts with secrets, each with what must go, and texts without any that look as if. Written for these tests.

No secret is real: the tokens are random text in the form that the service documents, put together here so
that no
scanner of repositories takes this file for a leak.
"""

from __future__ import annotations

import random
import string


def _some(length: int, alphabet: str = string.ascii_letters + string.digits, seed: int = 7) -> str:
    """Random text that is the same at every run, with a digit in it."""
    chance = random.Random(f"{seed}{length}{alphabet}")
    text = "".join(chance.choice(alphabet) for _ in range(length - 1))
    return text[: length // 2] + "7" + text[length // 2 :]


_UPPER = string.ascii_uppercase + "234567"
_LOWER = string.ascii_lowercase + string.digits
_HEX = "0123456789abcdef"

AWS_ID = "AKIA" + _some(16, _UPPER)
AWS_SECRET = _some(40, string.ascii_letters + string.digits + "/+")
GITHUB = "ghp" + "_" + _some(36)
GITHUB_FINE = "github" + "_pat_" + _some(82)
OPENAI = "sk-" + "proj-" + _some(64)
OPENAI_OLD = "sk-" + _some(48)
ANTHROPIC = "sk-" + "ant-api03-" + _some(95)
GOOGLE = "AIza" + _some(35)
SLACK = "xoxb-" + "123456789012-1234567890123-" + _some(24)
STRIPE = "sk_" + "live_" + _some(24)
GITLAB = "glpat" + "-" + _some(20)
HUGGING = "hf" + "_" + _some(34)
NPM = "npm" + "_" + _some(36)
PYPI = "pypi-" + "AgEIcHlwaS5vcmc" + _some(80)
SENDGRID = "SG." + _some(22) + "." + _some(43)
TWILIO = "SK" + _some(32, _HEX)
MAILCHIMP = _some(32, _HEX) + "-us12"
TELEGRAM = "110201543:AA" + _some(33)
DISCORD = "M" + _some(24) + "." + _some(6) + "." + _some(27)
JWT = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9." + "eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkFubiJ9." + _some(43)
AZURE = _some(86) + "=="
DIGITALOCEAN = "dop" + "_v1_" + _some(64, _HEX)
VAULT = "hvs." + _some(90)
GROQ = "gsk" + "_" + _some(52)
NEWER = (
    "csk" + "-" + _some(48), "e2b" + "_" + _some(40, _HEX), "figd" + "_" + _some(40),
    "lsv2" + "_pt_" + _some(32, _HEX) + "_" + _some(10, _HEX), "jina" + "_" + _some(60), "fo1" + "_" + _some(43),
    "vercel_blob" + "_rw_" + _some(16) + "_" + _some(30), "BSA" + _some(28), "fc" + "-" + _some(32, _HEX),
    "sk" + "_" + _some(48, _HEX),
)  # fmt: skip
KEY_BODY = "\n".join(_some(64, seed=row) for row in range(4))
PEM = f"-----BEGIN RSA PRIVATE KEY-----\n{KEY_BODY}\n-----END RSA PRIVATE KEY-----"
OPENSSH = f"-----BEGIN OPENSSH PRIVATE KEY-----\n{KEY_BODY}\n-----END OPENSSH PRIVATE KEY-----"
WALLET = "abandon ability able about above absent absorb abstract absurd abuse access accident"

SECRETS: tuple[tuple[str, str], ...] = (
    *((f"It is in the notes: {token} and works.", token) for token in NEWER),
    (f"My AWS id is {AWS_ID}, use it.", AWS_ID),
    (f"aws_secret_access_key = {AWS_SECRET}", AWS_SECRET),
    (f"Key for staging: {AWS_ID} / {AWS_SECRET}. It runs on kite-2.", AWS_SECRET),
    (f"{AWS_ID}\n{AWS_SECRET}", AWS_SECRET),
    (f"AWS_SECRET_ACCESS_KEY={AWS_SECRET}", AWS_SECRET),
    (f"git clone https://{GITHUB}@github.com/ann/garden.git", GITHUB),
    (f"export GITHUB_TOKEN={GITHUB_FINE}", GITHUB_FINE),
    (f"Here is my key: {OPENAI}. Put it into .env please", OPENAI),
    (f"OPENAI_API_KEY={OPENAI_OLD}", OPENAI_OLD),
    (f'client = Anthropic(api_key="{ANTHROPIC}")', ANTHROPIC),
    (f"https://maps.example.org/api?key={GOOGLE}&v=3", GOOGLE),
    (f"slack bot: {SLACK}", SLACK),
    (f'stripe.api_key = "{STRIPE}"', STRIPE),
    (f"glab auth login --token {GITLAB}", GITLAB),
    (f"huggingface-cli login with {HUGGING}", HUGGING),
    (f"//registry.example.org/:_authToken={NPM}", NPM),
    (f"twine upload -u __token__ -p {PYPI}", PYPI),
    (f"SENDGRID={SENDGRID}", SENDGRID),
    (f"twilio sid pair {TWILIO}", TWILIO),
    (f"mailchimp {MAILCHIMP}", MAILCHIMP),
    (f"the bot's token is {TELEGRAM}", TELEGRAM),
    (f"discord {DISCORD}", DISCORD),
    (f"curl -H 'Authorization: Bearer {JWT}' https://api.example.org/me", JWT),
    (f"cookie jwt={JWT}; Path=/", JWT),
    (
        f"DefaultEndpointsProtocol=https;AccountName=ann;AccountKey={AZURE};EndpointSuffix=core.windows.net",
        AZURE,
    ),
    (f"doctl auth init -t {DIGITALOCEAN}", DIGITALOCEAN),
    (f"VAULT_TOKEN={VAULT}", VAULT),
    (f"groq key {GROQ}", GROQ),
    (f"This is on the server:\n{PEM}\nIs it readable?", KEY_BODY),
    (f"id_ed25519: {OPENSSH}", KEY_BODY),
    (f"{PEM.splitlines()[0]}\n{KEY_BODY}", KEY_BODY),
    (
        '{"type": "service_account", "private_key": "' + PEM.replace("\n", "\\n") + '"}',
        KEY_BODY.replace("\n", "\\n"),
    ),
    ("postgresql://satchel:marmalade9@db.example.org:5432/prod", "marmalade9"),
    ("redis://:Tr0ub4dor@10.0.0.5:6379/0", "Tr0ub4dor"),
    ("https://ann:correct-horse@intranet.example.org/wiki", "correct-horse"),
    ("mongodb+srv://root:s3cr3tpw@cluster0.mongodb.example/test", "s3cr3tpw"),
    ("DB_PASSWORD=swordfish", "swordfish"),
    ("password: hunter2", "hunter2"),
    ('{"username": "ann", "password": "marmalade"}', "marmalade"),
    ("spring.datasource.password=Blue.Horse.77", "Blue.Horse.77"),
    ('db_pass = "tigerlily"', "tigerlily"),
    ("client_secret: 8f14e45fceea167a5a36dedd4bea2543", "8f14e45fceea167a5a36dedd4bea2543"),
    ("  api-key: 9b74c9897bac770ffc029102a200c5de", "9b74c9897bac770ffc029102a200c5de"),
    ("SECRET_KEY='django-insecure-4&x!0k2q'", "django-insecure-4&x!0k2q"),
    ("mysql -u root --password=Zebra!2026 shop", "Zebra!2026"),
    ("X-Api-Key: 4f9d2c7b1e6a", "4f9d2c7b1e6a"),
    ("Authorization: Basic YW5uOm1hcm1hbGFkZTk=", "YW5uOm1hcm1hbGFkZTk="),
    ("authorization: token 0f3c2a1b9d8e7f6a5b4c", "0f3c2a1b9d8e7f6a5b4c"),
    ("use bearer 3x4mpl3T0k3nWithLength for now", "3x4mpl3T0k3nWithLength"),
    ("Cookie: sessionid=38afes7a8h2k1l0p9o8i7u6y", "38afes7a8h2k1l0p9o8i7u6y"),
    ("My wifi password is BlueHorse77, please remember it.", "BlueHorse77"),
    ("The password for the router is marmalade-42.", "marmalade-42"),
    ("the password to the wine cellar is swordfish", "swordfish"),
    ('My laptop passphrase is "correct horse battery staple".', "correct horse battery staple"),
    ("I changed the password to Kestrel2026 yesterday", "Kestrel2026"),
    ("Das Passwort ist Apfelbaum99", "Apfelbaum99"),
    ("My PIN is 4921.", "4921"),
    ("card pin: 0713", "0713"),
    ("the CVV is 311", "311"),
    ("My card: 4111 1111 1111 1111, exp 04/29", "4111 1111 1111 1111"),
    ("amex 378282246310005", "378282246310005"),
    ("5555-5555-5555-4444 is the company card", "5555-5555-5555-4444"),
    ("Please pay to DE89 3704 0044 0532 0130 00.", "DE89 3704 0044 0532 0130 00"),
    ("IBAN GB82WEST12345698765432", "GB82WEST12345698765432"),
    ("My social security number is 536-22-1234", "536-22-1234"),
    (f"my seed phrase: {WALLET}", WALLET),
)

INNOCENT: tuple[str, ...] = (
    "I'm allergic to shellfish, and my sister Mia is a vegetarian.",
    "The password is wrong, and I don't know why.",
    "Passwords are stored hashed with argon2.",
    "Your password must be at least 12 characters long.",
    "I forgot my password again. Can you remind me how to reset it?",
    "The password is required.",
    "The password is the same as before, but I won't tell.",
    "Is the token expired? The token is refreshed every hour.",
    "We spent 4,000 tokens: max_tokens=500, total_tokens: 12345678.",
    "Set OPENAI_API_KEY in your environment.",
    "export OPENAI_API_KEY=$MY_KEY",
    "api_key = os.environ['OPENAI_API_KEY']",
    'api_key=settings.secret("OPENAI_API_KEY")',
    "password = getpass.getpass()",
    'password = input("Password: ")',
    "def login(user: str, password: str) -> Token:",
    "login(user=name, password=password)",
    'self.token = token; self.secret = kwargs["secret"]',
    "password: <your password here>",
    'api_key: "YOUR_API_KEY"',
    "PASSWORD=changeme",
    "token: ${{ secrets.GITHUB_TOKEN }}",
    "password: ********",
    "The key to success is patience.",
    "The key is under the doormat.",
    "My secret is that I never liked jazz.",
    "The secret: brown butter and a pinch of salt.",
    "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
    "HEAD is now at 1a2b3c4 Fix the tests",
    "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "md5 d41d8cd98f00b204e9800998ecf8427e  empty.txt",
    "session 3f2504e0-4f89-41d3-9a0c-0305e82c3301 was closed",
    "e3f1a9b2c4d5e6f7 was distilled from e0f1a9b2c4d5e6f8",
    '"integrity": "sha512-' + AZURE + '"',
    "https://example.org/a/very/long/path/with-many-words-in-it?page=2&sort=date",
    "https://github.com/ann/garden/blob/9fceb02d0ae598e95dc970b74767f19372d61af8/src/main.py#L10",
    "ssh ann@server.example.org -p 2222",
    "mailto:ann@example.org and http://localhost:8080/index.html",
    "scp backup.tar.gz ann@10.0.0.5:/srv/backup",
    "The meeting is on 2026-11-21 at 14:30, room 4711.",
    "Call me at +49 170 1234567 or (555) 010-9999.",
    "Order 1234567890123456 was shipped; tracking 1Z999AA10123456784.",
    "timestamps 1763767200000000 and 1763767200123456",
    "The number 4111111111111112 is not valid.",
    "ISBN 978-3-16-148410-0",
    "It costs 4,111,111,111.11 in all.",
    "pi is 3.14159265358979323846",
    "AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36",
    "the AP2000 Artifactory build is at APARTMENT12345",
    "import detect_secrets.plugins.high_entropy_strings as hes",
    "test_calls_of_one_round_run_at_the_same_time_and_answer_in_order",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ8Zk1s0m3Publ1cK3yM4t3r14l ann@laptop",
    "-----BEGIN PUBLIC KEY-----\nMFwwDQYJKoZIhvcNAQEBBQADSwAwSAJBAK\n-----END PUBLIC KEY-----",
    "-----BEGIN CERTIFICATE-----\nMIIDdzCCAl+gAwIBAgIEAgAAuTANBgkqhkiG9w0BAQUFADBa\n-----END CERTIFICATE-----",
    "public_key = 'age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p'",
    "The bearer of this letter is my friend.",
    "Basic authentication is not enough.",
    "I pinned version 2.14.0 and the pin number on the board is GPIO 17.",
    "She pins 300 pictures a day.",
    "The recovery phrase is written on paper and lies in the safe.",
    "Our token bucket: rate=100, burst=20",
    "The tokenizer's vocabulary has 30522 entries; token_type_ids are zero.",
    "Which secret manager: Vault, SOPS or 1Password?",
    "row_key = f'{user}:{scope}:{session}'",
    "primary_key=True, foreign_keys=[rid]",
    "key: value, key2: value2, sort_key=name",
    "The keyboard shortcut is Ctrl-Shift-K.",
    "Passport and passwordless login are different things.",
    "DE Frankfurt 12 and GB London 82 are our offices.",
    "The password is in the safe, ask Tom.",
    "Password reset: link was sent.",
    "Bibliography: doi:10.1145/3292500.3330701",
    "My credential is a degree in botany.",
    "uuid=550e8400e29b41d4a716446655440000",
    "csrf_token is generated by the form",
)
