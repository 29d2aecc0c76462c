"""The editor's interface: containers, patches, argv of processes, refusals."""

from __future__ import annotations

import copy
import shlex

import jsonpatch
import pytest

from vllm_tuning.engine.args import Edit, Refusal, edit_args, edit_argv, read_args

ARGS = {"name": "vllm", "command": ["vllm", "serve"], "args": ["m", "--max-num-seqs=64"]}
SHELL = {"name": "vllm", "command": ["sh", "-c", "exec vllm serve m \\\n  --max-num-seqs 64\n"]}
ENV = {
    "name": "vllm",
    "args": ["--model=m", "--max-num-seqs=$(N)"],
    "env": [{"name": "X", "value": "1"}, {"name": "N", "value": "64"}],
}


@pytest.mark.parametrize("container", [ARGS, SHELL, ENV], ids=["args", "shell", "env"])
@pytest.mark.parametrize(
    "changes",
    [
        {"max_num_seqs": "96"},
        {"max_num_seqs": None},
        {"max_num_batched_tokens": "4096", "enable_chunked_prefill": "false"},
        {"max_num_seqs": None, "max_num_batched_tokens": "4096", "served_model_name": ["a", "b"]},
    ],
)
def test_json_patch_makes_the_same_container(container, changes):
    pod = {"spec": {"containers": [{"name": "side"}, copy.deepcopy(container)]}}
    edit = edit_args(container, changes)
    assert isinstance(edit, Edit)
    patch = edit.json_patch("/spec/containers/1")
    assert jsonpatch.apply_patch(pod, patch)["spec"]["containers"][1] == edit.container


def test_json_patch_fails_whole_if_someone_else_was_quicker():
    raced = copy.deepcopy(ARGS) | {"args": ["m", "--max-num-seqs=65"]}
    edit = edit_args(ARGS, {"max_num_seqs": "96"})
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        jsonpatch.apply_patch(raced, edit.json_patch())
    renamed = copy.deepcopy(ARGS) | {"name": "other"}
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        jsonpatch.apply_patch(renamed, edit.json_patch())


def test_the_given_container_is_not_changed():
    before = copy.deepcopy(ARGS)
    edit_args(ARGS, {"max_num_seqs": "96", "port": "1"})
    assert before == ARGS


def test_the_diff_shows_what_changes():
    diff = edit_args(SHELL, {"max_num_seqs": "96"}).diff
    assert "-command:   --max-num-seqs 64" in diff
    assert "+command:   --max-num-seqs 96" in diff
    assert edit_args(SHELL, {"max_num_seqs": "64"}).diff == ""


@pytest.mark.parametrize(
    ("args", "changes", "edited"),
    [
        (
            ["--x_y=1", "--max_num_seqs=8"],
            {"port": "81"},
            ["--x_y=1", "--max_num_seqs=8", "--port=81"],
        ),
        (
            ["--a-b", "1", "--c-d", "2"],
            {"max_num_seqs": "8"},
            ["--a-b", "1", "--c-d", "2", "--max-num-seqs", "8"],
        ),
        (["--max_num_seqs", "8", "--max_num_seqs", "9"], {"max_num_seqs": None}, []),
        (
            ["--no_enable_chunked_prefill"],
            {"enable_chunked_prefill": "true"},
            ["--enable_chunked_prefill"],
        ),
        (
            ["--enable-chunked-prefill", "False"],
            {"enable_chunked_prefill": "true"},
            ["--enable-chunked-prefill"],
        ),
        (["--trust-remote-code"], {"trust_remote_code": "false"}, ["--no-trust-remote-code"]),
        (["--headless", "--port", "1"], {"headless": "false"}, ["--port", "1"]),
        (["--port", "1"], {"headless": "false"}, ["--port", "1"]),
        (["--served-model-name", "a"], {"served_model_name": ["b"]}, ["--served-model-name", "b"]),
        (
            ["--served-model-name", "a", "--port", "1"],
            {"served_model_name": ["a", "b"]},
            ["--port", "1", "--served-model-name", "a", "b"],
        ),
        (["--max-model-len=8k"], {"max_model_len": "8000"}, ["--max-model-len=8k"]),
        (["--max-model-len=8k"], {"max_model_len": "-1"}, ["--max-model-len=-1"]),
        (["--max-model-len="], {"max_model_len": "1"}, ["--max-model-len=1"]),
        (["--frob", "1", "--port=2"], {"frob": None}, ["--port=2"]),
    ],
)
def test_edits_of_lists(args, changes, edited):
    edit = edit_args(
        {"command": ["vllm", "serve"], "args": ["m", *args]}, changes, version="0.20.2"
    )
    assert edit.container["args"] == ["m", *edited]


