"""Fresh Python processes that cost a fork instead of an import of torch.

A server process has imported torch, but not torch_pjrt, and forks for every job: a source text, run with arguments and
an environment of its own. So each job loads the backend, reads the environment and starts the client itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

SERVER = """\
import json, os, sys, traceback
import torch

torch.empty(2, device="meta").exp()  # the first Meta kernel imports 800 modules

def child(job):
    os.environ.clear()
    os.environ.update(job["environment"])
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(job[name], os.O_WRONLY | os.O_CREAT, 0o600), number)
    sys.argv = [job["name"], *job["arguments"]]
    try:
        exec(compile(job["source"], job["name"], "exec"), {"__name__": "__main__"})
        code = 0
    except BaseException:
        traceback.print_exc()
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


@dataclass
class Job:
    source: str
    arguments: tuple[object, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)  # besides this process's


@dataclass
class Result:
    out: str
    err: str


class Server:
    def __init__(self) -> None:
        environment = os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(timeout=60)

    def run(self, *jobs: Job) -> list[Result]:
        """Runs the jobs at once, and waits for all. A job that fails is an AssertionError with what it wrote."""
        assert self.process.stdin
        assert self.process.stdout
        with tempfile.TemporaryDirectory() as folder:
            files = [(Path(folder, f"{i}.out"), Path(folder, f"{i}.err")) for i in range(len(jobs))]
            requests = [
                {
                    "name": f"job{i}.py",
                    "source": job.source,
                    "arguments": [str(argument) for argument in job.arguments],
                    "environment": {k: v for k, v in os.environ.items() if k != "TORCH_PJRT_CACHE"} | job.environment,
                    "out": str(out),
                    "err": str(err),
                }
                for i, (job, (out, err)) in enumerate(zip(jobs, files, strict=True))
            ]
            self.process.stdin.write(json.dumps(requests) + "\n")
            self.process.stdin.flush()
            codes = json.loads(self.process.stdout.readline())
            results = [Result(out.read_text(), err.read_text()) for out, err in files]
        assert codes == [0] * len(jobs), [result.err for result in results]
        return results
