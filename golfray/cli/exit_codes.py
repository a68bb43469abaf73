"""The exit codes of every verb, in one place; docs/exit_codes.md says when each is given."""

OK = 0
BUG = 1
USAGE = 2
BUDGET = 3
ENVIRONMENT = 4
LOCKED = 5
CRASHES = 6
NO_FEASIBLE = 7
# What a shell says of a program that SIGHUP ended: its terminal was closed.
HUNG_UP = 129
INTERRUPTED = 130
# What a shell says of a program that SIGPIPE ended: nobody reads its output any more.
OUTPUT_CLOSED = 141
TERMINATED = 143

MEANINGS = {
    OK: "ok",
    BUG: "a bug of golfray",
    USAGE: "wrong use, configuration or data",
    BUDGET: "budget",
    ENVIRONMENT: "environment or cluster",
    LOCKED: "locked",
    CRASHES: "too many crashes",
    NO_FEASIBLE: "no feasible trial",
    HUNG_UP: "hung up",
    INTERRUPTED: "interrupted",
    OUTPUT_CLOSED: "output closed",
    TERMINATED: "terminated",
}

EXIT_CODES_HELP = "Exit codes: " + ", ".join(f"{code} {meaning}" for code, meaning in MEANINGS.items()) + "."
