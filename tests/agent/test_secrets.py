"""Secrets as they stand in files and sentences, and sentences that only speak of them."""

import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from refold.agent.secrets import mask_secrets, secret_in

AWS = "wJalrXUtnFEMI/K7" + "MDENG/bPxRfiCYEXAMPLEKEY"


@pytest.mark.parametrize(
    "text",
    [
        "DB_PASSWORD=" + "hunter22",
        "AWS_SECRET_ACCESS_KEY=" + AWS,
        '{"password": "' + 'hunter22"}',
        "The password for staging is " + "hunter22.",
        "The admin password is: " + "hunter22",
        "MYSQL_PWD=" + "abcd1234",
        "client_secret: " + "8f7a6b5c4d3e2f1a",
        "hf_" + "abcdefghijklmnopqrstuvwxyz012345",
        "npm_" + "abcdefghijklmnopqrstuvwxyz0123456789",
        "pypi-" + "AgEIcHlwaS5vcmcCJDU3",
        "SG." + "abcdefghijklmnopqrstuv." + "abcdefghijklmnopqrstuvwxyz01234567",
        "ya29." + "a0AfH6SMBx1234567890abcdefghij",
        "Authorization: Basic " + "dXNlcjpwYXNzd29yZA==",
        "GITLAB_TOKEN=" + "abc123def456ghi789",
        "'api_key': '" + "abc123def456ghi789'",
        "X-Api-Key: " + "abc123def456ghi789",
        "AccountKey=" + "abcdEFGH1234567890abcdEFGH1234567890abcd==",
        "os.environ['DB_PASSWORD'] = '" + "hunter22'",
        "The passcode is " + "998877",
        "redis://:" + "hunter22@host:6379",
        "the token is `" + "abcdef0123456789ab`",
        "**Password:** " + "hunter2x",
        "- **password**: `" + "hunter2x`",
        "I changed the password to " + "hunter2x99",
        "dbPassword: " + "hunter2x",
        "PGPASSWORD=" + "hunter2x",
        "xapp-1-" + "A0123456789-abcdef",
        "ghp" + "_\u200babcdefghijklmnopqrstuvwxyz0123456789",
        "https://hooks.slack.com/services/" + "T000/B000/XXXX",
        "https://discord.com/api/webhooks/" + "123456789/abcdef",
        *(f"{prefix}" + "0123456789abcdef0123456789abcdef" for prefix in ("whsec_", "GOCSPX-", "dop_v1_", "shpat_")),
        *(f"{prefix}" + "0123456789abcdef0123456789abcdef" for prefix in ("hvs.", "gsk_", "xai-", "dckr_pat_", "SK")),
        *(f"{prefix}" + "0123456789abcdef0123456789abcdef" for prefix in ("lin_api_", "ntn_", "ATATT3", "sbp_", "r8_")),
        "12345678:" + "AAabcdefghijklmnopqrstuvwxyz0123456",
        "https://a.blob.core.windows.net/c?sv=1&sig=" + "abcdefghijklmnopqrstuv%2Fxyz%3D",
        "Das Passwort ist " + "hunter2x",
        "\u5bc6\u7801\u662f" + "hunter2x",
        "password\uff1a" + "hunter2x",
        *(
            "My PIN is " + "4821.",
            "The PIN for my bank card is " + "4821.",
            "PIN: " + "4821",
            "Our alarm PIN is " + "482134",
            "the pin: " + "4821",
            "The CSC code is " + "482",
            "user pass: " + "s3cr3tPass99",
            "Remember my pin is " + "4821",
        ),
        *("Meine PIN ist " + "482134", "Mi PIN es " + "4821", "PIN " + "4821", "my PIN now is: " + "4821"),
        "my credit card is " + "4111 1111 1111 1111, exp 12/27",
        *("card " + "4111111111111111", "amex " + "3782 822463 10005", "mastercard " + "5555-5555-5555-4444."),
        *("CVV " + "123", "the CVC is " + "1234", "cvv: " + "123"),
        *(
            "password " + "hunter2",
            "pw: " + "Tr0ub4dor&3",
            "user bob, password " + "hunter22",
            "login: max password " + "s3cret9",
        ),
        *("export DB_PASS=" + "s3cr3tPass99", "smtp_pass: '" + "swordfish'", "REDIS_PASS=" + "swordfish"),
        *(
            "mysql -u root -p" + "s3cr3tPass99",
            "curl -u admin:" + "s3cr3tPass99 https://x",
            "sshpass -p " + "s3cret ssh a",
        ),
        "\u6697\u8a3c\u756a\u53f7:" + "4821",
        *("\u6697\u8a3c\u756a\u53f7\u306f" + "4821\u3067\u3059", "\u5bc6\u7801\u662f" + "4821"),
    ],
)
def test_a_secret_is_seen_where_it_stands(text: str) -> None:
    assert secret_in(text) is not None


