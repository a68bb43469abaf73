"""Source text without what only a reader of the repository needs, proved equal to the rest by its syntax tree.

The text is cut, not printed anew from the tree: so the result keeps its lines, and its length is the same whichever
Python packs it.
"""

import ast
import io
import itertools
import re
import tokenize

from golfray.ship.modules import Module, PackError, is_main_block

SOURCE_INDENT = 4
SPACED_EQUALS = re.compile(r" = ")
Function = ast.FunctionDef | ast.AsyncFunctionDef


def strip_module(module: Module) -> str:
    """A module's code without docstrings, comments, top-level imports, main block, and annotations nobody reads.

    Indentation is one space a level; one blank line stands before each top-level class and function. Raises
    :class:`PackError` if the text that is left does not parse to what the module's tree says should be left.
    """
    text = Cutter(module).run()
    expected = Remainder().visit(ast.parse(module.source))
    try:
        same = ast.dump(ast.parse(text)) == ast.dump(expected)
    except SyntaxError as error:
        raise PackError(
            f"{module.path}: cannot be stripped ({error.msg}: {error.text}); run `ruff format` on it"
        ) from error
    if not same:
        raise PackError(f"{module.path}: stripping would change what it does; run `ruff format` on it")
    return text


def is_bare_string(node: ast.stmt) -> bool:
    """Whether a statement is only a string: a docstring, or one used as a comment."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def is_dropped(node: ast.stmt) -> bool:
    """Whether a top-level statement is left out: imports are merged by the packer, the main block is replaced."""
    return isinstance(node, ast.Import | ast.ImportFrom) or is_main_block(node)


def annotated_arguments(node: Function) -> list[ast.arg]:
    """Arguments whose annotation can go. A decorator may read annotations, so those of decorated functions stay."""
    if node.decorator_list:
        return []
    arguments = node.args
    every = [*arguments.posonlyargs, *arguments.args, arguments.vararg, *arguments.kwonlyargs, arguments.kwarg]
    return [argument for argument in every if argument is not None and argument.annotation is not None]


def local_annotations(tree: ast.AST) -> set[ast.AnnAssign]:
    """Annotated assignments directly in functions, where Python never keeps the annotation of a name."""
    found: set[ast.AnnAssign] = set()

    def walk(node: ast.AST, in_function: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if in_function and isinstance(child, ast.AnnAssign) and child.value is not None:
                found.add(child)
            inside = isinstance(child, Function) or (in_function and not isinstance(child, ast.ClassDef))
            walk(child, inside)

    walk(tree, False)
    return found


class Remainder(ast.NodeTransformer):
    """The tree that must be left: what :class:`Cutter` does to the text, said of the tree."""

    def visit_Module(self, node: ast.Module) -> ast.Module:
        self.locals = local_annotations(node)
        node.body = [statement for statement in node.body if not is_dropped(statement)]
        self.generic_visit(node)
        node.body = [statement for statement in node.body if not is_bare_string(statement)]
        return node

    def visit_block(self, node: ast.AST) -> ast.AST:
        self.generic_visit(node)
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list) and block:
                setattr(node, field, [part for part in block if not is_bare_string(part)] or [ast.Pass()])
        return node

    visit_ClassDef = visit_If = visit_For = visit_AsyncFor = visit_While = visit_block
    visit_With = visit_AsyncWith = visit_Try = visit_ExceptHandler = visit_match_case = visit_block

    def visit_function(self, node: Function) -> ast.AST:
        for argument in annotated_arguments(node):
            argument.annotation = None
        if not node.decorator_list:
            node.returns = None
        return self.visit_block(node)

    visit_FunctionDef = visit_AsyncFunctionDef = visit_function

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        self.generic_visit(node)
        if node not in self.locals or node.value is None:
            return node
        return ast.Assign(targets=[node.target], value=node.value)


class Cutter:
    """Collects what to cut from one module's text as (start, end, replacement) in characters, then cuts it all."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.text = module.source if module.source.endswith("\n") else module.source + "\n"
        self.lines = self.text.splitlines(keepends=True)
        self.starts = [0, *itertools.accumulate(len(line) for line in self.lines)]
        self.cuts: list[tuple[int, int, str]] = []

    def run(self) -> str:
        """The text that is left."""
        self.cut_layout()
        self.cut_statements(self.module.tree)
        self.cut_annotations()
        kept, position = [], 0
        # Of two cuts that overlap the one that starts first, and there the longer, holds the other.
        for start, end, replacement in sorted(self.cuts, key=lambda cut: (cut[0], -cut[1])):
            if start >= position:
                kept += [self.text[position:start], replacement]
                position = end
        return "".join([*kept, self.text[position:]])

    def offset(self, line: int, utf8_column: int) -> int:
        """Character offset of a position as syntax trees give it: line from 1, column in UTF-8 bytes."""
        return self.starts[line - 1] + len(self.lines[line - 1].encode()[:utf8_column].decode())

    def end_of(self, node: ast.AST) -> int:
        """Character offset just after a node."""
        return self.offset(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]

    def cut_layout(self) -> None:
        """Comments, blank lines, three of four spaces of indentation; never inside a string."""
        inside_string: set[int] = set()
        open_strings: list[int] = []
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            kind = tokenize.tok_name[token.type]
            if kind == "COMMENT":
                row, column = token.start
                code = self.lines[row - 1][:column].rstrip()
                start, end = self.starts[row - 1] + len(code), self.starts[row - 1] + token.end[1]
                self.cuts.append((start, end, "") if code else (self.starts[row - 1], self.starts[row], ""))
            elif kind == "STRING":
                inside_string.update(range(token.start[0] + 1, token.end[0] + 1))
            elif kind == "FSTRING_START":
                open_strings.append(token.start[0])
            elif kind == "FSTRING_END":
                inside_string.update(range(open_strings.pop() + 1, token.end[0] + 1))
        for row, line in enumerate(self.lines, start=1):
            indent = len(line) - len(line.lstrip())
            if row in inside_string:
                continue
            if not line.strip():
                self.cuts.append((self.starts[row - 1], self.starts[row], ""))
            elif indent:
                start = self.starts[row - 1]
                self.cuts.append((start, start + indent, " " * (indent // SOURCE_INDENT)))

    def cut_statements(self, tree: ast.Module) -> None:
        """Imports, main block and bare strings; a blank line before each top-level definition."""
        for statement in tree.body:
            if is_dropped(statement):
                self.cut_lines(statement, "")
            elif isinstance(statement, Function | ast.ClassDef):
                first = min([statement.lineno, *(decorator.lineno for decorator in statement.decorator_list)])
                self.cuts.append((self.starts[first - 1], self.starts[first - 1], "\n"))
        for node in ast.walk(tree):
            for field in ("body", "orelse", "finalbody"):
                block = getattr(node, field, None)
                if isinstance(block, list):
                    dropped = [part for part in block if is_bare_string(part)]
                    needs_pass = len(dropped) == len(block) and node is not tree
                    for number, part in enumerate(dropped):
                        indent = " " * (part.col_offset // SOURCE_INDENT)
                        self.cut_lines(part, f"{indent}pass\n" if needs_pass and number == 0 else "")

    def cut_lines(self, node: ast.stmt, replacement: str) -> None:
        """Cut the lines of a statement, which must have them for itself."""
        first, last = node.lineno, node.end_lineno or node.lineno
        before = self.text[self.starts[first - 1] : self.offset(first, node.col_offset)]
        after = self.text[self.end_of(node) : self.starts[last]].strip()
        if before.strip() or (after and not after.startswith("#")):
            raise PackError(f"{self.module.path}:{first}: a statement that is stripped must have its line for itself")
        self.cuts.append((self.starts[first - 1], self.starts[last], replacement))

    def cut_annotations(self) -> None:
        """Annotations of arguments, results and local names."""
        for node in ast.walk(self.module.tree):
            if isinstance(node, Function) and not node.decorator_list:
                for argument in annotated_arguments(node):
                    assert argument.annotation is not None
                    start = self.offset(argument.lineno, argument.col_offset) + len(argument.arg)
                    end = self.end_of(argument.annotation)
                    default = SPACED_EQUALS.match(self.text, end)
                    self.cuts.append((start, default.end(), "=") if default else (start, end, ""))
                if node.returns is not None:
                    arrow = self.text.rindex("->", 0, self.offset(node.returns.lineno, node.returns.col_offset))
                    start = len(self.text[:arrow].rstrip())
                    self.cuts.append((start, self.end_of(node.returns), ""))
        for assignment in local_annotations(self.module.tree):
            self.cuts.append((self.end_of(assignment.target), self.end_of(assignment.annotation), ""))
