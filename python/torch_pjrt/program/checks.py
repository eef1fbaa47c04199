"""``if (x < 0).any(): raise ValueError(...)`` and ``assert`` on a tensor that is traced.

A program can't branch on a value that only a run has. If one side of a branch only raises, the branch is a check: the
trace continues with the other side, and the check becomes a runtime assertion of the program. The bytecode shows which
branches are checks. The error is the statement's, with ``...`` in place of values that only a run has.
"""

from __future__ import annotations

import ast
import dis
import functools
import linecache
import os
import sys
from types import FrameType
from typing import Any, NamedTuple

import torch

from torch_pjrt import _C

# Errors that a program's assertion can raise (src/ops/rule/emit.h); others become a RuntimeError that names them.
RAISED = (IndexError, ValueError, TypeError, NotImplementedError, torch.linalg.LinAlgError)
BETWEEN = (  # folders of the frames between a branch and the read of its condition
    os.path.dirname(os.path.dirname(__file__)) + os.sep,
    torch.overrides.__file__,
)
MOST_INSTRUCTIONS = 200  # in a statement that raises


class Check(NamedTuple):
    goes_on: bool  # the condition's value if nothing is raised
    statement: dis.Instruction  # the one that raises


def raising(code: dis.Bytecode, instructions: list[dis.Instruction], offset: int) -> dis.Instruction | None:
    """Returns the ``raise`` to which the code at this offset leads, if it has no other lasting effect."""
    for instruction in [each for each in instructions if each.offset >= offset][:MOST_INSTRUCTIONS]:
        name = instruction.opname
        if name == "RAISE_VARARGS":
            return None if is_caught(code, instructions, instruction.offset) else instruction
        stores = name.startswith("STORE") and not name.startswith("STORE_FAST")
        if (
            stores
            or "JUMP" in name
            or name.startswith(("DELETE", "POP_TOP", "RETURN", "YIELD", "SEND", "FOR_ITER", "RERAISE"))
        ):
            return None
    return None


def is_caught(code: dis.Bytecode, instructions: list[dis.Instruction], offset: int) -> bool:
    """Whether the function itself handles an exception raised there. Leaving a ``with`` block is not handling."""
    for entry in code.exception_entries:  # type: ignore[attr-defined]
        if entry.start <= offset < entry.end:
            handler = [each.opname for each in instructions if each.offset >= entry.target][:2]
            if handler != ["PUSH_EXC_INFO", "WITH_EXCEPT_START"]:
                return True
    return False


def is_call_of(frame: FrameType, instruction: dis.Instruction, function: object) -> bool:
    """Whether the instruction calls this function, by a name or attributes: ``any(...)`` may call it several times."""
    calls = [each for each in parts_of(frame, instruction, ast.Call) if isinstance(each, ast.Call)]
    called = min(calls, key=lambda each: len(ast.unparse(each)), default=None)
    if called is None or not all(isinstance(x, (ast.Name, ast.Attribute, ast.Load)) for x in ast.walk(called.func)):
        return False
    try:
        found = evaluated(called.func, frame)
    except Exception:  # a variable that was deleted since
        return False
    return function in (found, getattr(found, "__code__", None))


def check_of(frame: FrameType, called: object = bool) -> tuple[FrameType, Check] | None:
    """Returns the branch at which the frame is, if it is a check, and the frame whose branch that is.

    The condition may be ``bool(x)``, or the call of a function that ends with ``return bool(x)``.
    """
    code = dis.Bytecode(frame.f_code)
    instructions = list(code)
    at = sum(each.offset <= frame.f_lasti for each in instructions) - 1  # Python 3.11 is past a call's own offset
    if instructions[at].opname in ("PRECALL", "CALL"):
        if not is_call_of(frame, instructions[at], called):
            return None
        at += 1 + (instructions[at].opname == "PRECALL")  # Python 3.11
        if instructions[at].opname == "RETURN_VALUE" and frame.f_back is not None:
            return check_of(frame.f_back, frame.f_code)
    at += instructions[at].opname in ("TO_BOOL", "COMPARE_OP")  # since Python 3.13 they make the bool
    branch, after = instructions[at], instructions[min(at + 1, len(instructions) - 1)]
    jumps_if_true = branch.opname.endswith("IF_TRUE")
    if "POP_JUMP" not in branch.opname or not (jumps_if_true or branch.opname.endswith("IF_FALSE")):
        return None
    jumped, passed = (raising(code, instructions, offset) for offset in (branch.argval, after.offset))
    if jumped is not None and passed is None:
        return frame, Check(not jumps_if_true, jumped)
    return (frame, Check(jumps_if_true, passed)) if passed is not None and jumped is None else None