@pytest.mark.parametrize(
    "text",
    [
        "The password is hashed with bcrypt.",
        "The password is rotated monthly.",
        "The access token is refreshed every 15 minutes.",
        "The password for users is never logged.",
        "api_key = settings.API_KEY",
        "The secret is stored in the vault.",
        "Basic authentication is off, and the basic configuration lives here.",
        "The token for CI is set in the settings of the repository.",
        "The page is at http://host:8080/a@b.",
        "Tokens are counted once.",
        "pwd is /home/user/project",
        "Password is bcrypt-hashed",
        *("Das Passwort ist abgelaufen", "Kennwort: siehe Tresor", "Le mot de passe est dans le coffre"),
        "La contrase\u00f1a es obligatoria",
        *(
            "\u5bc6\u7801\u662f\u52a0\u5bc6\u5b58\u50a8\u7684",
            "\u30d1\u30b9\u30ef\u30fc\u30c9\u306f8\u6587\u5b57\u4ee5\u4e0a",
        ),
        *("The password PBKDF2-SHA256 hash", "Remember that password OAuth2Proxy handles login"),
        *("Reset password https://example.com/reset/1", "The password min_length8 setting", "userPassword: string"),
        *("the table lin_api_request_logs_2024", "gsk_pipeline_results_table_v1", "bucket xai-grok-experiments-2024"),
        "cache key is key-d41d8cd98f00b204e9800998ecf8427e",
        *(
            "I'm taking CSC 209 and CSC 343 this term.",
            "the csc 2019 conference",
            "My address is 12 MG Road, Bengaluru, PIN 560001",
            "Our office PIN code is 560034",
            "mysql -h db.internal -P3307 -u app",
            "Boarding pass: LH1234",
            "Set the pin 2040 high",
            "The LED is on pin 13.",
            "Pin 1300 items to the board.",
            "PIN 13 is high",
            "I pinned 4821 posts.",
            "pin: 4821",
        ),
        *("The PIN was issued in 2024.", "my pin is 3000 years old", "Version PIN 1.2345", "The PIN has 4 digits."),
        *("a PIN of 6 digits", "PIN 2024-11-30", "My PIN is 4 digits", "Enter the PIN, then press 1234."),
        *("order 4111 1111 1111 1112", "call 4111-2222", "id 41111111111111110000", "4242.4242.4242.4242"),
        *("CVC 12 is a motor", "the cvv is required", "CVV must have 3 digits", "CVC 2,450 euros"),
        *(
            "12 tests pass: step one",
            "pass: all good",
            "pw: width",
            "BYPASS=enabled",
            "DB_PASS=$DB_PASSWORD",
            "pass=true",
        ),
        *(
            "DB_PASS=${DB_PASS}",
            "TEST_PASS: yes",
            "forward_pass: computed",
            "E2E_PASS=successful",
            "mysql -p mydb",
            "mysql -u root -p",
            "curl -u $A:$B x",
        ),
        *(
            "I forgot my password Office365.",
            "password manager",
            "Password reset2 is broken",
            "the password rules2 page",
        ),
        *(
            "curl -u admin https://x:8080/abc",
            "\u6697\u8a3c\u756a\u53f7\u306f4\u6841\u3067\u3059",
            "docker run -p8080:80 mysql",
        ),
        "The foreign key is pk_user_accounts_organisationmembership.",
        "A password reset sends a mail to the address in the profile.",
        "Use the password manager of the team, and password policies of the company.",
        "At 10:30 the task sk-sorted-lists-of-memberships was done.",
    ],
)
def test_a_sentence_about_secrets_is_none(text: str) -> None:
    assert secret_in(text) is None


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (
            "My password is 'hunter22', and we leave at 9.",
            "My password is '[a password, not shown]', and we leave at 9.",
        ),
        (
            "The password is " + "swordfish lane. We leave at 9.",
            "The password is [a password, not shown]. We leave at 9.",
        ),
        (
            "The password at home is " + "hunter22; we leave at 9.",
            "The password at home is [a password, not shown]; we leave at 9.",
        ),
        (
            "A_PASSWORD=" + "hunter22\nUSER=bob\nB_PASSWORD=" + "abcd99",
            "A_PASSWORD=[a password, not shown]\nUSER=bob\nB_PASSWORD=[a password, not shown]",
        ),
        ("Use redis://:" + "hunter22@host:6379 at 9.", "Use [a password in an address, not shown]host:6379 at 9."),
        ("Use ftp://me:" + "hunt@er@host at 9.", "Use [a password in an address, not shown]host at 9."),
        ("ghp" + "_\u200babcdefghijklmnopqrstuvwxyz0123456789 is mine", "[a GitHub token, not shown] is mine"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nAt 9.",
            "[a private key, not shown]\nAt 9.",
        ),
        ("-----BEGIN PRIVATE KEY-----\nMIIE\nAt 9.", "[a private key, not shown]"),
        ("Tokens are counted once.", "Tokens are counted once."),
    ],
)
def test_only_the_secret_is_masked(text: str, masked: str) -> None:
    assert mask_secrets(text) == masked


