"""Names of jobs, several to a word, whatever characters they hold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ullage.job_names import escaped_name, group_label, joined_names, plain_name, separate_names

HOSTILE = st.text(st.sampled_from("ab,\\'/ \n"), min_size=1, max_size=8)


@given(st.lists(HOSTILE, min_size=1, max_size=5))
def test_names_joined_into_one_word_come_apart_again(names):
    word = joined_names(escaped_name(name) for name in names)
    assert sorted(plain_name(part) for part in separate_names(word)) == sorted(set(names))


@given(st.lists(HOSTILE, min_size=1, max_size=4), st.lists(HOSTILE, min_size=1, max_size=4))
def test_joined_words_join_as_their_names_do(left, right):
    words = [joined_names(map(escaped_name, names)) for names in (left, right)]
    assert joined_names(words) == joined_names(map(escaped_name, left + right))


def test_a_word_from_before_the_escape_means_what_it_meant():
    # stores of before have 'a,b' for two jobs, and single backslashes of Windows domains
    assert separate_names("ml/a,ml/b") == ["ml/a", "ml/b"]
    assert separate_names(r"CORP\ann,CORP\bob") == [r"CORP\ann", r"CORP\bob"]
    assert plain_name(r"CORP\ann") == escaped_name(r"CORP\ann") == r"CORP\ann"


@given(HOSTILE | st.sampled_from(["no job", "'no job'", "no", "job"]), HOSTILE | st.sampled_from(["no job", "'no job'"]))
def test_no_two_groups_have_one_label(one, other):
    assert (group_label(one, "job") == group_label(other, "job")) == (one == other)
    assert group_label(one, "job") != group_label(None, "job")
