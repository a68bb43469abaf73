"""The exit codes of every verb, in one place."""

OK = 0
BUG = 1
USAGE = 2
ENVIRONMENT = 4
CRASHES = 6
NO_FEASIBLE = 7
INTERRUPTED = 130

EXIT_CODES_HELP = (
    "Exit codes: 0 ok, 1 a bug of golfray, 2 wrong use, configuration or data, 4 environment or machine, "
    "6 too many crashes, 7 nothing feasible, 130 interrupted."
)
