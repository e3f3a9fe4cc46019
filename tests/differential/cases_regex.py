"""Regular expressions: patterns of every construct on texts that match, nearly match and do not,
and broken patterns."""

import itertools
import random

import numpy as np
import oracle
import tensorflow as tf

R = tf.raw_ops
TEXTS = ["", "a", "b", "ab", "aab", "abc", "abab", "aaa", "A", "aB", "a\nb", "\n", "1", "12", "x9_",
         " ", "\t", "s3://bucket/x", "gs://b", "a.b", "a+b", "]", "-", "^",
         "é", "日本", "aé", "\x7f", b"\xff", b"a\xffb", b"\0", "a\0b", "foo", "foobar", "bar",
         "foo bar", "{2}", "a{2}", "|", "()", "\\", "FOO", "aaaaaaaaaaaaaaaaaaaaaaaab",
         "\N{REPLACEMENT CHARACTER}"]
PATTERNS = [
    "", "a", "ab", ".", "..", ".*", ".+", "a*", "a+b", "a?b", "(ab)*", "(?:ab)+", "(?P<n>a)b",
    "(?<n>a)b", "a|b", "a|b|ab", "|a", "a|", "(a|b)*", "(a|ab)(c|bc)?", "^a$", "^$", "^s3://.*",
    "a{2}", "a{2,}",
    "a{0,2}", "a{1,3}b", "a{0}", "a{,2}", "a{2", "{2}", "a{x}", "[ab]+", "[^a]", "[a-c]*", "[]]",
    "[^]]", "[-a]", "[a-]", "[\\d]+", "[\\]-]", "[[:alpha:]]+", "[[:^alpha:]]",
    "[[:digit:][:space:]]+",
    "[[:word:]]+", "[[:punct:]]", "[^\\n]*", "\\d+", "\\D+", "\\w+", "\\W", "\\s", "\\S+",
    "\\bfoo\\b", "foo\\b.*", "foo\\Bbar", "\\Bfoo", "\\Afoo\\z", "a\\.b", "a\\+b", "\\n", "\\t",
    "\\x41", "\\x{e9}",
    "\\x{65e5}.", "\\101", "\\0", "\\Qa+b\\E", "\\Qa\\Eb*", "\\Q(", "é", "[é-ë]", "日.", "(?i)foo",
    "(?i)[a-b]+", "(?i:a)B", "(?s).*", "(?s)a.b", "(?m)a$\\n^b", "a$\\n^b", "(?-s)a.b",
    "(?i)a(?-i)b", "(?U)a*", "a*?",
    "a+?b", "a??", "(a*)*", "(a*)+b", "(a|a)*b", "(a?){5}a{5}", "((a{3}){2})?", "(x+x+)+y", "()",
    "(|a)+", "[^a-z]+", "(?is)A.B", "foo|bar|foo bar", "(foo|bar)( (foo|bar))?", "\\|", "\\(\\)",
    "\\\\", "a\\0b",
    "[\\x00-\\x1f]", "[\\w\\s]+", "(?:a|b)(?:c|$)", "$", "^", "^^a$$", "\\a", "\\v", "(?m)^$",
    "(?P<x>a|(?P<y>b))+",
    # broken
    "(", ")", "(a", "a)", "[", "[a", "[z-a]", "*", "+a", "a**", "a*+", "\\", "\\y", "\\8", "(?z)",
    "(?", "(?P<>a)", "(?P<n", "a{1001}", "a{3,2}", "\\x{110000}", "\\x{", "((a{100}){100}){100}",
    "a|*",
]


def _array(texts):
    out = np.empty(len(texts), object)
    out[:] = [t if isinstance(t, bytes) else t.encode() for t in texts]
    return out


def _static(pattern):
    return lambda: [R.StaticRegexFullMatch(input=oracle.const(_array(TEXTS), tf.string),
                                           pattern=pattern)]


def _dynamic(pattern, texts=TEXTS):
    return lambda: [R.RegexFullMatch(input=oracle.const(_array(texts) if isinstance(texts, list)
            else texts, tf.string), pattern=oracle.const(pattern, tf.string))]


