"""Texts about the user or about earlier conversations as a whole, which have no words of an answer. Pure.

English, German, French, Spanish, Italian, Portuguese, Dutch, Chinese and Japanese are known.
"""

import re
from functools import cache
from typing import Final

from refold.index.terms import without_accents

USER: Final = "user"
PAST: Final = "past"
RESUME: Final = "resume"
"""Of what was done, decided or left to do: at the beginning of a conversation this is about earlier ones."""

_WORD: Final = re.compile(r"[^\W_]+")
_CHARS_MAX: Final = 160  # A longer text is about something.

# Patterns, one a line, of whole texts in small letters without accents, with a space for what is between words. A line
# that begins with two spaces goes on with the one before it. `<...>` is a group of words.
_GROUPS: Final = {
    "me": "me|us|myself|ourselves",
    "last": "last|latest|previous|past|earlier|recent|most recent|prior|other",
    "talk": "conversations?|chats?|sessions?|talks?|discussions?|meetings?",
    "know": "know|remember|recall|learned|learnt|(?:have|ve) (?:learned|learnt)",
    "letzten": "letzten?s?|fruheren?s?|vorherigen?s?|bisherigen?s?|vergangenen?s?|vorigen?s?",
    "did": "do|did|done|(?:get|got) done|changed?|decided?|decided? on|agreed?|agreed? on|promised?|recommend|"
    "recommended|suggest|suggested|advised?|proposed?|plan|planned|find|find out|found|found out|fix|fixed|finish|"
    "finished|completed?|achieved?|accomplish|accomplished|work on|worked on|settled? on|concluded?|choose|chose|"
    "chosen|start|started|start with|leave open|left open|leave unfinished|left unfinished|(?:tell|told) me to do|"
    "(?:ask|asked) you to do",
    "thing": "files?|things?|ones?|steps?|tasks?|parts?|changes?|options?",
    "day": "today|tomorrow|this week|next week|next month|next|now|first|then",
    "stopped": "left off|left it|left|stopped|were|ended|paused|finished|had left off|had stopped",
    "gemacht": "gemacht|getan|geandert|entschieden|beschlossen|vereinbart|ausgemacht|abgemacht|versprochen|"
    "vorgeschlagen|empfohlen|geplant|vor|vorgehabt|erledigt|gefunden|festgelegt",
    "zuletzt": "zuletzt|letztes mal|das letzte mal|beim letzten mal|gestern|neulich|vorhin|bisher|schon|alles|denn",
}
_USER: Final = """
# English
what (?:all )?do you (?:still |already |actually )?(?:know|remember|recall|have) (?:about|of|on) <me>
what (?:can|could) you (?:tell|say)(?: <me>)? about <me>
what (?:did|have|ve) you (?:learn|learned|learnt|found out|find out|remembered?|noted?|saved?|stored?) (?:about|
  of|on) <me>
what (?:did|have|ve) (?:i|we) (?:already |just |ever )?(?:tell|told|say|said|mention(?:ed)?|shared?)(?: to|
   with)?(?: you)?(?: about <me>)?
who am i
(?:do|did|can|don t) you (?:still |even |really )?(?:remember|know|recognize|recognise|recall) (?:<me>|
  who (?:i am|we are)|anything about <me>|what (?:i|we) (?:said|told you))
(?:tell|show|give)(?: <me>)? (?:something|everything|all|anything|what|more|what you)(?: that)?(?: you)?
  (?: <know>)? (?:about|of|on) <me>
(?:list |repeat |summari[sz]e |recall )(?:everything|all|what)(?: that)? you <know> (?:about|of) <me>
(?:describe|summari[sz]e) <me>
# German
was weisst du (?:(?:schon|noch|alles|so|denn) )*(?:uber|von) (?:mich|mir|uns)
was hast du (?:dir )?(?:uber|von) (?:mich|mir|uns) (?:gemerkt|gespeichert|gelernt|erfahren|behalten)
woran erinnerst du dich(?: noch)?(?: bei mir)?
(?:erinnerst|kannst) du dich (?:noch )?an (?:mich|uns)(?: noch)?(?: erinnern)?
kennst du (?:mich|uns)(?: noch)?
(?:weisst du (?:noch )?)?wer (?:bin ich|ich bin)
was hab(?:e|en)? (?:ich|wir) (?:dir |euch )?(?:<zuletzt> )*(?:gesagt|erzahlt|mitgeteilt|geschrieben|verraten)
(?:erzahle?|sage?) (?:mir|uns) (?:etwas |alles |was )*(?:du )?(?:uber|von) (?:mich|mir|uns)(?: weisst)?
# French
(?:que|qu est ce que)(?: tu| vous)? (?:sais|savez|retiens)(?: tu| vous)? (?:de|sur|a propos de) (?:moi|nous)
(?:tu|vous) (?:sais|savez) quoi (?:de|sur) (?:moi|nous)
de quoi (?:te souviens tu|tu te souviens)(?: a mon sujet| de moi)?
(?:te souviens tu|tu te souviens|vous souvenez vous|vous vous souvenez)(?: encore)? de (?:moi|nous)
(?:me (?:connais|reconnais) tu|tu me (?:connais|reconnais)|me connaissez vous)
(?:sais tu |tu sais )?qui (?:suis je|je suis)
(?:que|qu est ce que|qu) (?:je (?:t|vous) ai|(?:t|vous) ai je)(?: deja)? (?:dit|raconte|confie)
(?:dis|raconte|parle)(?: moi)? (?:tout )?(?:ce que tu sais )?(?:de|sur) moi
# Spanish
que (?:mas |cosas )?(?:sabes|sabe|recuerdas|recuerda|conoces) (?:de|sobre|acerca de) (?:mi|nosotros)
(?:te acuerdas|se acuerda)(?: todavia)? de (?:mi|nosotros)|me (?:recuerdas|conoces|reconoces)
(?:sabes )?quien soy(?: yo)?
que (?:te|le) (?:he )?(?:dicho|dije|conte|contado|comente)
(?:dime|cuentame|hablame)(?: todo| algo)?(?: lo que sabes)? (?:de|sobre) mi
# Italian
(?:che |cosa |che cosa )(?:sai|ricordi|conosci|ti ricordi) (?:di|su|sul conto di) (?:me|noi)
ti ricordi(?: ancora)? di (?:me|noi)|mi (?:conosci|riconosci)
(?:sai )?chi sono(?: io)?
(?:che |cosa |che cosa )(?:ti|le|vi) ho (?:gia )?(?:detto|raccontato)
(?:dimmi|raccontami|parlami)(?: tutto| qualcosa)?(?: (?:quello|cio) che sai)? (?:di|su) me
# Portuguese
(?:o )?que (?:(?:mais|e que|voce|tu) )*(?:sabe|sabes|lembra|recorda|recordas) (?:de|sobre) (?:mim|nos)
(?:voce |tu )?(?:se lembra|te lembras|lembra se|lembras te|lembra)(?: ainda)? de (?:mim|nos)
(?:voce )?me (?:conhece|conheces)|(?:voce )?(?:sabe|sabes) quem (?:eu )?sou|quem (?:sou eu|eu sou|sou)
(?:o )?que (?:e que )?(?:eu )?(?:ja )?(?:te |lhe )?(?:disse|contei|falei)(?: te| lhe)?(?: (?:a|para|pra)
   (?:voce|ti))?
(?:diga me|diz me|me diga|conta me|me conte|me fale|fala me)(?: tudo| algo)?(?: o)?(?: que (?:voce )?sabes?)?
   (?:de|sobre) mim
# Dutch
wat weet (?:je|jij|u|jullie) (?:(?:nog|al|allemaal|zoal) )*(?:over|van) (?:mij|me|ons)
wat (?:herinner je je|heb je onthouden) (?:over|van) (?:mij|me|ons)
herinner (?:je|jij) je (?:mij|me|ons)(?: nog)?|ken (?:je|jij) (?:mij|me|ons)(?: nog)?
(?:weet je (?:nog )?)?wie (?:ben ik|ik ben)
wat heb ik (?:je |jou |u |jullie )?(?:(?:al|allemaal|de vorige keer|de laatste keer) )*(?:verteld|gezegd)
vertel (?:me |mij |ons )?(?:iets|alles|wat)(?: wat| dat)?(?: je)?(?: weet)? over (?:mij|me|ons)(?: weet)?
# Chinese and Japanese
\u4f60?(?:\u8fd8|\u9084)?(?:\u77e5\u9053|\u8bb0\u5f97|\u8a18\u5f97|\u4e86\u89e3|\u77ad\u89e3)(?:\u5173\u4e8e|
  \u95dc\u65bc)?\u6211(?:\u7684|\u4eec\u7684|\u5011\u7684)?(?:\u4ec0\u4e48|\u4ec0\u9ebc|\u751a\u9ebc|
  \u54ea\u4e9b|\u591a\u5c11)?(?:\u4e8b\u60c5?|\u4fe1\u606f|\u8cc7\u8a0a)?(?:\u5417|\u55ce)?
(?:\u5173\u4e8e|\u95dc\u65bc)\u6211(?:\u4eec|\u5011)?\u4f60(?:\u8fd8|\u9084)?(?:\u77e5\u9053|\u8bb0\u5f97|
  \u8a18\u5f97)(?:\u4e9b|\u4e86)?(?:\u4ec0\u4e48|\u4ec0\u9ebc|\u54ea\u4e9b)
\u6211\u662f(?:\u8c01|\u8ab0)
\u4f60?(?:\u8fd8|\u9084)?(?:\u8bb0\u5f97|\u8a18\u5f97|\u8ba4\u8bc6|\u8a8d\u8b58)\u6211(?:\u662f(?:\u8c01|\u8ab0)
  )?(?:\u5417|\u55ce)?
\u6211(?:\u4e4b\u524d|\u4e0a\u6b21|\u4ee5\u524d)?(?:\u8ddf|\u5bf9|\u5c0d|\u548c|\u544a\u8bc9|\u544a\u8a34)
  (?:\u8fc7|\u904e|\u4e86)?\u4f60(?:\u8bf4|\u8aaa|\u8bb2|\u8b1b)?(?:\u8fc7|\u904e|\u4e86)?(?:\u4e9b)?
  (?:\u4ec0\u4e48|\u4ec0\u9ebc|\u54ea\u4e9b)
(?:\u79c1|\u50d5|\u4ffa|\u308f\u305f\u3057)(?:\u306e\u3053\u3068|\u306b\u3064\u3044\u3066)(?:\u3092|\u306f)?
  (?:\u4f55\u3092?|\u3069\u3093\u306a\u3053\u3068\u3092)?(?:\u77e5\u3063\u3066|\u899a\u3048\u3066)
  \u3044?(?:\u307e\u3059\u304b|\u307e\u3059|\u308b\u304b|\u308b\u306e|\u308b)
(?:\u79c1|\u50d5|\u4ffa|\u308f\u305f\u3057)(?:\u306f|\u3063\u3066)(?:\u8ab0|\u3060\u308c)(?:\u3067\u3059\u304b|
  \u3067\u3057\u3087\u3046\u304b|\u306a\u306e)?
(?:\u79c1|\u50d5|\u4ffa|\u308f\u305f\u3057)[\u306f\u304c](?:\u3042\u306a\u305f\u306b)?(?:\u524d\u56de|
  \u4ee5\u524d)?\u4f55\u3092(?:\u8a00\u3044|\u8a71\u3057|\u4f1d\u3048)(?:\u307e\u3057\u305f\u304b|\u305f\u304b|
  \u305f)
"""
_PAST: Final = """
# English
what (?:(?:did|have|ve) (?:we|i)(?: already| just)?|(?:were|was) (?:we|i)|we)(?: been)? (?:talk(?:ed|ing)?|
  speak(?:ing)?|spoken|discuss(?:ed|ing)?|chat(?:ted|ting)?)(?: (?:about|of))?
what did (?:we|i) (?:do|work on|say) (?:(?:the )?last (?:time|week|month)|yesterday|before|previously|earlier|
  in (?:our|my|the) <last> <talk>)
(?:what|how) (?:was|were) (?:our|my|the) <last> <talk>(?: about)?
(?:summari[sz]e|recap|list|show|repeat|review|recall|tell|remind|give|what happened in|what was in)(?: <me>)?
  (?: a)?(?: summary| recap| list| overview)?(?: (?:of|about))?(?: all)?(?: of)? (?:(?:our|my|the|these) )?
  <last> <talk>
(?:summari[sz]e|recap|list|show|repeat|review)(?: <me>)? (?:all )?(?:of )?our (?:conversations|chats|sessions|
  talks|discussions|history|conversation history|chat history)
where did we (?:leave off|leave it|stop|end)
what happened (?:the )?last time
(?:do|can|don t) you (?:still )?(?:remember|recall) (?:our|my|the) <last> <talk>
have we (?:talked|spoken|chatted|met)(?: to each other)? before
# German
(?:woruber|uber was|wovon) (?:haben wir|hatten wir)(?: uns)? (?:<zuletzt> )*(?:gesprochen|geredet|unterhalten|
  gechattet|diskutiert)
was haben wir (?:<zuletzt> )*besprochen|was haben wir (?:<zuletzt> )+(?:gemacht|getan|gesagt)
fasse? (?:mir |uns )?(?:bitte )?(?:alle )?(?:unsere?|die|das) <letzten> (?:gesprache?|unterhaltung(?:en)?|
  chats?|sitzung(?:en)?) zusammen
worum ging es (?:<zuletzt>|in unserem <letzten> (?:gesprach|chat))
wo (?:waren|sind) wir (?:<zuletzt> )*(?:stehen geblieben|stehengeblieben)
# French
de quoi (?:avons nous|on a|a t on|nous avons|est ce qu on a|est ce que nous avons|on avait) (?:parle|discute)
(?:qu avons nous|qu est ce qu on a) (?:fait|dit) la derniere fois
resum(?:e|er|ez)(?: (?:moi|nous))? (?:nos (?:dernieres |precedentes |anciennes )?(?:conversations|discussions|
  echanges)(?: (?:precedentes|precedents|passees|passes|anterieures))?|notre (?:derniere|precedente)
   (?:conversation|discussion)|notre conversation precedente)
# Spanish
de que (?:hablamos|hemos hablado|charlamos|conversamos|estuvimos hablando|estabamos hablando)
que hicimos la ultima vez
resum(?:e|eme|ir|a)(?: me)? (?:nuestras (?:ultimas |anteriores )?(?:conversaciones|charlas)(?: anteriores|
   pasadas| previas)?|nuestra (?:ultima|anterior) (?:conversacion|charla)|nuestra conversacion anterior)
# Italian
di (?:che cosa|che|cosa) (?:abbiamo (?:parlato|discusso)|parlavamo|stavamo parlando)
che cosa abbiamo fatto l ultima volta|cosa abbiamo fatto l ultima volta
riassum(?:i|imi|ere|a) (?:le nostre (?:ultime |precedenti )?(?:conversazioni|chat)(?: precedenti| passate)?|
  la nostra (?:ultima|precedente) (?:conversazione|chat)|la nostra conversazione precedente)
# Portuguese
(?:(?:sobre|de|do)(?: o)? que|sobre o que e que) (?:nos )?(?:falamos|conversamos|estavamos (?:a falar|falando))
(?:o )?que fizemos (?:da|na) ultima vez
resum(?:a|e|ir) (?:as nossas|nossas) (?:ultimas )?conversas(?: anteriores| passadas)?|resum(?:a|e|ir)
   (?:a nossa|nossa) (?:ultima conversa|conversa anterior)
# Dutch
waar(?:over)? hebben we (?:het |(?:de vorige keer|de laatste keer|gisteren|laatst|over) )*(?:gehad|gesproken|
  gepraat)
vat (?:al )?(?:onze|ons) (?:vorige|laatste|eerdere) (?:gesprek(?:ken)?|chats?) samen
# Chinese and Japanese
(?:\u6211\u4eec|\u6211\u5011)?(?:\u4e0a\u6b21|\u4e4b\u524d|\u4ee5\u524d|\u6628\u5929)?(?:\u6211\u4eec|
  \u6211\u5011)?(?:\u804a|\u8c08|\u8ac7|\u8bf4|\u8aaa|\u8ba8\u8bba|\u8a0e\u8ad6)(?:\u8fc7|\u904e|\u4e86|\u5230)?
  (?:\u4e9b)?(?:\u4ec0\u4e48|\u4ec0\u9ebc|\u54ea\u4e9b)
(?:\u8bf7|\u8acb)?(?:\u603b\u7ed3|\u7e3d\u7d50|\u6982\u62ec)(?:\u4e00\u4e0b)?(?:\u6211\u4eec|\u6211\u5011)?
  (?:\u4e4b\u524d|\u4ee5\u524d|\u8fc7\u53bb|\u904e\u53bb|\u4e0a\u6b21)\u7684?(?:\u5bf9\u8bdd|\u5c0d\u8a71|
  \u804a\u5929|\u8c08\u8bdd|\u8ac7\u8a71|\u4f1a\u8bdd|\u6703\u8a71)
(?:\u524d\u56de|\u3053\u306e\u524d|\u6628\u65e5|\u4ee5\u524d)(?:\u306f|\u306e\u4f1a\u8a71\u3067\u306f?)?
  (?:\u79c1\u305f\u3061\u306f)?\u4f55(?:\u3092|\u306b\u3064\u3044\u3066)(?:\u8a71\u3057|
  \u304a\u8a71\u3057\u3057)(?:\u307e\u3057\u305f\u304b|\u305f\u304b|\u305f\u306e|\u305f|
  \u3066\u3044\u307e\u3057\u305f\u304b)
(?:\u3053\u308c\u307e\u3067|\u4eca\u307e\u3067|\u4ee5\u524d|\u904e\u53bb|\u524d\u56de)\u306e(?:\u4f1a\u8a71|
  \u30c1\u30e3\u30c3\u30c8|\u3084\u308a\u3068\u308a|\u8a71)\u3092?(?:\u8981\u7d04|\u307e\u3068\u3081).{0,12}
"""
_RESUME: Final = """
# English
(?:let s |let us |lets |can we |shall we |could we |we can |we should |you can |time to |i (?:want|would like|d like)
   to )?(?:just )?(?:continue|carry on|keep going|proceed|resume|go on|move on|pick (?:it )?up|get back to work|
  get back to it|keep working)(?: working)?(?: (?:with|on|from))?(?: (?:it|this|that|there|the work|our work|work|
  the task|the project|our project|what we (?:did|started|were doing)))?(?: (?:from |at )?where (?:we|i|you)
   <stopped>)?
where (?:were|was|are) (?:we|i)(?: at)?|where (?:we|i) <stopped>|where did (?:we|i|you) (?:get to|leave off|stop)
how far (?:did|have|ve) (?:we|you|i) (?:get|got|gotten|come)
(?:what|what else|what all|which(?: <thing>)?)(?: exactly)? (?:did|have|ve|had) (?:you|we|i) (?:(?:already|just|last|
  actually|all) )?<did>(?: (?:me|us|to me|for me|for us|to do|about it|about that))?
what (?:you|we|i) <did>(?: (?:me|us))?
what (?:was|is|were) the (?:last|latest|next) <thing>(?: (?:that )?(?:you|we|i) (?:have |had )?(?:<did>|said|told me|
  asked|talked about|discussed|should do|need to do|have to do))?
(?:what|whats)(?: else)?(?: s| is| was| are| were)?(?: still)? (?:left|next|open|pending|remaining|missing|unfinished|
  outstanding|to do|to be done|(?:the|our|my) (?:plans?|status|agenda|next steps?|todos?|to dos?|tasks)|on (?:the|our|
  my) (?:list|agenda|to do list|todo list|plate|schedule)|coming up)(?: (?:to do|to be done|for (?:me|us)|for))?
what (?:do|did|must|will) (?:we|i) (?:(?:still|also|all) )?(?:(?:have|need|want|plan|intend) to )?(?:do|work on|
  start with|focus on)
what do you (?:(?:still|also) )?(?:have|need|want|plan|intend) to do
what (?:should|shall) (?:we|i|you) (?:(?:still|also) )?(?:do|work on|start with|focus on)
what (?:do|did) (?:we|i) have (?:planned|scheduled|coming up|to do|on|going on)?(?: for)?(?: <day>)?
what (?:was|were|am|are) (?:we|i|you) (?:about|going|supposed|planning|meant) to do
what (?:was|were) (?:we|i|you) (?:doing|working on)
what (?:are|were) (?:my|our) (?:plans|tasks|todos|to dos|next steps|appointments|reminders)(?: for)?
# German
(?:(?:lass|lasst) uns |wir machen |mach(?:e|en wir|t)? |konnen wir )?(?:bitte )?(?:da |dort )?(?:weiter|weitermachen|
  weiterarbeiten|fortfahren)(?: (?:mit|an) (?:der arbeit|dem projekt|der aufgabe))?(?: wo wir (?:<zuletzt> )*
  (?:aufgehort haben|aufgehort hatten|waren|stehen geblieben sind|stehengeblieben sind|stehen geblieben waren))?
wo (?:waren|sind) wir(?: (?:gerade|noch|<zuletzt>))*|wie weit (?:sind|waren|bist) (?:wir|du)(?: gekommen)?
was (?:hab|habe|haben|habt|hast|hatten?|hattest) (?:du|wir|ich) (?:(?:mir|uns|noch|heute|morgen|<zuletzt>) )*<gemacht>
(?:welche datei(?:en)?|was) (?:hast du|haben wir) (?:(?:<zuletzt>) )*geandert
was (?:steht|stand|liegt) (?:(?:noch|heute|morgen|diese woche|jetzt|als nachstes) )*an
was (?:ist|war|bleibt) (?:(?:noch|heute|morgen|jetzt|als nachstes) )*(?:zu tun|offen|ubrig|dran|der stand|der plan)
was (?:muss|mussen|soll|sollen|sollte|sollten|wollte|wollten) (?:ich|wir|du) (?:(?:noch|heute|morgen|jetzt|alles|
  diese woche|nachste woche|als nachstes) )*(?:machen|tun|erledigen)
wie geht(?: e)? ?s (?:jetzt )?weiter|was kommt (?:jetzt |als nachstes)|was machen wir (?:jetzt|als nachstes|heute)
# French
(?:on |peut on |nous )?(?:continue|continues|continuer|continuons|continuez|reprends|reprend|reprenons|reprendre|
  poursuivons)(?: la)?(?: ou (?:on|nous|l on) (?:en )?(?:etait|etions|s est arrete|s etait arrete|
  nous sommes arretes|nous etions arretes))?
on en (?:etait|est) ou|ou en (?:etions nous|etait on|est on|sommes nous|etait t on)
(?:qu (?:as tu|avons nous|a t on|avez vous)|qu est ce (?:que|qu) (?:tu as|on a|nous avons|vous avez|tu m as))
   (?:fait|change|decide|promis|recommande|propose|prevu|convenu)
(?:que|qu est ce que|qu est ce qu) (?:dois je|je dois|on doit|nous devons|devons nous|j ai a) faire
(?:que|qu est ce qu il) reste(?: t il)? a faire|quelle est la (?:suite|prochaine etape)
# Spanish
(?:continua|continuar|continuemos|sigue|sigamos|seguimos|retomemos|podemos seguir)(?: (?:desde )?donde (?:lo )?
  (?:dejamos|quedamos|estabamos|paramos))?
(?:donde|en que) (?:nos )?(?:quedamos|estabamos|ibamos)
que (?:hiciste|has hecho|hicimos|hemos hecho|decidimos|hemos decidido|acordamos|(?:me )?prometiste|(?:me )?
  recomendaste|cambiaste|has cambiado)
que (?:(?:me|nos) )?(?:tengo|tenemos|debo|debemos|hay|queda|falta)(?: (?:que|por|pendiente por))? hacer
que (?:queda|hay) pendiente|que sigue
# Italian
(?:continua|continuiamo|riprendiamo|prosegui|proseguiamo|andiamo avanti|vai avanti)(?: da)?(?: dove (?:eravamo|
  eravamo rimasti|ci siamo fermati|ci eravamo fermati|avevamo lasciato))?
(?:a che punto|dove) (?:eravamo|siamo)(?: rimasti| arrivati)?
(?:che cosa|cosa|che) (?:(?:mi )?hai|abbiamo) (?:fatto|deciso|cambiato|promesso|consigliato|proposto|concordato)
(?:che cosa|cosa|che) (?:devo|dobbiamo|resta da|rimane da|c e da|mi resta da) fare
# Portuguese
(?:continua|continue|continuemos|vamos continuar|retomemos|vamos retomar)(?: (?:de )?onde (?:paramos|ficamos|
  estavamos))?
onde (?:e que )?(?:nos )?(?:paramos|ficamos|estavamos)
(?:o )?que (?:e que )?(?:voce (?:fez|mudou|prometeu|recomendou)|fizeste|mudaste|prometeste|fizemos|decidimos|
  combinamos)
(?:o )?que (?:eu )?(?:tenho|temos|devo|devemos|falta|resta)(?: (?:que|de|para|a|por))? fazer
# Dutch
(?:laten we |we gaan |ga |kunnen we )?(?:verder|verdergaan|doorgaan)(?: (?:waar we (?:gebleven )?(?:waren|zijn|
  gestopt zijn|gebleven waren)))?
waar (?:waren|zijn) we(?: gebleven)?
wat (?:heb (?:je|ik)|hebben we) (?:(?:me|mij|al|gisteren|laatst|de vorige keer) )*(?:gedaan|veranderd|besloten|
  afgesproken|beloofd|aanbevolen|voorgesteld)
wat moet(?:en)? (?:ik|we) (?:(?:nog|vandaag|morgen|nu) )*doen|wat staat er (?:(?:nog|morgen) )*(?:open|te doen)
# Chinese and Japanese
(?:\u8bf7|\u8acb)?(?:\u6211\u4eec|\u6211\u5011)?(?:\u4ece|\u5f9e|\u63a5\u7740|\u63a5\u8457)?(?:\u4e0a\u6b21|
  \u6628\u5929|\u4e4b\u524d)?\u7684?(?:\u5730\u65b9)?(?:\u7ee7\u7eed|\u7e7c\u7e8c|\u63a5\u7740\u505a|
  \u63a5\u8457\u505a)(?:\u4e0a\u6b21|\u4e4b\u524d|\u524d\u9762)?\u7684?(?:\u5de5\u4f5c|\u4efb\u52a1|\u4efb\u52d9|
  \u5185\u5bb9|\u5167\u5bb9)?\u5427?
(?:\u6211\u4eec|\u6211\u5011)?(?:\u4e0a\u6b21)?(?:\u8bf4|\u8aaa|\u505a|\u8bb2|\u8b1b|\u8fdb\u884c|\u9032\u884c)
  \u5230(?:\u54ea\u91cc?|\u54ea\u513f|\u54ea\u88e1|\u54ea\u88cf|\u4ec0\u4e48\u5730\u65b9)\u4e86?
(?:\u524d\u56de|\u6628\u65e5|\u3053\u306e\u524d|\u5148\u65e5)?\u306e?\u7d9a\u304d(?:\u3092|\u304b\u3089)?
  (?:\u304a\u9858\u3044(?:\u3057\u307e\u3059)?|\u3084\u308a\u307e\u3057\u3087\u3046|\u3057\u307e\u3057\u3087\u3046|
  \u59cb\u3081\u307e\u3057\u3087\u3046|\u3084\u308d\u3046|\u3057\u3088\u3046|\u3057\u3066(?:\u304f\u3060\u3055\u3044)?)?
\u7d9a\u3051(?:\u3066(?:\u304f\u3060\u3055\u3044)?|\u307e\u3057\u3087\u3046)
(?:\u524d\u56de\u306f?)?\u3069\u3053\u307e\u3067(?:\u3084\u308a|\u8a71\u3057|\u9032\u307f)\u307e\u3057\u305f\u304b
"""
# Of how far something came that is named after it, or to go on with that.
_RESUMED: Final = """
# English
(?:let s |let us |let |lets |can we |shall we |could we |we can |we should |you can |i (?:want|would like|d like) to )?
  (?:continue|carry on|go on|proceed|resume|pick up|keep going)(?: working)?(?: where we <stopped>)? (?:with|on)
where (?:were|was|are|did) (?:we|i|you)(?: (?:get to|leave off|stop|leave it))? (?:with|on|regarding)
how far (?:are|did|have|ve) (?:we|you|i)(?: (?:get|got|gotten|come))? (?:with|on|in)
(?:what|whats)(?: s| is| was)?(?: still)? (?:left|next|open|pending|missing|outstanding)(?: to do)? (?:with|for|on)
(?:what|whats)(?: s| is| was)? the status (?:with|of|on)
# German
(?:lass uns |lasst uns |wir machen |mach(?:e|en wir|t)? |konnen wir )?(?:bitte )?(?:da |dort )?(?:weiter|weitermachen)
   (?:mit|bei|an)
wo (?:waren|sind) wir (?:(?:gerade|noch|<zuletzt>) )*(?:mit|bei)|wie weit (?:sind|waren|bist) (?:wir|du) (?:mit|bei)
# French
(?:on |peut on |nous )?(?:continue|continuer|continuons|continuez|reprends|reprend|reprenons|reprendre)(?: avec)
(?:on en (?:etait|est)|ou en (?:etions nous|etait on|est on|sommes nous)) (?:avec|de|du|pour)
# Spanish
(?:continua|continuar|continuemos|sigue|sigamos|seguimos) con
(?:donde|en que) (?:nos )?(?:quedamos|estabamos|ibamos) con
# Italian
(?:continua|continuiamo|riprendiamo|proseguiamo|andiamo avanti) con|(?:a che punto|dove) (?:eravamo|siamo)
  (?: rimasti| arrivati)? con
# Portuguese
(?:continua|continue|continuemos|vamos continuar) com|onde (?:e que )?(?:nos )?(?:paramos|ficamos|estavamos) com
# Dutch
(?:laten we |we gaan |ga |kunnen we )?(?:verder|verdergaan|doorgaan) met|waar (?:waren|zijn) we(?: gebleven)? met
"""
# What can be said before and after any of them.
_BEFORE: Final = (
    "hi|hey|hello|so|and|now|ok|okay|well|please|first|tell me|remind me|can you|could you|can you tell me|do you know|"
    "do you remember|"
    "hallo|und|also|bitte|sag mir|sag mal|kannst du|bonjour|et|alors|dis moi|s il te plait|peux tu|"
    "hola|y|dime|por favor|puedes|ciao|e|allora|per favore|puoi|ola|voce pode|podes|en|zeg|kun je"
)
_AFTER: Final = (
    "so far|until now|till now|up to now|by now|already|again|exactly|anyway|please|right now|then|"
    "(?:the )?last (?:time|week|month|year|night|monday|tuesday|wednesday|thursday|friday|saturday|sunday)|yesterday|"
    "today|tomorrow|this (?:morning|week)|next (?:week|month)|next|now|first|before|previously|"
    "earlier|recently|the other day|"
    "(?:in|during) (?:our|my|the) <last> <talk>|"
    "schon|bisher|noch|bitte|eigentlich|heute|morgen|zuletzt|letztes mal|beim letzten mal|gestern|"
    "jusqu ici|deja|aujourd hui|demain|hier|la derniere fois|avant|s il te plait|"
    "hasta ahora|ya|hoy|manana|ayer|la ultima vez|antes|por favor|"
    "finora|gia|oggi|domani|ieri|l ultima volta|prima|per favore|"
    "ate agora|hoje|amanha|ontem|da ultima vez|na ultima vez|"
    "tot nu toe|al|vandaag|gisteren|de vorige keer|de laatste keer"
)


