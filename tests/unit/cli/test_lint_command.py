"""``vllm-tuning lint``: what it prints where, and how it exits."""

from typer.testing import CliRunner

from vllm_tuning.cli.main import app

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: chat}
spec:
  containers:
    - name: vllm
      image: vllm/vllm-openai:v0.24.0
      args: [--model=/models/m, --max-num-seqs=16, --max-num-batched-tokens=8192]
"""


def lint(text: str):
    return CliRunner().invoke(app, ["lint", "-f", "-"], input=text)


def test_nothing_found_is_said_beside_the_output():
    done = lint(POD)
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "no findings\n")


def test_an_error_is_told_with_its_line_and_exits_with_1():
    done = lint(POD.replace("--max-num-seqs=16", "--max-num-seqs=lots"))
    assert done.exit_code == 1
    assert "-:8: error: " in done.stdout
    assert "instead: " in done.stdout