def _random_patterns(n):
    """Patterns grown from a seed over a small alphabet, and texts over the same."""
    rng = random.Random(5)

    def grow(depth):
        kind = rng.randrange(9 if depth > 0 else 4)
        if kind < 2:
            return rng.choice("abc")
        if kind == 2:
            return rng.choice([".", "[ab]", "[^a]", "\\b", "^", "$", "(?:)", "\\w", "\\W"])
        if kind == 3:
            return rng.choice("ab") + rng.choice("abc")
        if kind == 4:
            return f"(?:{grow(depth - 1)}|{grow(depth - 1)})"
        if kind == 5:
            return (
                f"({grow(depth - 1)})"
                f"{rng.choice(['*', '+', '?', '{2}', '{1,2}', '{0,3}', '{2,}', '*?'])}")
        return grow(depth - 1) + grow(depth - 1)

    return [grow(4) for _ in range(n)]


REPLACED = [
    ("a", "x"), ("", "-"), ("b*", "<\\0>"), ("(a)(b)?", "\\2\\1"), ("a|ab", "x"), ("ab|a", "x"),
    ("a*?", "-"), ("(?i)A", "x"), ("^", ">"), ("$", "<"), ("(?m)^", ">"), ("(?m)$", "<"),
    ("\\b", "|"), (".", "."), ("(?s).", "."),
    ("é", "e"), ("\\w+", "[\\0]"), ("(\\w)(\\w*)", "\\2\\1ay"), ("a", "\\1"), ("a", "\\q"),
    ("a", "\\"), ("a", "\\\\"), ("(a)|(b)", "<\\1\\2>"), ("((((((((((a))))))))))", "\\9"),
    ("(", "x"), ("a**", "x"), ("x{0}", "-"),
    ("(a+|b+)*", "<\\0 \\1>"), ("(?P<n>o)o", "\\1"), ("\\pL", "L"), ("[^a]", ""), ("(?U)a+", "x"),
    ("\\.|\\+", "\\\\\\0"), ("\\z", "!"), ("\\A", "!"),
]


def _replace(pattern, rewrite, replace_global):
    return lambda: [R.RegexReplace(input=oracle.const(_array(TEXTS), tf.string),
                                   pattern=oracle.const(pattern, tf.string),
                                   rewrite=oracle.const(rewrite, tf.string),
                                   replace_global=replace_global)]


def _static_replace(pattern, rewrite, replace_global):
    return lambda: [R.StaticRegexReplace(input=oracle.const(_array(TEXTS), tf.string),
                                         pattern=pattern, rewrite=rewrite,
                                         replace_global=replace_global)]


def replaced():
    for (pattern, rewrite), replace_global in itertools.product(REPLACED, (False, True)):
        yield f"replace/static/{pattern!r}/{rewrite!r}/{replace_global}", _static_replace(
            pattern, rewrite, replace_global)
        yield f"replace/dynamic/{pattern!r}/{rewrite!r}/{replace_global}", _replace(
            pattern, rewrite, replace_global)
    yield "replace/matrix", lambda: [R.RegexReplace(input=oracle.const(_array(["ab", "c"]).reshape(
        1, 2), tf.string), pattern=oracle.const("a"), rewrite=oracle.const("x"))]
    yield "replace/none", lambda: [R.RegexReplace(input=oracle.const(_array([]), tf.string),
            pattern=oracle.const("a"), rewrite=oracle.const("x"))]
    yield "replace/none, broken", lambda: [R.RegexReplace(input=oracle.const(_array([]), tf.string),
            pattern=oracle.const("(a"), rewrite=oracle.const("x"))]
    yield "replace/pattern vector", lambda: [R.RegexReplace(input=oracle.const("a"),
            pattern=oracle.const(_array(["a"]), tf.string), rewrite=oracle.const("x"))]
    yield "replace/rewrite vector", lambda: [R.RegexReplace(input=oracle.const("a"),
            pattern=oracle.const("a"), rewrite=oracle.const(_array(["a"]), tf.string))]


def cases():
    yield from replaced()
    for pattern in PATTERNS:
        yield f"static/{pattern!r}", _static(pattern)
        yield f"dynamic/{pattern!r}", _dynamic(pattern)
    texts = ["".join(t) for n in range(5) for t in itertools.product("ab", repeat=n)] + [
        "c", "abc", "a b", "a\nb", "cab"]
    for i, pattern in enumerate(_random_patterns(150)):
        yield f"random/{i}/{pattern}", _dynamic(pattern, texts)
    yield "scalar", _dynamic("a.*", "abc")
    yield "none", _dynamic("a", [])
    yield "pattern vector", lambda: [R.RegexFullMatch(input=oracle.const(_array(["a"]), tf.string),
            pattern=oracle.const(_array(["a"]), tf.string))]