@pytest.mark.parametrize(
    ("script", "edited"),
    [
        ('vllm serve m --max-num-seqs="64" # c', 'vllm serve m --max-num-seqs="96" # c'),
        ("vllm serve m '--max-num-seqs=64'", "vllm serve m '--max-num-seqs=96'"),
        ("vllm serve m --max-num-seqs 6\\4", "vllm serve m --max-num-seqs 96"),
        ("vllm serve m --max-num-seqs '6'\"4\"", "vllm serve m --max-num-seqs 96"),
        ("vllm serve m '--max_num_seqs=6'\"4\" # c", "vllm serve m --max_num_seqs=96 # c"),
        ("vllm serve m \"--max-num-seqs=\\\n6\"''$'4'; x", "vllm serve m --max-num-seqs=96; x"),
        ("vllm serve m --max-num-seqs $'64'", "vllm serve m --max-num-seqs $'96'"),
        ("N=64; vllm serve m --max-num-seqs $N", "N=96; vllm serve m --max-num-seqs $N"),
        ("N='64'; vllm serve m --max-num-seqs=$N", "N='96'; vllm serve m --max-num-seqs=$N"),
        (
            "N=64; echo $N; vllm serve m --max-num-seqs $N",
            "N=64; echo $N; vllm serve m --max-num-seqs 96",
        ),
        ("vllm serve m --max-num-seqs ${N:-64}", "vllm serve m --max-num-seqs ${N:-96}"),
        ("vllm serve m > log 2>&1", "vllm serve m --max-num-seqs 96 > log 2>&1"),
        (
            "vllm serve \\\n    m \\\n    --port 1\n",
            "vllm serve \\\n    m \\\n    --port 1 \\\n    --max-num-seqs 96\n",
        ),
        ("x && vllm serve m --max-num-seqs 64 && y", "x && vllm serve m --max-num-seqs 96 && y"),
    ],
)
def test_edits_of_scripts(script, edited):
    edit = edit_args({"command": ["bash", "-c", script]}, {"max_num_seqs": "96"})
    assert edit.container["command"][2] == edited


@pytest.mark.parametrize("name", ["a", "a b", "it's", '"', "$(id)", "$$", ""])
def test_a_word_in_pieces_is_quoted_afresh(name):
    # As shlex.quote writes an apostrophe: the value shares the first piece with its flag.
    before, after = "vllm serve m --port 1  ", " --max-num-seqs=1 # '\n"
    word = shlex.quote("--served-model-name=it's")
    container = {"command": ["sh", "-c", before + word + after]}
    edit = edit_args(container, {"served_model_name": name})
    script = edit.container["command"][2].replace("$$", "$")
    assert script == before + shlex.quote(f"--served-model-name={name}") + after
    assert edit_args(edit.container, {"served_model_name": name}).operations == ()


@pytest.mark.parametrize(
    "word",
    ["'--port=1'$E\"2\"", "'--port=1'$(E)\"2\"", "'--port=1'\"$N\"", "'--port=1'${D:-3}\"2\""],
    ids=["empty", "empty-by-kubelet", "reference", "default"],
)
def test_a_word_with_a_reference_is_not_quoted_afresh(word):
    container = {
        "command": ["sh", "-c", f"vllm serve m {word}"],
        "env": [{"name": "E", "value": ""}, {"name": "N", "value": "2"}],
    }
    edit = edit_args(container, {"port": "8"})
    assert isinstance(edit, Refusal)
    assert edit.reason == "SplitValue"


@pytest.mark.parametrize(
    "line",
    [
        "--port '6'\\4",
        "--port 6\\\n4",
        "--port '6'\\$",
        "> log '--port=6'\\4",
        "--port 64\\\n 2>&1",
        "--port 64 0<&-",
    ],
)
def test_a_word_that_the_grammar_cuts_is_not_misread(line):
    # To a shell the pieces are one word; 2 and 0 are descriptors.
    edit = edit_args({"command": ["sh", "-c", f"vllm serve m {line}"]}, {"max_num_seqs": "8"})
    assert isinstance(edit, Refusal)
    assert edit.reason == "ShellSyntax"