@pytest.mark.parametrize(
    "text",
    [
        "La contraseña de María es {}.",
        "La contraseña de la red de la oficina es: {}",
        "Mi contraseña ahora es {}",
        "Contraseña: {}",
        "La contrasen\u0303a de Mari\u0301a es {}",
        "A senha da Ana é {}.",
        "a senha do wifi é '{}'",
        "Minha senha agora é {}",
        "A palavra-passe do portal é {}",
        "Das Passwort von Anna lautet {}.",
        "Das Passwort für den Server ist jetzt {}",
        "Das WLAN-Passwort der Praxis lautet: {}",
        "Le mot de passe de Marie est {}.",
        "Le mot de passe de l'école est {}",
        "Le mot de passe d'Anna : {}",
        "La password di Maria è {}.",
        "Het wachtwoord van Anna is {}.",
        "Moje hasło to {}",
        "Lösenordet till nätverket är {}",
        "Mật khẩu của tôi là {}",
        "Мой пароль {}.",
        "Запомни, мой пароль {}, и не забудь.",
        "Мой пароль — {}",
        "Пароль Марии: {}",
        "Пароль Марии Петровой — {}.",
        "Пароль от почты: {}",
        "Пароль от почты — это {}",
        "Пароль теперь {}",
        "Мій пароль: {}",
        "كلمة المرور الخاصة بي هي {}",
        "كلمة مرور أحمد هي {}",
        "كلمة السر: {}",
        "كلمة المرور للواي فاي: {}",
        "كلمة المرور {}",
        "मेरा पासवर्ड {} है",
        "मारिया का पासवर्ड {} है।",
        "वाईफाई का पासवर्ड: {} है",
        "mera password {} hai",
        "我的密码 {}",
        "玛丽亚的密码是{}。",
        "マリアのパスワードは{}です",
        "제 비밀번호는 {} 입니다",
        "รหัสผ่านของฉันคือ {}",
        "Şifrem {}",
    ],
)
def test_a_password_is_masked_in_other_languages(text: str) -> None:
    masked = mask_secrets(text.format("hunter2-Xy98"))
    assert masked == text.format("[a password, not shown]")


