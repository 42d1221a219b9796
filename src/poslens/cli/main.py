"""`poslens`: one command, one small module each; nothing heavy is imported until it is needed."""

import importlib
import os
import sys

from poslens.errors import InputError

COMMANDS = {
    "reproduce": "train, ablate and judge every scheme on every task; write a report",
    "train": "train one scheme on one task into a run folder",
    "ablate": "measure what each head of trained runs is worth",
    "lengths": "try trained runs on longer sequences than those of their training",
    "probe": "find where position can be read in the residual stream",
    "decompose": "split attention logits into named terms of position and content",
    "theory": "record gradient seeds: what more position in a head would do to the loss",
    "check": "judge positional-encoding code: is it right, and what is it",
    "claims": "register predictions of your own before a run, and score them",
    "corrections": "judge the claims with one oddity of the study's code at a time",
    "mechanism": "whether attention goes where the task needs it, and what falls first",
    "interventions": "does the leading head stay when something is done to it?",
    "report": "rebuild the report of a folder from its result files",
    "collect": "keep the results of many runs as a few small files",
    "tune": "find the learning rate of every scheme and task over one grid",
    "data": "write sequences of a task as Parquet",
    "list": "show the schemes, encodings, tasks, profiles and claims there are",
}

HELP = f"""usage: poslens COMMAND [options]

A lens for positional information in Transformers: train, take apart and ablate attention to see
where position enters, which heads carry it, and whether one head carries it all.

commands:
{chr(10).join(f"  {name:<13}{what}" for name, what in COMMANDS.items())}

Start with   poslens reproduce --profile smoke --out runs/smoke   (under a minute), then
             poslens reproduce                                    (all schemes, 15 minutes).
Every command explains itself:  poslens COMMAND --help
Options mean the same everywhere: --out folder, --seed, --jobs, --device, --json.
Where a value can come from several places: option, then --config file (TOML), then --profile.
"""


def main(arguments: list[str] | None = None) -> None:
    """Run a command; bad input is one line on the error stream and exit code 2."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or arguments[0] in ("-h", "--help"):
        print(HELP, end="")
        return
    if arguments[0] == "--version":
        from importlib.metadata import version

        print(f"poslens {version('poslens')}")
        return
    name, rest = arguments[0], arguments[1:]
    try:
        if name not in COMMANDS:
            import difflib

            close = difflib.get_close_matches(name, COMMANDS, n=1) or COMMANDS
            raise InputError(f"unknown command {name!r}; did you mean: {', '.join(close)}?")
        importlib.import_module(f"poslens.cli.{name}").run(rest)
        sys.stdout.flush()
    except InputError as error:
        print(f"poslens: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:  # the reader of our output has left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        print(f"poslens: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("poslens: interrupted; the same command continues where it stopped", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