@functools.lru_cache(maxsize=8)
def parsed(text: str) -> list[ast.Raise | ast.Assert | ast.Call]:
    try:
        return [node for node in ast.walk(ast.parse(text)) if isinstance(node, (ast.Raise, ast.Assert, ast.Call))]
    except SyntaxError:
        return []


def parts_of(frame: FrameType, instruction: dis.Instruction, *kinds: type[ast.AST]) -> list[ast.AST]:
    """Returns the nodes of these kinds around an instruction, if its source is available.

    In Python 3.13 the instructions of ``assert`` have the condition's place alone.
    """
    place = instruction.positions
    if place is None or None in place:
        return []
    first, last, begin, end = (int(n) for n in place if n is not None)
    return [
        node
        for node in parsed("".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals)))
        if isinstance(node, kinds)
        and (node.lineno, node.col_offset) <= (first, begin)
        and (last, end) <= (node.end_lineno or 0, node.end_col_offset or 0)
    ]


def evaluated(expression: ast.expr, frame: FrameType) -> Any:
    code = compile(ast.fix_missing_locations(ast.Expression(expression)), "<check>", "eval")
    return eval(code, {"AssertionError": AssertionError, **frame.f_globals}, frame.f_locals)


def words_of(expression: ast.expr, frame: FrameType) -> str:
    """Returns the text of a message, with ``...`` in place of values that only a run has."""
    if isinstance(expression, ast.JoinedStr):
        parts = expression.values
        return "".join(str(x.value) if isinstance(x, ast.Constant) else words_of(x, frame) for x in parts)
    if isinstance(expression, ast.FormattedValue):
        expression = ast.JoinedStr([expression])
    try:
        return str(evaluated(expression, frame))
    except Exception:  # it reads a value, or a variable that the raising branch sets
        return "..."


def error_of(frame: FrameType, instruction: dis.Instruction) -> tuple[type[BaseException], str]:
    """Returns the type and the text of the error that the statement raises in this frame."""
    statement = next(iter(parts_of(frame, instruction, ast.Raise, ast.Assert)), None)
    made: ast.expr | None = statement.exc if isinstance(statement, ast.Raise) else None
    if isinstance(statement, ast.Assert):
        made = ast.Call(ast.Name("AssertionError", ast.Load()), [statement.msg] if statement.msg else [], [])
    if made is None:
        return RuntimeError, f"the check at {frame.f_code.co_filename}:{frame.f_lineno} failed"
    try:
        error = evaluated(made, frame)
        return (error, "") if isinstance(error, type) else (type(error), str(error))
    except Exception:
        if not isinstance(made, ast.Call) or not isinstance(kind := evaluated(made.func, frame), type):
            return RuntimeError, ast.unparse(made)
        return kind, " ".join(words_of(argument, frame) for argument in made.args)


def assumed(condition: torch.Tensor) -> bool | None:
    """Returns the condition's value with which tracing continues if its branch is a check, and adds the assertion;
    returns None for other branches."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(BETWEEN):
        frame = frame.f_back
    if frame is None or (found := check_of(frame)) is None:
        return None
    frame, check = found
    error, message = error_of(frame, check.statement)
    raised = next((each for each in RAISED if issubclass(error, each)), RuntimeError)
    message = message or "a check failed"
    if error is not raised:
        message = f"{error.__name__}: {message}"
    _C.set_location(frame.f_code.co_filename, frame.f_lineno)
    try:
        violations = condition == 0 if check.goes_on else condition != 0
        message = message.replace("{}", "{ }").replace("{index}", "{ index }")  # escapes the core's placeholders
        _C.assert_zero(violations, raised.__name__.removeprefix("_"), message)
    finally:
        _C.set_location("", 0)
    return check.goes_on
