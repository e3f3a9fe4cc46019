"""The line of a failed test's text that both sides of run_library.py must agree on."""

import re

# What may differ between two runs of the same failing test.
_VARYING = [(r"0x[0-9a-f]+", "0x"), (r"/tmp/[^\s'\":,]*", "/tmp"), (r"127\.0\.0\.1:\d+", "HOST"),
            (r"\[Op:\w+\]", ""), (r"^\(\d+\) (\w+ ?\w*: )?", "")]
# A line, or its end, that says where an error is from and not what it is.
_WHERE = re.compile(r"(From /job:\S+|\d+ root error\(s\) found\.|Graph execution error:|"
                    r"Detected at node.*|Traceback .*|Node: .*|File \".*\", line \d+, in .*)$")


def error_line(text):
    """The first line of a text that names the error, behind the name of the exception, without
    what varies from run to run."""
    exception = ""
    for line in (text or "").splitlines():
        named = re.match(r"(?:\w+\.)*(\w+(?:Error|Exception))(?:: *|$)", line.strip())
        exception = named.group(1) if named and not exception else exception
        line = _WHERE.sub("", line.strip()[named.end() if named else 0:]).strip()
        for pattern, plain in _VARYING:
            line = re.sub(pattern, plain, line)
        if line:
            return f"{exception}: {line}"[:300] if exception else line[:300]
    return exception