@pytest.mark.parametrize(
    "text",
    [
        "I know the password of Anna. The server is server01.example.com",
        "La contraseña de María es obligatoria desde 2024.",
        "La contraseña del servidor tiene 12 caracteres y caduca el 01/02/2025.",
        "La contraseña de la base de datos es SHA-256-compatible.",
        "Olvidé la contraseña de María. El servidor es server01.example.com",
        "A senha da Ana é fraca demais, e o servidor é server01.",
        "A senha da Ana é fraca e o servidor é server01.",
        "A senha de 12 caracteres foi recusada em 01/02/2025.",
        "Esqueci a senha do Office365 e do Windows11.",
        "Das Passwort für den Server ist 12-stellig.",
        "Das Passwort von Anna läuft am 01.02.2025 ab.",
        "Ich habe das Passwort von Anna. Der Server ist server01.example.com",
        "Le mot de passe de Marie est valable jusqu'au 01/02/2025.",
        "La password di Maria è scaduta il 01/02/2025.",
        "Пароль должен содержать 12 символов.",
        "Пароль от Office365 истекает 01.02.2025.",
        "Я забыл мой пароль Office365.",
        "Я забыл пароль от роутера Archer-AX55.",
        "Пароль-менеджер — KeePass2024.",
        "Пароль хранится в виде SHA-256 на server01.example.com.",
        "Пароль — https://example.com/reset/1",
        "يجب أن تحتوي كلمة المرور على 12 حرفا.",
        "نسيت كلمة المرور الخاصة بحساب Office365.",
        "كلمة المرور محفوظة في: server01",
        "كلمة المرور لا تحفظ في: server01",
        "كلمة المرور هي أهم من بروتوكول IPv6Router.",
        "पासवर्ड में 12 अक्षर होने चाहिए।",
        "मेरा पासवर्ड Office365 में सहेजा गया है।",
        "पासवर्ड SHA-256-hash है",
        "密码必须有12个字符。",
        "我忘了Office365的密码。",
        "パスワードは12文字以上です。",
        "비밀번호는 12자 이상이어야 합니다.",
        "Şifre 12 karakter, Office365 gibi.",
    ],
)
def test_a_sentence_about_passwords_stays_as_it_is(text: str) -> None:
    assert mask_secrets(text) == text


@pytest.mark.parametrize("opening", ["password is '", 'password is "', "password=`", "password is "])
def test_many_secrets_are_masked_in_time(opening: str) -> None:
    begun = time.process_time()
    assert "hunter22" not in mask_secrets(f"{opening}hunter22 and so on, " * 10_000)
    assert time.process_time() - begun < 5


