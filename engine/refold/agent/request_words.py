"""The words of requests to the memory in English, Chinese and Japanese, and the patterns made of them. Pure.

Every repeat is bounded, and no two of them can share the same words.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

from refold.agent.vocabulary import fill, read_tables

_WORDS: Final = read_tables(r"""
# What a request is about, and what can follow it.
rest = [ ,]{0,3}(?P<what>\S[\s\S]{1,600})
topic = (?P<what>[^.!?,;:\n]{2,80})
short = (?P<what>[^.!?,;:\n]{2,60}?)
that =  that\b(?! (?:when(?:ever)?|every time|for|next time|because|from now on|going forward|in future)\b)| ?:
end = (?= {0,2}(?:\Z|[.!?,;:)(\u2013\u2014-]|please|pls|thanks))
stop = (?= {0,3}(?:\Z|[.!,;)]|(?:for|in|when|whenever|from|next|this time|so|please|pls|ok|okay|haha|too|as well|until|
    till|because|since|if|and)\b))

# The memory, and when to use it.
memory = (?:your |the |my |our |long[- ]term ){0,2}(?:memory|memories|notes|notebook|records|profile|knowledge base)
to memory =  (?:to|in|into|on) <memory>
later = (?>(?:,? (?:for (?:me|us|later|next time|(?:the |all )?(?:our )?future(?: [a-z]{3,12})?)|for (?:all our|
    the rest of|whenever)<words>|in (?:the )?future|from now on|going forward|at all times|always|when
    (?:ever)? (?:you|we|i)<words>|(?:this|next) time|too|as well)){0,3})
