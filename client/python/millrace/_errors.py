"""What a step or a call says when it fails."""

_NAMES = {1: "CANCELLED", 2: "UNKNOWN", 3: "INVALID_ARGUMENT", 4: "DEADLINE_EXCEEDED",
          5: "NOT_FOUND", 6: "ALREADY_EXISTS", 7: "PERMISSION_DENIED", 8: "RESOURCE_EXHAUSTED",
          9: "FAILED_PRECONDITION", 10: "ABORTED", 11: "OUT_OF_RANGE", 12: "UNIMPLEMENTED",
          13: "INTERNAL", 14: "UNAVAILABLE", 15: "DATA_LOSS", 16: "UNAUTHENTICATED"}


class Error(RuntimeError):
    """A status that is not OK. `code` is its name ("OUT_OF_RANGE"), `message` its text."""

    def __init__(self, code, message):
        self.code = _NAMES.get(code, str(code)) if isinstance(code, int) else code
        self.message = message
        super().__init__(f"{self.code}: {message}")

    def __reduce__(self):
        return Error, (self.code, self.message)