@cache
def _patterns() -> dict[str, re.Pattern[str]]:
    texts = ((USER, _USER), (PAST, _PAST), (RESUME, _RESUME))
    return {name: _compile_shapes(text, f"(?: (?:{_AFTER})){{0,4}}") for name, text in texts}


@cache
def _resumed() -> re.Pattern[str]:
    return _compile_shapes(_RESUMED, " (.+)")


def _compile_shapes(text: str, ending: str) -> re.Pattern[str]:
    lines = text.replace("\n  ", "").strip().split("\n")
    shapes = "|".join(line for line in lines if not line.startswith("#"))
    shape = f"(?:(?:{_BEFORE}) ){{0,4}}(?:{shapes}){ending}"
    for group, words in _GROUPS.items():
        shape = shape.replace(f"<{group}>", f"(?:{words})")
    return re.compile(shape)


# Of a day or a time, in questions without any other word that says what they are about.
_TIME: Final = re.compile(
    r"(?<!\w)(?:yesterday|tomorrow|(?:last|next) (?:time|week|month|session)|so far|gestern|morgen|letztes mal|zuletzt|"
    r"(?:letzte|nachste) woche|hier|demain|la derniere fois|ayer|manana|la ultima vez|ieri|domani|l ultima volta|ontem|"
    r"amanha|da ultima vez|gisteren|de vorige keer)(?!\w)"
)
_EARLIER: Final = re.compile(
    r"(?<!\w)(?:yesterday|last (?:time|week|month|session)|gestern|letztes mal|letzte woche|hier|la derniere fois|ayer|"
    r"la ultima vez|ieri|l ultima volta|ontem|da ultima vez|gisteren|de vorige keer)(?!\w)|\u524d\u56de|\u4e0a\u6b21"
)


