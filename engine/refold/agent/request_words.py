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
rest = [\s,]{0,6}(?P<what>\S[\s\S]{1,1500})
topic = (?P<what>[^.!?,;:\n]{2,80})
own topic = (?P<what>(?:my|our|me|us|that (?:i|we|my|our))\b[^.!?,;:\n]{0,80}?(?= any ?more| any longer| no more|\Z|
    [.!?,;]))
short = (?P<what>[^.!?,;:\n]{2,60}?)
that =  that\b(?!,| (?:when(?:ever)?|every time|for|next time|because|from now on|going forward|in future)\b)| ?:
fact = (?P<what>[^!?\n]{2,200})
stop = (?= {0,3}(?:\Z|[.!,;)]|(?:for|in|when|whenever|from|next|this time|so|please|pls|ok|okay|haha|too|as well|until|
    till|because|since|if|and)\b))
# "Stream it" after a comma is about a program, and "it's private" is not.
close = (?=,? {0,2}(?:please|pls|plz|ok|okay|at all)?[ ,]{0,2}(?:\Z|[.!?:;)–—-]|(?:but|and|it'?s|<me>)\b))
off = (?=[ ,]{0,2}(?:please|pls)? ?(?:\Z|[.!?,:;)]| [–-]|but\b))
shut = (?= ?(?:please|pls|ok|okay)? {0,2}(?:\Z|[.!?:)–—-]|, but\b))
alone = (?=,? {0,2}(?:please|pls|thanks|thx)? {0,2}(?:\Z|[.!?)]))

# The memory, and when to use it.
your memory = your (?:long[- ]term )?(?:memory|memories|notes|notebook|records|profile)|ur memory
to memory =  (?:to|in|into) <your memory>
later = (?>(?:,? (?:for (?:me|us|later|next time|(?:the |all )?(?:our )?(?:future|later)(?: [a-z]{3,12})?|
    (?:all our|the rest of|whenever)<words>)|in (?:the )?future|from now on|going forward|at all times|always|
    when(?:ever)? (?:you|we|i)<words>|(?:this|next) time|too|as well)){0,3})