words = (?>(?: (?!that\b)[a-z']{1,20}){1,5})

# To remember.
it = this|that|it|these|those|all (?:of )?(?:this|that)|the following|(?:this|that|the) (?:one|fact|detail|rule|info|
    information|bit|part|date|for me)|(?:his|her|their|its) (?:names?|birthdays?|address(?:es)?|numbers?)
remember = rem+e?m?ber(?:ed)?|rmbr|memori[sz]e|(?:keep|bear|have|hold) in mind|(?:do not|don'?t|never) (?:ever )?forget|
    (?:hold|hang) on ?to|take into account|commit to memory|retain
note = (?:keep track(?: of)?|note|jot|write|save|store|log|record|register|add|put|file|lock|remind yourself|update)
    (?: down| away| in)?
make a note = (?:make|take|keep|add|leave)(?: yourself)? (?:a |an |another )?(?:quick |mental |little |short )?
    (?:note|record|memo|reminder)
me = i|we|my|our|i'm|im|we're|i've|i'll

# To forget, and what.
delete = forget|un-?remember|unlearn|erase|delete|remove|wipe(?: out)?|clear(?: out)?|purge|drop|scratch|scrap|discard|
    get rid of|throw (?:away|out)|chuck(?: out)?|bin|dump|scrub|ditch|lose|expunge|stop (?:remembering|storing|saving|
    keeping)
drop = <delete>|strike|take|get|cross|clean(?: up| out)?|blank out|kill|have|let go of|dismiss|losing|
    the (?:deletion|removal|erasure) of|no longer (?:remember|keep|store|save)
known = you(?:'ve| have| had| still| might| may| ever| all| got| currently){0,4} (?:know|knew|remember(?:ed)?|stored?|
    saved?|kept|keep|hold|retain|noted|learn(?:ed|t)|have|got|memori[sz]ed|written|recorded|collected)(?: down)?|
    (?:i|we)(?:'ve| have| had)?(?: ever| just| once| already)? (?:said|mentioned|told you|wrote|shared|gave you|
    given you|asked you to (?:remember|save|note|keep))(?: (?:before|earlier|yesterday|last [a-z]{1,12}))?
noted = memor(?:y|ies)|notes?|facts?|entry|entries|info|information|details|data|records?|thing|stuff|bit|part
saved = saved|stored|remembered|recorded|memori[sz]ed
about = about|of|on|regarding|concerning|around|related to

# Not to remember.
not = do not|don'?t|dnt|never|not to|please not|(?:you )?(?:should|must)(?:n'?t| not)|you (?:do not|don'?t) (?:have|
    need) to|(?:there'?s |there is )?no need to|skip|avoid|refrain from|didn'?t|did not|(?:i|i'd) (?:do not|don'?t|
    rather not|would not|wouldn'?t) (?:want|like|have)(?: you to)?|without
keep = (?:remember(?:ing)?|memori[sz](?:e|ing)|sav(?:e|ing)|stor(?:e|ing)|record(?:ing)?|keep(?:ing)?|log(?:ging)?|put|
    not(?:e|ing)|add(?:ing)?|write|retain|learn|file|archive)(?: down)?
kept = remembered?|saved?|stored?|kept|keep|recorded?|memori[sz]ed?|logged|retained|written down|noted
said = what(?:ever)? (?:i'?m|i am|i'?ll|i|i'?ve|i just|we) (?:about to |going to |just |now )?(?:writ|say|tell|said|
    told|wrote|discuss|shar|ask|paste)[a-z]{0,8}(?: you)?(?: now| here| next| below| today)?
message = (?:any(?:thing)? (?:of|from|in) |anything about )?(?:this|the next|the last|my last|my next|the following|
    that last|our|the|these) (?:[a-z]{1,20} )?(?:messages?|chat|conversation|question|part|bit|one|sentence|paragraph|
    text|exchange|thread|session|stuff|prompt|details|data)
this = (?:this|that|it|these|any of (?:this|it|that)|anything (?:of|from) this|the following|what follows|
    everything below|the rest of this)(?: one| part| bit| down)?
us = us|you and me|the two of us

# Chinese and Japanese.
zh save = 牢记|牢記|记住|記住|记下来?|記下來?|记一下|記一下|记着|記著|记好|記好|记牢|记录下来|存下来|记录一下|記錄一下
zh erase = 删掉|刪掉|删了|刪了|删除|刪除|清除|清空|清掉|移除|去掉|抹掉|抹除|忘掉|忘记|忘記|忘了|擦掉|消掉|拿掉|作废|
    作廢|撤销|撤銷|删干净|删|刪
zh about = 关于|關於|有关
zh it = 这个|這個|这点|這點|这条|這條|这些|這些|这件事|這件事|它|他的名字|她的名字
zh this = 这|這|以下|下面|接下来|接下來|刚才
zh write = 记|記|存|保存|写|寫|留|放
zh memory = 记忆|記憶|记录|記錄|备忘录|備忘錄|笔记|筆記|资料库|脑子|腦子|档案|资料
ja please = (?>(?:いただけませんか|くださいませんか|いただけますか|ほしいのですが|ほしいんだけど|ほしいんですが|
    もらえませんか|お願いします|かまいません|くれませんか|もらえますか|くださいね|くれますか|ちょうだい|ほしいです|
    欲しいです|いいです|ください|くださる|くれない|もらえる|いいよ|お願い|くれる|ほしい|下さい|欲しい|くれ|頂戴|頼む|〜|
    な|ね|よ|ー|～){0,4})
ja keep = 覚えて(?:おいて|おけ|おくように|といて|)|覚えとい[てで]|おぼえて(?:おいて|といて|)|記憶して(?:おいて|)|
    メモして(?:おいて|)|メモっといて|メモしとい[てで]|記録して(?:おいて|)|保存して(?:おいて|)|頭に入れて(?:おいて|)|
    心に留めて(?:おいて|)|控えて(?:おいて)|把握して(?:おいて|)|記憶に刻んで|刻んで(?:おいて)|忘れないで(?:いて|)|
    忘れない(?:ように(?:して)?)
ja memory = メモリー?|記憶|覚えている内容|保存データ|データ|記録|メモ
ja erase = 忘れて|消して|削除して|消しとい[てで]|消去して|クリアして|取り消して|取り除いて|捨てちゃって|削って|落として|
    抹消(?:を|して)|消去願|削除願|削除を|消去を|削除お願い|消去お願い|なかったことにして|リセットして|捨てて|外して|
    破棄して|忘れてやって|消してほしい|消してくれ

# Around a request: what introduces it, what makes it polite, what begins another clause, and what ends a sentence.
lead = (?:(?:hey|hi|hello|hallo|ok|okay|so|well|and|but|also|then|oh|ah|hm+|btw|by the way|fyi|thanks|thank you|thx|
    great|perfect|yes|yeah|no(?=[,.!])|sure|ha(?:ha)+|lol|sorry|alright|right|now|anyway|again|first|finally|listen|
    look|one (?:more|last|quick) thing(?! to)|quick (?:thing|note|one|question|favou?r)|no worries|remind me|
    just so you know(?: for (?:next time|later))?|for (?:next time|later|the future)|(?:just )?for the record|important|
    (?:i'?m|im) (?:just )?(?:curious|wondering)|i wonder|just (?:curious|checking)|out of curiosity|
    if (?:possible|you can)|note to self(?: via you)?|new (?:job|project|year|plan)s?)(?: ?[,.!:;–—] {0,2}| - | )|
    (?:quick (?:thing|note|one|question)|(?:while|when) you'?re at it|before (?:we|i|you)|since|because|as|if|when|
    while|after)\b[^,.:!?\n]{0,60}[,:] {0,2}){1,6}
ask = (?:(?:please|pls|plz|kindly|just|also|do(?= (?:please|remember|keep|make|note|forget)\b)|really|always
    (?= (?:remember|keep|bear))|better|maybe|(?:can|could|would|will|can't|couldn't|won't) (?:you|u|we|
    i (?:ask|get) you to)(?: please| maybe| also| just| mind)?|you (?:can|may|should|could|must|need to|have to|
    might want to|had better)(?: now| please| also| just)?|(?:i|we|i'd|we'd|id)(?: would)?
    (?: really| also| just)? (?:want|need|like|love|prefer|ask|appreciate)(?: for)? (?:you to|it if you
    (?: could| would)?|if you(?: could| would)?)|(?:it would|it'd|would) (?:help|be (?:nice|great|good|cool|helpful|
    lovely|best|possible for you to))(?: a lot| me)?(?: if you(?: could| would)?)?|make sure (?:to|that you|you)|
    be sure to|try to|feel free to|go ahead and|let'?s|is it possible to|i'd rather you|you'?re allowed to|
    would you mind|mind if you)[ ,]{1,3}){1,4}
clause = (?:[,;(–—]| -) {0,2}(?=(?:so|and|but|then|please|pls|plz|just|can you|could you|you should|you need|for future|
    from now)\b)| (?=(?:so|and|but) (?:please |pls |just |can you |could you |also |do )?(?:remember|forget|keep|don'?t|
    delete|erase|remove|note|save|make)\b)|\((?=do|please|pls|off|not|no\b)
sentence end = (?-i:(?<=[.!?])\s+|(?<=[。！？])\s*|(?<!\n)\n\s*|(?<=[)])\s(?=[A-Z])|(?<=\w)\s(?=[:;]-?[)D]))
# Before a question mark, they make a request of a statement.
tag = [,.!;，。]\s{0,9}(?:ok(?:ay)?|k|all\s?right|yeah|please|pls|(?:will|would|can|could)\s{1,9}you
    (?: (?:do that|please|manage that))?|is that (?:ok|possible|okay)|got it|deal|(?:好|行|可以)[吗嗎])
thanks = (?:[:;]-?[)D(P]|<3|[\U0001f300-\U0001faff]|\b(?:haha|hehe|lol|thx|thanks|thank you|please|pls|ok|okay)|好吗|
    好嗎|好不好|行吗|可以吗|谢谢|謝謝)
quoted = "[^"\n]{1,400}"|“[^”\n]{1,400}”|„[^“”\n]{1,400}[“”]|`[^`\n]{1,400}`|(?<!\w)'[^'\n]{2,400}'(?!\w)|
    [「『《][^」』》\n]{1,400}[」』》]
# Why the memory should forget something is no part of it.
reason = ,? (?:is|are|was|were|should|must|can|that'?s|which is|it'?s)(?:n't| not| now| no longer| all){0,2} (?:wrong|
    outdated|old|false|not true|true|correct|go|be gone|nonsense|incorrect|over|history|needed|relevant)\b.{0,60}\Z|
    (?<=\w) (?:any ?more|any longer|now|again|please|pls|too|as well|completely|altogether|for good|right away)\Z
deletion = \b(?:forget|delete|erase|remove|wipe|clear|purge|drop|get rid|scratch|any ?more|any longer)\b
# What a question is about, and what is no part of that in Chinese.
topic word = \b(?:about|on|regarding|concerning|of|for|from) {1,2}(?P<what>(?!(?:yours?|me to|you|that memory|
    everything|all|what)\b)[^.!?,;:\n]{2,80})
zh talk = 关于|關於|什么|什麼|哪些|(?:有没有|有沒有)|[你我]?(?:之前|以前|上次|还|還|都)?(?:让你|跟你|叫你|請你|请你)?
    (?:记得|記得|记住|記住|记了|記了|记的|記的|记着|保存的?|存的?|知道|說過|说过)的?|列出|告诉我|告訴我|看看|查一下|
    查查|你的?(?:记忆|記憶)[里裡中]|是什么|来着|吗|嗎|呢|所有|全部|的(?:信息|情况|事情|内容|內容)|请|請|你|都|？|\?|
    ^[，,\s]+

# Statements after "remember" without "that": what I or we, or something of ours, is or does. Stories and questions
# start differently: "remember the time we", "remember I told you", "remember my name".
stated = remember[\s,]+(?:(?:i|we)(?:['’](?:m|re|ll|d\s+(?:like|prefer|rather))|\s+(?:(?:always|never|usually|only|also|
    still|now|just|really)\s+){0,2}<our verb>)|(?:my|our|the)\s+(?:(?:(?:and|of|for|in|on|at|to|from|with|by)\s+
    (?:my|our|your|the|an?)|(?!<moment>)<noun>)\s+){0,6}<noun>(?:\s+and\s+i)?\s+<verb>)\s+\w
our verb = (?:am|are|have(?!\s+(?:been|told|said|asked|mentioned|shown|given|seen|done|met|had)\b)|was\s+born|own|like|
    love|hate|prefer|want|need|use|live|work|eat|drink|speak|meet|run|build|test|write|keep|store|host|support|release|
    ship|deploy|follow|can|cannot|must|should|will|do\s+not|would\s+(?:like|prefer|rather)|(?:are|do|ca|wo|should|must)
    n['’]t)\b
verb =
(?:is|are|was|were|has|have|cannot|should|always|never|(?:do|does)\s+not|(?:is|are|was|were|do|does|ca|wo|should|must|
    has|have)n['’]t)\b
(?:can|must|will)\b(?!\s+(?:of|for|in|on|at|by|with|to)\b)
(?:needs?|uses?|prefers|likes|loves|hates|wants|lives|works|runs|starts|ends|opens|closes|costs|expires)\b
    (?!\s+(?:of|for)\b)
noun = (?!(?:i|you|he|she|it|we|they|me|us|him|her|them|my|your|his|our|their|its|the|an?|th(?:is|at|ese|ose)|who|whom|
    whose|which|what|when|where|why|how|if)\b)[\w'’-]+
# "The meeting time is" is a statement; "the first time Anna was" starts a story.
moment = (?:time|moment|occasion|day|night|morning|evening|afternoon|week|weekend|month|summer|winter|year)s?\b

# Phrases at the beginning of a message.
polite = (?:(?:please|pls|kindly|hey|hi|hello|ok(?:ay)?|also|from\s+now\s+on|going\s+forward|(?:remember\s+to|
    make\s+sure\s+(?:to|you))(?=\s+(?:always|never)\b)|(?:can|could|would|will)\s+you|i\s+(?:want|need|would\s+like)
    \s+you\s+to|i['’]d\s+like\s+you\s+to)[\s,!]+)+
phrase end = (?=[\s:：,，、.?!。？！．｡]|$)
that phrase = \s+that<phrase end>|\s*[:：]
forget statement = (?:forget|stop\s+remembering)\s+that<phrase end>
forget subject = (?:forget\s+about|stop\s+remembering|(?:delete|remove)\s+(?:the\s+)?memor(?:y|ies)\s+about)<phrase end>
# "Forget my last message" and the like mean what was just said.
forget own = forget\s++(?=(?:my|our)\s++(?!(?:last|latest|previous|earlier|first|other|old\s+(?:question|message)|own|
    little|whole|silly|stupid)\b)(?![^\n]{0,120}\b(?:questions?|requests?|messages?|words?|ideas?|suggestions?|
    comments?|remarks?|mistakes?|points?|prompts?|answers?|attempts?|rambling|joke|rant)\s*\Z))
recall preferences = (?:what\s+are|list|show(?:\s+me)?)\s+my\s+preferences<phrase end>
# "What do you know about" is not here: it more often asks the model about the world than about the user.
recall = (?:what\s+do\s+you\s+remember(?:\s+about)?|show\s+me\s+what\s+you\s+remember|list\s+my\s+memories|
    what\s+memories\s+do\s+you\s+have)<phrase end>
recall question = do\s+you\s+remember<phrase end>
remember phrase = (?:remember|keep\s+in\s+mind|don['’]t\s+forget)<that phrase>|remember\s+this\s*[:：]
note phrase = note<that phrase>
rule = (?:always(?:\s+use)?|never(?:\s+(?:do|use))?)<phrase end>
# Continuations of "always" or "never" in talk about oneself: a rule continues with a verb in the imperative.
no rule =
(?!(?:bring|ping|string|swing|sing|ring|cling|feed|need|seed|speed|embed|proceed|exceed|shed)\b)(?:[a-z]+(?:ing|ed)|
    gonna|wanna|gotta|(?:have|do|does)(?:n['’]t)?\s+(?:i|you|he|she|we|they)|would|could|should|might|may|will|shall|
    can|cannot|before|not|to|that|what|when|late|early|busy|alone|a|an|the|in|on|by|at|with|for|from|so|too|this|that|
    here|there|mind|again|ever|once|such|i|you|he|she|it|we|they|am|is|are|was|were|been|had|has|got|did|done|gone|seen|
    heard|thought|knew|known|felt|said|told|met|found|made|took|taken|went|came|saw|gave|read\s+it|easy|hard|good|great|
    nice|fun|happy|glad|sad|ready|sure|welcome|worth|important|interesting|amazing|better|best|worse|more|less|enough|
    one|my|your|our|his|her|their|quite|really|very|pretty|just|nobody|anything|nothing)\b
\W
# What "always use" or "never do" speaks of, if it says nothing without the messages before it, or is no object.
no object = (?:it|them|this|that|these|those|one|anything|nothing)(?=\s*(?:\Z|[.,;:!?]|(?:again|any\s?more|either|too|
    anyway|now|then|here|there)\b))|(?:i|you|he|she|we|they|to)\b|\W*\Z
laugh = (?:\b(?:(?:ha|he){2,}h?|lol|lmao|rofl)|[:;]-?[)D]|[\U0001f600-\U0001f606\U0001f923])\s*\Z
# What is left of "what do you remember about me" and the like asks for everything.
oneself =
(?:(?:about|of|me|my|us|our|myself|ourselves|mine|all|anything|everything|so|far|already|now)\b[\s,]*)+
<zh about>?我[们們]?(?:自己)?的?(?:什么|什麼|哪些)?(?:事情?|一切|信息|資訊)?[吗嗎呢]?
(?:私|僕|俺|自分|わたし|ぼく|我々)(?:たち|達|ら|自身)?[のは]?

# After "forget that", a statement begins with a word that cannot follow a demonstrative, or has a verb soon after its
# first noun. "That plan", "that question I asked" and "that, let us go on" mean what was just said.
statement =
["'“‘(]*+(?:<subject>|<ending s>\s+<bare verb>|(?!<break>)<term>\s+(?:(?!<break>)<term>\s+){0,3}?(?:<verb>|<ending s>|
    <modal>|<past>)|<name>(?:,?\s+(?:and\s+|of\s+)?<name>){0,3}\s+(?:<verb>|<modal>|<bare verb>|[a-z]+ed\b)|
    [\u3041-\u30ff\u3400-\u9fff\uac00-\ud7af])
subject = (?:i|you|he|she|it|we|they|my|your|his|her|our|their|the|an?|this|these|those|there|all|any|both|each|every|
    everyone|everybody|nobody|no|some|most|many|always|never)(?:['’][a-z]+)?\s+\w
bare verb = (?:am|go|like|love|hate|prefer|need|want|use|live|work|eat|drink|speak|run|have|do|make|take|cost|start|end|
    get|ran|went|got|had|did|made|took|bought|sold|said|told|wrote|left|won|lost|met|saw|came|became|knew|ate|drank)\b
break = (?:i|you|he|she|it|we|they|who|which|that|because|since|as|if|when|where|and|or|but|for|of|from|with|about|in|
    on|at|to|please|now)\b
ending s = [a-z]+(?<![siu'’])s\b
past = (?:became|bought|called|changed|drove|got|had|joined|left|lived|lost|made|married|met|moved|owned|quit|ran|sold|
    started|stopped|studied|took|used|wanted|went|won|worked|wrote)\b
modal = (?:may|might|could|would|shall)\b
# A word, or a name such as node.js, C++ or AT&T.
term = [\w'’.+#&/`*-]+
name = (?-i:[A-Z])[\w'’.&-]*
# "Forget that I asked" means what was just said, too.
just said = (?:(?:i|we|you)(?:['’]ve|\s+have|\s+had)?\s+(?:just\s+|ever\s+|even\s+)*(?:asked|said|mentioned|wrote|
    suggested|told\s+(?:you|me)|brought\s+(?:it|that|this)\s+up)(?:\s+(?:it|that|this|so|you|me|anything|something|
    before|earlier))*|(?:(?:all|any)\s+(?:of\s+)?)?(?:it|this|that)\s+(?:(?:just|ever|even)\s+)*happened)\Z
demonstrative = (?:that|this|it|them|those|these)\b(?!\s+(?:is|are|was|were)\b)|[那這这]|刚才|剛才|上面|[こそあ]
    (?:の|れ|う|\Z)|今の|さっき
# "The matter of", after what is to be forgotten in Chinese, and "this" or "its name" where a statement should be.
zh matter = 的(?:事情?|信息|資訊|记忆|記憶)|[这這]件事情?
this alone = [こそあ](?:れ|の.{0,3})|[这這那].{0,3}|它|.{0,2}名字

# A request not to remember the message that it is in. "Don't remember that one", "don't save that file" and "don't save
# this: it breaks the build" are none. "(I) don't remember that" answers a question of the model.
do not = (?:do\s+not|don['’]?t|never)\s+
mine = (?:i|we|my|our)\b
any this = (?:any\s+of\s+)?this
any that = (?:any\s+of\s+)?(?:this|that|it)
withhold first =
<do not>(?:remember|memori[sz]e|save|store|record|keep|note|write\s+down)\s+(?:(?:<any that>|the\s+following)\s*
    (?:[:：](?!\s*it\s+(?!is\b|was\b))|\s[-–—]\s)|that\s+(?=\S)|<any this>(?:[.!]\s+(?=<mine>)|,?\s+but\s+(?=<mine>)))
<do not>(?:remember|memori[sz]e)\s+<any this>[.!]\s
(?:this\s+is\s+|strictly\s+|just\s+)?(?:off\s+the\s+record)\s*(?:[,:;–—-]|but\b)
# "I read it, but don't remember it" says that I do not.
clause break = (?:\A|[.!?,;(–—-]\s{0,3}|\s(?:but|and|so)\s)
withhold last =
<clause break>(?:(?:but|and|so)[\s,]{1,3})?(?:please|pls)[\s,]{1,3}<do not>(?:remember|memori[sz]e)\s+<any that>
[.!?,;(–—-]\s{0,3}<do not>(?:remember|memori[sz]e)\s+(?:that|any\s+of\s+(?:that|it))
<clause break>(?:(?:but|and|so|please|pls)[\s,]{1,3}){0,2}(?:<do not>(?:(?:remember|memori[sz]e)\s+<any this>|
    (?:save|store|record|keep|note|put|write)\s+<any that>\s+(?:down\s+)?(?:in(?:to)?|to)\s+(?:your\s+|the\s+)?memory)|
    (?:(?:this|that|it)(?:['’]s|\s+is)|(?:keep|leave)\s+(?:this|that|it))\s+off\s+the\s+record)
# After a statement about oneself. "Edit the file, but don't save it" is none.
unsaved last = [.!?,;(–—-]\s{0,3}(?:(?:but|and|so|please|pls)[\s,]{1,3}){0,2}<do not>(?:save|store|record|note|
    write\s+down)\s+(?:any\s+of\s+)?(?:this|that)
""")
# Where a request begins.
_AT_START: Final = read_tables(r"""
remember =
<remember><later><that><rest>
(?:<remember>|(?:keep|bear|have|hold) <it> in mind)<later>(?: <it>)?<to memory>?<later> ?:<rest>
<note>(?: <it>)?(?: down)?<to memory><later><that><rest>
<make a note><later>(?: that\b| ?:)<rest>
(?:add|put|append|commit) (?:(?:this|it|the following) )?(?:to|in|into|on) (?:what you (?:know|have)[a-z ]{0,14}|file|
    record|your list|the record)<later>(?: please)? ?[:,]<rest>
commit <it> to memory(?: please)? ?[:,]<rest>
(?:make|consider) (?:it|this|that) (?:a|our|my|the)(?: [a-z]{1,20})? rule(?: that\b| ?[:,])<rest>
(?:save|store|note|record|remember|add) the fact that\b<rest>
let it be known(?: [a-z]{3,12}){0,2} that\b<rest>
(?:<memory> update|update <memory>|new (?:fact|rule|preference)s?(?: for (?:you|your [a-z]{1,20}))?) ?[:,]<rest>
for (?:your|future|later|the) (?:reference|record|records|information|info|notes|memory) ?[:,]<rest>
(?:know|be aware)(?:,? for(?: (?!that\b)[a-z']{1,20}){1,5}| from now on| going forward),? that\b<rest>
# What notes and files can hold, too: only of what the user says of themselves.
remember own = <note><later>(?:(?: <it>)?(?: down)?<later> ?:|(?<!note) that (?=<me>\b))<rest>
# "Can you remember, my dog is called Rex?"
remember asked = <remember> ?, <rest>
# "My dog is called Rex. Remember that.", and what could mean a file: "write that down".
backward =
(?:<remember> <it>|(?:keep|bear|have|hold) <it> in mind|know <it>(?= (?:for next time|tomorrow|next time|
    in (?:the )?future|from now on))|get <it> into your head|(?:hold|hang)(?:ing)? on ?to <it>|<make a note> of <it>)
    <to memory>?<later><stop>
(?:this|that) (?:goes|applies|holds|counts) (?:for|to|from) (?:every|all|any|our|future|now)\b
backward own = <note> <it>(?: down)?<to memory>?<later><stop>
# "One more thing to remember: my dog is called Rex."
forward = (?:ok |so |here'?s |there'?s |here is ){0,2}(?:one|another|some|two|three|a few|a|something)
    (?: more| other| last)? ?(?:things?|facts?|rules?|details?)? (?:to (?:remember|keep in mind|note|save)|
    for (?:your|the) (?:memory|notes))(?: (?:about|for) [^.:!?\n]{1,60})? ?(?:[.:!]|\Z)
# A rule: "from now on, answer in French", "whenever I ask, ...", "stop calling me sir from now on".
standing =
(?:from (?:now|today|here|this point|tomorrow) on(?:wards?)?|going forward|in (?:the )?future(?=[,:]| (?:please|always|
    never|don'?t|do not|only)\b)|henceforth|starting (?:now|today)|from today|as of (?:now|today))[,:]? {1,3}
    (?:please |pls |can you |could you |i want you to |i'd like you to |you should )?(?:(?!(?:i|it|he|she|they|we|there|
    the|my|our|is|are|will|was|what|how|when|who|why|if|this|that|ai|never mind)\b)|(?:i|we)(?: would|'d)? (?:want|need|
    prefer|like|expect|use) )\S
(?:whenever|every ?time|when|if) (?:i|we|you) [^.!?\n]{1,80}?(?:\b(?:from (?:now|today) on|in (?:the )?future|
    going forward),? ?|, always )\S
(?:whenever|every ?time|each time) (?:i|we) [^.!?,\n]{1,80}, ?(?:please|always|never|just|don'?t|do not|
    you (?:should|must)) \S
(?!(?:i|it|he|she|they|we|there|this|that|everything)\b)[a-z]{1,20} (?!(?:is|are|was|will|gets?)\b)
    [^.!?\n]{1,120}? (?:from (?:now|today) on|going forward)(?= {0,3}(?:\Z|[.!,;]|please|ok))
(?:stop|don'?t|do not|never|please no more|quit) (?:ever )?(?=(?:suggest|recommend|us|call|ask|writ|giv|send|say|
    mention|offer|propos|show|answer|repl|add|put|start|end|explain|switch|mak|translat|refer|includ|tell|talk|address|
    sign|format))(?![^.!?\n]{0,80}\b(?:that|this|it|them|these|those) (?:ever )?(?:again|any ?more)\b)[^.!?\n]{2,80}?\b
    (?:again|any ?more|in (?:the )?future|from now on)(?= {0,3}(?:\Z|[.!,;]))

# To forget.
# "Forget the fact that I smoke"
forget fact =
<delete>(?: about)?(?: (?:that|the) (?:fact|note|memory|bit|part|entry|info) (?:that|about|where)| that) {1,3}
    (?P<what>(?:<me>|me)\b[^.!?\n]{2,160})
<delete>(?: about)? the fact that {1,3}(?P<what>[^.!?\n]{2,160})
# "Delete all you know about my job", "you no longer need to remember my diet"
forget =
<drop> (?:about )?(?:everything|anything|all|whatever|what|any of what|the (?:things|stuff|facts?|details))(?: of)?
    (?: that)? <known>(?: to (?:remember|save|note|keep))? <about> <topic>
<drop> (?:(?:all|the|any|your|every|my|that|those|of|out|this) ){0,4}(?:(?:old|outdated|wrong|<saved>) )?memor
    (?:y|ies) (?:(?:that )?you (?:have|saved|stored|keep|kept|made) )?<about> <topic>
# Files have notes and data, too: the memory has those of the one who is asked, and of the user.
<drop> (?:(?:all|any|every|those|of) ){0,3}your (?:(?:old|outdated|wrong|<saved>) )?<noted> <about> <topic>
<drop> (?:(?:all|the|any|every|that|those|of|this) ){0,4}<noted> (?:that )?(?:you (?:have|saved|stored|keep|kept|took|
    made)|i gave you) <about> <topic>
<drop> (?:(?:all|the|any|every|that|those|of|this) ){0,4}<noted> <about> (?P<what>(?:my|our|me|us)\b[^.!?,;:\n]{0,80})
(?:forget|un-?learn|un-?remember) (?:(?:all|the|any|every|that|those|of|this) ){0,4}<noted> <about> <topic>
<delete> (?:everything|anything|all) (?:about|regarding|related to|concerning) (?P<what>(?:my|our|me|us)
    \b[^.!?,;:\n]{0,80})
<drop> <topic> (?:from|in|out of|off) (?:<memory>|what you (?:know|remember)[a-z ]{0,10})\b(?! {1,2}
    (?:card|leak|address|map|usage))
<drop> (?:from|in|out of) <memory> ?[:,]? {0,2}<topic>
<delete> (?P<what>(?:my|our|the|all|any) <saved> [^.!?,;:\n]{2,60})
(?:everything|anything|all|what|whatever)(?: that)? <known> <about> <short> (?:should|must|can|has to|needs to|may)
    (?: now| please)? (?:go|be (?:deleted|removed|erased|forgotten|wiped|gone|cleared))\b
(?:that|the|your|this) <noted> (?:<about>|that(?: says)?|saying) <short> (?:(?:is|was|isn't|is no longer)
    \b[^.!?\n]{0,40}\b<delete>|(?:can|should|must|may|has to|needs to) (?:go|be (?:deleted|removed|erased|forgotten|
    dropped)))\b
forget (?:about )?(?P<what>(?:the|my|our|his|her|their) [^.!?,;:\n]{2,60}?) (?:now|any ?more|any longer|from now on)\b
forget (?:about )?(?P<what>the (?:[\w-]{1,20} ){0,4}?(?:rule|preference|convention|address|number|name|birthday|ip|
    e-?mail|allergy|diet|code|port|url|schedule|appointment|setting|fact|memory|note)s?(?: (?:of|for|
    about) [^.!?,;:\n]{2,40})?)(?= {0,3}(?:\Z|[.!,;]|please|pls|because|since|as|it'?s))
(?:don'?t|do not|no need to|you (?:don'?t|do not) (?:need|have) to|you needn'?t|you no longer (?:need|have) to|
    (?:i|we) (?:don'?t|do not|no longer) (?:want|need) you to) (?:remember|keep|store|save|know) <short>
    (?: in <memory>)? (?:any ?more|any longer|no more)\b
(?:you no longer (?:need|have) to|(?:i|we) (?:no longer|don'?t) (?:want|need) you to) (?:remember|keep|store|save|
    know) <topic>
(?:no longer|stop) (?:remember|remembering|storing|keeping) <topic>
un-?(?:remember|learn) <topic>
# "Delete that from your memory", after what it is
forget back = (?:<drop> (?:about )?(?:this|that|it|those|these|them)(?: (?:memory|note|one|fact|again|part|bit|
    information|info|entry))?(?: (?P<memory>(?:from|in|out of|off) <memory>)| out)?|(?:this|that|it) can (?:go|
    be deleted)(?: now)?)(?= {0,3}(?:\Z|[.!,;)]|please|pls|now|ok|because|since|again|any ?more|altogether|completely))

# To look up.
asking = (?:what(?:'?s)?|which|who|when|where did we|do (?:you|u)|did you|have (?:you|i|we)|am i|are (?:you|they|these|
    those)|is (?:there|it|that)|how much|anything|search|sum up|disclose|show|list|give|tell|print|read|summari[sz]e|
    display|repeat|let me see|recall)\b
preferences = what are my (?P<what>(?:[\w-]{1,20} ){0,3}preferences)\b
self = (?:me|myself|us|ourselves|mine|our (?:earlier |last |previous )?chats?)\b

# Not to remember.
withhold =
<not> (?:remember|memori[sz]e)(?:ing)? (?:the following|what follows|<said>|<message>)
<not> <keep> (?:<message>|<said>|(?:the following|what follows|everything below)(?= {0,2}[.:,]| in | to ))
<not> (?:(?:make|take|keep) (?:a |any )?(?:notes?|records?) of|(?:hold|hang) on ?to) (?:<this>|<message>|<said>)
<not> <keep> <this> (?:anywhere|for (?:later|the future|next time)|(?:to|into|in|on) (?:<memory>|memory|the record|
    record|file|your (?:head|brain|database|storage)))\b
(?:keep|leave) (?:<this>|<message>) (?:(?:out of|off|away from) (?:<memory>|memory|the records?|record|
    your (?:head|database|logs?))|between <us>|unsaved)\b
(?:<this>|<message>|<said>)(?:'s| is| are|) ?(?:should|must|shall|may|is|are|can|better|needs to)?(?:n'?t| not| never)
    (?: to)? (?:be |for |to be |get |go (?:in|into|to) |end up in |stay in |land in |something (?:to|you should|
    for you to) )?(?:<kept>|<memory>|memory|the record)\b
(?:let(?:'s| us)?|make sure) [^.!?\n]{0,24}\b(?:not|never|n't) (?:end up|go|land|stay|get saved|get stored|be saved|
    be stored) ?(?:in <memory>)?
(?:strictly |this is |that'?s |it'?s |just |totally |all )?(?:off the record|between <us>|not for (?:the record|
    (?:your )?memory)|in (?:strict )?confidence)<end>
(?:do|have|take|say|keep|discuss|talk|be|make|treat|consider|leave|put|ask|speak)\b[a-z' ]{0,40}\boff the record\b
no (?:notes|memory|memories|saving|record|logging|storing|remembering|need to (?:save|store|remember|note|keep))
    (?:,? please)?(?: of| on| about| for)? ?(?:this|any of this|it|that|here)\b
(?:nothing|none) (?:of|in|from) (?:this|what|the)[^.!?\n]{0,40} (?:should|may|must|is to|can|needs to) (?:be |get |go |
    end up |stay )(?:<kept>|in)\b
(?:answer|help|reply|explain|tell me|respond|just|read)\b[^.!?\n]{0,40} without (?:remembering|saving|storing|recording|
    memori[sz]ing|noting|keeping|logging)\b
(?:then |after(?:wards)? |after that )?forget (?:<this>|<message>|<said>|i (?:ever )?(?:asked|said|told you|
    mentioned) (?:this|it|that|anything)|about (?:this|it))(?: again)?,? (?:after(?:wards)?|as soon as|once|when you|
    right after|immediately|later)\b
(?:once|when|after) (?:you'?ve|you have|you are|you're|we'?re|we are|you|answering|that)[a-z' ]{0,24},? (?:please |
    pls )?(?:forget|delete|erase) (?:<this>|<message>|<said>|about (?:this|it)|everything)\b

# Japanese.
ja forget =
(?P<what>[^。！？\n]{2,60}?)(?:を|は|も|って)?<ja memory>(?:の中)?からは?(?:全部|すべて|全て)?<ja erase>
[^。！？\n]{0,30}?<ja memory>(?:の中)?(?:から|にある|の)(?P<what>[^。！？\n]{2,60}?)[をはも](?:全部|すべて|
    全て)?<ja erase>
(?P<what>[^。！？\n]{1,60}?)(?:について|に関して|に関する|の)?(?:、)?(?:今まで|これまで)?に?(?:覚えている|覚えてる|
    覚えた|記憶している|記憶してる|記憶した|保存している|保存してある|保存した|知っている|知ってる)(?:こと|内容|情報|
    もの|の)?[をはも]?(?:、)?(?:全部|すべて|全て|もう)?<ja erase>
[^。！？\n]{0,30}?(?:覚えている|覚えてる|記憶している|記憶してる|保存している|保存してある|保存した|教えた|話した|
    伝えた)(?P<what>[^。！？\n]{2,40}?)(?:を|は|も|、)(?:全部|すべて|全て|もう)?<ja erase>
(?P<what>[^。！？\n]{2,60}?)(?:という|っていう|との|の|って)(?:記憶|記録|メモ|情報|話|設定)
    [はを]?[^。！？\n]{0,14}?<ja erase>
(?P<what>[^。！？\n]{2,60}?)(?:っていうの|というの|ということ|のこと|の件|の話|こと|ルール)[はをも]?(?:、)?
    (?:もう|全部|すべて)*(?:忘れて|忘れちゃって|忘れてもらって)<ja please>(?:\Z|[。！、])
(?P<what>[^。！？\n]{2,60}?)(?:のこと|の件|こと|の話|ルール)?[はをも]?(?:もう|これ以上)(?:覚えて(?:おか)?い?なくて|
    覚えておく必要は|覚えなくて|記憶しなくて)も?(?:いい|大丈夫|結構|ありません|ない)
(?P<what>[^。！？\n]{2,60}?)(?:のこと|の件|こと|の話)?[はをも]?(?:もう)?(?:覚えてい?ては?ほしくない|
    覚えていてほしくありません)
# The whole sentence, without "from your memory".
ja forget subject = (?:[^。！？?]{1,40}、)?(?P<what>(?![こそあ][のれ]|今の|さっき)[^。！？?、\n]{1,40}?)
    のこと[をは]?忘れて<ja please>\Z
ja forget thing = (?:[^。！？?]{1,40}、)?(?P<what>(?![こそあ][のれ]|今の|さっき)[^。！？?、\n]{2,40}?)
    (?:という|って|な)?(?:こと)?[をは]?忘れて<ja please>\Z
ja remember = (?P<what>[^。！？\n]{3,300}?)(?:という(?:こと|ルール|の|ふう)|って(?:こと)?|こと|と|の)?
    (?:を|は|も|だけ)?[、,]?(?:必ず|ちゃんと|しっかり|よく|どうか|ぜひ)?<ja keep><ja please>(?:(?P<end>\Z|
    [。！!？?、,\s（(])|$)
ja remember after = (?:[^。！？、：:\n]{0,16}(?:に|は|、|て)?)?<ja keep><ja please>
    (?:こと[がは][^。：:\n]{0,8})?[。：:、,！!\s]{1,3}(?P<what>[^？\n]{3,300})
# "Remember it" alone, what says no more than when or why, and what means the sentence before.
ja kept = (?:(?:(?!こと)[^。、]){0,10}[にはをもてと])?<ja keep><ja please>\Z
ja filler = (?:[^。、]{1,16}(?:ので|から)|しっかり|ちゃんと|必ず|よく|(?:今後|次回|次回以降|将来|これから)
    (?:のため|も)?に?|(?:プロフィール|メモリー?|記憶)に?)[、,]?\Z
ja this = (?:これ|それ|この(?:こと|件|名前|情報)|その(?:こと|件|名前)|今の(?:話|こと)?|以上|上記|名前)[をはも]?\Z
ja whole = (?:私|僕|俺|自分|わたし)(?:に関する|について|のこと|の)?(?:情報|データ|記憶|こと)?\Z
""")
# Anywhere in a sentence.
_WITHIN: Final = read_tables(r"""
# "I would like to have my address deleted from your memory"
forget within =
\bhave <short> (?:deleted|removed|erased|wiped|cleared|purged) from <memory>\b
\b(?P<what>(?:my|our) [^.!?,;:\n]{2,40}?) (?:should|must|has to|needs to) (?:be (?:deleted|removed|erased) from|leave|
    go from|not stay in) <memory>

# What a message says is remembered, before "delete that".
held = (?:(?P<told>(?:i|we) (?:once |had |have )?(?:told you|said|mentioned)(?:(?: [\w ]{1,20}?)? that)?)|
    you (?:still )?(?:have|had|keep|kept|stored?|saved|noted)(?: it)?(?: down)? (?:in|on) <memory>(?: that)?|
    you (?:still |seem to |also )?(?:think|believe|remember|noted|have noted|saved|have saved|have stored|stored)
    (?: that)?|(?:that|the|your|this) <noted> (?:<about>|that(?: says)?|saying)|(?:everything|all|what)
    (?: that)? <known> <about>|(?:in )?<memory> (?:it |there )?(?:say|says|is)(?: that)?) {1,3}(?P<what>[^.!?\n]{2,120})
# What makes a question one about the memory, and about oneself.
of memory =
\b(?:i|we) (?:have )?(?:ever |once |already )?(?:told|asked|gave|taught|said(?: to)?|mentioned(?: to)?) (?:to )?you\b
\b(?:do|did|have|can|could)? ?you(?:'ve|'d| have| had| still| all| already| actually| ever| got){0,4} (?:remember
    (?:ed)?|recall|memori[sz]ed?|saved?|stored?|noted|kept|written down|learn(?:ed|t))\b
\b(?:in|from|is|check|search|all|list|on|say|says|contain|according to) (?:your|that) (?:memory|memories|notes|records)
    \b
\bmemory of yours\b|\byou(?:'ve| have) (?:got )?(?:on|in|about) (?:me|us|my)\b|picture of me|\bas far as you'?ve saved
\b(?:asked?|tell|told) you to (?:remember|note|save|keep)|\bgot (?:saved|stored|noted)
\b(?:list|show me|show) (?:all )?(?:of )?(?:your|my) memories\b
\b(?:saved|stored|on record|on file|in your (?:notes|memory))\b(?=[^.!?]{0,30}\b(?:about|regarding|on|of|from|for|me|my|
    us|our)\b| ?\?)
do (?:you|u) still know (?:my|our|where|what|who|when)
knows = \b(?:do you|did you|you(?:'ve)?|you already|you still) (?:already |still |actually )?(?:know|have|got)
    (?: (?:anything|something|everything|all))? (?:about|on) (?:me|my|us|our|myself)\b
own = \b(?:me|my|mine|our|us|i|we|myself)\b|\b(?:in|from|is|check|search|list|all) your (?:memory|memories|notes)\b

# Not to remember, wherever it stands in a sentence; "private" and "not kept" anywhere in a message, both of them.
unsaved =
\b(?:not|never|nothing|none|n't|dont|dnt|mustn'?t|shouldn'?t|excluded?|off|out of|no trace|without)\b[^.!?\n]{0,50}\b
    (?P<place>(?:in|into|to|from|of|on) (?:your|the|my) (?:long[- ]term )?(?:memory|notes|profile|records|memories))\b
\b(?:not|never) to be (?:<kept>)\b|\b(?:switch|turn|with) (?:your |the )?memory off\b|\bswitch off (?:your |
    the )?memory\b
\b(?:nothing|none|not any(?:thing)?) (?:of|in|from) (?:it|this|that|what)[^.!?\n]{0,40}\b<kept>\b
\b(?:do not|don'?t|wouldn'?t|would not) (?:want|like) (?:it|this|that|any of (?:it|this)|anything)
    (?: to be| being)? <kept>\b
\bwithout (?:saving|storing|keeping|retaining|remembering|recording|memori[sz]ing|logging) (?:it|this|that|any|anything)
    \b
\b(?:leave|keep) (?:it|this|that) (?:unrecorded|unsaved|out of the records?)\b
\bexclude (?:this|the following|that)[^.!?\n]{0,20} from (?:anything|what|everything|your)\b
private = \b(?:(?:just|only) for (?:now|this (?:chat|session|conversation|time|message|once))|temporary|temporarily|
    ephemeral|incognito|confidential|strictly private|between <us>|in confidence|secret|surprise|shhh?h?)\b
not kept = \b(?:do not|don'?t|dnt|never|no|not|without|mustn'?t|shouldn'?t|stop)(?: you dare| ever)? (?:be )?
    (?:(?:<keep>|(?:hold|hang) on ?to) (?:<this>|anything|please|pls)|saving|storing|recording|saved|stored|kept)\b

# Chinese and Japanese.
zh remember = (?:\A|[，,、；：:\s]|请|請|你要?|你得|帮我|幫我|麻烦|麻煩|能不能|可以|可否|顺便|務必|务必|一定要?|给我|
    給我)(?:<zh save>|(?:请|請|要|得|务必|務必|一定)(?:记得|記得)|(?:请|請|帮我|幫我)?(?:备注|備註|备忘|做个记录|
    存个?信息|存|加一条|供你(?:以后|以後)?参考)(?:一下)?(?=[：:，,]))(?:一下|哦|喔|喽|啊|哈|啦|了|这点|這點|这件事|
    這件事|这个|這個|一件事|一个事|以下)?[：:，,\s]{0,2}(?P<what>[^。！？\n]{3,300})
zh never forget = (?:别|別|不要|不许|可别|千万别|千萬別)再?(?:忘了|忘记|忘記|忘)[，,：:]?(?P<what>[^。！？\n]{0,12}
    (?:我|我们|咱|他|她|是|有|不|在)[^。！？\n]{1,200})
zh to memory = (?:存|写|寫|加|记|記|放|录|保存)[到进進入在]?(?:你的?)?(?:长期)?(?:记忆|記憶|备忘录|備忘錄)
    [里裡中库]?[：:，,]\s?(?P<what>[^。！？\n]{3,300})
# "把…记住": the object comes first.
zh held = [把将將](?P<what>[^，。！？：:\n]{3,60}?)(?:这件事|這件事|这一点)?(?:都|也|给我|給我)?<zh save>
# "记住这个", after what it is
zh remember before = (?:[把将將]?<zh it>(?:都|也|给我|給我)?(?:<zh save>|[存写寫加记記][到进進入](?:你的?)?(?:记忆|記憶)
    [里裡中]?)|<zh save><zh it>?)(?:哦|喔|啊|哈|啦|了|吧|好吗|好嗎|，好吗|，谢谢|，謝謝|一下)?\s{0,3}
    (?:\Z|[，,。！!～~])
zh standing = (?:\A|[，,、\s])(?:请|請|麻烦|麻煩)?(?:以后|以後|今后|今後|从现在开始|從現在開始|从今以后|從今以後|往后|
    往後|从今天起|從今天起|下次|之后|接下来)(?!的|会|會|想|要是|可能)[，,]?[^。！？?\n]{0,24}?(?:都|请|請|别|別|不要|
    叫我|一律|要|用|写|寫|回答|推荐|給我|给我|记得|尽量|只)[^。！？\n]{1,200}
zh forget =
[把将將](?P<what>[^，。！？\n]{2,40}?)[从從在](?:你的?)?<zh memory>(?:里面|里|裡|中)?(?:给我|給我|都|全部|
    全)?给?<zh erase>
[从從在](?:你的?)?<zh memory>(?:里面|里|裡|中)?[把将]?<zh erase>(?P<what>[^，。！？\n]{2,40})
[从從在](?:你的?)?<zh memory>(?:里面|里|裡|中)?[把将](?P<what>[^，。！？\n]{2,40}?)<zh erase>
[把将將]?你?所?(?:知道|记住|記住|记得|記得|记着|保存|记录)的?(?:所有|全部|一切)?的?<zh about>?(?P<what>
    [^，。！？\n]{1,40}?)的?(?:内容|信息|資訊|事情|事|记录|資料|资料|一切|部分)?(?:都|全部|全|统统)?
    (?:给我|給我)?<zh erase>
<zh erase>你?所?(?:知道|记住|記住|记得|記得|保存|存)?的?(?:所有|全部|一切)?的?<zh about>(?P<what>[^，。！？\n]{1,40})
(?:不用|不需要|不必|别|別|不要|能不能别|不要再|不用再|别再|別再)再?[记記][着著住得]?(?P<what>(?!这个[：:]|这条[：:]|录|
    得住)[^，。！？：:\n]{2,40}?)(?:这件事|這件事|了|的事)
(?:能不能|可以|请|請)?(?:不要|别|別)再?(?:记着|記著|记得|記得)(?P<what>[^，。！？：:\n]{2,40})
(?:之前|刚才|以前|上次)?(?:让你记的|你记的|你記的|记着的|记忆里|記憶裡)(?P<what>[^，。！？\n]{2,40}?)
    (?:那条|那條|这条|這條|的事)(?:[^。！？\n]{0,14}?)(?:可以|能|请|請|帮我)?<zh erase>
<zh about>(?P<what>[^，。！？\n]{2,40}?)的?(?:一切|所有|信息|记忆)[^。！？\n]{0,16}?<zh erase>
[把将](?P<what>[我咱][^，。！？\n]{2,40}?)(?:都|全|统统)?(?:给我)?(?:忘了吧|忘掉吧|忘了好吗|都忘了)
[请請你]?(?:忘了|忘掉|忘记|忘記)(?:我|我们)(?:之前|刚才|上次|以前)?(?:跟你)?(?:说|說|提|讲|告诉你)过?的?(?:关于)?
    (?P<what>[^，。！？\n]{2,40})
zh forget thing =
(?:\A|[，,。])[请請]?(?:忘记|忘記|忘掉)(?!那|这|這|刚|剛|了|上面)(?P<what>[^，。！？?\n]{1,40})\Z
(?:\A|[，,。])[请請](?:忘记|忘記|忘掉)(?!那|这|這|刚|剛|了|上面)(?P<what>[^，。！？?\n]{1,40})[，,]
zh preferences = (?:\A|[，,。])[请請]?(?:告诉我|告訴我|列出|显示|顯示)?我的(?:偏好|喜好)(?:是什么|是什麼|
    有哪些)?[？?。]?\Z
zh recall = 你[^。！？\n]{0,10}?(?:记得|記得|记住|記住|记了|記了|记下|记着|保存|存了|存的|记录了|知道|了解)
    [^。！？\n]{0,12}?[我咱][^。！？\n]{0,40}|[我咱][^。！？\n]{0,10}(?:让你|叫你|請你|请你|跟你)
    [记記说說][^。！？\n]{1,40}|(?:有没有|有沒有)(?:存|记|記|保存)过?[^。！？\n]{0,8}我[^。！？\n]{0,30}|
    你[还還]?[对對]?我[^。！？\n]{0,6}(?:了解|知道)多少|[还還](?:记得|記得)我[^。！？\n]{1,30}|你(?:那儿|那里|那裡)
    [^。！？\n]{0,10}(?:记录|記錄|有)|你的?(?:长期)?(?:记忆|記憶|备忘录|笔记)[里裡中库][^。！？\n]{0,40}|
    你[^。！？\n]{0,8}(?:记得|記得|记住|記住|记了|记录了|保存了)些?(?:关于|關於|什么|什麼|哪些)[^。！？\n]{0,40}
zh asked = 什么|什麼|哪些|哪|吗|嗎|有没有|有沒有|多少|列出|告诉我|告訴我|给我看|给看|看看|打印|说说|查一下|查查|念一下|
    总结|總結|来着|？|\?
zh please = [请請能]
# Talk of remembering elsewhere: questions, stories, databases.
zh open = 哪些|什么|什麼|怎么|怎麼|如何|为什么|(?:老师|他|她|书上|文档|里|上)[说讲写]|故事|小说|主角|数据库|函数
zh withhold =
(?:不要|别|別|请勿|不许|不許|可别|不希望你|勿)(?:给我)?<zh write>[^，。！？：:\n]{0,6}<zh this>
(?:不许|不許|可别|別|别|不要)(?:给我)?<zh write>[到进進入在][^，。！？：:\n]{0,4}(?:小本本|资料|資料|档案|记忆|記憶|
    長期|长期|记录)
<zh this>[^，。！？：:\n]{0,10}?(?:不要|别|別|不用|不必|不需要|勿|不能)(?:给我|給我|被|再)?<zh write>
(?:不要|别|別|请勿|請勿|不用|不必|勿)[把将將]?我?<zh this>[^，。！？：:\n]{0,10}?<zh write>
(?:不要|别|別|请勿|請勿|勿)(?:记住|記住|记录|記錄|记下|記下|存到|存进|保存|留记录|留底|做记录|存档)[来來]?
    (?:你?的?(?:记忆|記憶)[里裡中]?)?[哦喔啊]?(?:\Z|[：:，,。！）)])
(?:关掉|关闭|關掉|关上)(?:你的)?(?:记忆|記憶)|一个字都?(?:不要|别|不许)[存记留]|(?:说完|說完|看完|回答完|用完)
    [就请請]?[忘删]
ja back = これ|それ|この|その
ja not = くれない[。、]?\Z
ja standing = (?:\A|[。、\s])(?:これからは?|今後は?|以後は?|以降は?|次回?からは?|今度からは?|今日からは?|いつも|毎回)
    [、,]?[^。！？\n]{2,120}?(?:て|で|ように(?:して)?|ないで|こと|しないこと)<ja please>(?:\Z|[。！!、,\s])
ja preferences = \A私の好みは?(?:何(?:ですか)?)?[？?。]?\Z
ja recall = (?:覚えてい?(?:る|ます|た|くれて)|覚えてもらった|覚えた|記憶し(?:た|てる|ている|てます|ています|ておられ)|
    保存し(?:て(?:ある|る|いる|ます)|た)|メモし(?:て(?:ある|あった|いる|た)|た)|保持して|登録され|控えて(?:くれて)?
    (?:る|ある|いる)|記録[にが](?:残|ある|あり)|学習した|指定してた|言ってた(?:っけ|か)|教えた(?:でしょ|よね|っけ)|
    聞いたこと|メモリ(?:に|の中|には)|知ってい?(?:る|ます)|把握して)
ja asked = 教えて|見せて|一覧|何|なに|どこまで|どんな|どれ|言ってみて|あったっけ|ある|ますか|まとめて|リスト|確認|列挙|
    表示|だっけ|？|\?
ja own =
何を覚えて
私|僕|俺|うち|わたし|自分|家族|前に|当方|以前|今まで|これまで|こないだ|この前|(?<!ワーキング)メモリー?(?:に|の中|には)|
    メモしてあ|(?:について|のこと|の件)[^。]{0,12}(?:覚え|記憶|保存|メモ|控え|記録)
ja saying = って(?:英語|日本語|中国語|フランス語|何語)|(?:なん|何)て言う|という意味|と言われ|と書いて
ja topic = (?P<what>[^。！？、\n]{1,40}?)(?:について|に関して|のこと|の件)
ja withhold =
(?:記憶|メモリー?)[はを]?オフ|(?:記憶|保存|記録)の対象外|どこにも(?:記録|保存|残)|オフレコ(?:で|です|に|だけど|だよ|
    の話|なん)
(?:プロフィール|記憶|記録|メモリー?)には?(?:反映|登録|追加|保存|記録)?(?:させ|さ|し|入れ|残さ|書か)?
    (?:ないで|ずに|ない(?:で|よう|約束))
(?:保存|記録|記憶)は?(?:すんな|するな|お控え|しないよう|禁止)|(?:一切|何も)(?:保持|保存|記録|記憶)し(?:ない|ません)
(?:メモ|記録)は?(?:取ら|とら|残さ)ない(?:で|約束)|覚えたりしないで|覚えなくて(?:いい|大丈夫|結構)
(?:この|これ|今の|今から|以下|次の|ここだけ|ここから|さっきの|メモリ|記憶|内緒|秘密)[^。！？\n]{0,24}?
    (?:記録|記憶|保存|メモ|覚え|残|登録)に?は?(?:し|残さ|入れ|さ)?(?:ないで|ないよう|なくて(?:いい|大丈夫|結構)|ずに)
(?:\A|[、。（(\s])(?:記録|記憶|保存|メモ)は?(?:しないで|せずに|なしで|不要)|(?:聞いたら|答えたら|終わったら|読んだら)
    (?:すぐ)?忘れて
""")


def pattern(text: str) -> str:
    """Return a pattern that ignores case, with words for the names of tables."""
    return "(?i)" + fill(text, _WORDS)


@cache
def _patterns() -> dict[str, tuple[re.Pattern[str], ...]]:
    tables = (_AT_START, r"\A"), (_WITHIN, "")
    return {
        name: tuple(re.compile(pattern(rf"{start}(?:{row})")) for row in table[name])
        for table, start in tables
        for name in table
    }


def find_all(table: str, text: str) -> Iterator[re.Match[str]]:
    """Yield the first match of each pattern of a table, in its order."""
    is_at_start = table in _AT_START
    for row in _patterns()[table]:
        match = row.match(text) if is_at_start else row.search(text)
        if match is not None:
            yield match


def find(table: str, text: str) -> re.Match[str] | None:
    """Return the match of the first pattern of a table that has one."""
    return next(find_all(table, text), None)