def asked_about(text: str) -> str:
    """Return `USER`, `PAST` or `RESUME` if that is all a text asks about, and else an empty string.

    >>> asked_about("What do you know about me?"), asked_about("What did we talk about last time?")
    ('user', 'past')
    >>> asked_about("Let's continue."), asked_about("What did we decide?"), asked_about("What did we decide last week?")
    ('resume', 'resume', 'past')
    >>> asked_about("What do you know about my mortgage?")
    ''
    """
    if len(text) > _CHARS_MAX:
        return ""
    plain = _plain(text)
    about = next((name for name, pattern in _patterns().items() if pattern.fullmatch(plain)), "")
    return PAST if about == RESUME and _EARLIER.search(plain) else about


def resumed_topic(text: str) -> str:
    """Return the topic that a text asks to go on with, or how far it came; empty if it asks neither.

    >>> resumed_topic("Where were we with Mia's room?"), resumed_topic("OK, continue with the tests.")
    ('Mia s room', 'the tests')
    >>> resumed_topic("Where were we?")
    ''
    """
    found = _resumed().fullmatch(_plain(text)) if len(text) <= _CHARS_MAX else None
    return " ".join(_WORD.findall(text)[-len(found[1].split()) :]) if found else ""


def names_time(text: str) -> bool:
    """Return whether a text names a day or a time before or after today, or what was done so far.

    >>> names_time("How did it go yesterday?"), names_time("How does it go?")
    (True, False)
    """
    return len(text) <= _CHARS_MAX and _TIME.search(_plain(text)) is not None