@pytest.mark.parametrize(
    "text",
    [
        *("password ", "password for x ", "password for " + "a " * 50, 'token" ', "basic ", "://:", "secret_", "ya29."),
        *(
            "PIN for a ",
            "my pin ",
            "4111 1111 1111 111",
            "mysql ",
            "curl -u a",
            "A_B_PASS=",
            "user a ",
            "pw: a",
            "CVV is ",
        ),
        *("contraseña de ", "Passwort von " + "a " * 50, "senha da a:", "password hunter2 ", "密码 ", "\n密码\n"),
        *("пароль от ", "пароль " + "Лиза " * 50, "\nпароль\n", "пароль — это ", "пароль теперь " + "теперь " * 50),
        *("كلمة المرور ", "كلمة السر " + "ا " * 50, "पासवर्ड ", "पासवर्ड hunter2 ", "पासवर्ड hunter2" + " " * 99),
    ],
)
def test_long_texts_take_time_in_proportion(text: str) -> None:
    def seconds(chars: int) -> float:
        begun = time.process_time()
        secret_in(text * (chars // len(text)))
        mask_secrets(text * (chars // len(text)) + "password is hunter22")
        return time.process_time() - begun

    short, long = min(seconds(25_000), seconds(25_000)), seconds(200_000)
    assert long < 24 * short, "eight times the text takes about eight times as long, and 64 times where it is squared"


@pytest.mark.parametrize(
    "form", ["The password is {}", "My password: {}", "DB_PASSWORD={}", "postgres://app:{}@db.example/x"]
)
@pytest.mark.parametrize(
    "value",
    [
        *(
            "$ecret" + "99!",
            "%Blue" + "77green",
            "dummy" + "Pass!9",
            "xxxAb" + "9!kl",
            "server" + "2024",
            "Windows" + "11",
        ),
        *("your-cat" + "-77", "admin" + "_secret", "python3" + "rocks", "change-me" + "-77", "req." + "Blue77"),
    ],
)
def test_a_password_may_begin_as_a_placeholder_does(form: str, value: str) -> None:
    assert value not in mask_secrets(form.format(value))


@pytest.mark.parametrize(
    "text",
    [
        *("DB_PASSWORD=${DB_PASSWORD}", "password = request.form['password']", "password: changeme", "password: xxxx"),
        *("postgres://user:password@localhost/db", "password = os.environ['X']", "The password is your-password-here."),
    ],
)
def test_what_stands_for_a_password_is_none(text: str) -> None:
    assert mask_secrets(text) == text


SENTENCES = Path(__file__).parent / "sentences" / "secrets.jsonl"
# How many of about 300 sentences a part are missed, and are taken for what they are not. The words were gathered beside
# the first part; the second is by another author, and nothing was changed for it. The third has passwords of plain
# words, what else such words say of a password, and codes and key words that open nothing.
MISSED_MAX = {"first": 0, "second": 21, "third": 0}
FALSE_MAX = 0


class Sentence(msgspec.Struct, frozen=True):
    """A sentence, and the value in it that must not be shown again."""

    part: str
    lang: str
    text: str
    secret: str | None


@pytest.mark.parametrize("part", MISSED_MAX)
def test_secrets_in_sentences_of_ten_languages_are_masked_and_nothing_else(part: str) -> None:
    decode = msgspec.json.Decoder(Sentence).decode
    missed, false = list[tuple[str, str]](), list[tuple[str, str]]()
    for sentence in map(decode, SENTENCES.read_bytes().splitlines()):
        if sentence.part != part:
            continue
        masked = mask_secrets(sentence.text)
        assert (secret_in(sentence.text) is None) is (masked == sentence.text)
        if sentence.secret is None and masked != sentence.text:
            false.append((sentence.lang, masked))
        elif sentence.secret is not None and sentence.secret in masked:
            missed.append((sentence.lang, masked))
    assert len(missed) <= MISSED_MAX[part], (Counter(lang for lang, _ in missed), missed)
    assert len(false) <= FALSE_MAX, (Counter(lang for lang, _ in false), false)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("Der Code für die Garage ist 4471, danke", "Der Code für die Garage ist [a door code, not shown], danke"),
        ("Enter 3319 at the intercom.", "Enter [a door code, not shown] at the intercom."),
        ("Visa 4929 1183 0042 7711 exp 09/27", "Visa [a card number, not shown] exp 09/27"),
        ("le code reçu par SMS est 382910", "le code reçu par SMS est [a verification code, not shown]"),
        ("codici di backup: 8821-3391", "codici di backup: [a recovery code, not shown]"),
        ("is Summer2024! a good password?", "is [a password, not shown] a good password?"),
        ("密码从Maomi11改成Gougou_22了", "密码从[a password, not shown]改成[a password, not shown]了"),
        ("wifi: HomeNet / Sunny-Day-88", "wifi: HomeNet / [a password, not shown]"),
    ],
)
def test_the_rest_of_a_sentence_stays_readable(text: str, masked: str) -> None:
    assert mask_secrets(text) == masked


@pytest.mark.parametrize(
    "text",
    [
        "my password is weak",
        "use promo code SAVE2024 at the door",
        "le code promo est NOEL2024",
        "Der Zahlencode in der Aufgabe hat 4 Stellen",
        "the door code changed in 2023 and nobody told me",
        "seed phrase should never be shared with anyone because it gives full access to your wallet",
        "la clave del éxito es dormir 8 horas",
        "my phone number is 5551234 and the code is broken",
        "I moved from Python3 to Python312 and changed my login",
        "邮编是100080",
        "密码锁多少钱，299元吗",
        "スマホの価格は59999円",
    ],
)
def test_numbers_beside_words_for_codes_stay(text: str) -> None:
    assert mask_secrets(text) == text


@pytest.mark.parametrize(
    "text",
    [
        *(
            "door code is ",
            "code 123 ",
            "the code for the door is 1",
            "user / ",
            "login a / ",
            "123-",
            "PIN is 4821 and ",
        ),
        *(
            "change from a1234 to ",
            "seed phrase: " + "apple " * 9,
            "a1234 as my ",
            "unlocks with ",
            "wifi key ",
            "密码从",
            "暗証番号は",
        ),
    ],
)
def test_long_sentences_are_looked_through_in_time(text: str) -> None:
    begun = time.process_time()
    mask_secrets(text * (40_000 // len(text)))
    assert time.process_time() - begun < 4
