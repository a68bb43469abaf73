"""Options that several verbs share, so that they mean the same everywhere."""

import typer

PRESET = typer.Option("parameter-golf", help="Named full configuration to start from.")
SCALE = typer.Option("auto", help="full, laptop, or auto: laptop where there is no GPU.")
SETS = typer.Option([], "--set", metavar="PATH=VALUE", help="Override one setting, such as optimizer.matrix_lr=0.02.")
