"""The words of the pages, in each of their languages."""

from string import Formatter

import pytest

from refold import Memory
from refold.web import words
from tests.web.site import client_of, filled


def test_the_words_are_those_of_the_seed() -> None:
    seed = {
        "panel": "技能与记忆",
        "autoDetected": "自动检测",
        "projectSkills": "项目技能",
        "available": "可用技能",
        "memories": "记忆",
        "manageAll": "管理全部...",
        "noSkills": "未发现技能",
        "noMemories": "暂无记忆",
        "detected": "已检测",
        "enabled": "已启用",
        "disabled": "已禁用",
        "generated": "自动生成",
        "refresh": "刷新索引",
        "newSkill": "新建技能",
        "pruneStale": "清理过期",
        "clearAll": "清除全部",
        "addMemory": "添加记忆",
        "source": "来源",
        "priority": "优先级",
        "version": "版本",
        "injectInto": "注入阶段",
        "detectedVia": "检测方式",
        "importance": "重要性",
        "accessed": "访问次数",
        "lastUsed": "最后使用",
        "category": "分类",
        "all": "全部",
        "preference": "偏好",
        "convention": "约定",
        "pattern": "模式",
        "correction": "纠正",
        "fact": "事实",
    }
    assert {key: words.word(key, "zh") for key in seed} == seed
    notices = {
        words.word("learned", "en", count=3): "Learned 3 new facts about this project",
        words.word(
            "activated", "en", what="React + TypeScript", n=3
        ): "Detected React + TypeScript. 3 skills activated.",
        words.word("generated_notice", "en", name="X"): "Generated skill: 'X' from this session",
    }
    assert all(made == wanted for made, wanted in notices.items())


def test_sources_and_tiers_are_said_in_each_language() -> None:
    memory = filled(Memory())
    client = client_of(memory)
    context = next(stamp.seq for event, stamp in memory.events() if type(event).__name__ == "ContextShown")
    for language, generated, tier in (
        ("en", "generated", "stable"),
        ("zh", "自动生成", "稳定"),
        ("ja", "自動生成", "固定"),
    ):
        skills = client.get(f"/projects/acme%2Fapi?tab=skills&lang={language}").text
        assert f'<span class="source generated">{generated}</span>' in skills
        assert f'<option value="generated">{generated}</option>' in skills
        assert f'<span class="meta">{tier} · ' in client.get(f"/contexts/{context}?lang={language}").text


def test_one_is_no_plural() -> None:
    assert [words.word("times", "en", n=count) for count in (0, 1, 2)] == ["0 times", "1 time", "2 times"]
    assert words.word("times", "ja", n=1) == "1 回"


@pytest.mark.parametrize("key", words.KEYS)
def test_a_text_has_the_same_places_in_every_language(key: str) -> None:
    texts = [words.word(key, language) for language in words.LANGUAGES]
    assert all(text.strip() for text in texts)
    places = [sorted(name for _, name, _, _ in Formatter().parse(text) if name) for text in texts]
    assert places[0] == places[1] == places[2]
