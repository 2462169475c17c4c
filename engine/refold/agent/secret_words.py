"""Words of ten languages that lead up to a secret, and the parts of the patterns that find one.

Each table holds all languages at once, because people mix them.
"""

from typing import Final

from refold.agent.vocabulary import fill, read_tables

_TABLES: Final = read_tables(r"""
# A word begins and ends where no Latin letter or digit goes on; Chinese and Japanese need no space.
begin = (?<![A-Za-z0-9À-ɏ])
end = (?![A-Za-z0-9À-ɏ])

# Small words: "the password >is<", "it is >now<".
is =
en: is|was|are|it's|gives|returns|set to|changed to
de: ist|war|lautet|heißt|heisst|wäre
fr: est|c['’]est|était|sera
es: es|era|está|fue
it: è|e\u0300|era|sarà
pt: é|e\u0301|foi|eh
nl: luidt|werd
pl: to|jest|brzmi|był[ao]?
xx: är|er|je|là|adalah
now =
en: now|still|currently|just|simply
de: jetzt|nun|noch|aktuell|einfach|gerade
fr: maintenant|toujours|juste|le
es: ahora|el|ahora mismo|todavía
it: adesso|ora|ancora|il
pt: agora|ainda|o
nl: nu|nog|gewoon
pl: teraz|nadal|po prostu
to = to|auf|zu|in|à|en|par|a|con|para|por|naar|na
from = from|von|de|du|del|da|van|z
of = to|for|of|from|fürs?|vom|von|zu[mr]?|du|de|des|pour|del|della|dello|di|per|para|da|do|van|voor|na
as = as|is|was|als|ist|war|comme|est|como|es|come|è|é|jako|to
and = and|but|for|und|aber|für|et|mais|pour|y|pero|para|e|ma|per|mas|en|maar|voor|i|ale|do|then|so|now
# A clause that goes on after a value: "password hunter2 >for< the wifi".
goes on =
en: for|and|but|on|at|if|in|to
de: für|und|aber|auf|am|beim
fr: pour|et|mais|sur|dans
es: para|y|pero|en
it: per|ma|su|sul
pt: mas|no|na|em
nl: voor|maar|op
pl: do|ale|na|dla

# Passwords, and whose they are. A passphrase can be plain words.
passphrase =
en: pass ?phrase
fr: phrase (?:secrète|de passe)
es: frase (?:secreta|de contraseña)
it: frase segreta
nl: wachtzin|wachtwoordzin
zh: 口令短语
ja: パスフレーズ|合言葉
password =
<passphrase>
en: pass ?words?|passwd|passcode|pass key|(?:wi-?fi|wlan)[ -]?(?:code|kode)|(?:code|codice|kod) (?:du |del |do )?wi-?fi
de: passwort|kennwort|zugangswort|zugangscode
fr: mots? de passe|code d['’]accès
es: contrase(?:ñ|n\u0303?)a|clave de acceso|código de (?:acceso|wi-?fi)|código (?:del |do )?wi-?fi
it: parola (?:d['’](?:ordine|accesso)|segreta)|codice di accesso
pt: senha|palavra[- ]passe
nl: wachtwoord|toegangscode
pl: has[łl](?:o|a|em|u)
zh: 密[码碼]|口令
ja: パスワード
xx: lösenord(?:et)?|adgangskode(?:n)?|heslo|lozinka|şifre|mật khẩu|kata sandi|비밀번호|암호|รหัสผ่าน
xx: <begin>(?:pwd|psw|pw|passw|mdps?|ww|pwort|hsl)
# What means much else, too: "KW 12" is a week, and "9 kW" a power.
short password = pass|(?<!palabra )clave|contra|parola(?: chiave)?|(?<!\d\s)kw(?!\s?\d{1,2}(?!\d))
# A text without any of these has no password. To look for plain strings is faster than for a pattern.
password stem = pass|wifi|wi-fi|wlan|pw|psw|kennwort|zugang|mdp|mot|accès|phrase|contra|clave|acceso|parola|frase|
    accesso|senha|palavra|wacht|toegang|ww|hsl|hasł|hasl|kw|heslo|lösen|adgang|lozinka|şifre|mật|kata sandi|비밀|암호|
    รหัส|密|口令|パス|合言葉
login =
<begin><login words><end>
zh: [账帐帳][号號户戶]|用[户戶]名?|登[录錄]
ja: ユーザー|アカウント|ログイン
login words =
en: log ?-?in|log ?on|user(?:name)?|user id|admin|root|account|credentials?|creds|sign[- ]in|e-?mail
de: benutzer(?:name)?|nutzer(?:name)?|anmeldung|zugang|zugangsdaten|konto|anmeldedaten
fr: identifiants?|utilisateur|compte|connexion|accès
es: usuario|cuenta|acceso|credenciales
it: utente|credenziali|accesso|nome utente
pt: usuário|utilizador|conta|acesso|credenciais|entra com
nl: gebruiker(?:snaam)?|inlog(?:gen|gegevens)?|leerling
pl: użytkownik|konto|dane logowania|loguj[eę]
login stem = log|wifi|wi-fi|wlan|user|admin|root|cred|sign|mail|nutzer|anmeld|zugang|konto|identifiant|
    utilisateur|compte|connexion|acc|usu|cuenta|utente|utilizador|conta|acesso|entra|gebruik|leerling|użytk|号|號|户|戶|
    录|錄|ユーザー|アカウント|ログイン
forget =
en: forg[eo]t|\blost\b|reset
de: verg[ae]ss|zurücksetz
fr: oubli|réinitialis
es: olvid|restablec
it: dimentica|scordat
pt: esque[cç]|redefin
nl: vergeten|kwijt
pl: zapomn
zh: 忘|重置
ja: 忘れ|リセット
change =
en: chang|switch|updat|set|reset
de: änder|geänder|gesetzt|umgestellt|gewechselt
fr: modifi|remplac|mis
es: cambi|puse|actualic
it: messo|impostat
pt: mud|troc|alter
nl: verander|gewijzigd|aangepast|gezet
pl: zmieni|ustawi
change stem = chang|switch|updat|set|änder|umgest|wechsel|modif|remplac|mis|cambi|puse|actualic|messo|impost|mud|troc|
    alter|gewijzigd|aangepast|gezet|zmieni|ustawi|从|從|から
# Words with a capital after "is" that are no passwords.
plain capitals =
de: Pflicht(?:feld)?|Geheim|Standard|Mist|Quatsch|Schrott|Murks|Unsinn|Unbekannt|Sicher|Unsicher|Falsch|Richtig|Privat|
    Keines?|Kennwort|Passwort|Teil|Sache|Frage
en: Correct|Secret|Required|String|Optional|Boolean|Integer|Invalid|Valid|Hidden|Password|Firebase|Google|Apple|Facebook
xx: Aucune?|Obligatoire|Ninguna?|Correct[ao]|Secret[ao]|Nessuna|Nenhuma|Geen|Onbekend|Brak
# What begins a sentence about a password or a passphrase: "the passphrase is >stored< in the safe".
talk =
en: stored|kept|in|not|required|the|an?|hashed|too|never|always|only|on|my|very|what|where|needed|used|set|from|so|
    optional|also|probably|<quality>(?=<talk end>)|(?<!["'`])<quality>(?=\s<small word>(?!\w))|
    (?:(?<=(?:ill|ust|now|ply|tly) )|(?:still|just|now|simply|currently) )
    (?:<quality>|<small word>|(?:in)?valid|set|sent|\w{1,24}(?:ed|ing|able))
xx: nicht|zu|ein\w{0,24}|der|die|das|im|wichtig|sicher|trop|dans|pas|un\w{0,24}|muy|en|no|demasiado|nel\w{0,24}|non|
    troppo|muito|não|na|te|niet|een|het|za|nie|w
password talk = <talk>|rotated|must|changed|reset|read|sent|shared|encrypted|generated|validated|checked|managed|
    injected|provided|valid|invalid|at|incorrect|saved|missing|really|leaked|compromised|case[ -](?:in)?sensitive|
    rejected|accepted|being|going|this|that|why|how|under|with|about|already|currently|usually|actually|written|your|
    our|their|more|less|asked|expired|bcrypt|argon2?|scrypt|salted|string|text|str|bytes
# Said of a password where a clause ends or goes on with a small word, and else what begins one: "correct horse".
quality = correct|wrong|right|weak|strong|long|short|longer|shorter|safe|secure|easy|hard|same|different|hidden|visible|
    good|bad|better|simple|complex|working|fine|ok|okay|yes|here|there|known|unknown|lost|gone|part|enough|empty|like|
    still|just|something|nothing|out|up|off|now
talk end = [^\w\s]{0,3}\s{0,2}(?:\Z|\n)|[^\w\s]{1,3}\s|\s[(\u2013\u2014-]|-
small word = for|and|but|on|at|if|in|inside|to|as|than|that|because|since|so|or|of|by|with|without|from|when|while|
    until|after|before|unless|enough|again|now|yet|too|here|there|forever|gone|though|behind|per|about|according|like|i|
    you|we|they|he|she|it|who|which|your|my|our|his|her|their|the|an?|all|any|each|every|is|are|was|will|would|should|
    must|can|could|may|has|have|not|never|only|else(?=<talk end>)|\w{2,5}where|\w{1,16}ly|characters?|digits?|letters?|
    numbers?|symbols?|words?|field|input|string|practice|idea|ones?|thing|password|special|coded|stored|kept|used|fine

# Phrases that recover a wallet, and the words that no such phrase has.
seed phrase =
en: seed ?-?phrase|seed words|recovery phrase|mnemonic(?: phrase)?|secret phrase|wallet (?:phrase|words)|backup phrase
de: wiederherstellungs(?:phrase|wörter)|merkphrase|sicherungsphrase|mnemonik
fr: phrase (?:de récupération|mnémonique|de secours|seed|graine)|mots de récupération
es: frase (?:semilla|de recuperación|mnemotécnica|secreta|seed)|palabras (?:semilla|de recuperación)
it: frase (?:di recupero|seed|mnemonica|segreta)|parole (?:di recupero|seed)
pt: frase (?:semente|de recuperação|mnemônica|seed|secreta)|palavras de recuperação
nl: herstel(?:zin|woorden|frase)|seed-?zin|seed ?woorden
pl: fraz[ay] (?:seed|odzyskiwania|zapasow\w{1,24}|startow\w{1,24})|słowa odzyskiwania
zh: 助[记記][词詞]|恢[复復](?:短[语語]|助记词)|种子短语
ja: シードフレーズ|リカバリー?フレーズ|復元フレーズ|ニーモニック|復元用?の?単語
phrase stem = phrase|seed|mnemo|wallet|wiederherst|mots de|frase|palabras|parole|palavras|herstel|wacht|fraz|słowa|助|
    恢|种子|フレーズ|ニーモ|単語|合言葉|口令
function word =
en: the|an?|is|are|was|be|it|you|your|my|this|to|of|in|on|or|with|that|which|never|not|should|must|can|as|if|when|from
de: der|die|das|ist|sind|ein|eine|mein|meine|zu|im|mit|nicht|oder|man|ich|du|dass|soll|muss|sie|es|von
fr: le|la|les|des?|du|est|un|une|mon|ma|ne|pas|ou|que|qui|dans|je|tu|il|sur
es: el|los|las|del?|es|una?|mi|tu|no|en|que|con|se|su
it: il|lo|gli|di|una?|mio|mia|non|che|con|si|in
pt: os?|do|da|um|uma|meu|minha|não|com|que|em|no|na
nl: het|een|van|is|mijn|niet|of|met|dat|je|ik
pl: jest|nie|się|na|z|w|to|mój|moja|że|czy|lub

# Codes of doors, devices and messages.
code word =
en: codes?|combination|combo|keypad|passcode
de: kombination|zahlenkombi\w{0,24}|zahlencode|nummer|kode
fr: combinaison|chiffres
es: c[óo]digos?|combinación|clave
it: codic[ei]|combinazione
pt: combinação|senha
nl: combinatie|cijfercode
pl: kod\w{0,3}|szyfr|kombinacja
# Also at the end of a compound.
code =
<code word><end>
zh: [密号]?[码碼]|口令
ja: コード|番号|ナンバー|パス
# "Türcode" and "SIM-Nummer" are one word.
with code = (?:-?(?:codes?|nummer|kombination))?<end>
place =
<box>
en: doors?|gate|alarm|safe|lock|locker|garage|entrance|building|suitcase|luggage|intercom|shed|gym|elevator|lobby|vault|
    cabin|apartment|keypad
de: haustür|eingangstür|tor|hoftor|gartentor|alarm|alarmanlage|tresor|safe|\w{0,12}schloss|garage|garagentor|koffer|
    spind|schließfach|eingang|tür\w{0,8}
fr: porte|portail|portillon|alarme|coffre(?:-fort)?|immeuble|interphone|entrée|garage|casier|valise|hall
es: puerta|portal|portón|alarma|caja fuerte|garaje|taquilla|casillero|verja|portero|cajetín|maleta|edificio|trastero
it: porta|portone|cancello|allarme|cassaforte|antifurto|box|cassetta|armadietto|citofono|valigia|ingresso
pt: porta|portão|alarme|cofre|garagem|prédio|armário|portaria|interfone|fechadura|mala|caixa de chaves
nl: deur|voordeur|achterdeur|poort|hek|alarm|kluis|kluisje|\w{0,12}slot|garage|schuur|ingang|koffer|portiek
pl: drzwi|bram\w{1,4}|furtk\w{1,4}|alarm\w{0,3}|sejf\w{0,2}|domofon\w{0,2}|garaż\w{0,2}|szafk\w{1,2}|klatk\w{1,2}|
    walizk\w{1,2}|skrytk\w{1,2}|zamk\w{1,2}|wejści\w{1,3}
# What has a code, and many other numbers.
room = wi-?fi|wlan|network|netzwerk|réseau|netwerk|house|flat|office|pool|bike|bicycle|barn|basement|cellar|mailbox|
    storage|studio|workshop|room|church|clubhouse|car|boat|caravan|haus|wohnung|büro|keller|fahrrad|auto|briefkasten|
    maison|appartement|bureau|cave|vélo|voiture|casa|piso|oficina|bicicleta|bici|buzón|coche|appartamento|ufficio|
    cantina|apartamento|escritório|huis|kantoor|kelder|fiets|brievenbus|mieszkan\w{1,3}|biur\w{1,2}|piwnic\w{1,2}|
    rower\w{1,2}
# What has nothing but a code.
box =
en: key ?safe|key ?box|lock ?box|padlock|bike lock
de: schlüssel(?:kasten|box|safe|tresor)|(?:koffer|zahlen|fahrrad|vorhänge)schloss|türcode
fr: digicode|cadenas|antivol|boîte à clés
es: candado
it: lucchetto
pt: cadeado
nl: hangslot|cijferslot|fietsslot|sleutel(?:kastje|kluis(?:je)?|box)
pl: kłódk\w{1,2}
combination = combination|zahlenkombination|combinaison|combinación|combinazione|combinação|combinatie|szyfr
device =
en: phone|tablet|ipad|iphone|laptop|sim|card|bank|debit|credit|atm|face id|screen|app|watch|device|account|voicemail|tv|
    parental|alarm|visa|mastercard|online banking|\d[- ]?digit
de: handy|telefon|tablet|\w{0,12}-?karten?|bank|giro\w{0,24}|konto|sim|bildschirm\w{0,8}|app|gerät|ec
fr: téléphone|portable|tablette|carte(?: bleue| bancaire)?|cb|banque|sim|écran|appli
es: teléfono|móvil|celular|tarjeta|banco|cajero|pantalla|sim|tableta|portátil
it: telefono|cellulare|carta|bancomat|banca|schermo|sim|tessera
pt: telefone|celular|telemóvel|cartão|banco|tela|chip|multibanco|caixa
nl: telefoon|mobiel|pas|pinpas|bankpas|bank|kaart|sim|scherm
pl: telefon\w{0,3}|kart\w{1,3}|bank\w{0,6}|konta?|ekran\w{0,2}|sim|tablet\w{0,2}|blokad\w{1,2}
owned = my|our|his|her|their|your|meine?|unsere?|ma|mon|notre|mi|nuestro|mio|il|meu|nosso|mijn|onze|mój|moim
verification =
en: verification|verify|sms|2fa|mfa|otp|one[- ]time|auth(?:entication|enticator)?|confirmation|security|login|texted|
    sent me|activation|sign-?in|tan
de: bestätigungs?\w{0,24}|verifizierungs?\w{0,24}|freischalt\w{0,24}|einmal\w{0,24}|sms|sicherheits\w{0,24}|m?tan|
    aktivierungs\w{0,24}|anmelde\w{0,24}
fr: vérification|validation|confirmation|sms|reçu|sécurité|double authentification|activation
es: verificación|sms|confirmación|seguridad|activación|llegó|mandaron
it: verifica|conferma|sms|sicurezza|otp|attivazione|arrivato
pt: verificação|confirmação|sms|segurança|ativação|chegou
nl: verificatie\w{0,24}|bevestigings\w{0,24}|sms|beveiligings\w{0,24}|activerings\w{0,24}|inlog\w{0,24}
pl: weryfikac\w{1,24}|potwierdz\w{1,24}|autoryzac\w{1,24}|blik|sms\w{0,24}|aktywac\w{1,24}|jednorazow\w{1,24}
backup =
en: backup|back-up|recovery|rescue|reset
de: wiederherstellungs\w{0,24}|ersatz\w{0,24}|notfall\w{0,24}|backup\w{0,24}|sicherungs\w{0,24}
fr: secours|récupération
es: respaldo|recuperación|emergencia
it: recupero|emergenza|riserva
pt: recuperação|reserva|emergência
nl: herstel\w{0,24}|reserve\w{0,24}|nood\w{0,24}
pl: zapasow\w{1,24}|awaryjn\w{1,24}|odzyskiwania|ratunkow\w{1,24}
pin =
en: (?-i:PIN)s?|pin[- ]?(?:code|number)|puk2?|puk[- ]?code
de: geheimzahl|geheimnummer|pin-?nummer|\w{0,12}(?:karten|bank|handy|sim|ec|konto|giro|geräte|app)-?pin
fr: code (?:confidentiel|secret)|nip
es: número secreto|nip
it: codice segreto
pt: código secreto
nl: pincode|pukcode
pl: pin[- ]?u|kod pin|pinem
security code =
en: (?:cvv|cvc)2?|(?:three|3|four|4)[- ]digits? (?:code )?(?:\w{1,24} ){0,2}back|(?:card )?security code|check digits?|
    (?:last )?(?:three|3) (?:digits|numbers) (?:on|at) (?:the|its) back(?: of (?:\w{1,24} ){0,3}card)?
de: (?:karten)?prüf(?:ziffer|nummer|zahl)n?|sicherheitscode|(?:3|drei) (?:ziffern|zahlen)
fr: cryptogramme|code de sécurité|(?:3|trois) (?:derniers )?chiffres
es: código de seguridad|(?:3|tres) (?:últimos )?(?:dígitos|números|cifras)
it: codice di sicurezza|(?:3|tre) (?:ultime )?cifre
pt: código de segurança|(?:3|três) (?:últimos )?(?:dígitos|números)
nl: beveiligingscode|controlecijfers?|(?:3|drie) cijfers|kaartcode
pl: kod (?:bezpieczeństwa|zabezpieczający|cvv2?|cvc2?)|(?:3|trzy) cyfry
back of a card = back|card|hinten|rückseite|karte|dos|derrière|verso|carte|atrás|detrás|reverso|dorso|tarjeta|retro|
    dietro|carta|trás|cartão|achter|kaart|pas|odwroc|kart|cv[vc]|cryptogramme|背|裏|卡|カード|prüf
card =
(?<![a-z])(?:visa|master ?card|amex|american express|maestro|diners|jcb|(?:credit|debit|bank)? ?cards?|\w{0,12} ?karte|
    kartennummer|cartes?|tarjetas?|carta|cart[ãa]o|creditcard|kaart|bankpas|kart[aęyą])(?![a-z])
zh: 信用卡|卡号|卡號|[银銀]行卡
ja: カード
code stem = cod|cód|kod|comb|kombi|keypad|nummer|chiffre|clave|senha|szyfr|safe|box|lock|schloss|cadenas|candado|
    lucchetto|cadeado|slot|kłód|tan |otp|sms|pin|puk|geheim|nip|número|segreto|cvv|cvc|crypto|digit|ziffer|zahl|prüf|
    cifr|cijfer|cyfr|dígit|open|öffne|sperr|ouvr|verrouill|abr|bloq|apr|sblocc|ontgrendel|enter|type|dial|eingeb|gib|
    tippe|tape|compose|marca|premi|aperta|toets|wpisz|输入|輸入|otw|odblok|geht|码|碼|三位|3位|锁|鎖|門|门|箱|コード|
    番号|ロック|ドア|玄関|金庫|桁|パス|用
# What leads to a code right before it, in Chinese and Japanese.
before a card's security code =
zh: 背面[^\d\s]{0,6}[三3][位个個](?:[数數]字?)?|[后後]三位|安全[码碼]
ja: [裏うら](?:面)?の?[3三３]桁|セキュリティ(?:コード|番号)
before a recovery code =
zh: (?:[备備]用|恢[复復]|救援)[^\d\s]{0,4}?[码碼]
ja: (?:バックアップ|リカバリー?|復旧|予備の?)コード
before a verification code =
zh: (?:[验驗][证證]|校[验驗]|[动動][态態]|[确確][认認]|短信)密?[码碼]
ja: (?<!予約)(?<!予約の)(?:認証|確認|ワンタイム)(?:コード|番号|パスワード)
before a door code =
zh: (?:[门門]禁|大[门門]|[门門]|[车車][库庫]|[报報]警器?|保[险險][箱柜櫃]|密[码碼]?[锁鎖]|[锁鎖]|行李箱|信箱|[电電]梯|
    [储儲]物[柜櫃])的?(?:密[码碼]|[码碼]|代码)?
ja: (?:ドア|玄関|ゲート|入口|駐車場|オートロック|門|金庫|警報|アラーム|南京錠|鍵|ロッカー|宅配ボックス|キーボックス|
    スーツケース|自転車|ガレージ|倉庫|セキュリティ)[^\d\s、。]{0,6}?(?:コード|番号|ナンバー|暗証番号)?
before a PIN =
zh: (?:[银銀]行卡|卡|取款|支付|手[机機]|[开開][机機]|[锁鎖]屏|[屏熒]幕|平板|信用卡)的?密[码碼]
ja: 暗証番号|(?:スマホ|携帯|タブレット|端末|画面)[^\d\s、。]{0,8}?(?:コード|番号|パスコード)|パスコード|PINコード
# "I >set< 4821", "the keypad >takes< 4821"
chose = takes|wants|nimmt|will|prend|toma|prende|aceita|neemt|(?:hat|have) (?:den|die)|set|chose|picked|gewählt|
    genommen|gesetzt|mis|choisi|puse|elegí|messo|scelto|coloquei|escolhi|gekozen|ingesteld|ustawi\w{1,24}
enter =
en: enter|type|type in|dial|punch in|press|key in
de: gib|tippe|drücke|eingeben
fr: tape[zr]?|compose[zr]?
es: marcar?|teclea|introduce|pulsa
it: digitare|premi|inserisci
pt: digit[ae]|digitar|aperta|disca
nl: toets|typ|druk
pl: wpisz|wybierz|wciśnij
opens =
en: (?:unlock|open)(?:s|ed)?(?: it| up)? (?:with|by|using|via)
de: (?:öffnet|entsperr\w{0,24}|geht|aufgeht|öffnen|auf)(?: \w{1,24}){0,4}? mit
fr: (?:s['’]ouvre|se déverrouille|ouvrir|déverrouiller|ouvre|débloque)(?: \w{1,24}){0,3}? (?:avec|par)
es: (?:abre|desbloquea|abrir|desbloquear)(?: \w{1,24}){0,3}? con
it: (?:apre|sblocca|aprire|sbloccare)(?: \w{1,24}){0,3}? con
pt: (?:abre|desbloqueia|abrir|desbloquear)(?: \w{1,24}){0,3}? com
nl: (?:opent?|ontgrendel\w{0,24})(?: \w{1,24}){0,3}? (?:met|via)
pl: (?:otwiera|odblokowuj\w{1,24}|otworzyć|odblokować)(?: \w{1,24}){0,3}?(?: kodem| hasłem| na| przez)?
open stem = unlock|open|öffne|entsperr|geht|auf|ouvr|verrouill|abr|bloque|apr|sblocc|ontgrendel|otw|odblok|用
# Words before a number that is no code.
no code =
en: error|exit|status|http|zip|postal|postcode|(?:area|account|bank|sort)[ -]?code|country|promo|coupon|discount|
    voucher|produ[ckt]|order|tracking|qr|source|line|gpio|arduino|connector|airport|iata|colou?r|hex|class|dress|tax|
    swift|<begin>bic<end>|building code|flight|commit|version|(?:percent|%) off|
    (?:phone|mobile|cell|fax|account|room)[- ]?number
de: fehler|postleit|plz|rabatt?|gutschein|artikel|vorwahl|(?:telefon|handy|fax|konto|zimmer)-?nummer
fr: erreur|articl|indicatif|numéro de|réduction|code banque
es: descuento|art[ií]culo|teléfono es|código del banco
it: sconto|fiscal|articolo|prefisso
pt: cupom|desconto|artigo|código do banco
nl: korting|artikel
pl: pocztow|zniżk|towar|kod banku
zh: 邮编|订单|错误|电话
ja: 郵便|注文|エラー|電話
xx: <journey>[^\n:]{0,40}<confirmation>|<confirmation>[^\n:]{0,40}<begin><journey>
journey = boarding|booking|reservation|ticket|flight|buchung|flug|réservation|billet|reserva|vuelo|prenotazione|volo|
    voo|boeking|vlucht|rezerwacj
confirmation = confirma[tcç]|bestätigung|conferma|bevestiging|potwierdz
# Words after a number that say what it counts.
unit =
en: characters?|chars?|digits?|letters?|words?|days?|years?|times|hours?|minutes?|seconds?|months?|people|users?|bits?|
    bytes?|items?|lines?|points?|pins|posts|of|am|pm|km|kg|[kmc]?m|usd|eur|dollars?|attempts?|tries|requests?|rows
de: zeichen|ziffern|stellen|stellig\w{0,24}|tage?n?|jahre?n?|uhr|stunden?|minuten?|sekunden?|euro|mal|versuche?
fr: caractères|chiffres|jours?|ans?|heures?|fois|lettres|secondes?|mois|essais?
es: caracteres|dígitos|días|años?|horas?|minutos?|veces|segundos?|intentos?
it: caratteri|cifre|giorni|anni|ore|minuti|volte|secondi|tentativi
pt: caracteres|dígitos|dias|anos|horas|minutos|vezes|segundos|reais
nl: tekens|cijfers|dagen|jaar|uur|minuten|keer|seconden|pogingen
pl: znak\w{0,24}|cyfr\w{0,24}|dni|lat|godzin\w{0,24}|minut\w{0,24}|razy|sekund\w{0,24}|prób\w{0,24}|zł

# Keys of networks and services.
key = <latin key><key end>
zh: [密金][钥鑰]
ja: APIキー|(?:Wi-?Fi|暗号化?)の?キー
key begin = (?<![A-Za-z0-9_])
key end = (?![A-Za-z0-9À-ɏ_])
latin key =
en: (?:<key of>|encryption|secret|licen[sc]e|private|access|signing|master|product)[ -]?(?:key|schlüssel|sleutel)
en: (?:recovery|bitlocker|backup)[ -]?key
de: (?:wiederherstellungs|(?:verschlüsselungs|sicherheits|netzwerk|lizenz)-?)schlüssel
xx: (?:clé|clave|chiave|chave) d[ei] (?:récupération|secours|recuperación|recupero|recuperação)|herstelsleutel|
    klucz odzyskiwania
xx: (?:cl[eé]f?|clave|llave|chiave|chave|klucz|sleutel)\s(?:d['’]|de |del |della |di |da |do |van |voor |la |el ){0,2}
    (?:<key of>|chiffrement|cifrado|cifratura|criptografia|secr[eè]te?|secreta|segreta|sécurité|accès|acceso)
xx: (?:ssid|wi-?fi|wlan)[^\n.;!?]{0,40}?<begin>(?:key|schlüssel|clé|clave|chiave|chave|sleutel|klucz)
key of = wi-?fi|wlan|wpa2?|wep|router|network|netzwerk|réseau|red|rete|rede|netwerk|sieci|api|ssid|hotspot
key stem = key|schlüssel|sleutel|clé|clef|clave|llave|chiave|chave|klucz|secret|token|jeton|令牌|钥|鑰|キー|トークン

# A word for a password, unless it goes on to speak of passwords: "password manager".
a password = (?:<password>|(?P<short><begin><short password>))(?:(?<=[\u3040-\ud7af])|<key end>)
about = (?!@|[ -](?:manager|reset|polic|field|hash|rule|length|requirement|strength|generator|protect|less|column|input|
    file|prompt|hint|change|update|expir|valid|auth|encrypt|table|model|type|box|min|max))
# Between a keyword and its value: quotes or Markdown marks, or what the password is for, in the same clause, and "is".
middle = (?![A-Za-z0-9])(?:["'\]*`]{0,3}|\s<now>|\s(?:at|for|in|of|on|to)\s(?:(?![.;!?]\s)[^\n:=]){1,40}?)\s*+
    (?:(?<![A-Za-z])(?:is|are|ist|est|es)(?!\w)(?:\s<now>(?!\w))?(?:\s*+:)?|:=|[=:：是は는은])[*`]{0,3}\s*+["'`*]{0,3}
# Passwords in languages that inflect, or that have the keyword inside of a phrase.
russian password = парол(?:ь|я|а|ата)(?!\w)
    (?:(?-i:\s[А-ЯЁІЇЄҐ][а-яёіїєґ]++){1,2}|\s(?:от|для|к|на|в|у|від|до|за)\s(?:(?![.;!?]\s)[^\n:=]){1,40}?)?
    (?:\s[\u2013\u2014-]{1,2}(?:\s(?:это|це))?\s|\s?[:=]\s?|(?:\s(?:это|це|теперь|сейчас|тепер|зараз|такой|е)){1,3}\s)
arabic password = كلمة\s(?:(?:مرور|سر)(?:ي|ك|ه|ها|نا)?|ال(?:مرور|سر)(?=\s?[:=]|\s(?:ال|هي|هو|ل(?![امن]\s))))(?!\w)
    (?:(?![.;!?؟]\s)[^\n:=]){0,40}?(?:\s(?:هي|هو|الآن)(?:\s?:)?\s|\s?[:=]\s?)
bare password = (?:\A|[.,;:!?\n،。，；：！？]|(?:что|що|أن|ان|که|diye)\s)\s?
    (?:(?:мой|наш|мій|my|我的|我们的|我們的|و)\s?)?(?:пароль(?:(?-i:\s[А-ЯЁІЇЄҐ][а-яёіїєґ]++){1,2})?|كلمة\s(?:ال)?(?:مرور|سر)ي?(?:\sالخاصة\sبي)?|
    (?:şifre|parola)(?:m|miz)?|密码|密碼)(?!\w)\s
# A value with a digit, which is no address or path, "12-digit" or the name of a method.
mixed value = (?![~/]|https?:|\d{1,3}-[^\W\d_]+(?!\w)|(?:sha|aes|md|pbkdf|hmac|argon|base|utf|oauth|iso|tls|ssl)-?\d)
    (?=[!#-&(-/:-_a-~]{0,64}\d)(?P<secret>[!#-&(-_a-~]{6,}+)

# From a keyword over a gap in its clause and a link to the value, which may be in quotes.
gap = (?:[^\n:=.,;!?，。；！？、]|\.(?=\S)|,(?=\s(?:it|c['’]|that|das|es|dat|è|é|to)(?![a-z]))){0,48}?
link = <sign>\s{0,3}(?:<now>\s){0,2}<opening>\s?
sign =
[^\S\n]{0,3}(?::=|=>|->|={1,3}|[:：→＝]|[\u2013\u2014-](?=\s))[*`]{0,2}
(?<=[a-z])['’]s(?=\s)
<begin><is><end>:?
(?:就?是|[設设改换換]成|[設设改]?[为為]|[はが를은는]|คือ)(?:[现現]在|目前|今)?
[を、][ぁ-ゟ]{0,8}
opening = [*_`\"'«“„‘「『(]{0,3}+
# A value without spaces, and a word of a passphrase.
run = [^\s\"'`«»“”„‘’‹›<>、，\u3000-\u30ff\u3400-\u9fff\uac00-\ud7af\uff00-\uffef\u0e00-\u0e7f]{4,128}+
word = [^\W\d_]{2,16}+
seed word = (?!(?:<and>|<function word>)<end>)<word>

# What stands for a value and is none, whole.
placeholder = <stand in>|(?<!["'`])<poor password>(?:[-_]here)?
stand in =
\$\{[^\s}]{0,64}\}?|\$\(?[A-Z_]{2,64}\)?|<[^\s>]{0,64}>?|\{\{?[^\s}]{0,64}\}{0,2}|[x*.•#_-]{3,64}
(?:change|replace|fill|insert|put|enter)[-_]?(?:me|this|it|here)
(?:your|my)[-_](?:[a-z]{1,12}[-_]){0,2}<poor password>(?:[-_]here)?
placeholder|dummy|redacted|masked|yes|no|null|none|true|false|undefined|required|optional
(?:os|process|settings|config|env|self|this|request|req)\.[a-z_.]{1,64}|[a-z_][\w.]{0,63}(?:[(\[]|\(\))
# No placeholders in quotes, or before a host that is no sample.
poor password = password|passwd|pass|pwd|secret|token|example
sample host = localhost|127\.|\[::1\]|(?:your[-_]?|db[-_]?)?(?:host|hostname|server)(?![\w.])|[\w.-]{0,40}?example|[<{$]
closing = ["')\],;.!]{0,2}
# Beside a postal code.
address = address|street|road|rd|lane|marg|nagar|colony|sector|area|city|district|village|town|state|office|post|postal|
    deliver\w{0,8}|ship\w{0,8}|locat\w{0,8}|live|india|delhi|mumbai|kolkata|chennai|bengaluru|bangalore|hyderabad|pune
# What begins a value that is no password.
harmless =
(?:<placeholder>|<password>|<short password>|user|sample|test|foo|bar|string|key|process|default|value)<closing>(?!\S)
# An address, a path, a variable or code.
[~/$\[{(%]|https?:|www\.|[\w.+-]{1,64}@[\w-]{1,64}\.[a-z]|\.{2,}|[a-z_][\w.]{0,63}[(\[]|(?:debug|verbose)=
(?:os|process|settings|config|env|self|this|req|request|user|ctx|args|opts|options)\.
(?:[a-z]{1,20}_){1,4}(?:password|passwort|secret|token|key|pass|user)(?![^\s"'),;])
(?-i:[A-ZÀ-Þ]+_[A-ZÀ-Þ_]+)(?!\w)
(?:your|my|the|tu|mi|su|dein|mein|ihr|votre|ton|mon|sua?|seu|minha|tuo|tua|twoj[ea]?|twój|uw|jouw|mijn)[-_]
# A method, a product, a version, a date, or a number of something.
(?:sha|aes|md|pbkdf|hmac|argon|bcrypt|scrypt|base|utf|oauth|iso|tls|ssl|ipv|http|rsa|ecdsa|ed)-?\d(?!\S{24})
(?:office|windows|microsoft|outlook|python|node|iphone|galaxy|server|mysql|postgres|chrome|ios|keepass|1password|
    bitwarden|log4j|auth0|k8s|oauth|webauthn|fido2?)[-_.]?\d{0,4}[\w.-]{0,12}(?!\S)
v?\d{1,4}(?:[./:-]\d{1,4}){1,3}(?![\w!#$%&*@])|\d{1,4}-?[^\W\d_]{3,}(?!\S)
\d{1,5}(?:st|nd|rd|th|ms|s|h|d|gb|mb|kb|px|%)(?!\w)

# Patterns of passwords.
link after = <about>(?P<gap><gap>)(?P<link><link>)
no link = (?:\s|(?<=[\u3040-\u9fff]))<opening>
# A value in quotes can have spaces.
quoted = (?:(?<=["'“«「『„`‘])|(?<=«\s))[^\s"”»」』“`\n’][^"”»」』“`\n’]{2,79}+(?=["'”»」』“`’])
# A name can be a password: "the password is Whiskers."
capital = (?-i:[A-ZÀ-ÖØ-ÞŁŚŻ][a-zà-öø-ÿąćęłńóśźż]{4,24}+)(?=["'*`]{0,2}\s{0,2}(?:\Z|[\n,.;!?)]))
# The clause of a value ends, or goes on.
after value = ["'`»”*)」』!.?]{0,3}\s{0,3}(?:\Z|[\n,;/|(，。、；！？]|(?:[\u2013\u2014-]|<goes on>)\s|
    [\u3040-\u30ff\u3400-\u9fff])
# "12 characters", "2 years", "50 %"
a unit = ["'`*)]{0,2}[\s-]{0,2}(?:%|°|[€$£¥]|<unit><end>|[位个個字文桁年月日天回分秒元円時点])
# "hunter22 is my password"
named password = (?<![!-~À-ɏ])<opening>(?P<secret><run>)["'`»”」』*]{0,2}
    (?:\s(?:<as>|voor|for|für|pour|para|per|an?|eine?|een|une?|una|uma)\s(?:[^\s.,;:!?]{1,16}\s){0,3}?|
    \s?(?:[当當做作]|作[为為]|[をがは])[^\s.,;!?，。]{0,8}?)<a password><about>
# "the password to hunter22", if it was changed
to after = [^\n:=.,;!?]{0,40}?<begin><to><end>\s<opening>
# "from hunter22 to hunter33", which is about passwords if a verb says that one was changed
from to = <begin><from><end>\s<opening>(?P<old><run>)["'`]?\s<begin><to><end>\s<opening>(?P<secret><run>)
from to zh = [从從](?P<old><run>)(?P<verb>[改換换变變])(?:成|为|為|到)(?P<secret><run>)
from to ja = (?<![!-~])(?P<old><run>)から(?P<secret><run>)[にへ](?P<verb>変|し)
# What a change is about.
access = <password>|(?<![a-z])(?:wi-?fi|wlan)|<login>
# "login: admin / hunter22"
pair = (?<![/.])(?:<login>|(?<![a-z])wi-?fi|wlan)(?:[^\n.;!?/|]|\.(?=\S)){0,50}+[/|]\s?(?P<secret><run>)
# "the laptop unlocks with hunter22"
opens before = (?<![a-z])<opens>(?:\s(?:the|der|dem|den|le|el|il|lo|o|de|a)(?=\s))?
    (?:\s(?:<code word>|<password>|pin|numer\w{0,2}|number))?\s?:?\s?<opening>\Z
# "用hunter22就能开门"
opens after = \s?(?:(?:来|來|就能|可以|就)?(?:解[锁鎖]|[开開](?:[锁鎖门門])?|打[开開])|
    (?:を押して?|で)[^。\s]{0,6}?(?:開|解除|あ[くけ]|入))
token = (?<![!-~À-ɏ])(?P<secret><run>)

# Patterns of phrases: eleven words or more recover a wallet, three or more are a passphrase.
a seed phrase = (?<![A-Za-z0-9À-ɏ-])<seed phrase><end>[^\n:：.]{0,40}?[:：\s]\s{0,3}<opening>
    (?P<secret>(?:\d{1,2}[.)]\s?)?<seed word>(?:[\s,、，]{1,2}(?:\d{1,2}[.)]?\s?)?<seed word>){11,23})
a passphrase = (?:<passphrase><end>(?><gap><link>)|(?:as|als|comme|como|come) <passphrase>\s)
    (?P<secret><word>(?:\s(?!<and>\s)[^\s,.;:!?"'»”]{1,16}+){2,11})

# Patterns of codes, and what is right before a code: a link, a verb, or what the code is for.
number = (?-i:(?:(?<![A-Za-z0-9À-ɏ.,:/€$£¥_+#*-])|(?<=[\u3040-\u9fff\uac00-\ud7af]:))
    (?:\d{1,4}(?:[ -]\d{1,4}){1,3}|G-\d{6}|[#*]{0,2}\d{3,10}[A-Z]?[#*]{0,2}|
    (?=[A-Z]{0,8}\d)(?=\d{0,8}[A-Z])[A-Z0-9]{4,10}[#*]?|
    (?=[A-Za-z-]{0,12}\d)[A-Za-z0-9]{3,8}(?:-[A-Za-z0-9]{3,8}){1,7})
    (?![A-Za-z0-9À-ɏ_]|[.,:/-]\d|[:/]\S))
led = (?:<link>|<begin><chose><end>\s(?:(?:the|den|le|el|il|o|de) )?|(?:<code>|<begin>(?:<place>|<combination>|<device>|
    <verification>|<backup>|<pin>|<security code>|pins?)<end>)\s?[:#(,]?\s?<opening>)\Z
after code = (?:<code>|<begin>pins?<end>)\s?[:#(]?\s?\Z
after kind = (?:[はが是为為：:]|就是|的?[是为為]|、)?\s?[「『“"]?\Z
a link = (?!to\b)<begin><is><end>
# Between two codes of one kind.
more codes = \s?(?:[,/&、和と或]|and|or|und|oder|et|ou|y|o|e|en|of|i|lub)\s?
enter before = <begin><enter>(?: \w+){0,3}? \Z|输入|輸入
# "the code for the red bicycle is 4821"
code of = <begin>(?!nummer)<code word><end>\s(?:<of>|d\w{1,3})[\s'’](?:[^\s.,;:!?'’]{1,20}[\s'’]){0,4}?<room>\s<is>\s
    (?:<now>\s)?\Z
# "4821 is the code"
named code = \s<as>\s(?:[^\s.,;:!?]{1,16}\s){0,4}?(?:<code>|<begin><pin><end>|otp|m?tan)<end>

# Patterns of keys and cards.
a key = <key>(?:\s\(\w{1,12}\))?(?:(?><gap><link>)|[^\S\n]|(?<=[\u3040-\u9fff]))<opening>(?P<secret><run>)
token gives = <begin>(?:secret|token|令牌|トークン|jeton)<key end>(?><gap><link>)(?P<secret><run>)
card number = (?<![A-Za-z0-9_.-])[2-6]\d{3}(?P<gap>[ -]?)(?:\d{4}(?P=gap)\d{4}(?P=gap)\d{1,7}|\d{6}(?P=gap)\d{5})
    (?![A-Za-z0-9_-])
""")


def pattern(text: str) -> str:
    """Return a pattern that ignores case, with words for the names of tables.

    >>> pattern("<from> .* <to>")
    '(?i)(?:from|von|de|du|del|da|van|z) .* (?:to|auf|zu|in|à|en|par|a|con|para|por|naar|na)'
    """
    return "(?i)" + fill(text, _TABLES)


def stems(name: str) -> tuple[str, ...]:
    """Return plain strings: only a text with one of them is looked through for this kind of words."""
    return tuple("|".join(_TABLES[f"{name} stem"]).split("|"))