# A short question that begins so, or has such a word for what was spoken of, goes on with the one before it.
_FOLLOW_WORDS_MAX: Final = 6
_FOLLOWING: Final = re.compile(
    r"(?:and|but|or|what about|how about|und|aber|oder|was ist mit|wie ist es mit|et|mais|ou|y|e|o|pero|que hay de|"
    r"ma|mas|en|of|maar|hoe zit het met) .+"
)
_SPOKEN_OF: Final = re.compile(
    r"(?:.+ )?(?:it|its|they|them|their|he|she|him|her|this|that|these|those|there|then)(?: .+)?"
)
_GREETING: Final = re.compile(
    r"(?:(?:hi|hey|hello|and|so) )*(?:how (?:are|r) (?:you|u|things)|how (?:do|have) you (?:do|been)|how s it going|"
    r"how is it going|how s everything|what s up|whats up|who are you|are you there)(?: .+)?"
)
_UNSPACED_END: Final = re.compile(r".{1,8}[\u5462][?\uff1f]?", re.DOTALL)


def goes_on(text: str, subject_count: int) -> bool:
    """Return whether a question goes on with the one before it, given how many of its words say what it is about.

    >>> goes_on("And the other one?", 0), goes_on("And on Sunday?", 1), goes_on("How long did it take on prod?", 1)
    (True, True, True)
    >>> goes_on("Where is the harbour?", 1), goes_on("And where did we moor the boat in the last summer?", 4)
    (False, False)
    """
    if len(text) > _CHARS_MAX:
        return False
    plain = _plain(text)
    if not subject_count:
        return _GREETING.fullmatch(plain) is None
    if len(plain.split()) > _FOLLOW_WORDS_MAX + (subject_count == 1):
        return False
    is_about_one = subject_count == 1 and _SPOKEN_OF.fullmatch(plain) is not None
    return is_about_one or _FOLLOWING.fullmatch(plain) is not None or _UNSPACED_END.fullmatch(text.strip()) is not None


