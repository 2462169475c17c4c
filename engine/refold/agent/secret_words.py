"""Words of ten languages that lead up to a secret, as tables of regular expressions.

Each table holds all languages at once, because people mix them.
"""

from typing import Final


def _words(**by_language: str) -> str:
    return "|".join(by_language.values())


def _stems(words: str) -> tuple[str, ...]:
    return tuple(words.split("|"))


LETTER: Final = "A-Za-z0-9À-ɏ"

IS: Final = _words(
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
NOW: Final = _words(
    en="now|still|currently|just|simply",
    de="jetzt|nun|noch|aktuell|einfach|gerade",
    fr="maintenant|toujours|juste|le",
    es="ahora|el|ahora mismo|todavía",
    it="adesso|ora|ancora|il",
    pt="agora|ainda|o",
    nl="nu|nog|gewoon",
    pl="teraz|nadal|po prostu",
)
PASSWORD: Final = _words(
    en="pass ?words?|passwd|pass ?phrase|passcode|pass key|(?:wi-?fi|wlan)[ -]?(?:code|kode)|(?:code|"
    "codice|kod) (?:du |del |do )?wi-?fi|código (?:del |do )?wi-?fi",
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
SHORT_PASSWORD: Final = _words(
    en="pwd|psw|pw|pass|passw",
    fr="mdp|mdps",
    es="clave|contra",
    nl="ww",
    de="kw|pwort",
    pl="hsl",
)
FORGET: Final = _words(
    en=r"forg[eo]t|\blost\b|reset",
    de="verg[ae]ss|vergesse|zurücksetz",
    fr="oubli|réinitialis",
    es="olvid|restablec",
    it="dimentica|scordat",
    pt="esque[cç]|redefin",
    nl="vergeten|kwijt",
    pl="zapomn|reset",
    zh="忘|重置",
    ja="忘れ|リセット",
)
LOGIN_WORDS: Final = _words(
    en="log ?-?in|log ?on|user(?:name)?|user id|admin|root|account|credentials?|creds|sign[- ]in|e-?mail",
    de="benutzer(?:name)?|nutzer(?:name)?|anmeldung|zugang|zugangsdaten|konto|anmeldedaten",
    fr="identifiants?|utilisateur|compte|connexion|accès",
    es="usuario|cuenta|acceso|credenciales",
    it="utente|credenziali|accesso|nome utente",
    pt="usuário|utilizador|conta|acesso|credenciais|entra com",
    nl="gebruiker(?:snaam)?|inlog(?:gen|gegevens)?|leerling",
    pl="użytkownik|konto|dane logowania|loguj[eę]",
)
GOES_ON: Final = _words(
    en="for|and|but|on|at|if|in|to",
    de="für|und|aber|auf|am|beim",
    fr="pour|et|mais|sur|dans",
    es="para|y|pero|en",
    it="per|ma|su|sul",
    pt="mas|no|na|em",
    nl="voor|maar|op",
    pl="do|ale|na|dla",
)
TO: Final = "to|auf|zu|in|à|en|par|a|con|para|por|naar|na"

CHANGE: Final = _words(
    en="chang|switch|updat|set|reset",
    de="änder|geänder|gesetzt|umgestellt|gewechselt",
    fr="chang|modifi|remplac|mis",
    es="cambi|puse|actualic",
    it="cambia|modifica|messo|impostat",
    pt="mud|troc|alter",
    nl="verander|gewijzigd|aangepast|gezet",
    pl="zmieni|ustawi",
)
UNITS: Final = _words(
    en="characters?|chars?|digits?|letters?|words?|days?|years?|times|hours?|minutes?|seconds?|months?|"
    "people|users?|bits?|bytes?|items?|lines?|points?|pins|posts|of|am|pm|km|kg|[kmc]?m|usd|eur|"
    "dollars?|attempts?|tries|requests?|rows",
    de=r"zeichen|ziffern|stellen|stellig\w{0,24}|tage?n?|jahre?n?|uhr|stunden?|minuten?|sekunden?|euro|mal|"
    "versuche?",
    fr="caractères|chiffres|jours?|ans?|heures?|fois|lettres|secondes?|mois|essais?",
    es="caracteres|dígitos|días|años?|horas?|minutos?|veces|segundos?|intentos?",
    it="caratteri|cifre|giorni|anni|ore|minuti|volte|secondi|tentativi",
    pt="caracteres|dígitos|dias|anos|horas|minutos|vezes|segundos|reais",
    nl="tekens|cijfers|dagen|jaar|uur|minuten|keer|seconden|pogingen",
    pl=r"znak\w{0,24}|cyfr\w{0,24}|dni|lat|godzin\w{0,24}|minut\w{0,24}|razy|sekund\w{0,24}|prób\w{0,24}|zł",
)
PHRASE: Final = _words(
    en="seed ?-?phrase|seed words|recovery phrase|mnemonic(?: phrase)?|secret phrase|wallet (?:phrase|"
    "words)|backup phrase",
    de="seed-?phrase|wiederherstellungs(?:phrase|wörter)|merkphrase|sicherungsphrase|mnemonik",
    fr="phrase (?:de récupération|mnémonique|de secours|seed|graine)|mots de récupération",
    es="frase (?:semilla|de recuperación|mnemotécnica|secreta|seed)|palabras (?:semilla|de recuperación)",
    it="frase (?:di recupero|seed|mnemonica|segreta)|parole (?:di recupero|seed)",
    pt="frase (?:semente|de recuperação|mnemônica|seed|secreta)|palavras de recuperação",
    nl="herstel(?:zin|woorden|frase)|seed-?zin|seed ?woorden",
    pl=r"fraz[ay] (?:seed|odzyskiwania|zapasow\w{1,24}|startow\w{1,24})|słowa odzyskiwania",
    zh="助[记記][词詞]|恢[复復](?:短[语語]|助记词)|种子短语",
    ja="シードフレーズ|リカバリー?フレーズ|復元フレーズ|ニーモニック|復元用?の?単語",
)
AND: Final = r"(?:and|but|for|und|aber|für|et|mais|pour|y|pero|para|e|ma|per|mas|en|maar|voor|i|ale|do|then|so|now)"

FUNCTION: Final = _words(
    en="the|an?|is|are|was|be|it|you|your|my|this|to|of|in|on|or|with|that|which|never|not|should|must|"
    "can|as|if|when|from",
    de="der|die|das|ist|sind|ein|eine|mein|meine|zu|im|mit|nicht|oder|man|ich|du|dass|soll|muss|sie|es|von",
    fr="le|la|les|des?|du|est|un|une|mon|ma|ne|pas|ou|que|qui|dans|je|tu|il|sur",
    es="el|los|las|del?|es|una?|mi|tu|no|en|que|con|se|su",
    it="il|lo|gli|di|una?|mio|mia|non|che|con|si|in",
    pt="os?|do|da|um|uma|meu|minha|não|com|que|em|no|na",
    nl="het|een|van|is|mijn|niet|of|met|dat|je|ik",
    pl="jest|nie|się|na|z|w|to|mój|moja|że|czy|lub",
)
CODE_WORD: Final = _words(
    en="codes?|combination|combo|keypad|passcode",
    de=r"kombination|zahlenkombi\w{0,24}|zahlencode|nummer|kode",
    fr="combinaison|chiffres",
    es="c[óo]digos?|combinación|clave",
    it="codic[ei]|combinazione",
    pt="combinação|senha",
    nl="combinatie|cijfercode",
    pl=r"kod\w{0,3}|szyfr|kombinacja",
)
PLACE: Final = _words(
    en="doors?|front door|gate|alarm|safe|padlock|lock|locker|key ?box|key safe|lock ?box|garage|entrance|"
    "building|suitcase|luggage|intercom|shed|gym|elevator|lobby|vault|cabin|apartment|keypad",
    de="haustür|tür|eingangstür|tor|hoftor|gartentor|alarm|alarmanlage|tresor|safe|schloss|"
    r"\w{0,12}schloss|garage|garagentor|schlüssel(?:kasten|box|safe|tresor)|koffer|spind|schließfach|"
    r"eingang|türcode|tür\w{0,8}",
    fr="porte|portail|portillon|alarme|coffre(?:-fort)?|cadenas|immeuble|digicode|interphone|boîte à clés|"
    "antivol|entrée|garage|casier|valise|hall",
    es="puerta|portal|portón|alarma|caja fuerte|candado|garaje|taquilla|casillero|verja|portero|cajetín|"
    "maleta|edificio|trastero",
    it="porta|portone|cancello|allarme|cassaforte|lucchetto|antifurto|box|cassetta|armadietto|citofono|"
    "valigia|ingresso",
    pt="porta|portão|alarme|cofre|cadeado|garagem|prédio|armário|portaria|interfone|fechadura|mala|caixa de chaves",
    nl=r"deur|voordeur|achterdeur|poort|hek|alarm|kluis|kluisje|slot|\w{0,12}slot|sleutel(?:kastje|kluis|"
    "kluisje|box)|garage|schuur|ingang|koffer|portiek",
    pl=r"drzwi|bram\w{1,4}|furtk\w{1,4}|alarm\w{0,3}|sejf\w{0,2}|kłódk\w{1,2}|domofon\w{0,2}|garaż\w{0,2}|"
    r"szafk\w{1,2}|klatk\w{1,2}|walizk\w{1,2}|skrytk\w{1,2}|zamk\w{1,2}|wejści\w{1,3}",
)
DEVICE: Final = _words(
    en="phone|tablet|ipad|iphone|laptop|sim|card|bank|debit|credit|atm|face id|screen|app|watch|device|"
    r"account|voicemail|tv|parental|alarm|visa|mastercard|online banking|\d[- ]?digit",
    de=r"handy|telefon|tablet|karte|\w{0,12}-?karten?|bank|giro\w{0,24}|konto|sim|bildschirm\w{0,8}|app|gerät|ec",
    fr="téléphone|portable|tablette|carte(?: bleue| bancaire)?|cb|banque|sim|écran|appli",
    es="teléfono|móvil|celular|tarjeta|banco|cajero|pantalla|sim|tableta|portátil",
    it="telefono|cellulare|carta|bancomat|banca|schermo|sim|tessera",
    pt="telefone|celular|telemóvel|cartão|banco|tela|chip|multibanco|caixa",
    nl="telefoon|mobiel|pas|pinpas|bankpas|bank|kaart|sim|scherm",
    pl=r"telefon\w{0,3}|kart\w{1,3}|bank\w{0,6}|konta?|ekran\w{0,2}|sim|tablet\w{0,2}|blokad\w{1,2}",
)
VERIFY: Final = _words(
    en="verification|verify|sms|2fa|mfa|otp|one[- ]time|auth(?:entication|enticator)?|confirmation|"
    "security|login|texted|sent me|activation|sign-?in|tan",
    de=r"bestätigungs?\w{0,24}|verifizierungs?\w{0,24}|freischalt\w{0,24}|einmal\w{0,24}|sms|sicherheits\w{0,24}|m?tan|"
    r"aktivierungs\w{0,24}|anmelde\w{0,24}",
    fr="vérification|validation|confirmation|sms|reçu|sécurité|double authentification|activation",
    es="verificación|sms|confirmación|seguridad|activación|llegó|mandaron",
    it="verifica|conferma|sms|sicurezza|otp|attivazione|arrivato",
    pt="verificação|confirmação|sms|segurança|ativação|chegou",
    nl=r"verificatie\w{0,24}|bevestigings\w{0,24}|sms|beveiligings\w{0,24}|activerings\w{0,24}|inlog\w{0,24}",
    pl=r"weryfikac\w{1,24}|potwierdz\w{1,24}|autoryzac\w{1,24}|blik|sms\w{0,24}|aktywac\w{1,24}|jednorazow\w{1,24}",
)
BACKUP: Final = _words(
    en="backup|back-up|recovery|rescue|reset",
    de=r"wiederherstellungs\w{0,24}|ersatz\w{0,24}|notfall\w{0,24}|backup\w{0,24}|sicherungs\w{0,24}",
    fr="secours|récupération",
    es="respaldo|recuperación|emergencia",
    it="recupero|emergenza|riserva",
    pt="recuperação|reserva|emergência",
    nl=r"herstel\w{0,24}|reserve\w{0,24}|nood\w{0,24}",
    pl=r"zapasow\w{1,24}|awaryjn\w{1,24}|odzyskiwania|ratunkow\w{1,24}",
)
PIN: Final = _words(
    en="(?-i:PIN)s?|pin[- ]?(?:code|number)|puk2?|puk[- ]?code",
    de=r"geheimzahl|geheimnummer|pin-?nummer|\w{0,12}(?:karten|bank|handy|sim|ec|konto|giro|geräte|"
    "app)-?pin",
    fr="code (?:confidentiel|secret)|nip",
    es="número secreto|nip",
    it="codice segreto",
    pt="código secreto",
    nl="pincode|pukcode",
    pl="pin[- ]?u|kod pin|pinem",
)
CVV: Final = _words(
    en=r"(?:cvv|cvc)2?|(?:three|3|four|4)[- ]digits? (?:code )?(?:\w{1,24} ){0,2}back|(?:three|3|last three|"
    r"last 3) (?:digits|numbers) (?:on|at) (?:the|its) back(?: of (?:\w{1,24} ){0,3}card)?|"
    "(?:card )?security code|check digits?",
    de="(?:karten)?prüf(?:ziffer|nummer|zahl)n?|kartenprüfnummer|sicherheitscode|drei ziffern|(?:3|"
    "drei) (?:ziffern|zahlen)",
    fr="cryptogramme|code de sécurité|(?:3|trois) (?:derniers )?chiffres",
    es="código de seguridad|(?:3|tres) (?:últimos )?(?:dígitos|números|cifras)",
    it="codice di sicurezza|(?:3|tre) (?:ultime )?cifre",
    pt="código de segurança|(?:3|três) (?:últimos )?(?:dígitos|números)",
    nl="beveiligingscode|controlecijfers?|(?:3|drie) cijfers|kaartcode",
    pl="kod (?:bezpieczeństwa|zabezpieczający|cvv2?|cvc2?)|(?:3|trzy) cyfry",
)
BACK: Final = (
    r"back|card|hinten|rückseite|karte|dos|derrière|verso|carte|atrás|detrás|reverso|dorso|tarjeta|retro|dietro|carta|"
    r"trás|cartão|achter|kaart|pas|odwroc|kart|cv[vc]|cryptogramme|背|裏|卡|カード|prüf"
)
CJK: Final = {
    "a card's security code": "背面[^\\d\\s]{0,6}[三3][位个個](?:[数數]字?)?|[后後]三位|安全[码碼]|[裏うら](?:面)?の?"
    "[3三３]桁|セキュリティ(?:コード|番号)",
    "a recovery code": "(?:[备備]用|恢[复復]|救援)[^\\d\\s]{0,4}?[码碼]|"
    "(?:バックアップ|リカバリー?|復旧|予備の?)コード",
    "a verification code": "(?:[验驗][证證]|校[验驗]|[动動][态態]|[确確][认認]|短信)密?[码碼]|"
    "(?:認証|確認|ワンタイム)(?:コード|番号|パスワード)",
    "a door code": "(?:[门門]禁|大[门門]|[门門]|[车車][库庫]|[报報]警器?|保[险險][箱柜櫃]|"
    "密[码碼]?[锁鎖]|[锁鎖]|行李箱|信箱|[电電]梯|[储儲]物[柜櫃])的?(?:密[码碼]|[码碼]|代码)?|(?:ドア|玄関|ゲート|入口|駐車場|オートロック|門|金庫|警報|アラーム|南京錠|鍵|ロッカー|"
    "宅配ボックス|キーボックス|スーツケース|自転車|ガレージ|倉庫|セキュリティ)[^\\d\\s、。]{0,6}?(?:コード|番号|ナンバー|暗証番号)?",
    "a PIN": "(?:[银銀]行卡|卡|取款|支付|手[机機]|[开開][机機]|[锁鎖]屏|[屏熒]幕|平板|信用卡)的?"
    "密[码碼]|暗証番号|(?:スマホ|携帯|タブレット|端末|画面)[^\\d\\s、。]{0,8}?(?:コード|番号|パスコード)|パスコード|PINコード",
}

CHOSE: Final = (
    "takes|wants|nimmt|will|prend|toma|prende|aceita|neemt|(?:hat|have) (?:den|die)|set|chose|picked|gewählt|genommen|"
    r"gesetzt|mis|choisi|puse|elegí|messo|scelto|coloquei|escolhi|gekozen|ingesteld|ustawi\w{1,24}"
)
ENTER: Final = _words(
    en="enter|type|type in|dial|punch in|press|key in",
    de="gib|tippe|drücke|eingeben",
    fr="tape|tapez|taper|compose|composez|composer",
    es="marca|marcar|teclea|introduce|pulsa",
    it="digita|digitare|premi|inserisci",
    pt="digita|digite|digitar|aperta|disca",
    nl="toets|typ|druk",
    pl="wpisz|wybierz|wciśnij",
)
OF: Final = "to|for|of|from|für|vom|von|zu[mr]?|du|de|des|pour|del|della|dello|di|per|para|da|do|van|voor|na"
NOT_CODES: Final = _words(
    en="error|exit|status|http|zip|postal|postcode|area code|country|promo|coupon|discount|voucher|produ[ckt]|order|"
    "tracking|qr|source|line|gpio|arduino|connector|airport|iata|colou?r|hex|class|dress|tax|swift|bic|"
    "building code|flight|commit|version|percent off|% off|(?:phone|mobile|cell|fax|account|room)[- ]?number",
    de="fehler|postleit|plz|rabatt?|gutschein|artikel|vorwahl|(?:telefon|handy|fax|konto|zimmer)-?nummer",
    fr="erreur|articl|indicatif|numéro de|réduction",
    es="descuento|art[ií]culo|teléfono es",
    it="sconto|fiscal|articolo|prefisso",
    pt="cupom|desconto|artigo",
    nl="korting|artikel",
    pl="pocztow|zniżk|towar",
    zh="邮编|订单|错误|电话",
    ja="郵便|注文|エラー|電話",
)
# Words with a capital after "is" that are no passwords.
PLAIN_CAPITALS: Final = _words(
    de="Pflicht(?:feld)?|Geheim|Standard|Mist|Quatsch|Schrott|Murks|Unsinn|Unbekannt|Sicher|Unsicher|Falsch|Richtig|"
    "Privat|Keines?|Kennwort|Passwort|Teil|Sache|Frage",
    en="Correct|Secret|Required|String|Optional|Boolean|Integer|Invalid|Valid|Hidden|Password|Firebase|Google|Apple|Facebook",
    fr="Aucune?|Obligatoire",
    es="Ninguna?|Correct[ao]|Secret[ao]",
    it="Nessuna",
    pt="Nenhuma",
    nl="Geen|Onbekend",
    pl="Brak",
)
# Words that begin a sentence about a passphrase.
TALK: Final = _words(
    en="stored|kept|in|not|required|the|an?|hashed|too|never|always|only|on|my|no|very|still|part|what|where|needed|used|"
    "correct|wrong|optional|empty|set|from|also|lost|gone|probably|enough|longer|so",
    de=r"nicht|zu|ein\w{0,24}|der|die|das|im|wichtig|sicher",
    fr=r"trop|dans|pas|un\w{0,24}",
    es="muy|en|no|demasiado",
    it=r"nel\w{0,24}|non|troppo",
    pt="muito|não|na|no",
    nl="te|niet|een|het",
    pl="za|nie|w",
)
CARD: Final = (
    r"(?<![a-z])(?:visa|master ?card|amex|american express|maestro|diners|jcb|(?:credit|debit|bank)? ?cards?|"
    r"\w{0,12} ?karte|kartennummer|cartes?|tarjetas?|carta|cart[ãa]o|creditcard|kaart|bankpas|kart[aęyą])(?![a-z])|"
    r"信用卡|卡号|卡號|[银銀]行卡|カード"
)

BOX: Final = _words(
    en="key ?safe|key ?box|lock ?box|padlock|bike lock|combination",
    de="schlüssel(?:kasten|box|safe|tresor)|(?:koffer|zahlen|fahrrad|vorhänge)schloss|türcode|zahlenkombination",
    fr="digicode|cadenas|antivol|boîte à clés|combinaison",
    es="candado|combinación",
    it="lucchetto|combinazione",
    pt="cadeado|combinação",
    nl="hangslot|cijferslot|fietsslot|sleutelkluis(?:je)?|sleutelkastje|combinatie",
    pl=r"kłódk\w{1,2}|szyfr",
)
OWNED: Final = "my|our|his|her|their|your|meine?|unsere?|ma|mon|notre|mi|nuestro|mio|il|meu|nosso|mijn|onze|mój|moim"

OPENS: Final = _words(
    en="(?:unlocks?|opens?|unlocked|opened)(?: it| up)? (?:with|by|using|via)",
    de=r"(?:öffnet|entsperr\w{0,24}|geht|aufgeht|öffnen|auf)(?: \w{1,24}){0,4}? mit",
    fr=r"(?:s['’]ouvre|se déverrouille|ouvrir|déverrouiller|ouvre|débloque)(?: \w{1,24}){0,3}? (?:avec|par)",
    es=r"(?:abre|desbloquea|abrir|desbloquear)(?: \w{1,24}){0,3}? con",
    it=r"(?:apre|sblocca|aprire|sbloccare)(?: \w{1,24}){0,3}? con",
    pt=r"(?:abre|desbloqueia|abrir|desbloquear)(?: \w{1,24}){0,3}? com",
    nl=r"(?:open|opent|ontgrendel\w{0,24})(?: \w{1,24}){0,3}? (?:met|via)",
    pl=r"(?:otwiera|odblokowuj\w{1,24}|otworzyć|odblokować)(?: \w{1,24}){0,3}?(?: kodem| hasłem| na| przez)?",
)
KEY_OF: Final = "wi-?fi|wlan|wpa2?|wep|router|network|netzwerk|réseau|red|rete|rede|netwerk|sieci|api|ssid|hotspot"

# A text without one of these is not looked through: to search for plain strings is faster than for patterns.
PASSWORD_STEMS: Final = _stems(
    "pass|wifi|wi-fi|wlan|pwd|psw|pw|kennwort|zugang|mdp|mot|accès|phrase|contra|clave|acceso|parola|frase|"
    "accesso|senha|palavra|wacht|toegang|ww|hsl|haslo|hasło|hasł|hasl|kw|heslo|lösen|adgang|lozinka|şifre|"
    "mật|kata sandi|비밀|암호|รหัส|密|口令|パス|合言葉"
)
CHANGE_STEMS: Final = _stems(
    "chang|switch|updat|set|änder|umgest|wechsel|modif|remplac|mis|cambi|puse|actualic|messo|impost|mud|troc|"
    "alter|gewijzigd|aangepast|gezet|zmieni|ustawi|从|從|から"
)
LOGIN_STEMS: Final = _stems(
    "log|wifi|wi-fi|wlan|user|admin|root|account|cred|sign|mail|nutzer|anmeld|zugang|konto|identifiant|"
    "utilisateur|compte|connexion|acc|usu|cuenta|utente|utilizador|conta|acesso|entra|gebruik|leerling|użytk|"
    "号|號|户|戶|录|錄|ユーザー|アカウント|ログイン"
)
OPEN_STEMS: Final = _stems(
    "unlock|open|öffne|entsperr|geht|auf|ouvr|verrouill|débloque|abr|bloque|apr|sblocc|ontgrendel|otw|odblok|用"
)
KEY_STEMS: Final = _stems(
    "key|schlüssel|sleutel|clé|clef|clave|llave|chiave|chave|klucz|secret|token|jeton|令牌|钥|鑰|キー|トークン"
)
PHRASE_STEMS: Final = _stems(
    "phrase|seed|mnemo|wallet|wiederherst|mots de|frase|palabras|parole|palavras|herstel|wacht|fraz|słowa|助|"
    "恢|种子|フレーズ|ニーモ|単語|合言葉"
)
CODE_STEMS: Final = _stems(
    "cod|cód|kod|comb|kombi|keypad|nummer|chiffre|clave|senha|szyfr|safe|box|lock|schloss|cadenas|candado|"
    "lucchetto|cadeado|slot|kłód|tan |otp|sms|pin|puk|geheim|nip|número|segreto|cvv|cvc|crypto|digit|ziffer|"
    "zahl|prüf|cifr|cijfer|cyfr|dígit|open|unlock|öffne|sperr|ouvr|verrouill|abr|bloq|apr|sblocc|ontgrendel|"
    "enter|type|dial|eingeb|gib|tippe|tape|compose|marca|digit|premi|aperta|toets|wpisz|输入|輸入|"
    "otw|odblok|geht|digicode|码|碼|三位|3位|锁|鎖|門|门|箱|コード|番号|ロック|ドア|玄関|金庫|桁|パス|用"
)
