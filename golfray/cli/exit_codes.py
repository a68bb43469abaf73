"""The exit codes of every verb, in one place."""

OK = 0
BUG = 1
USAGE = 2
BUDGET = 3
ENVIRONMENT = 4
LOCKED = 5
CRASHES = 6
NO_FEASIBLE = 7
INTERRUPTED = 130
TERMINATED = 143

EXIT_CODES_HELP = (
    "Exit codes: 0 ok, 1 a bug of golfray, 2 wrong use, configuration or data, 3 budget, 4 environment or cluster, "
    "5 locked, 6 too many crashes, 7 no feasible trial, 130 interrupted, 143 terminated."
)
