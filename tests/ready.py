"""A process that has imported torch and forks for every script it is told to run: importing takes longer than most.

python -W error tests/ready.py      # each line on stdin: {"script": path, "out": path, "err": path}
                                    # each line on stdout: the exit code
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import sys
import traceback


def run(script: str, out: str, err: str) -> None:
    """In the child: as if Python had been started with the script."""
    for path, descriptor in ((os.devnull, 0), (out, 1), (err, 2)):
        opened = os.open(path, os.O_RDWR | os.O_CREAT)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.argv, sys.path[0] = [script], os.path.dirname(script)
    code = 0
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # what the parent would do at its end is not the script's


def main() -> None:
    importlib.import_module("feedline.torch")  # not above: pytest looks for doctests in this file, too
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            run(**json.loads(line))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
