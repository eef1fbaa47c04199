"""Fresh Python processes at the cost of a fork instead of an import of torch.

A server process has imported torch and the modules that torch.compile needs, but not torch_pjrt, and forks for every
job: a source text, run with its own arguments and environment. Each job thus loads the backend, reads the environment
and starts the client itself. Tests of imports, or of the interpreter's end, need a process that is really new.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

SERVER = """\
import json, os, sys, types, warnings
import torch
import torch._dynamo, torch._functorch.aot_autograd, torch._inductor.decomposition

torch.empty(2, device="meta").exp()  # the first Meta kernel imports 800 modules

def run(job):
    os.environ.clear()
    os.environ.update(job["environment"])
    for number, name in enumerate((os.devnull, job["out"], job["err"])):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT, 0o600), number)
    sys.argv = [job["name"], *job["arguments"]]
    if job["warnings"]:
        warnings.simplefilter(job["warnings"])
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if os.path.exists(job["name"]):
        main.__file__ = job["name"]
        sys.path[0] = os.path.dirname(job["name"])
    sys.path[1:1] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    if job["loads"]:
        torch._import_device_backends()
    exec(compile(job["source"], job["name"], "exec"), main.__dict__)

def child(job):
    try:
        run(job)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if code and code is not end.code:
            print(end.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # the server's own exit handlers are not the job's

for line in sys.stdin:
    children = []
    for job in json.loads(line):
        children.append(os.fork())
        if children[-1] == 0:
            child(job)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    print(json.dumps(codes), flush=True)
"""


Ended = subprocess.CompletedProcess[str]


@dataclass
class Job:
    source: str
    arguments: tuple[object, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)  # in addition to this process's
    name: str = ""  # the file of the source, if it has one
    warnings: str = ""  # the value of python -W
    loads: bool = False  # `import torch` alone has loaded the backend, as in a new process


@dataclass
class Result:
    out: str
    err: str


class Server:
    def __init__(self, before: str = "") -> None:
        """`before` runs before torch is imported."""
        environment = os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
        command = [sys.executable, "-c", before + SERVER]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(timeout=60)

    def ends(self, *jobs: Job) -> list[Ended]:
        """Runs the jobs concurrently, waits for all, and returns how each ended."""
        assert self.process.stdin
        assert self.process.stdout
        with tempfile.TemporaryDirectory() as folder:
            files = [(Path(folder, f"{i}.out"), Path(folder, f"{i}.err")) for i in range(len(jobs))]
            requests = [
                {
                    "name": job.name or f"job{i}.py",
                    "source": job.source,
                    "arguments": [str(argument) for argument in job.arguments],
                    "environment": {k: v for k, v in os.environ.items() if k != "TORCH_PJRT_CACHE"} | job.environment,
                    "warnings": job.warnings,
                    "loads": job.loads,
                    "out": str(out),
                    "err": str(err),
                }
                for i, (job, (out, err)) in enumerate(zip(jobs, files, strict=True))
            ]
            self.process.stdin.write(json.dumps(requests) + "\n")
            self.process.stdin.flush()
            codes = json.loads(self.process.stdout.readline())
            return [
                subprocess.CompletedProcess(request["name"], code, out.read_text(), err.read_text())
                for request, code, (out, err) in zip(requests, codes, files, strict=True)
            ]

    def end(
        self, program: str, name: str = "", warnings: str = "", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs a program as a user would start it: `import torch` has loaded the backend. Returns how it ended."""
        environment = {"TORCH_PJRT_CACHE": os.environ.get("TORCH_PJRT_CACHE", "1")} | environment
        source = textwrap.dedent(program)
        if name:
            Path(name).write_text(source)
        [ended] = self.ends(Job(source, (), environment, name or "<string>", warnings, loads=True))
        return ended

    def run(self, *jobs: Job) -> list[Result]:
        """Runs the jobs concurrently and waits for all. A job that fails raises AssertionError with its output."""
        ends = self.ends(*jobs)
        assert all(end.returncode == 0 for end in ends), [end.stderr for end in ends]
        return [Result(end.stdout, end.stderr) for end in ends]