# Questions of everyday talk that nothing that was said answers: of the model itself, of what it just did, of now.
_IDLE_WORDS_MAX: Final = 6
_ADDRESSING: Final = frozenset(("you", "your", "yours", "yourself", "u"))
_PERSONS: Final = frozenset(
    ("i", "my", "mine", "we", "our", "us", "he", "his", "him", "she", "her", "they", "their", "them")
)
_INNER_QUESTION: Final = re.compile(r".+ (?:who|whom|whose|what|when|where|which|why|how)(?: .+)?")
_FILLERS: Final = re.compile(r"(?:(?:and|so|but|or|oh|ok|okay|well|hey|hi|hello|yeah|yes|no|now|thanks|then) )+")
_IDLE: Final = re.compile(
    r"(?:tell|show) me more(?: about (?:it|this|that))?|go on|"
    r"(?:what|whats|how|hows)(?: s| is)? (?:up|it going|life|everything|things)(?: (?:going|today|now))?|"
    r"(?:oh |and |so )*(?:really|seriously|right|what|why|how|so|and|ok|okay|yes|no|huh|why not|how so|how come|"
    r"so what|anything else|what else|what now)|"
    r"(?:what|how) (?:an?|nice|cool|funny|sweet|great|lovely|wonderful|interesting)(?: .+)?|"
    r"is (?:that|this|it) (?:so|ok|okay|right|true|good|all|it|possible|enough|better|done|ready|working)(?: now)?|"
    r"(?:(?:how|why|what|when) )?(?:do|does|did|will|is|can|could|would|doesn t|didn t|isn t|won t)(?: not)? "
    r"(?:it|this|that)(?: not)? (?:work|working|mean|help|make sense|matter|look|sound|happen)(?: .{1,12})?|"
    r"(?:do|should|shall|can|could|must) (?:i|we) (?:(?:really|still) )?(?:need|want|use|do|try|keep|take|have) "
    r"(?:it|this|that|these|those)(?: now)?|"
    r"(?:shall|should|can) we (?:go|start|begin|stop|eat|leave|do)(?: .{1,12})?|"
    r"what time is it(?: now)?|what day is (?:it|today)|what (?:happened|is (?:it|this|that|going on|happening|wrong))"
)


def is_idle(text: str) -> bool:
    """Return whether a question of everyday talk is one that nothing that was said answers.

    >>> is_idle("How was your day?"), is_idle("Why doesn't it work?")
    (True, True)
    >>> is_idle("When does it start?"), is_idle("Do you know who is on call?")
    (False, False)
    """
    if len(text) > _CHARS_MAX:
        return False
    plain = _plain(text)
    rest = _FILLERS.sub("", plain, count=1) if _FILLERS.match(plain) else plain
    words = frozenset(rest.split())
    is_of_model = bool(words & _ADDRESSING) and not words & _PERSONS and len(rest.split()) <= _IDLE_WORDS_MAX
    is_plain = _INNER_QUESTION.fullmatch(rest) is None
    return (is_of_model and is_plain) or any(map(_IDLE.fullmatch, (plain, rest)))


def _plain(text: str) -> str:
    return " ".join(_WORD.findall(without_accents(text.lower().replace("\xdf", "ss"))))