words = (?>(?: (?!that\b)[a-z']{1,20}){1,5})

# To remember.
it = this|that|it|these|those|all (?:of )?(?:this|that)|the following|(?:this|that|the) (?:one|fact|detail|rule|info|
    information|bit|part|date)|(?:his|her|their|its) (?:names?|birthdays?|address(?:es)?|numbers?)
remember = rem{1,2}e?m{0,2}e?ber(?:ed)?|rmbr|memori[sz]e|(?:keep|bear) in mind
never forget = (?:do not|don'?t|never) (?:ever )?forget
note = (?:note|jot|write|save|store|keep|add|put)(?: down)?
me = i|we|my|our|i'm|im|we're|i've|i'll

# To forget, and what.
delete = forget|un-?remember|unlearn|erase|delete|remove|wipe(?: out)?|clear(?: out)?|purge|drop|scratch|scrap|
    get rid of|expunge|strike|take
known about = you(?:'ve| have| had| still| might| ever| all| got| currently){0,4} (?:know|knew|remember(?:ed)?|stored?|
    saved?|kept|noted|learn(?:ed|t)|memori[sz]ed|recorded|collected)(?: down)? (?:about|of|on|regarding|concerning)|
    you(?:'ve| have)? (?:got|hold) about|(?:i|we)(?:'ve| have| had)?(?: ever| just| once| already)? (?:said|
    mentioned|told you)(?: (?:before|earlier|yesterday|last [a-z]{1,12}))? about
noted = memory|memories|notes?|facts?|entry|entries|info|information|data|records?
saved = saved|stored|remembered|recorded|memori[sz]ed
# A request on a condition, or for a while, deletes nothing for good.
condition = (?:if|when|whenever|once|after|as soon as|unless|until|every ?time|each time|in case|(?:as an|for) example)
    \b
a while = for now|for (?:the|a)(?: little| short)? (?:sec|second|moment|minute|bit|while|time being)
not now = \b(?:if|whenever|once|after|unless|until|till|as soon as|every ?time|in case|<a while>|example|let'?s|let us|
    possible)\b|\bwhen (?:i|we|you|he|she|they|it|the|my|our|this|that)\b
talk = \b(?:just|maybe|(?:you|u) (?:can|may|should|could|might)|(?:can|could) we)\b
# What is at hand, and in no memory.
talked of = questions?|requests?|messages?|words?|ideas?|suggestions?|comments?|remarks?|mistakes?|points?|prompts?|
    answers?|attempts?|rambling|joke|rant|tests?|code|prs?|homework|changes?|approach|plans?|conversation|chat|bugs?|
    drafts?|branch|edits?|work|essay|script|files?
# What a text, a file or a program holds, and what else is to be done.
order = (?:\b(?:and|but|then|so) (?:please|we|i|you|<act>)|, (?:<act>))\b
act = let|just|do|go|start|use|make|show|tell|explain|focus|give|write|help|look|try|ship
elsewhere = \b(?:in|from|on|of|to) (?:the|this|that|these|those) |\b(?:in|from) (?:my|our|your) |
    <order>
just said = (?:(?:i|we|you)(?:'ve| have| had)?(?: just| ever| even){0,2} (?:asked|said|mentioned|wrote|suggested|
    told (?:you|me)|brought (?:it|that|this) up)(?: (?:it|that|this|so|you|me|anything|something|before|earlier)){0,3}|
    (?:(?:all|any)(?: of)? )?(?:it|this|that)(?: just| ever| even){0,2} happened)\Z
demonstrative = (?:that|this|it|them|those|these)\b(?! (?:is|are|was|were)\b)|[那這这]|我?(?:刚才|剛才|刚刚)|上面|
    [こそあ](?:の|れ|う|\Z)|今の|さっき|(?:everything|anything|all)\Z
reason = ,? (?:is|are|was|were|should|must|can|that'?s|which is|it'?s)(?:n't| not| now| no longer| all){0,2} (?:wrong|
    outdated|old|false|not true|true|correct|go|be gone|nonsense|incorrect|over|history|needed|relevant)\b.{0,60}\Z|
    (?<=\w) (?:any ?more|any longer|now|again|please|pls|too|as well|completely|altogether|for good|right away)\Z

# Not to remember.
do not = do not|don'?t|never
not = do not|don'?t|dnt|never|not to|please not|(?:you )?(?:should|must)(?:n'?t| not)|no need to|refrain from|
    (?:i|i'd) (?:do not|don'?t|rather not|would not|wouldn'?t) (?:want|like|have)(?: you to)?
keep = (?:remember(?:ing)?|memori[sz](?:e|ing)|sav(?:e|ing)|stor(?:e|ing)|record(?:ing)?|keep(?:ing)?|put|not(?:e|ing)|
    add(?:ing)?|write|retain|commit|log)(?: down)?
kept = remembered|saved|stored|kept|recorded|memori[sz]ed|retained|noted
said = what(?:ever)? (?:i'?m|i am|i'?ll|i|i'?ve|i just|we) (?:about to |going to |just |now )?(?:writ|say|tell|said|
    told|wrote|discuss|shar|ask)[a-z]{0,8}(?: you)?(?: now| here| next| below| today)?
message = (?:any(?:thing)? (?:of|from|in) )?(?:this|the next|the last|my last|my next|the following|that last|
    our) (?:[a-z]{1,20} )?(?:messages?|chat|conversation|question|exchange|thread|session)
this = (?:any of |anything (?:of|from) )?(?:this|that|it|these)(?: one| part| bit)?
us = us|you and me|the two of us

# Chinese and Japanese.
zh about = 关于|關於|有关
zh it = 这个|這個|这点|這點|这条|這條|这些|這些|这件事|這件事|它|他的名字|她的名字
zh save = 牢记|牢記|记住|記住|记下来?|記下來?|记一下|記一下|记着|記著|记好|記好|记牢|记录下来|存下来|记录一下|記錄一下
zh ask = 请你?|請你?|你要|你得|你给我|帮我|幫我|麻烦|麻煩|能不能|顺便|務必|务必|一定要?|给我|給我
zh erase = 删掉|刪掉|删了|刪了|删除|刪除|清除|清空|清掉|移除|去掉|抹掉|抹除|忘掉|忘记|忘記|忘了|拿掉|删|刪
zh memory = (?:记忆|記憶|你的?(?:长期)?(?:记忆|記憶|记录|記錄|备忘录|備忘錄|笔记|筆記|资料|脑子|腦子|档案))(?:里面|里|
    裡|中)?
zh no = 不要|别|別|请勿|請勿|勿|不许|不許|不用|不必|不需要|不希望你
zh keep = (?:记住|記住|记下|記下|记录|記錄|记|記|保存|留存|存档|存檔|存|留下(?:记录|紀錄|記錄))(?:来|來|下来|下來)?
zh end = (?:喔|哦|啊|吧|了|哈)?(?=\Z|[：:，,。！!；）)\s])
zh states = (?:[^没沒，。！？\n]{0,12}(?:是|在|喜|不|有|对|對|用|住|叫|吃))
zh message = [这這](?:[条條段句则則些件](?:消息|訊息|讯息|信息|话|話|对话|對話)?|[个個]?(?:消息|訊息|讯息|信息|话|話|
    对话|對話|聊天|问题|問題|内容|內容|事情?))|(?:以下|接下来|接下來|下面|刚才)(?:这段|的?(?:内容|內容|消息|话|話)|
    我?(?:说|說)的(?:话|話)?)|我(?:现在|刚才|下面|接下来)?(?:说|說)的(?:话|話)?
ja please = (?>(?:いただけませんか|くださいませんか|いただけますか|ほしいのですが|ほしいんだけど|ほしいんですが|
    もらえませんか|お願いします|かまいません|くれませんか|もらえますか|くださいね|くれますか|ちょうだい|ほしいです|
    欲しいです|いいです|ください|くださる|くれない|もらえる|いいよ|お願い|くれる|ほしい|下さい|欲しい|くれ|頂戴|頼む|〜|
    な|ね|よ|ー|～){0,4})
ja keep = 覚えて(?:おいて|おけ|おくように|といて|)|覚えとい[てで]|おぼえて(?:おいて|といて|)|記憶して(?:おいて|)|
    メモして(?:おいて|)|メモっといて|メモしとい[てで]|(?<=ために)記録して(?:おいて|)|頭に入れて(?:おいて|)|
    心に留めて(?:おいて|)|把握して(?:おいて|)|忘れないで(?:いて|)|忘れない(?:ように(?:して)?)
ja self = 私|僕|俺|うち|わたし|自分
ja erase = 忘れて|消して|削除して|消しとい[てで]|消去して|取り消して|抹消(?:を|して)|消去願|削除願|削除を|消去を|削って|
    削除お願い|消去お願い|なかったことにして|消してほしい|消してくれ
ja message = (?:この|その|今の|次の|今日の|さっきの|本)(?:こと|話|件|メッセージ|質問|内容|会話|相談|チャット)|
    (?:今|いま|これ)から(?:言う|話す)こと|以下(?:の(?:内容|話))?|ここだけの話|ここから(?:の話)?

# Around a request: what introduces it, what makes it polite, what begins another clause, and what ends a sentence.
lead = (?:(?:hey|hi|hello|hallo|ok|okay|so|well|and|but|also|then|oh|ah|hm+|btw|by the way|fyi|thanks|thank you|thx|
    great|perfect|yes|yeah|no(?=[,.!])|sure|ha(?:ha)+|lol|sorry|alright|right|now|anyway|again|first|finally|listen|
    look|one (?:more|last|quick) thing(?! to)|quick (?:thing|note|one|question|favou?r)|no worries|remind me|
    just so you know(?: for (?:next time|later))?|for (?:next time|later|the future)|important|just (?:curious|
    checking)|(?:i'?m|im) (?:just )?(?:curious|wondering)|i wonder|out of curiosity|note to self(?: via you)?|
    new (?:job|project|year|plan|rule)s?|(?:from now on|going forward|remember to|make sure (?:to|you))
    (?=,? {1,3}(?:always|never)\b))(?: ?[,.!:;–—] {0,2}| - | )|(?:while|when) you'?re at it, |
    (?:before (?:we|i|you)|since|because)\b[^,.:!?\n]{0,60}[,:] {0,2}){1,6}
ask = (?:(?:please|pls|plz|kindly|just|also|do(?= (?:please|remember|keep|make|note|forget)\b)|always(?= (?:remember|
    keep|bear)\b)|(?:can|could|would|will|can't|couldn't|won't) (?:you|u|we)(?: please| maybe| also| just|mind)?|(?:you|
    u) (?:can|may|should|could|must|need to|have to)(?: now| please| also| just)?|(?:i|we|i'd|we'd|id)
    (?: would)?(?: really| also| just)? (?:want|need|like|love|prefer|ask|appreciate) (?:you to|
    it if you(?: could| would)?)|(?:it would|it'd|would) (?:help|be (?:nice|great|good|helpful))
    (?: a lot| me)?(?: if you(?: could| would)?)|make sure (?:to|that you|you)|be sure to|would you mind|mind if you)
    [ ,]{1,3}){1,4}
clause = (?:[,;(–—]| -) {0,2}(?=(?:so|and|but|then|please|pls|plz|just|can you|could you|you should|you need|for future|
    from now|do not|don'?t|(?:<remember>|keep|bear|make a note of|take a note of) (?:this|that|it|these|those))\b)|
    [ ](?=(?:so|and|but) (?:please |pls |just |can you |could you |also |do )?(?:remember|
    forget|keep|don'?t|delete|erase|remove|note|save|make)\b)|\((?=do|please|pls|off|not|no\b)
inner stop = \b(?:dr|mr|mrs|ms|prof|st|no|nr|e\.g|i\.e|z\.b|approx|ca|vs|inc|ltd|jr|sr|v|vol|fig|mt|etc(?= [a-z]))\.
    (?=\s)|(?<!\w)(?-i:[A-HJ-Z])\.(?= ?[A-Za-z])|(?<=[a-z0-9])\.(?=[a-z0-9])|(?<=\d)[:,](?=\d)
sentence end = (?-i:(?<=[.!?])\s+|(?<=[。！？])\s*|(?<=[^\s:])[ \t\r]{0,9}\n\s*+(?![-*•\da-z])|(?<=[)])\s(?=[A-Z])|
    (?<=\w)\s(?=[:;]-?[)D]))
# Before a colon, they say that what follows it is for the memory.
memory word = \b(?:remember|rmbr|rember|memor|mind\b|note|forget|keep|save|store|jot|write|put|file|reference|record|
    between|know\b|tell|question|rule|always|never|thing|reminder|quick|begin|start)|记|記|忘|存|备|備|参考|资料|情况|
    覚え|メモ|記憶|保存|追加|オフレコ|私下
# Before a question mark, they make a request of a statement.
tag = [,.!;，。]\s{0,9}(?:ok(?:ay)?|k|all\s?right|yeah|please|pls|(?:will|would|can|could)\s{1,9}you
    (?: (?:do that|please|manage that))?|is that (?:ok|possible|okay)|got it|deal|(?:好|行|可以)[吗嗎])
thanks = (?:[:;]-?[)D(P]|<3|[\U0001f300-\U0001faff]|\b(?:haha|hehe|lol|thx|thanks|thank you|please|pls|ok|okay)|好吗|
    好嗎|好不好|行吗|可以吗|谢谢|謝謝)
laugh = \b(?:(?:ha|he){2,}h?|lol|lmao|rofl)\b|[:;]-?[)D]|[\U0001f600-\U0001f606\U0001f923]
# Where another speaks, or a user as another.
play = \b(?:role-?play|pretend|imagine|act(?:ing)? as|you are now|in (?:this|the|my|our) (?:game|story|novel|play)|
    dear (?:all|team))\b
quoted = "[^"\n]{1,400}"|“[^”\n]{1,400}”|„[^“”\n]{1,400}[“”]|`[^`\n]{1,400}`|(?<!\w)'[^'\n]{2,400}'(?!\w)|
    [「『《][^」』》\n]{1,400}[」』》]
# What a question is about, and what is no part of that in Chinese.
topic word = \b(?:about|on|regarding|concerning|of|for|from) {1,2}(?P<what>(?!(?:yours?|me to|you|that memory|
    everything|all|what)\b)[^.!?,;:\n]{2,80})
zh talk = 关于|關於|什么|什麼|哪些|(?:有没有|有沒有)|(?:你|我)?(?:之前|以前|上次|还|還|都)?(?:让你|跟你|叫你|請你|
    请你)?(?:记得|記得|记住|記住|记了|記了|记的|記的|记着|保存的?|存的?|知道|說過|说过)的?|列出|告诉我|告訴我|看看|
    查一下|查查|你的?(?:记忆|記憶)(?:里|裡|中)|是什么|来着|吗|嗎|呢|所有|全部|的(?:信息|情况|事情|内容|內容)|请|請|你|
    都|？|\?|^[，,\s]+

# Statements after "remember" without "that": what I or we, or something of ours, is or does. Stories and questions
# start differently: "remember the time we", "remember I told you", "remember my name".
stated = (?:i|we)(?:'(?:m|re|ll|d (?:like|prefer|rather))| (?:(?:always|never|usually|only|also|still|now|just|
    really) ){0,2}<our verb>)|(?:my|our|the) (?:(?:(?:and|of|for|in|on|at|to|from|with|by) (?:my|our|your|the|an?)|
    (?!<moment>)<noun>) ){0,6}<noun>(?: and i)? <verb>
our verb = (?:am|are|have(?! (?:been|told|said|asked|mentioned|shown|given|seen|done|met|had)\b)|was born|own|like|
    love|hate|prefer|want|need|use|live|work|eat|drink|speak|meet|run|build|test|write|keep|store|host|support|release|
    report|ship|deploy|follow|can|cannot|must|should|will|do not|would (?:like|prefer|rather)|(?:are|do|ca|wo|should|
    must)n['’]t)\b
verb =
(?:is|are|was|were|has|have|cannot|should|always|never|do not|does not|(?:is|are|was|were|do|does|ca|wo|should|must|has|
    have)n['’]t)\b
(?:can|must|will)\b(?! (?:of|for|in|on|at|by|with|to)\b)
(?:needs?|uses?|prefers|likes|loves|hates|wants|lives|works|runs|starts|ends|opens|closes|costs|expires)\b
    (?! (?:of|for)\b)
noun = (?!(?:i|you|he|she|it|we|they|me|us|him|her|them|my|your|his|our|their|its|the|an?|th(?:is|at|ese|ose)|who|whom|
    whose|which|what|when|where|why|how|if)\b)[\w'’-]{1,40}
# "The meeting time is" is a statement; "the first time Anna was" starts a story.
moment = (?:time|moment|occasion|day|night|morning|evening|afternoon|week|weekend|month|summer|winter|year)s?\b

# After "forget that", a statement begins with a word that cannot follow a demonstrative, or has a verb soon after its
# first noun. "That plan", "that question I asked" and "that, let us go on" mean what was just said.
statement = ["'“‘(]{0,3}(?:<subject>|<ending s> <bare verb>|(?!<break>)<term> (?:(?!<break>)<term> ){0,3}?(?:<verb>|
    <ending s>|<past>)|<name>(?:,? (?:and |of )?<name>){0,3} (?:<verb>|<bare verb>|[a-z]{1,20}ed\b)|
    [\u3041-\u30ff\u3400-\u9fff\uac00-\ud7af])
subject = (?:i|you|he|she|it|we|they|my|your|his|her|our|their|the|an?|this|these|those|there|all|any|both|each|every|
    everyone|everybody|nobody|no|some|most|many|always|never)(?:['’][a-z]{1,3})? \w
bare verb = (?:am|go|like|love|hate|prefer|need|want|use|live|work|eat|drink|speak|run|have|do|make|take|cost|start|end|
    get)\b
break = (?:i|you|he|she|it|we|they|who|which|that|because|since|as|if|when|where|and|or|but|for|of|from|with|about|in|
    on|at|to|please|now)\b
ending s = [a-z]{2,20}(?<![siu'’])s\b
past = (?:became|bought|called|changed|drove|got|had|joined|left|lost|made|married|met|moved|owned|quit|ran|sold|
    started|stopped|studied|took|used|wanted|went|won|worked|wrote|may|might|could|would|shall)\b
# A word, or a name such as node.js, C++ or AT&T.
term = [\w'’.+#&/`*-]{1,40}
name = (?-i:[A-Z])[\w'’.&-]{0,40}

# Rules: what a model is told to do, and not what it did. "Always get a 403" reports a bug.
imperative = (?:use|do|run|answer|reply|respond|write|commit|push|merge|deploy|add|put|format|call|address|include|
    explain|suggest|recommend|mention|translate|cite|sign|quote|test|lint|name|prefer|avoid|check|ask|tell|keep|
    make sure|let|have the|delete|touch|edit|change|rename|install|import|speak|send|round|capitali[sz]e|indent)\b
# What "always use" or "never do" speaks of, if it says nothing without the messages before it, or is no object.
no object = (?:it|them)\b|(?:this|that|these|those|one|anything|nothing)(?= {0,2}(?:\Z|[.,;:!?]|(?:again|any ?more|
    either|too|anyway|now|then|here|there)\b))|(?:i|you|he|she|we|they|to)\b

# What is left of "what do you remember about me" and the like asks for everything.
oneself =
(?:(?:about|of|me|my|us|our|myself|ourselves|mine|all|anything|everything|so|far|already|now)\b[ ,]{0,3}){1,9}
(?:<zh about>)?我[们們]?(?:自己)?的?(?:什么|什麼|哪些)?(?:事情?|一切|信息|資訊)?[吗嗎呢]?
(?:私|僕|俺|自分|わたし|ぼく|我々)(?:たち|達|ら|自身)?[のは]?
# "The matter of", after what is to be forgotten in Chinese, and "this" or "its name" where a statement should be.
zh matter = 的(?:事情?|信息|資訊|记忆|記憶)|[这這]件事情?
this alone = [こそあ](?:れ|の.{0,3})|[这這那].{0,3}|它|.{0,2}名字
""")
# Where a request begins.
_AT_START: Final = read_tables(r"""
# To remember.
remember =
<remember>(?: <it>)?<later><that><rest>
<remember>,? (?P<what>(?:<stated> )\w[\s\S]{0,1500})
(?:keep|bear) <it> in mind<later> ?:<rest>
<never forget>(?: <it>)?<later> ?:<rest>
<note>(?: <it>)? (?:to|in|into) <your memory><later>(?:<that>| ?, (?=<me>\b))<rest>
<note> (?:to|in|into) memory<later> that\b<rest>
save to memory ?:<rest>
commit <it> to memory(?: please)? ?[:,]<rest>
(?:save|store|note|remember|retain) the fact that\b<rest>
for (?:your|future|later) (?:reference|information|memory) ?[:,]<rest>
know,? for(?: (?!that\b)[a-z']{1,20}){1,5},? that\b<rest>
(?:make|take|keep)(?: yourself)? (?:a |an )?(?:quick |mental |little |short )?(?:note|record)<later>(?: that\b| ?:)
    <rest>
# What notes and files can hold, too: only of what the user says of themselves.
remember own =
<never forget><later> that\b<rest>
<note><later>(?: <it>)?<later>(?:(?<!note) that (?=<me>\b)| ?:)<rest>
# At the beginning of a message only: elsewhere it is mostly talk.
note = note(?: that(?=[ :,])|(?= ?:))[ ,:]{1,3}(?:\s{0,4})(?P<what>\S[\s\S]{0,1000})\Z
backward =
(?:(?:<remember>|<never forget>) <it>|(?:keep|bear) <it> in mind|know <it>(?= (?:for next time|tomorrow|next time|
    in (?:the )?future|from now on))|(?:make|take) a note of <it>|<note> <it><to memory>)<to memory>?<later><stop>
standing =
(?:from (?:now|today|here|this point|tomorrow) on(?:wards?)?|going forward|in (?:the )?future(?=[,:]| (?:please|always|
    never|don'?t|do not|only)\b)|henceforth|starting (?:now|today)|from today|as of (?:now|today))[,:]? {1,3}(?:please |
    pls |can you |could you |i want you to |i'd like you to |you should |you )?(?:(?:no|don'?t|do not|only|(?:always|
    never) <imperative>|whenever|<imperative>|give|show|make|stop|treat|assume|skip|talk|follow|list|refer)\b|(?:i|we)
    (?: would|'d)? (?:want|need|prefer|like|expect) )
(?:whenever|every ?time|when|if) (?:i|we|you) [^.!?\n]{1,80}?(?:\b(?:from (?:now|today) on|in (?:the )?future|
    going forward),? ?|, always (?=<imperative>))\S
rule = (?:always|never) (?:ever )?(?:(?:use|do) (?!<no object>)|(?!(?:use|do)\b)<imperative> (?!(?:it|this|that|them|
    you)\b))\w

# To forget.
forget fact =
(?:forget|un-?remember|unlearn|stop remembering|no longer (?:remember|keep))
    (?: about)?(?: the fact)? that ?:? {1,3}<fact>
<delete> from (?:your )?memory that {1,2}<fact>
<delete>(?: about)? the fact that {1,3}<fact> from (?:your )?memory<alone>
(?:don'?t|do not) remember that {1,2}<fact> (?:any ?more|any longer)<alone>
forget =
<delete> (?:about )?(?:everything|anything|all|whatever|what|the (?:things|stuff|facts?|details))(?: that)? <known
     about> <topic>
<delete> (?:(?:all|any|your|every|my|those|of|the) ){0,4}(?:(?:old|outdated|wrong|<saved>) )?(?:memories (?:(?:that )?
    you (?:have|saved|stored|keep|kept|made) )?(?:about|of)|memory about) <topic>
(?:forget|delete|remove|erase|drop) the memory of (?P<what>(?:my|our|me|us)\b[^.!?,;:\n]{0,80})
<delete> (?:(?:all|any|every|those|of) ){0,3}your (?:(?:old|outdated|wrong|<saved>) )?<noted> (?:about|regarding|
    concerning) <topic>
<delete> <topic> (?:from|out of|off) (?:<your memory>|what you (?:know|remember)[a-z ]{0,10})\b
<delete> (?P<what>(?:my|our) [^.!?,;:\n]{2,60}?) from memory<alone>
<delete> (?:from|out of) (?:<your memory> ?[:,]? {0,2}|memory ?: ?)<topic>
(?:everything|anything|all|what|whatever)(?: that)? <known about> <short> (?:should|must|can|has to|needs to)
    (?: now| please)? (?:go|be (?:deleted|removed|erased|forgotten|wiped|gone|cleared))\b
(?:(?:you )?(?:don'?t|do not)(?: (?:need|have) to)?|(?:i|we) (?:don'?t|do not|no longer) (?:want|
    need) you to) (?:remember|store|save) <own topic> (?:any ?more|any longer|no more)
(?:you no longer (?:need|have) to remember|(?:i|we) (?:no longer|don'?t) (?:want|need) you to remember|
    no longer remember|stop remembering) <own topic>
un-?(?:remember|learn) <topic>
forget own = forget (?:about )?(?P<what>(?:my|our) (?!(?:last|latest|previous|earlier|first|other|own|little|whole|
    silly|stupid)\b)(?![^.!?\n]{0,60}\b<talked of>\b)[^.!?,;:\n]{2,60})<alone>
forget alone = forget about (?P<what>(?!(?:my|our) )(?![^!?\n]{0,160}(?:[.;:] |, (?:let|just|please|we|i|you|do|go|
    start|use|make|show|it|that|focus|how|what|is|are)\b))[^!?\n]{2,160}?)[.!? ]{0,3}\Z

# To look up.
preferences = (?:what are|list|show(?: me)?) my preferences\b(?P<what>[^\n]{0,80})
recall =
(?:what do you remember(?: about)?|show me what you remember|list my memories|what memories do you have)\b(?P<what>
    [^\n]{0,200})
what are my (?P<what>(?:[\w-]{1,20} ){1,3}preferences)\b
recall own = do you remember (?P<what>(?:me|my|our|us|we|i)\b[^\n]{0,200})
asking = (?:what(?:'?s)?|which|who|when|where did we|do (?:you|u)(?! remember (?:when|how)\b)|did you|have (?:you|i|we)|
    am i|are (?:you|they|these|those)|is (?:there|it|that)|how much|anything|search|sum up|disclose|show|list|give|tell|
    print|read|summari[sz]e|display|repeat|let me see|recall)\b
self = (?:me|myself|(?-i:us)|ourselves|mine|our (?:earlier |last |previous )?chats?)\b

# Not to remember.
withhold =
<not> (?:remember|memori[sz]e)(?:ing)? (?:(?:any of )?this(?: one| part)?|the following|what follows)<close>
<not> <keep> (?:<message>|<said>|(?:the following|what follows)(?= {0,2}[.:,]))
<not> <keep> <this> (?:anywhere|(?:to|into|in|on) (?:<your memory>|the record|your (?:head|brain|database)))\b
<not> <keep> (?:any of )?(?:this|that)(?: one)? (?:to|in|into) memory<close>
<not> (?:(?:make|take|keep) (?:a |any )?(?:notes?|records?) of|(?:hold|hang) on ?to) (?:<this>|<message>|<said>)
(?:keep|leave) (?:<this>|<message>) (?:(?:out of|off|away from) (?:<your memory>|the records?|your (?:head|database|
    logs?))|between <us>|off the record|unsaved)\b(?!-)
(?:<message>|<said>|the following|this) (?:should|must|shall|may|can|better|needs to)(?:n'?t| not| never)
    (?: to)? (?:be |get )(?:remembered|memori[sz]ed)\b
(?:<message>|<said>|the following) (?:should|must|shall|may|can|needs to)(?:n'?t| not| never)
    (?: to)? be <kept>(?: anywhere)?<close>
(?:strictly |this is |that'?s |it'?s |just |totally )?off the record<off>
(?:strictly |just |this is |this stays |that stays )?between <us><off>
this stays between <us>\b(?!-)
(?:this is )?not for (?:the record|the memory|your memory)<off>
(?:do|have|take|keep|discuss|talk|treat|consider) (?:this|it)(?: one)?\b[a-z' ]{0,20}\boff the record\b
no (?:notes|memory|memories|saving|storing|remembering)(?: please)? (?:of|on|about|for) (?:(?:any of )?this(?: one)?|
    <message>)<close>
(?:answer|help|reply|explain|tell me|respond)\b[^.!?\n]{0,40} without (?:remembering|memori[sz]ing) (?:<this>|<message>)
    <close>
# Japanese.
ja forget =
(?P<what>[^。！？\n]{2,60}?)(?:を|は|も|って)?(?:記憶|あなたのメモリー?)(?:の中)?からは?(?:全部|すべて|全て)?<ja erase>
(?P<what>[^。！？\n]{0,20}(?:<ja self>)[^。！？\n]{1,30}?)[をはも]?メモリー?から<ja erase>
[^。！？\n]{0,30}?記憶(?:の中)?(?:から|にある)(?P<what>[^。！？\n]{2,60}?)(?:を|は|も|だけ)(?:全部|すべて|
    全て)?<ja erase>
(?P<what>[^。！？\n]{1,60}?)(?:について|に関して|に関する|の)?、?(?:覚えている|覚えてる|覚えた|記憶している|記憶してる|
    記憶した|知っている|知ってる)(?:こと|内容|情報|もの|の)?[をはも]?、?(?:全部|すべて|全て|もう)?<ja erase>
[^。！？\n]{0,30}?(?:覚えている|覚えてる|記憶している|記憶してる|前に?(?:教えた|話した|伝えた))(?P<what>(?!やつ|もの|
    こと)[^。！？\n]{2,40}?)[をはも、](?:全部|すべて|全て|もう)?<ja erase>
(?P<what>[^。！？\n]{2,60}?)(?:という|っていう|って|との|の|に関する)記憶[はを]?[^。！？\n]{0,14}?<ja erase>
(?P<what>[^。！？\n]{2,60}?)(?:っていうの|というの|ということ|のこと|の件|の話|ルール)(?:は|を|も)?、?(?:もう|全部|
    すべて)?忘れて<ja please>(?:\Z|[。！])
(?P<what>[^。！？\n]{2,60}?)(?:のこと|の件|こと|の話|ルール)?(?:は|を|も)?(?:もう|これ以上)(?:覚えて(?:おか|い)?なくて|
    覚えておく必要は|覚えてい?ては?ほしくない)も?(?:いい|大丈夫|結構|ありません|ない|です)
ja forget subject = (?:[^。！？?]{1,40}、)?(?P<what>(?![こそあ][のれ]|今の|さっき)[^。！？?、\n]{1,40}?)
    のこと[をは]?忘れて<ja please>\Z
ja forget thing = (?:[^。！？?]{1,40}、)?(?P<what>(?![こそあ][のれ]|今の|さっき)[^。！？?、\n]{2,40}?)(?:という|って|
    な)?こと[をは]?忘れて<ja please>\Z
ja remember = (?P<what>[^。！？\n]{3,300}?)(?:という(?:こと|ルール|の|ふう)|って(?:こと)?|こと|と|の)?(?:を|は|も|
    だけ)?[、,]?(?:必ず|ちゃんと|しっかり|よく|どうか|ぜひ)?<ja keep><ja please>(?:(?P<end>\Z|[。！!？?、,\s（(])|$)
ja remember after = (?:[^。！？、：:\n]{0,16}(?:に|は|、|て)?)?<ja keep><ja please>(?:こと(?:が|は)
    [^。：:\n]{0,8})?[。：:、,！!\s]{1,3}(?P<what>[^？\n]{3,300})
ja kept = (?:(?:(?!こと)[^。、]){0,10}(?:に|は|を|も|て|と))?<ja keep><ja please>\Z
ja filler = (?:しっかり|ちゃんと|必ず|よく|(?:今後|次回|次回以降|将来|これから)(?:のため|も)?に?|(?:プロフィール|
    メモリー?|記憶)に?)[、,]?\Z
ja whole = (?:<ja self>)(?:に関する|について|のこと|の)?(?:情報|データ|記憶|こと)?\Z
withhold own =
<do not> (?:save|store|record|note|write down) (?:any of )?(?:this|that)(?: one)?<shut>
<do not> (?:save|store|record|note|write down) (?=that <me>\b)
""")
# Anywhere in a sentence.
_WITHIN: Final = read_tables(r"""
of memory =
\b(?:i|we) (?:have )?(?:ever |once |already )?(?:told|asked|gave|taught|said(?: to)?|mentioned(?: to)?) (?:to )?you\b
\b(?:do|did|have|can|could)? ?you(?:'ve|
    'd| have| had| still| all| already| actually| ever| got){0,4} (?:(?:remember(?:ed)?|recall|memori[sz]ed?|learn(?:ed|
    t))\b|(?:saved?|stored?|noted|kept|written down)\b(?=[^.!?\n]{0,40}\b(?:about|regarding|on|from)\b))
\b(?:in|from|is|check|search|all|list|on|say|says|contain|according to) (?:your|that) (?:memory|memories|notes|records)
    \b
\b(?:ask(?:ed)?|tell|told) you to (?:remember|note|save|keep)|\bgot (?:saved|stored|noted)
\b(?:saved|stored|on record|on file)\b(?=[^.!?]{0,30}\b(?:about|regarding)\b| ?\?)
do (?:you|u) still know (?:my|our|where|what|who|when)
knows = \b(?:do you|did you|you(?:'ve)?|you already|you still) (?:already |still |actually )?(?:know|have|got)
    (?: (?:anything|something|everything|all))? (?:about|on) (?:me|my|(?-i:us)|our|myself)\b
deletion = \b(?:forget|delete|erase|remove|wipe|clear|purge|drop|get rid)\b
own = \b(?:me|my|mine|our|(?-i:us)|i|we|myself)\b|\b(?:in|from|is|check|search|list|all) your (?:memory|memories|notes)
    \b

# Not to remember, wherever it stands in a sentence.
withheld =
(?:\b(?:not|never|nothing|none|dont|dnt)|n't) (?:(?!think|know|believe|see|find|recall|understand|forget|hesitate|
    delete|erase|remove|lose)[a-z']{1,12} ){0,4}?(?:<keep>|goes|go|end up|stays?|land|be <kept>|it <kept>)
    \b[^.!?:\n]{0,30}?\b(?:in|into|to|from|of|on) (?:<your memory>|my profile|anything you (?:retain|keep))
    \b(?! (?!please|pls|at all|for|so|and|but|because|since|ok)[a-z])
\bno trace of (?:this|it)\b[^.!?:\n]{0,20} your memory\b
\b(?:switch|turn|with) (?:your |the )?memory off\b|\bswitch off (?:your |the )?memory\b
\b(?:do not|don'?t|wouldn'?t|would not) (?:want|like) (?:this|any of this|<message>)
    (?: to be| being)? <kept>(?: anywhere)?<close>
\bwithout (?:saving|storing|keeping|remembering|recording|memori[sz]ing) (?:any of (?:it|this)|<message>)\b
\bexclude (?:<message>|this) from (?:anything|what|everything|your)\b
(?:[,;(–—] {0,2}|\b(?:please|pls),? )(?:do not|don'?t|never) (?:remember|memori[sz]e) (?:any of )?(?:this|that|it)
    <close>

# Chinese and Japanese.
zh remember =
(?:存|写|寫|加|记|記|放|保存)[到进進入](?:你的?)?(?:长期)?(?:记忆|記憶|备忘录|備忘錄)(?:里|裡|中|
    库)?[：:，,]\s?(?P<what>[^。！？\n]{3,300})
(?:\A|[，,、；:\s])(?:<zh ask>){0,2}[把将將](?P<what>[^，。！？：:\n]{3,60}?)(?:这件事|這件事|这一点)?<zh save>
(?:\A|[，,、；:\s])你?(?:(?:<zh ask>){1,2}(?:<zh save>|记得|記得)(?!的)(?:哦|喔|喽|啊|啦|一下|这点|
    这件事)?[：:，,\s]{0,2}|(?:[把将將](?:<zh it>))?<zh save>(?:哦|喔|喽|啊|啦|一下|这点|这件事)?[：:，,]\s?)
    (?P<what>[^。！？\n]{3,300})
(?:\A|[，,、；:\s])(?:<zh save>|你[记記]一下)(?P<what>[我咱](?:<zh states>)[^。！？\n]{1,300})
(?:别|別|不要|千万别|千萬別)再?(?:忘了|忘记|忘記)[，,：:]?(?P<what>[^。！？\n]{0,3}[我咱](?:<zh states>)
    [^。！？\n]{1,200})
zh remember before = (?:[把将將]?(?:<zh it>)(?:都|也|给我|給我)?(?:你?(?:得|要))?(?:<zh save>|(?:存|写|寫|加|记|記)
    [到进進入](?:你的?)?(?:记忆|記憶)[里裡中]?)|(?<![别別再不])(?:<zh ask>)?<zh save>(?:<zh it>)?)(?:哦|喔|啊|哈|啦|了|
    吧|，谢谢|，謝謝|一下)?\s{0,3}(?:\Z|[，,。！!～~])
zh standing = (?:\A|[，,、\s])(?:请|請|麻烦|麻煩)?(?:以后|以後|今后|今後|从现在开始|從現在開始|从今以后|從今以後|往后|
    往後|从今天起|從今天起|從今天)(?!的|会|會|想|要是|可能)[，,]?[^。！？?\n]{0,24}?(?:都用|请(?!求)|請(?!求)|别|別|
    不要|叫我|一律|给我|記得|记得|尽量)[^。！？\n]{1,200}
zh forget =
[把将將](?P<what>[^，。！？\n]{2,40}?)[从從在]<zh memory>(?:给我|給我|都|全部|全)?<zh erase>
[从從在]<zh memory>[把将]?<zh erase>(?P<what>[^，。！？\n]{2,40})
[把将將]?你所?(?:知道|记住|記住|记得|記得|记着|保存)的?(?:所有|全部|
    一切)?的?(?:<zh about>)?(?P<what>[^，。！？\n]{1,40}?)的?(?:内容|信息|資訊|事情|事|记录|資料|资料|一切)?(?:都|全部|
    全)?(?:给我|給我)?<zh erase>
(?!忘了)<zh erase>你所?(?:(?:知道|记住|記住|记得|記得)的(?:所有|全部|一切)?的?(?:<zh about>)?|(?:保存|存)的(?:所有|
    全部)?(?:<zh about>))(?P<what>[^，。！？\n]{1,40})
(?!忘了)<zh erase>(?:所有|全部)?(?:关于|關於|有关|你对|你對)(?P<what>[^，。！？\n]{1,40}?)的?(?:所有|全部)?(?:记忆|記憶)
[把将將](?:所有)?(?:<zh about>)(?P<what>[^，。！？\n]{1,40}?)的(?:记忆|記憶)(?:都|全部|全)?<zh erase>
(?:\A|请|請)(?:忘记|忘記|忘掉)(?:<zh about>)(?P<what>[^，。！？\n]{1,40}?)(?:的(?:事情?|信息))?\Z
(?:不用|不需要|不必|别|別|不要)再[记記](?:着|著|住|得)?(?P<what>[我咱][^，。！？：:\n]{1,40}?)(?:这件事|這件事|了|的事|
    \Z)
(?:之前|以前|上次)?(?:让你记的|你记的|你記的|你?记忆里|記憶裡)(?P<what>[^，。！？\n]{2,40}?)(?:那条|那條|这条|這條)
    [^。！？\n]{0,14}?<zh erase>
[把将](?P<what>[我咱][^，。！？\n]{2,40}?)(?:都|全|统统)?(?:给我)?(?:忘了|忘掉|忘记)(?:吧|好吗)?\Z
(?:忘掉|忘记|忘記)(?:我|我们)(?:之前|刚才|上次|以前)?(?:跟你)?(?:说|說|提|讲|告诉你)
    (?:过)?的?(?P<what>[^，。！？\n]{2,40})
zh forget thing =
\A(?:请|請)(?:忘记|忘記|忘掉)(?!那|这|這|刚|剛|了|上面)(?P<what>[^，。！？?\n]{1,40})(?:\Z|[，,])
\A(?:忘记|忘記|忘掉)(?P<what>(?:我|咱|[^，。！？?\n]{1,12}(?:是|在|喜欢|喜歡))[^，。！？?\n]{1,40})(?:\Z|[，,])
zh preferences = (?:\A|[，,。])(?:请|請)?(?:告诉我|告訴我|列出|显示|顯示)?我的(?:偏好|喜好)(?:是什么|是什麼|
    有哪些)?[？?。]?\Z
zh recall = 你[^。！？\n]{0,10}?(?:记得|記得|记住|記住|记了|記了|记下|记着|保存|存了|存的|记录了|知道|了解)
    [^。！？\n]{0,12}?[我咱][^。！？\n]{0,40}|[我咱][^。！？\n]{0,10}(?:让你|叫你|請你|请你|跟你)(?:记|記|说|說)
    [^。！？\n]{1,40}|(?:有没有|有沒有)(?:存|记|記|保存)过?[^。！？\n]{0,8}我[^。！？\n]{0,30}|你(?:还|還)?(?:对|
    對)?我[^。！？\n]{0,6}(?:了解|知道)多少|(?:还|還)(?:记得|記得)我[^。！？\n]{1,30}|你(?:那儿|那里|那裡)
    [^。！？\n]{0,10}(?:记录|記錄|有)|你的?(?:长期)?(?:记忆|記憶|备忘录|笔记)(?:里|裡|中|库)[^。！？\n]{0,40}|
    你[^。！？\n]{0,8}(?:记得|記得|记住|記住|记了|记录了|保存了)(?:些)?(?:关于|關於|什么|什麼|哪些)[^。！？\n]{0,40}
zh asked = 什么|什麼|哪些|哪|吗|嗎|有没有|有沒有|多少|列出|告诉我|告訴我|给我看|给看|看看|打印|说说|查一下|查查|念一下|
    总结|總結|来着|？|\?
zh please = [请請]|能不能|能否|能把
zh open = 哪些|什么|什麼|怎么|怎麼|如何|为什么|(?:老师|他|她|书上|文档|里|上)[说讲写]|故事
# "写" is to write and "保存" is to save a file, too: these need a word for the message, or the memory.
zh withhold =
<zh message>[，,]?(?:你|我|就|请|請|也|都|千万|先){0,3}(?:<zh no>)(?:再|给我|給我|被)?<zh keep><zh end>
(?:<zh no>)[把将將](?:<zh message>)<zh keep><zh end>
(?:<zh no>)<zh keep>(?:住|下)?(?:<zh message>)<zh end>
(?:<zh no>)(?:[把将將][这這][个個][记記][录錄住]?|[记記][录錄住]?[这這][个個])<zh end>|[这這][个個](?:<zh no>)
    [记記][录錄住]?<zh end>
(?:<zh no>)(?:[把将將]?(?:<zh message>))?(?:再|给我|給我)?(?:存|写|寫|放|记|記|保存)[到进進入在](?:(?:你的?)?(?:长期|
    長期)?(?:记忆|記憶|小本本)|(?:你|我)的(?:资料|資料|档案|笔记))
(?:<zh no>)(?:记住|記住|记下|記下)(?:来|來)?<zh end>
(?:关掉|关闭|關掉|关上)(?:你的)?(?:记忆|記憶)|一个字都(?:不要|别)(?:存|记)|(?:说完|看完|看過|回答完)(?:就|请|請)(?:忘|
    删)
ja back = これ|それ|この|その
ja not = くれない[。、]?\Z
ja standing = (?:\A|[。、\s])(?:これからは?|今後は?|以後は?|以降は?|今度からは?|今日からは?|いつも|毎回)
    [、,]?[^。！？\n]{2,120}?(?:て|で|ように(?:して)?|ないで|こと)<ja please>(?:\Z|[。！、,\s])
ja preferences = \A私の好みは?(?:何(?:ですか)?)?[？?。]?\Z
ja recall = (?:覚えてい?(?:る|ます|た|くれて)|覚えてもらった|覚えた|記憶し(?:た|てる|ている|てます|ています|ておられ)|
    保存し(?:て(?:ある|る|いる|ます)|た)|メモし(?:て(?:ある|あった|いる|た)|た)|保持して|登録され|
    控えて(?:くれて)?(?:る|ある|いる)|記録(?:に|が)(?:残|ある|あり)|学習した|指定してた|言ってた(?:っけ|か)|
    教えた(?:でしょ|よね|っけ)|聞いたこと|メモリ(?:に|の中|には)|知ってい?(?:る|ます)|把握して)
ja asked = 教えて|見せて|一覧|何|なに|どこまで|どんな|どれ|言ってみて|あったっけ|ある|ますか|まとめて|リスト|確認|列挙|
    表示|だっけ|？|\?
ja own =
何を覚えて
<ja self>|家族|前に|当方|以前|今まで|これまで|こないだ|この前|(?<!ワーキング)メモリー?(?:に|の中|には)|メモしてあ|
    (?:について|のこと|の件)[^。]{0,12}(?:覚え|記憶|保存|メモ|控え|記録)
ja saying = って(?:英語|日本語|中国語|フランス語|何語)|(?:なん|何)て言う|という意味|と言われ|と書いて
ja topic = (?P<what>[^。！？、\n]{1,40}?)(?:について|に関して|のこと|の件)
# "保存" is to save a file, too, and "メモリ" is where programs keep data.
ja withhold =
(?:<ja message>)(?:は|を|も|だけは|の内容は)?(?:絶対に?|一切|どこにも|メモリー?には?|記憶には?|記録には?|
    、){0,2}(?:記録|記憶|保存|保持|メモ|覚え|残|メモリ)に?は?(?:し|残さ|入れ|さ|たりし|取ら)?(?:ないで|ないよう|
    ない約束|なくて(?:いい|大丈夫|結構)|ずに)
(?:これ|それ)[はをも]?(?:絶対に?)?(?:記憶し|覚え(?:たりし)?|メモし)(?:ないで|なくて(?:いい|大丈夫|結構)|ずに)
(?:記憶|プロフィール)には?(?:反映|登録|保存|記録)?(?:させ|さ|し|入れ|残さ|書か)?(?:ないで|ずに)
記憶[はを]?オフ|記憶の対象外|オフレコ(?:で|です|に|だけど|だよ|の話|なん)|どこにも(?:記録|保存|残)(?:し|さ)?ないで
(?:\A|[、。（(\s])記憶しないで|(?:メモ|記録)[はを]?(?:取ら|とら)ない(?:で|約束)|(?:聞いたら|答えたら|読んだら)
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
