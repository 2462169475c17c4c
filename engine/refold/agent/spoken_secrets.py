"""Secrets that people give away in sentences: passwords, PINs, codes of doors and messages, cards and phrases. Pure.

A value counts where words of one of ten languages lead up to it, and its shape is not that of an ordinary word, a
placeholder or code. The tables of words hold all languages at once, because people mix them. Whatever surrounds a
word is looked at within a bound, so that the time is in proportion to the text.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple


class Secret(NamedTuple):
    """Where a secret is in a text, and what it is."""

    start: int
    end: int
    kind: str


def _words(**by_language: str) -> str:
    return "|".join(by_language.values())


def _whole(words: str) -> str:
    """Return a pattern of words that no Latin letter or digit continues; Chinese and Japanese need no space."""
    return rf"(?<![{_LETTER}])(?:{words})(?![{_LETTER}])"


_LETTER: Final = "A-Za-z0-9À-ɏ"
_STOPS: Final = re.compile(r"[.;!?](?=\s)|[\n。；！？]")
_AROUND: Final = 90
"""How many characters before and after a value are looked at, in the same sentence."""

# What leads from a word to its value.
_IS: Final = _words(
    en="is|was|are|it's|gives|returns|set to|changed to",
    de="ist|war|lautet|heißt|heisst|wäre",
    fr="est|c['’]est|était|sera",
    es="es|era|está|fue",
    it="è|e\u0300|era|sarà",
    pt="é|e\u0301|foi|eh",
    nl="luidt|werd",
    pl="to|jest|brzmi|był[ao]?",
    others="är|er|je|là|adalah",
)
_NOW: Final = _words(
    en="now|still|currently|just|simply",
    de="jetzt|nun|noch|aktuell|einfach|gerade",
    fr="maintenant|toujours|juste|le",
    es="ahora|el|ahora mismo|todavía",
    it="adesso|ora|ancora|il",
    pt="agora|ainda|o",
    nl="nu|nog|gewoon",
    pl="teraz|nadal|po prostu",
)
_OPENING: Final = r"[*_`\"'«“„‘「『(]{0,3}+"
_LINK: Final = (
    rf"(?:[^\S\n]{{0,3}}(?::=|=>|->|={{1,3}}|[:：→＝]|[\u2013\u2014-](?=\s))[*`]{{0,2}}|(?<=[a-z])['’]s(?=\s)|{_whole(_IS)}:?|"
    r"(?:就?是|为|為|[设設改换換]成|[设設改]?[为為]|[はが를은는]|คือ)(?:[现現]在|目前|今)?|[を、](?:[ぁ-ゟ]{0,8}))"
    rf"\s{{0,3}}(?:(?:{_NOW})\s){{0,2}}{_OPENING}\s?"
)
_TOKEN: Final = (
    r"[^\s\"'`«»“”„‘’‹›<>、，\u3000-\u30ff\u3400-\u9fff\uac00-\ud7af\uff00-\uffef\u0e00-\u0e7f]{4,128}+"
)

_PASSWORD: Final = _words(
    en="pass ?words?|passwd|pass ?phrase|passcode|pass key",
    de="passwort|kennwort|zugangswort|zugangscode",
    fr="mots? de passe|phrase (?:secrète|de passe)|code d['’]accès",
    es="contrase(?:ñ|n\u0303?)a|clave de acceso|código de acceso",
    it="parola (?:d['’]ordine|segreta|chiave)|frase segreta|codice di accesso",
    pt="senha|palavra[- ]passe|frase secreta",
    nl="wachtwoord|wachtzin|wachtwoordzin|toegangscode",
    pl="has(?:ł|l)(?:o|a|em|u)",
    zh="密[码碼]|口令",
    ja="パスワード|パスフレーズ|合言葉",
    others="lösenord(?:et)?|adgangskode(?:n)?|heslo|lozinka|parola|şifre|mật khẩu|kata sandi|비밀번호|암호|รหัสผ่าน",
)
_SHORT_PASSWORD: Final = _words(
    en="pwd|psw|pw|pass|passw", fr="mdp|mdps", es="clave|contra", nl="ww", de="kw|pwort", pl="hsl"
)
_ANY_PASSWORD: Final = rf"(?:(?:{_PASSWORD})|(?<![{_LETTER}])(?:{_SHORT_PASSWORD}))(?:(?<=[\u3040-\ud7af])|(?![{_LETTER}_]))"
# Words after which a keyword is about passwords, not one.
_ABOUT: Final = (
    r"(?!@|[ -](?:manager|reset|polic|field|hash|rule|length|requirement|strength|generator|protect|less|column|input|"
    r"file|prompt|hint|change|update|expir|length|valid|auth|encrypt|table|model|type|box|min|max))"
)
_FORGET: Final = re.compile(
    _words(
        en="forg[eo]t|\\blost\\b|reset",
        de="verg[ae]ss|vergesse|zurücksetz",
        fr="oubli|réinitialis",
        es="olvid|restablec",
        it="dimentica|scordat",
        pt="esque[cç]|redefin",
        nl="vergeten|kwijt",
        pl="zapomn|reset",
        zh="忘|重置",
        ja="忘れ|リセット",
    ),
    re.IGNORECASE,
)
_LOGIN_WORDS: Final = _words(
    en="log ?-?in|log ?on|user(?:name)?|user id|admin|root|account|credentials?|creds|sign[- ]in|e-?mail",
    de="benutzer(?:name)?|nutzer(?:name)?|anmeldung|zugang|zugangsdaten|konto|anmeldedaten",
    fr="identifiants?|utilisateur|compte|connexion|accès",
    es="usuario|cuenta|acceso|credenciales",
    it="utente|credenziali|accesso|nome utente",
    pt="usuário|utilizador|conta|acesso|credenciais|entra com",
    nl="gebruiker(?:snaam)?|inlog(?:gen|gegevens)?|leerling",
    pl="użytkownik|konto|dane logowania|loguj[eę]",
)
_LOGIN: Final = rf"(?:{_whole(_LOGIN_WORDS)}|[账帐帳][号號户戶]|用[户戶]名?|登[录錄]|ユーザー|アカウント|ログイン)"
_LOGIN_BEFORE: Final = re.compile(_LOGIN, re.IGNORECASE)
_GOES_ON: Final = re.compile(
    r"[\"'`»”*)」』!.?]{0,3}\s{0,3}(?:\Z|[\n,;/|(，。、；！？]|(?:[\u2013\u2014-]|"
    + _words(
        en="for|and|but|on|at|if|in|to",
        de="für|und|aber|auf|am|beim",
        fr="pour|et|mais|sur|dans",
        es="para|y|pero|en",
        it="per|ma|su|sul",
        pt="mas|no|na|em",
        nl="voor|maar|op",
        pl="do|ale|na|dla",
    )
    + r")\s|[\u3040-\u30ff\u3400-\u9fff])"
)
_GAP_CHARS: Final = 48
_GAP: Final = (
    rf"(?:[^\n:=.,;!?，。；！？、]|\.(?=\S)|,(?=\s(?:it|c['’]|that|das|es|dat|è|é|to)(?![a-z]))){{0,{_GAP_CHARS}}}?"
)
_PASSWORD_WORD: Final = re.compile(_ANY_PASSWORD, re.IGNORECASE)
_LINK_AFTER: Final = re.compile(rf"{_ABOUT}(?P<gap>{_GAP})(?P<link>{_LINK})", re.IGNORECASE)
_NO_LINK: Final = re.compile(rf"(?:\s|(?<=[\u3040-\u9fff])){_OPENING}")
_VALUE_AFTER: Final = re.compile(_TOKEN)
_QUOTED: Final = re.compile(r"(?<=[\"'“«「『„`‘])[^\"”»」』“`\n’]{3,80}+(?=[\"'”»」』“`’])")
_NAME_AFTER: Final = re.compile(
    r"[A-ZÀ-ÖØ-ÞŁŚŻ][a-zà-öø-ÿąćęłńóśźż]{4,24}+(?=[\"'*`]{0,2}\s{0,2}(?:\Z|[\n,.;!?)]))"
)
_NAMED_AS: Final = re.compile(
    rf"(?<![!-~À-ɏ]){_OPENING}(?P<secret>{_TOKEN})[\"'`»”」』*]{{0,2}}"
    r"(?:\s(?:as|is|was|als|ist|war|comme|est|como|es|come|è|é|jako|to|voor|for|für|pour|para|per)"
    rf"\s(?:[^\s.,;:!?]{{1,16}}\s){{0,3}}?|\s?(?:[当當做作]|作[为為]|[をがは])[^\s.,;!?，。]{{0,8}}?){_ANY_PASSWORD}{_ABOUT}",
    re.IGNORECASE,
)
_TO: Final = "to|auf|zu|in|à|en|par|a|con|para|por|naar|na"
_CHANGED: Final = re.compile(
    rf"(?<![{_LETTER}])(?:"
    + _words(
        en="chang|switch|updat|set|reset",
        de="änder|geänder|gesetzt|umgestellt|gewechselt",
        fr="chang|modifi|remplac|mis",
        es="cambi|puse|actualic",
        it="cambia|modifica|messo|impostat",
        pt="mud|troc|alter",
        nl="verander|gewijzigd|aangepast|gezet",
        pl="zmieni|ustawi",
    )
    + ")",
    re.IGNORECASE,
)
_TO_AFTER: Final = re.compile(rf"[^\n:=.,;!?]{{0,40}}?{_whole(_TO)}\s{_OPENING}", re.IGNORECASE)
_FROM_TO: Final = re.compile(
    rf"{_whole('from|von|de|du|del|da|van|z')}\s{_OPENING}(?P<old>{_TOKEN})[\"'`]?\s{_whole(_TO)}\s{_OPENING}"
    rf"(?P<secret>{_TOKEN})|[从從](?P<old2>{_TOKEN})[改換换变變](?:成|为|為|到)(?P<secret2>{_TOKEN})|"
    rf"(?<![!-~])(?P<old3>{_TOKEN})から(?P<secret3>{_TOKEN})[にへ](?:変|し)",
    re.IGNORECASE,
)
_ABOUT_ACCESS: Final = re.compile(rf"{_PASSWORD}|(?<![a-z])(?:wi-?fi|wlan)|{_LOGIN}", re.IGNORECASE)
_PAIR: Final = re.compile(rf"{_LOGIN}(?:[^\n.;!?/|]|\.(?=\S)){{0,50}}+[/|]\s?(?P<secret>{_TOKEN})", re.IGNORECASE)
_HARMLESS: Final = re.compile(
    r"[~/$\[{(%]|https?:|www\.|[\w.+-]{1,64}@[\w-]{1,64}\.[a-z]|\.{2,}|"  # Addresses, paths, variables.
    r"[a-z_][\w.]{0,63}[(\[]|(?:os|process|settings|config|env|self|this|req|request|user|ctx|args|opts|options)\.|"
    r"(?:debug|verbose)=|"
    r"(?:sha|aes|md|pbkdf|hmac|argon|bcrypt|scrypt|base|utf|oauth|iso|tls|ssl|ipv|http|rsa|ecdsa|ed)-?\d(?!\S{24})|"
    r"(?:office|windows|microsoft|outlook|python|node|iphone|galaxy|server|mysql|postgres|chrome|ios|keepass|1password|"
    r"bitwarden|log4j|auth0|k8s|oauth|webauthn|fido2?)[-_.]?\d{0,4}[\w.-]{0,12}(?!\S)|"
    r"v?\d{1,4}(?:[./:-]\d{1,4}){1,3}(?![\w!#$%&*@])|\d{1,4}-?[^\W\d_]{3,}(?!\S)|"  # Dates, versions, "12-digit".
    r"\d{1,5}(?:st|nd|rd|th|ms|s|h|d|gb|mb|kb|px|%)(?!\w)|"
    r"(?:your|my|the|tu|mi|su|dein|mein|ihr|votre|ton|mon|sua?|seu|minha|tuo|tua|twoj[ea]?|twój|uw|jouw|mijn)[-_]|"
    r"[x*.•_#-]{3,}(?!\w)|x{3,}|(?:change|replace|fill|insert|put|enter)[-_]?(?:me|this|it|here)|"
    r"placeholder|dummy|redacted|"
    r"(?:password|passwd|pass|pwd|pw|secret|token|user|example|sample|test|foo|bar|string|null|none|true|false|"
    r"contrase(?:ñ|n)a|senha|passwort|kennwort|has[łl]o|wachtwoord|mdp|key|hidden|masked|undefined|yes|no|"
    r"required|optional|process|default|value)[\"')\],;.!]{0,2}(?!\S)|"
    r"(?-i:[A-ZÀ-Þ]+_[A-ZÀ-Þ_]+)(?!\w)",
    re.IGNORECASE,
)
_UNITS: Final = re.compile(
    r"[\"'`*)]{0,2}[\s-]{0,2}(?:%|°|[€$£¥]|(?:"
    + _words(
        en="characters?|chars?|digits?|letters?|words?|days?|years?|times|hours?|minutes?|seconds?|months?|people|users?|"
        "bits?|bytes?|items?|lines?|points?|pins|posts|of|am|pm|km|kg|[kmc]?m|usd|eur|dollars?|attempts?|tries|requests?|rows",
        de="zeichen|ziffern|stellen|stellig\\w*|tage?n?|jahre?n?|uhr|stunden?|minuten?|sekunden?|euro|mal|versuche?",
        fr="caractères|chiffres|jours?|ans?|heures?|fois|lettres|secondes?|mois|essais?",
        es="caracteres|dígitos|días|años?|horas?|minutos?|veces|segundos?|intentos?",
        it="caratteri|cifre|giorni|anni|ore|minuti|volte|secondi|tentativi",
        pt="caracteres|dígitos|dias|anos|horas|minutos|vezes|segundos|reais",
        nl="tekens|cijfers|dagen|jaar|uur|minuten|keer|seconden|pogingen",
        pl="znak\\w*|cyfr\\w*|dni|lat|godzin\\w*|minut\\w*|razy|sekund\\w*|prób\\w*|zł",
    )
    + rf")(?![{_LETTER}])|[位个個字文桁年月日天回分秒元円時点])",
    re.IGNORECASE,
)
_PLAIN_CAPITALS: Final = re.compile(
    "Pflicht|Geheim|Standard|Mist|Quatsch|Schrott|Murks|Pflichtfeld|Unbekannt|Sicher|Unsicher|Falsch|Richtig|Privat|Keines?|"
    "Ninguna?|Aucune?|Nessuna|Nenhuma|Brak|Geen|Onbekend|Correct[ao]?|Secret[ao]?|Required|String|Optional|Obligatoire|"
    "Boolean|Integer|Invalid|Valid|Hidden|Passwor[dt]|Kennwort|Firebase|Google|Apple|Facebook|Teil|Sache|Frage|Unsinn",
    re.IGNORECASE,
)

# Words of passphrases and of the phrases that recover a wallet.
_PHRASE: Final = _words(
    en="seed ?-?phrase|seed words|recovery phrase|mnemonic(?: phrase)?|secret phrase|wallet (?:phrase|words)|backup phrase",
    de="seed-?phrase|wiederherstellungs(?:phrase|wörter)|merkphrase|sicherungsphrase|mnemonik",
    fr="phrase (?:de récupération|mnémonique|de secours|seed|graine)|mots de récupération",
    es="frase (?:semilla|de recuperación|mnemotécnica|secreta|seed)|palabras (?:semilla|de recuperación)",
    it="frase (?:di recupero|seed|mnemonica|segreta)|parole (?:di recupero|seed)",
    pt="frase (?:semente|de recuperação|mnemônica|seed|secreta)|palavras de recuperação",
    nl="herstel(?:zin|woorden|frase)|seed-?zin|seed ?woorden",
    pl="fraz[ay] (?:seed|odzyskiwania|zapasow\\w+|startow\\w+)|słowa odzyskiwania",
    zh="助[记記][词詞]|恢[复復](?:短[语語]|助记词)|种子短语",
    ja="シードフレーズ|リカバリー?フレーズ|復元フレーズ|ニーモニック|復元用?の?単語",
)
_AND: Final = r"(?:and|but|for|und|aber|für|et|mais|pour|y|pero|para|e|ma|per|mas|en|maar|voor|i|ale|do|then|so|now)"
_WORD: Final = r"[^\W\d_]{2,16}+"
_FUNCTION: Final = _words(
    en="the|an?|is|are|was|be|it|you|your|my|this|to|of|in|on|or|with|that|which|never|not|should|must|can|as|if|when|from",
    de="der|die|das|ist|sind|ein|eine|mein|meine|zu|im|mit|nicht|oder|man|ich|du|dass|soll|muss|sie|es|von",
    fr="le|la|les|des?|du|est|un|une|mon|ma|ne|pas|ou|que|qui|dans|je|tu|il|sur",
    es="el|los|las|del?|es|una?|mi|tu|no|en|que|con|se|su",
    it="il|lo|gli|di|una?|mio|mia|non|che|con|si|in",
    pt="os?|do|da|um|uma|meu|minha|não|com|que|em|no|na",
    nl="het|een|van|is|mijn|niet|of|met|dat|je|ik",
    pl="jest|nie|się|na|z|w|to|mój|moja|że|czy|lub",
)
_SEED_WORD: Final = rf"(?!(?:{_AND}|{_FUNCTION})(?![{_LETTER}])){_WORD}"
_SEED: Final = re.compile(
    rf"(?<![{_LETTER}-])(?:{_PHRASE})(?![{_LETTER}])[^\n:：.]{{0,40}}?[:：\s]\s{{0,3}}{_OPENING}"
    rf"(?P<secret>(?:\d{{1,2}}[.)]\s?)?{_SEED_WORD}(?:[\s,、，]{{1,2}}(?:\d{{1,2}}[.)]?\s?)?{_SEED_WORD}){{11,23}})",
    re.IGNORECASE,
)
_PASSPHRASE: Final = re.compile(
    rf"(?:pass ?phrase|phrase (?:secrète|de passe)|frase (?:segreta|secreta|de contraseña)|wachtwoordzin|wachtzin|"
    rf"パスフレーズ|合言葉|口令短语)(?![{_LETTER}])(?:(?>{_GAP}{_LINK})|"
    r"(?<=as passphrase)\s|(?<=als Passphrase)\s|(?<=comme phrase secrète)\s|(?<=como frase secreta)\s|"
    r"(?<=come frase segreta)\s)"
    rf"(?P<secret>{_WORD}(?:\s(?!{_AND}\s)[^\s,.;:!?\"'»”]{{1,16}}+){{2,11}})",
    re.IGNORECASE,
)
_TALK: Final = re.compile(
    r"(?:stored|kept|in|not|required|the|an?|hashed|too|never|always|only|on|my|no|very|still|part|what|where|nicht|zu|ein\w*|"
    r"der|die|das|im|trop|dans|pas|un\w*|muy|en|no|demasiado|nel\w*|non|troppo|muito|não|na|no|te|niet|een|het|za|nie|w|so|"
    r"needed|used|correct|wrong|optional|empty|set|from|also|lost|gone|probably|enough|longer|wichtig|sicher)(?!\w)",
    re.IGNORECASE,
)

# Numbers.
_CODE_WORD: Final = _words(
    en="codes?|combination|combo|keypad|passcode",
    de="code|kombination|zahlenkombi\\w*|zahlencode|nummer|kode",
    fr="code|combinaison|chiffres",
    es="código|codigo|combinación|clave",
    it="codice|combinazione",
    pt="código|codigo|combinação|senha",
    nl="code|combinatie|cijfercode",
    pl="kod\\w{0,3}|szyfr|kombinacja",
)
_CODE: Final = rf"(?:(?<![A-Za-z0-9])(?:[a-zà-ÿ-]{{0,20}}?)(?:{_CODE_WORD})(?![{_LETTER}])|[密号]?[码碼]|口令|コード|番号|ナンバー|パス)"
_PLACE: Final = _words(
    en="doors?|front door|gate|alarm|safe|padlock|lock|locker|key ?box|key safe|lock ?box|garage|entrance|building|suitcase|"
    "luggage|intercom|shed|gym|elevator|lobby|vault|cabin|apartment|keypad",
    de="haustür|tür|eingangstür|tor|hoftor|gartentor|alarm|alarmanlage|tresor|safe|schloss|\\w{0,12}schloss|garage|garagentor|"
    "schlüssel(?:kasten|box|safe|tresor)|koffer|spind|schließfach|eingang|türcode|tür\\w{0,8}",
    fr="porte|portail|portillon|alarme|coffre(?:-fort)?|cadenas|immeuble|digicode|interphone|boîte à clés|antivol|entrée|"
    "garage|casier|valise|hall",
    es="puerta|portal|portón|alarma|caja fuerte|candado|garaje|taquilla|casillero|verja|portero|cajetín|maleta|edificio|trastero",
    it="porta|portone|cancello|allarme|cassaforte|lucchetto|antifurto|box|cassetta|armadietto|citofono|valigia|ingresso",
    pt="porta|portão|alarme|cofre|cadeado|garagem|prédio|armário|portaria|interfone|fechadura|mala|caixa de chaves",
    nl="deur|voordeur|achterdeur|poort|hek|alarm|kluis|kluisje|slot|\\w{0,12}slot|sleutel(?:kastje|kluis|kluisje|box)|"
    "garage|schuur|ingang|koffer|portiek",
    pl="drzwi|bram\\w{1,4}|furtk\\w{1,4}|alarm\\w{0,3}|sejf\\w{0,2}|kłódk\\w{1,2}|domofon\\w{0,2}|garaż\\w{0,2}|szafk\\w{1,2}|"
    "klatk\\w{1,2}|walizk\\w{1,2}|skrytk\\w{1,2}|zamk\\w{1,2}|wejści\\w{1,3}",
)
_DEVICE: Final = _words(
    en="phone|tablet|ipad|iphone|laptop|sim|card|bank|debit|credit|atm|face id|screen|app|watch|device|account|voicemail|tv|"
    "parental|alarm|visa|mastercard|online banking|\\d[- ]?digit",
    de="handy|telefon|tablet|karte|\\w{0,12}-?karten?|bank|giro\\w*|konto|sim|bildschirm\\w{0,8}|app|gerät|ec",
    fr="téléphone|portable|tablette|carte(?: bleue| bancaire)?|cb|banque|sim|écran|appli",
    es="teléfono|móvil|celular|tarjeta|banco|cajero|pantalla|sim|tableta|portátil",
    it="telefono|cellulare|carta|bancomat|banca|schermo|sim|tessera",
    pt="telefone|celular|telemóvel|cartão|banco|tela|chip|multibanco|caixa",
    nl="telefoon|mobiel|pas|pinpas|bankpas|bank|kaart|sim|scherm",
    pl="telefon\\w{0,3}|kart\\w{1,3}|bank\\w{0,6}|konta?|ekran\\w{0,2}|sim|tablet\\w{0,2}|blokad\\w{1,2}",
)
_VERIFY: Final = _words(
    en="verification|verify|sms|2fa|mfa|otp|one[- ]time|auth(?:entication|enticator)?|confirmation|security|login|texted|"
    "sent me|activation|sign-?in|tan",
    de="bestätigungs?\\w*|verifizierungs?\\w*|freischalt\\w*|einmal\\w*|sms|sicherheits\\w*|m?tan|aktivierungs\\w*|anmelde\\w*",
    fr="vérification|validation|confirmation|sms|reçu|sécurité|double authentification|activation",
    es="verificación|sms|confirmación|seguridad|activación|llegó|mandaron",
    it="verifica|conferma|sms|sicurezza|otp|attivazione|arrivato",
    pt="verificação|confirmação|sms|segurança|ativação|chegou",
    nl="verificatie\\w*|bevestigings\\w*|sms|beveiligings\\w*|activerings\\w*|inlog\\w*",
    pl="weryfikac\\w+|potwierdz\\w+|autoryzac\\w+|blik|sms\\w*|aktywac\\w+|jednorazow\\w+",
)
_BACKUP: Final = _words(
    en="backup|back-up|recovery|rescue|reset",
    de="wiederherstellungs\\w*|ersatz\\w*|notfall\\w*|backup\\w*|sicherungs\\w*",
    fr="secours|récupération",
    es="respaldo|recuperación|emergencia",
    it="recupero|emergenza|riserva",
    pt="recuperação|reserva|emergência",
    nl="herstel\\w*|reserve\\w*|nood\\w*",
    pl="zapasow\\w+|awaryjn\\w+|odzyskiwania|ratunkow\\w+",
)
_PIN: Final = _words(
    en="(?-i:PIN)s?|pin[- ]?(?:code|number)|puk2?|puk[- ]?code",
    de="geheimzahl|geheimnummer|pin-?nummer|\\w{0,12}(?:karten|bank|handy|sim|ec|konto|giro|geräte|app)-?pin",
    fr="code (?:confidentiel|secret)|nip",
    es="número secreto|nip",
    it="codice segreto",
    pt="código secreto",
    nl="pincode|pukcode",
    pl="pin[- ]?u|kod pin|pinem",
)
_CVV: Final = _words(
    en=r"(?:cvv|cvc)2?|(?:three|3|four|4)[- ]digits? (?:code )?(?:\w+ ){0,2}back|(?:three|3|last three|last 3) (?:digits|numbers) "
    r"(?:on|at) (?:the|its) back(?: of (?:\w+ ){0,3}card)?|card security code|check digits?",
    de=r"(?:karten)?prüf(?:ziffer|nummer|zahl)n?|kartenprüfnummer|sicherheitscode|drei ziffern|(?:3|drei) (?:ziffern|zahlen)",
    fr=r"cryptogramme|code de sécurité|(?:3|trois) (?:derniers )?chiffres",
    es=r"código de seguridad|(?:3|tres) (?:últimos )?(?:dígitos|números|cifras)",
    it=r"codice di sicurezza|(?:3|tre) (?:ultime )?cifre",
    pt=r"código de segurança|(?:3|três) (?:últimos )?(?:dígitos|números)",
    nl=r"beveiligingscode|controlecijfers?|(?:3|drie) cijfers|kaartcode",
    pl=r"kod (?:bezpieczeństwa|zabezpieczający|cvv2?|cvc2?)|(?:3|trzy) cyfry",
)
_BACK: Final = (
    r"back|card|hinten|rückseite|karte|dos|derrière|verso|carte|atrás|detrás|reverso|dorso|tarjeta|retro|dietro|carta|trás|cartão|"
    r"achter|kaart|pas|odwroc|kart|cv[vc]|cryptogramme|背|裏|卡|カード|prüf"
)
_CJK: Final = {
    "a card's security code": "背面[^\\d\\s]{0,6}[三3][位个個](?:[数數]字?)?|[后後]三位|安全[码碼]|[裏うら](?:面)?の?[3三３]桁|"
    "セキュリティ(?:コード|番号)",
    "a recovery code": "(?:[备備]用|恢[复復]|救援)[^\\d\\s]{0,4}?[码碼]|(?:バックアップ|リカバリー?|復旧|予備の?)コード",
    "a verification code": "(?:[验驗][证證]|校[验驗]|[动動][态態]|[确確][认認]|短信)(?:密)?[码碼]|(?:認証|確認|ワンタイム)"
    "(?:コード|番号|パスワード)",
    "a door code": "(?:[门門]禁|大[门門]|[门門]|[车車][库庫]|[报報]警器?|保[险險][箱柜櫃]|密[码碼]?[锁鎖]|[锁鎖]|行李箱|信箱)的?"
    "(?:密[码碼]|[码碼]|代码)?|(?:ドア|玄関|オートロック|門|金庫|警報|アラーム|南京錠|鍵|ロッカー|宅配ボックス|キーボックス|"
    "スーツケース|自転車|ガレージ|倉庫|セキュリティ)[^\\d\\s、。]{0,6}?(?:コード|番号|ナンバー|暗証番号)?",
    "a PIN": "(?:[银銀]行卡|卡|取款|支付|手[机機]|[开開][机機]|[锁鎖]屏|[屏熒]幕|平板|信用卡)的?密[码碼]|暗証番号|(?:スマホ|携帯|"
    "タブレット|端末|画面)[^\\d\\s、。]{0,8}?(?:コード|番号|パスコード)|パスコード|PINコード",
}
_CJK_LEAD: Final = {
    kind: re.compile(rf"(?:{words})(?:[はが是为為：:]|就是|的?[是为為]|、)?\s?[「『“\"]?\Z") for kind, words in _CJK.items()
}
_VALUE: Final = (
    r"(?:\d{1,4}(?:[ -]\d{1,4}){1,3}|[#*]{0,2}\d{3,10}[A-Z]?[#*]{0,2}|"
    r"(?=[A-Z]{0,8}\d)(?=\d{0,8}[A-Z])[A-Z0-9]{4,10}[#*]?|(?=[A-Za-z-]{0,12}\d)[A-Za-z0-9]{3,8}(?:-[A-Za-z0-9]{3,8}){1,7})"
)
_NUMBER: Final = re.compile(rf"(?<![{_LETTER}.,:/€$£¥_+#*-]){_VALUE}(?![{_LETTER}_]|[.,:/-]\d|[:/]\S)")
_NOT_CODES: Final = re.compile(
    r"error|exit|status|http|zip|postal|postcode|area code|country|promo|coupon|discount|voucher|product|article|order|tracking|"
    r"qr\b|source|fehler|postleit|plz|rabat|gutschein|erreur|descuento|sconto|cupom|desconto|korting|pocztow|zniżk|rabatow|"
    r"line \d|gpio|arduino|connector|airport|iata|color|colour|hex|class|dress|tax|fiscal|swift|bic|dial|vorwahl|indicatif|"
    r"prefisso|building code|flight|邮编|订单|郵便|注文|错误|エラー|commit|version",
    re.IGNORECASE,
)
_CHOSE: Final = (
    "set|chose|picked|gewählt|genommen|gesetzt|mis|choisi|puse|elegí|messo|scelto|coloquei|escolhi|gekozen|ingesteld|ustawi\\w+"
)
_LED: Final = re.compile(
    rf"(?:{_LINK}|{_whole(_CHOSE)}\s(?:(?:the|den|le|el|il|o|de) )?|"
    rf"(?:{_CODE}|{_whole('|'.join((_PLACE, _DEVICE, _VERIFY, _BACKUP, _PIN, _CVV)))})\s?[:#(,]?\s?{_OPENING})\Z",
    re.IGNORECASE,
)
_LINKED: Final = re.compile(_whole(_IS), re.IGNORECASE)
_OWNED: Final = "my|our|his|her|their|your|meine?|unsere?|ma|mon|notre|mi|nuestro|mio|il|meu|nosso|mijn|onze|mój|moim"
_NEAR: Final = tuple(
    (kind, re.compile(words, re.IGNORECASE), re.compile(also, re.IGNORECASE), re.compile(shape))
    for kind, words, also, shape in (
        ("a card's security code", _whole(_CVV), _BACK, r"\d{3,4}"),
        ("a recovery code", _whole(_BACKUP), _CODE, r"(?=.{5}).*"),
        ("a PIN", _whole(_PIN), "", r"\d{4,8}|\d{2,4} \d{2,4}"),
        ("a PIN", _whole("pins?"), _whole(f"{_DEVICE}|{_OWNED}"), r"\d{4,8}"),
        ("a verification code", _whole(_VERIFY), _CODE, r"\d{4,8}|\d{3}[ -]\d{3,4}|[A-Z0-9]{5,8}"),
        ("a door code", _whole(_PLACE), _CODE, ".*"),
        ("a door code", _whole("digicode|türcode|combination|zahlenkombination|combinaison"), "", ".*"),
        ("a PIN", _whole(_DEVICE), _CODE, r"\d{4,8}"),
    )
)
_NAMED_CODE: Final = re.compile(
    rf"\s(?:as|is|was|als|ist|comme|est|como|es|come|è|é|jako|to)\s(?:[^\s.,;:!?]{{1,16}}\s){{0,4}}?(?:{_CODE}|{_whole(_PIN)})",
    re.IGNORECASE,
)
_OPENS: Final = re.compile(
    r"(?<![a-z])(?:"
    + _words(
        en="(?:unlocks?|opens?|unlocked|opened)(?: it| up)? (?:with|by|using|via)",
        de="(?:öffnet|entsperr\\w*|geht|aufgeht|öffnen|auf)(?: \\w+){0,4}? mit",
        fr="(?:s['’]ouvre|se déverrouille|ouvrir|déverrouiller|ouvre|débloque)(?: \\w+){0,3}? (?:avec|par)",
        es="(?:abre|desbloquea|abrir|desbloquear)(?: \\w+){0,3}? con",
        it="(?:apre|sblocca|aprire|sbloccare)(?: \\w+){0,3}? con",
        pt="(?:abre|desbloqueia|abrir|desbloquear)(?: \\w+){0,3}? com",
        nl="(?:open|opent|ontgrendel\\w*)(?: \\w+){0,3}? (?:met|via)",
        pl="(?:otwiera|odblokowuj\\w+|otworzyć|odblokować)(?: \\w+){0,3}?(?: kodem| hasłem| na| przez)?",
    )
    + rf")(?:\s(?:the|der|dem|den|le|el|il|lo|o|de|a)(?=\s))?(?:\s(?:{_CODE_WORD}|{_PASSWORD}|pin|numer\w{{0,2}}|number))?\s?:?\s?{_OPENING}\Z",
    re.IGNORECASE,
)
_OPENS_AFTER: Final = re.compile(r"\s?(?:(?:来|來|就能|可以|就)?(?:解[锁鎖]|[开開](?:[锁鎖门門])?|打[开開])|(?:を押して?|で)[^。\s]{0,6}?(?:開|解除|あ[くけ]|入))")
_STRONG_TOKEN: Final = re.compile(rf"(?<![!-~À-ɏ])(?P<secret>{_TOKEN})")

# Keys and cards.
_KEY_OF: Final = "wi-?fi|wlan|wpa2?|wep|router|network|netzwerk|réseau|red|rete|rede|netwerk|sieci|api|ssid|hotspot"
_KEY: Final = (
    rf"(?:(?:{_KEY_OF}|encryption|secret|license|licence|private|access|signing|master|product)[ -]?(?:key|schlüssel|sleutel)|"
    r"(?:verschlüsselungs|sicherheits|netzwerk|lizenz)-?schlüssel|"
    rf"(?:clé|clef|clave|llave|chiave|chave|klucz|sleutel)\s(?:d['’]|de |del |della |di |da |do |van |voor |la |el ){{0,2}}"
    rf"(?:{_KEY_OF}|chiffrement|cifrado|cifratura|criptografia|secr[eè]te?|secreta|segreta|sécurité|accès|acceso)|"
    rf"(?:ssid|wi-?fi|wlan)[^\n.;!?]{{0,40}}?(?<![{_LETTER}])(?:key|schlüssel|clé|clave|chiave|chave|sleutel|klucz))"
    rf"(?![{_LETTER}_])|[密金][钥鑰]|APIキー|(?:Wi-?Fi|暗号化?)の?キー"
)
_KEY_VALUE: Final = re.compile(
    rf"(?:{_KEY})(?:\s\(\w{{1,12}}\))?(?:(?>{_GAP}{_LINK})|[^\S\n]|(?<=[\u3040-\u9fff])){_OPENING}(?P<secret>{_TOKEN})", re.IGNORECASE
)
_SECRET_GIVES: Final = re.compile(
    rf"(?<![{_LETTER}])(?:secret|token|令牌|トークン|jeton)(?![{_LETTER}_])(?>{_GAP}{_LINK})(?P<secret>{_TOKEN})", re.IGNORECASE
)
_CARD: Final = re.compile(r"(?<![A-Za-z0-9_.-])[2-6]\d{3}([ -]?)(?:\d{4}\1\d{4}\1\d{1,7}|\d{6}\1\d{5})(?![A-Za-z0-9_-])")
_CARD_WORD: Final = re.compile(
    r"(?<![a-z])(?:visa|master ?card|amex|american express|maestro|diners|jcb|(?:credit|debit|bank)? ?cards?|kredit ?karte|"
    r"\w{0,12}karte|kartennummer|cartes?|tarjetas?|carta|cart[ãa]o|creditcard|kaart|bankpas|kart[aęyą]|(?:numer )?karty)(?![a-z])|"
    r"信用卡|卡号|卡號|[银銀]行卡|カード",
    re.IGNORECASE,
)

# A text without one of these is not looked through: to search for plain strings is much faster than for patterns.
_CJK_STEMS: Final = ("密", "口令", "パス", "合言葉")
_PASSWORD_STEMS: Final = (
    *("pass", "pwd", "psw", "pw", "kennwort", "zugang", "mdp", "mot", "accès", "phrase", "contra", "clave", "acceso", "parola"),
    *("frase", "accesso", "senha", "palavra", "wacht", "toegang", "ww", "hsl", "haslo", "hasło", "hasł", "hasl", "kw", "heslo"),
    *("lösen", "adgang", "lozinka", "şifre", "mật", "kata sandi", "비밀", "암호", "รหัส", *_CJK_STEMS),
)
_CHANGE_STEMS: Final = (
    *("chang", "switch", "updat", "set", "änder", "umgest", "wechsel", "modif", "remplac", "mis", "cambi", "puse", "actualic"),
    *("messo", "impost", "mud", "troc", "alter", "gewijzigd", "aangepast", "gezet", "zmieni", "ustawi", "从", "從", "から"),
)
_LOGIN_STEMS: Final = (
    *("log", "user", "admin", "root", "account", "cred", "sign", "mail", "nutzer", "anmeld", "zugang", "konto", "identifiant"),
    *("utilisateur", "compte", "connexion", "acc", "usu", "cuenta", "utente", "utilizador", "conta", "acesso", "entra", "gebruik"),
    *("leerling", "użytk", "号", "號", "户", "戶", "录", "錄", "ユーザー", "アカウント", "ログイン"),
)
_OPEN_STEMS: Final = (
    *("unlock", "open", "öffne", "entsperr", "geht", "auf", "ouvr", "verrouill", "débloque", "abr", "bloque", "apr", "sblocc"),
    *("ontgrendel", "otw", "odblok", "用"),
)
_KEY_STEMS: Final = (
    *("key", "schlüssel", "sleutel", "clé", "clef", "clave", "llave", "chiave", "chave", "klucz", "secret", "token", "jeton"),
    *("令牌", "钥", "鑰", "キー", "トークン"),
)
_PHRASE_STEMS: Final = (
    *("phrase", "seed", "mnemo", "wallet", "wiederherst", "mots de", "frase", "palabras", "parole", "palavras", "herstel", "wacht"),
    *("fraz", "słowa", "助", "恢", "种子", "フレーズ", "ニーモ", "単語", "合言葉"),
)
_CODE_STEMS: Final = (
    *("cod", "cód", "kod", "comb", "kombi", "keypad", "nummer", "chiffre", "clave", "senha", "szyfr", "pin", "puk", "geheim", "nip"),
    *("número", "segreto", "cvv", "cvc", "crypto", "digit", "ziffer", "zahl", "prüf", "cifr", "cijfer", "cyfr", "dígit", "open", "unlock"),
    *("öffne", "sperr", "ouvr", "verrouill", "abr", "bloq", "apr", "sblocc", "ontgrendel", "otw", "odblok", "geht", "digicode"),
    *("码", "碼", "三位", "3位", "锁", "鎖", "門", "门", "箱", "コード", "番号", "ロック", "ドア", "玄関", "金庫", "桁", "パス", "用"),
)


def spoken_secrets(text: str) -> Iterator[Secret]:
    """Yield the secrets that the sentences of a text give away, in no order; some may overlap."""
    lowered = text.lower()
    for start, end in _passwords(text, lowered):
        yield Secret(start, end, "a password")
    if _has(lowered, _KEY_STEMS):
        for start, end in _keys(text):
            yield Secret(start, end, "a credential")
    if _has(lowered, _PHRASE_STEMS):
        for pattern, kind in ((_SEED, "a recovery phrase"), (_PASSPHRASE, "a password")):
            for match in pattern.finditer(text):
                if _TALK.match(match["secret"]) is None:
                    yield Secret(*match.span("secret"), kind)
    if _has(lowered, _CODE_STEMS):
        yield from _codes(text)
    for match in _CARD.finditer(text):
        around = text[max(match.start() - 50, 0) : match.start()], text[match.end() : match.end() + 50]
        if any(_CARD_WORD.search(words) for words in around):
            yield Secret(*match.span(), "a card number")


def _passwords(text: str, lowered: str) -> Iterator[tuple[int, int]]:
    if _has(lowered, _PASSWORD_STEMS):
        words = [word.span() for word in _PASSWORD_WORD.finditer(text)]
        limits = [start for start, _ in words[1:]] + [len(text)]
        for (start, end), limit in zip(words, limits, strict=False):
            yield from _after_word(text, start, end, min(limit, end + 2 * _GAP_CHARS))
        if words:
            for match in _NAMED_AS.finditer(text):
                yield from _strong_span(match, "secret")
    if _has(lowered, _CHANGE_STEMS):
        for match in _FROM_TO.finditer(text):
            yield from _changed(text, match)
    if _has(lowered, ("/", "|")) and _has(lowered, _LOGIN_STEMS):
        for match in _PAIR.finditer(text):
            if _is_random(_trim(match["secret"])):
                yield from _strong_span(match, "secret")
    if _has(lowered, _OPEN_STEMS):
        for match in _STRONG_TOKEN.finditer(text):
            if not _is_strong(_trim(match["secret"])):
                continue
            before, after = _around(text, match.start(), match.end())
            if _OPENS.search(before) or (before.endswith("用") and _OPENS_AFTER.match(after)):
                yield from _strong_span(match, "secret")


def _after_word(text: str, start: int, end: int, limit: int) -> Iterator[tuple[int, int]]:
    """Yield the values that follow a word for a password, before the next such word."""
    if link := _LINK_AFTER.match(text, end, limit):
        begin = link.end()
        is_plain = link["gap"].strip("\"'*`]) ") == ""
        quoted = _QUOTED.match(text, begin)
        if quoted and not is_placeholder(quoted[0]) and (is_plain or "=" not in link["link"]):
            yield quoted.span()
        name = _NAME_AFTER.match(text, begin)
        if name and _PLAIN_CAPITALS.fullmatch(name[0]) is None and not is_placeholder(name[0]):
            yield name.span()
        value = _value_at(text, begin)
        is_pass = text[start:end].lower() == "pass" and value.upper() == value
        if (_is_strong(value) and not is_pass) or (value.isdecimal() and _UNITS.match(text, begin + len(value)) is None):
            yield begin, begin + len(value)
    elif lead := _NO_LINK.match(text, end):
        value = _value_at(text, lead.end())
        if _is_strong(value) and _is_alone(text, start, end, lead.end(), value):
            yield lead.end(), lead.end() + len(value)
    if (lead := _TO_AFTER.match(text, end, limit)) and _is_strong(value := _value_at(text, lead.end())):
        before, after = _around(text, start, lead.end())
        if _CHANGED.search(before) or _CHANGED.search(after) or _CHANGED.search(text, end, lead.end()):
            yield lead.end(), lead.end() + len(value)


def _is_alone(text: str, start: int, end: int, begin: int, value: str) -> bool:
    """Return whether a value right after a word for a password is one: beside a login, or where its clause ends."""
    before, after = _around(text, start, begin + len(value))
    if _FORGET.search(before) or _FORGET.search(after):
        return False
    if _is_random(value) or _LOGIN_BEFORE.search(before):
        return True
    return text[start:end].lower() != "pass" and _GOES_ON.match(text, begin + len(value)) is not None


def _value_at(text: str, begin: int) -> str:
    match = _VALUE_AFTER.match(text, begin)
    return _trim(match[0]) if match else ""


def _changed(text: str, match: re.Match[str]) -> Iterator[tuple[int, int]]:
    nearby = text[max(match.start() - 120, 0) : match.end() + 120]
    for old, new in (("old", "secret"), ("old2", "secret2"), ("old3", "secret3")):
        is_change = match[new] and _is_strong(_trim(match[new])) and _ABOUT_ACCESS.search(nearby)
        if is_change and (old != "old" or _CHANGED.search(nearby)):
            yield from _strong_span(match, new)
            yield from _strong_span(match, old)


def _has(lowered: str, stems: tuple[str, ...]) -> bool:
    return any(stem in lowered for stem in stems)


def _keys(text: str) -> Iterator[tuple[int, int]]:
    for match in _KEY_VALUE.finditer(text):
        value = _trim(match["secret"])
        if len(value) >= 8 and (_is_strong(value) or value.isdecimal()):
            yield match.start("secret"), match.start("secret") + len(value)
    for match in _SECRET_GIVES.finditer(text):
        value = _trim(match["secret"])
        if len(value) >= 8 and _is_random(value):
            yield match.start("secret"), match.start("secret") + len(value)


def _codes(text: str) -> Iterator[Secret]:
    for match in _NUMBER.finditer(text):
        before, after = _around(text, match.start(), match.end())
        if not _has(before.lower() + after.lower(), _CODE_STEMS) or _UNITS.match(text, match.end()):
            continue
        kind = _kind_of_code(match[0], before, after)
        if kind is not None:
            yield Secret(*match.span(), kind)


def _kind_of_code(value: str, before: str, after: str) -> str | None:
    for kind, lead in _CJK_LEAD.items():
        if lead.search(before):
            return kind
    if _NOT_CODES.search(before):
        return None
    if _OPENS.search(before) or (before.endswith("用") and _OPENS_AFTER.match(after)) or _OPENS_AFTER.match(after):
        return "a door code" if any(near.search(before) for kind, near, *_ in _NEAR if "door" in kind) else "a PIN"
    named = _NAMED_CODE.match(after)
    if named is None and (_LED.search(before[-32:]) is None or len(_LINKED.findall(before)) > 1):
        return None
    nearby = before + (named[0] if named else "")
    for kind, near, also, shape in _NEAR:
        if near.search(nearby) and also.search(nearby) and shape.fullmatch(value):
            return kind
    return None


def _around(text: str, start: int, end: int) -> tuple[str, str]:
    """Return what of a sentence is before a place, and what is after it."""
    before = _STOPS.split(text[max(start - _AROUND, 0) : start])[-1]
    return before, _STOPS.split(text[end : end + _AROUND], maxsplit=1)[0]


def _strong_span(match: re.Match[str], group: str) -> Iterator[tuple[int, int]]:
    value = _trim(match[group])
    if _is_strong(value):
        yield match.start(group), match.start(group) + len(value)


def _trim(value: str) -> str:
    value = value.rstrip(",;.?:*_`")
    return value if "(" in value else value.rstrip(")")


_NAME: Final = re.compile(r"[A-Z][a-z]+\d{1,4}")
_SYMBOLS: Final = frozenset("!#$%&*+@^~?=")


def _is_strong(value: str) -> bool:
    """Return whether a value mixes letters with digits or symbols, as a password does and a word does not."""
    if len(value) < 5 or _HARMLESS.match(value) or not any(char.isalpha() for char in value):
        return False
    return any(char.isdecimal() for char in value) or _has_symbols(value)


def _has_symbols(value: str) -> bool:
    is_mixed = not (value.islower() or value.isupper())
    return not _SYMBOLS.isdisjoint(value[1:-1]) or (is_mixed and "_" in value[1:-1])


def _is_random(value: str) -> bool:
    """Return whether a value is more than a word with a number, such as the name of a product or a variable."""
    if not _is_strong(value) or len(value) < 6:
        return False
    has_digit = any(char.isdecimal() for char in value)
    is_mixed = not (value.islower() or value.isupper())
    return _has_symbols(value) or (has_digit and is_mixed and _NAME.fullmatch(value) is None)


def is_placeholder(value: str) -> bool:
    """Return whether a value stands for a secret, or is an address, a variable or a method instead of one."""
    return _HARMLESS.match(value) is not None