@pytest.mark.parametrize(
    "line",
    ["--port=64>log", "--port 64 2>&1>log", "2>log>&2 --port 6\\4", "--port 64\\\n >log|tee x"],
)
def test_redirections_close_to_words_are_read(line):
    flags = read_args({"command": ["sh", "-c", f"vllm serve m {line}"]}).flags
    assert {name: flag.value for name, flag in flags.items()} == {"port": "64"}


def test_text_for_the_kubelet_is_escaped():
    edit = edit_args(ARGS, {"served_model_name": "$(id)"})
    assert edit.container["args"][-1] == "$$(id)"
    assert read_args(edit.container).get("served_model_name").value == "$(id)"


@pytest.mark.parametrize(
    ("argv", "edited"),
    [
        (["vllm", "serve", "m", "--port=1"], ["vllm", "serve", "m", "--port=2"]),
        (
            ["/bin/sh", "-c", "exec vllm serve m --port $P"],
            ["/bin/sh", "-c", "exec vllm serve m --port 2"],
        ),
        (
            ["sh", "-c", 'vllm serve "$@"', "x", "m"],
            ["sh", "-c", 'vllm serve "$@"', "x", "m", "--port", "2"],
        ),
        (
            ["python3", "-m", "vllm.entrypoints.openai.api_server"],
            ["python3", "-m", "vllm.entrypoints.openai.api_server", "--port", "2"],
        ),
    ],
)
def test_argv_of_a_process(argv, edited):
    assert edit_argv(argv, {"port": "2"}) == edited


def test_argv_is_not_expanded_again():
    argv = ["vllm", "serve", "m", "--served-model-name", "$(HOME)", "$$"]
    assert edit_argv(argv, {"port": "1"}) == [*argv, "--port", "1"]


def test_the_environment_of_a_process_resolves_its_script():
    argv = ["sh", "-c", "vllm serve m --port 1 $EXTRA"]
    assert edit_argv(argv, {"port": "2"}).reason == "LaterUnknown"
    assert edit_argv(argv, {"port": "2"}, env={"EXTRA": "--max-num-seqs 8"})[2] == (
        "vllm serve m --port 2 $EXTRA"
    )


@pytest.mark.parametrize(
    ("container", "changes", "reason"),
    [
        (ARGS, {"frobnicate": "1"}, "UnknownFlag"),
        (ARGS, {"max_num_seqs": "many"}, "BadValue"),
        (ARGS, {"enable_chunked_prefill": "yes"}, "BadValue"),
        ({"args": ["m", "--max-num-seqs"]}, {"max_num_seqs": "8"}, "MissingValue"),
        (
            {"args": ["m", "--compilation-config.mode", "3"]},
            {"compilation_config": "{}"},
            "DottedJSON",
        ),
        ({"command": ["ray", "start", "--block"]}, {"max_num_seqs": "8"}, "RayManaged"),
        ({"command": ["run.sh"]}, {"max_num_seqs": "8"}, "UnknownEntrypoint"),
        ({"image": "vllm/vllm-openai"}, {"max_num_seqs": "8"}, "NoArguments"),
        (
            {"command": ["bash", "-c", 'L=(a); vllm serve m --port 1 "${L[@]}"']},
            {"port": "8"},
            "LaterUnknown",
        ),
        (
            {"command": ["bash", "-c", 'L=(a); vllm serve m "${L[@]}" --port 1']},
            {"port": "8", "max_num_seqs": "4"},
            None,
        ),
        ({"command": ["sh", "-c", "vllm serve tab\\\there"]}, {"port": "8"}, "ShellSyntax"),
        ({"command": ["sh", "-c", "vllm serve m --port $((1+1))"]}, {"port": "8"}, "ComputedValue"),
        (
            {
                "command": ["sh", "-c", 'vllm serve m "--port=1$E"'],
                "env": [{"name": "E", "value": " 2"}],
            },
            {"port": "8", "max_num_seqs": None},
            None,
        ),
        (
            {
                "command": ["sh", "-c", "vllm serve m $E; echo $E"],
                "env": [{"name": "E", "value": "--port 1"}],
            },
            {"port": "8"},
            "SharedVariable",
        ),
    ],
)
def test_refusals(container, changes, reason):
    edit = edit_args(container, changes, version="0.20.2")
    assert (edit.reason if isinstance(edit, Refusal) else None) == reason
